"""A worker with Python's standard library only.

It leases jobs by long polls, and sends heartbeats and answers. All requests are JSON by POST.

    python3 worker.py [URL [NAMESPACE [THREADS]]]
"""

import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
import urllib.parse
import uuid

GRACE = 10  # seconds for running jobs after SIGTERM; the rest are released


class Failure(Exception):
    """Handlers raise it to name the reason of a failure. Any other error has the reason "error"."""

    def __init__(self, reason, message, non_retryable=False):
        super().__init__(message)
        self.answer = {"failure": {"reason": reason, "message": message, "nonRetryable": non_retryable}}


class LeaseEnded(Exception):
    """The job was cancelled, the lease was lost, or the worker stops. Handlers must not catch it."""


class Refused(Exception):
    """The engine refused a request. Repeating it would not help."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")


class Lease:
    def __init__(self, message):
        self.token = message["leaseToken"]
        self.job = message.get("job") or {}
        self.interval = float(message["heartbeatInterval"].rstrip("s"))
        self.directive, self.cancel_reason = "DIRECTIVE_CONTINUE", ""
        self.beaten = time.monotonic()  # when the engine last extended it
        self.progress = None  # not sent yet

    def report(self, percent, summary=""):
        """Sets the progress, which the next heartbeat sends. Raises LeaseEnded if the job must stop."""
        self.progress = {"percent": min(max(0, percent), 100), "summary": summary}
        if self.directive != "DIRECTIVE_CONTINUE":
            raise LeaseEnded(self.cancel_reason)


class Worker:
    def __init__(self, url, namespace, handlers):
        self.url, self.namespace, self.handlers = urllib.parse.urlsplit(url), namespace, handlers
        self.id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.held, self.lock, self.stopping = {}, threading.Lock(), threading.Event()
        self.polls = set()  # the connections that wait for jobs
        self.refused = None  # why the engine refused a poll

    def post(self, method, request, timeout):
        """Sends a request once."""
        kind = http.client.HTTPSConnection if self.url.scheme == "https" else http.client.HTTPConnection
        connection = kind(self.url.hostname, self.url.port, timeout=timeout)
        try:
            connection.connect()
            if method == "Poll":
                self.polls.add(connection)
                if self.stopping.is_set():
                    raise LeaseEnded("the worker stops")
            path = f"{self.url.path.rstrip('/')}/progressor.v1.WorkerService/{method}"
            connection.request("POST", path, json.dumps(request).encode(), {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read()
        finally:
            self.polls.discard(connection)
            connection.close()
        if response.status in (408, 429, 502, 503, 504):
            raise ConnectionError(f"the engine is unavailable: HTTP status {response.status}")
        try:
            answer = json.loads(text)
        except ValueError:
            answer = {"code": "unknown", "message": repr(text[:200])}
        if response.status != 200:
            raise Refused(answer.get("code"), answer.get("message"))
        return answer

    def ask(self, method, request, timeout=90):
        """Sends a request until the engine has answered it. All requests of a worker may be repeated."""
        wait = 0.1
        while True:
            try:
                return self.post(method, request, timeout)
            except (OSError, http.client.HTTPException):
                pass  # there is no response
            if method != "Poll":
                time.sleep(wait)
            elif self.stopping.wait(wait):
                raise LeaseEnded("the worker stops")
            wait = min(2 * wait, 5)

    def work(self):
        """Runs one job after the other, in a thread."""
        while not self.stopping.is_set():
            try:
                polled = self.ask("Poll", {
                    "namespaces": [self.namespace], "workerId": self.id, "jobNames": list(self.handlers), "maxLeases": 1, "wait": "20s",
                })
            except LeaseEnded:
                return
            except Refused as error:  # the namespace is missing, or its processor is not pull
                self.refused = f"poll: {error}"
                self.stopping.set()
                return
            if polled.get("worker") == "WORKER_DIRECTIVE_STOP":  # progressor worker stop
                self.stopping.set()
            for message in polled.get("leases", []):
                lease = Lease(message)
                with self.lock:
                    self.held[lease.token] = lease
                if self.stopping.is_set():
                    return  # serve releases it
                try:
                    self.run(lease)
                finally:
                    with self.lock:
                        self.held.pop(lease.token, None)

    def run(self, lease):
        request = {"leaseToken": lease.token}
        name = lease.job["name"]
        try:
            result = self.handlers[name](lease, lease.job.get("args"))
            json.dumps(result, allow_nan=False)  # an error fails the job
            request["jobResult"] = {"result": result}
        except LeaseEnded as ended:
            request["cancelled"] = {"message": str(ended)}
        except Failure as failure:
            request["response"] = failure.answer
        except Exception as error:
            traceback.print_exc()
            request["response"] = {"failure": {"reason": "error", "message": repr(error)}}
        if lease.directive == "DIRECTIVE_LOST":
            return  # an answer would not count
        try:
            self.ask("Complete", request)
            print(f"{name} {lease.job['jobId']}: {'done' if 'jobResult' in request else request}", flush=True)
        except Refused as error:  # failed_precondition: the lease was lost
            print(f"{name} {lease.job['jobId']}: not answered: {error}", flush=True)

    def beat(self):
        """Sends heartbeats: one request for all leases that need one."""
        while True:
            with self.lock:
                held = list(self.held.values())
            due = [l for l in held if l.progress or time.monotonic() - l.beaten >= l.interval]
            if due:
                try:
                    self.beat_once(due)
                except Exception as error:  # the next heartbeat follows soon, with all current leases
                    print(f"heartbeat: {error!r}", flush=True)
            time.sleep(min([0.5] + [l.interval for l in held]))

    def beat_once(self, due):
        sent = [l.progress for l in due]
        beats = [{"leaseToken": l.token, "progress": p} if p else {"leaseToken": l.token} for l, p in zip(due, sent)]
        answer = self.post("Heartbeat", {"workerId": self.id, "beats": beats}, max(1, min(l.interval for l in due)))
        for lease, progress, d in zip(due, sent, answer["directives"]):
            lease.beaten = time.monotonic()
            if lease.progress is progress:
                lease.progress = None
            lease.cancel_reason = d.get("cancelReason", "lost")
            lease.directive = d["directive"]
            if "heartbeatInterval" in d:
                lease.interval = float(d["heartbeatInterval"].rstrip("s"))
        if answer.get("worker") == "WORKER_DIRECTIVE_STOP":
            self.stopping.set()

    def serve(self, threads):
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())
        signal.signal(signal.SIGINT, lambda *_: self.stopping.set())
        threading.Thread(target=self.beat, daemon=True).start()
        working = [threading.Thread(target=self.work, daemon=True) for _ in range(threads)]
        for thread in working:
            thread.start()
        print(f"worker {self.id} takes jobs named {', '.join(self.handlers)}", flush=True)
        self.stopping.wait()
        for connection in list(self.polls):  # otherwise the engine could still lease jobs to them
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except (OSError, AttributeError):
                pass  # the poll has just ended
        end = time.monotonic() + GRACE
        for thread in working:
            thread.join(max(0, end - time.monotonic()))
        with self.lock:
            left = list(self.held)
        if left:  # a release uses up no attempt
            try:
                self.post("Release", {"workerId": self.id, "leaseTokens": left}, timeout=5)
            except (OSError, http.client.HTTPException, Refused) as error:  # other workers get the jobs when the leases expire
                print(f"release: {error}", flush=True)
        if self.refused:
            sys.exit(self.refused)


# Replace these with your own jobs.


def count(lease, args):
    if not isinstance(args, dict) or not isinstance(args.get("text"), str):
        raise Failure("bad_args", "text must be a string", non_retryable=True)
    return {"words": len(args["text"].split())}


def crawl(lease, args):
    for page in range(args["pages"]):
        lease.report(100 * page / args["pages"], f"page {page}")
        time.sleep(0.05)
    return args["pages"]


if __name__ == "__main__":
    url = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
    Worker(url, sys.argv[2] if len(sys.argv) > 2 else "jobs", {"count": count, "crawl": crawl}).serve(int(sys.argv[3]) if len(sys.argv) > 3 else 4)
