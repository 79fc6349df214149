"""A worker in Python's standard library: it leases jobs by long polls, keeps them alive by heartbeats, and answers. All it speaks is JSON by POST.

    python3 worker.py [URL [NAMESPACE [THREADS]]]
"""

import json
import os
import signal
import socket
import sys
import threading
import time
import traceback
import urllib.error
import urllib.request
import uuid

GRACE = 10  # seconds for running jobs after SIGTERM; the rest are released


class Failure(Exception):
    """A handler raises it to name the reason of its failure; whatever else it raises has the reason "error"."""

    def __init__(self, reason, message, non_retryable=False):
        super().__init__(message)
        self.answer = {"failure": {"reason": reason, "message": message, "nonRetryable": non_retryable}}


class Over(Exception):
    """The lease is over: cancelled, or lost. A handler lets it pass."""


class Refused(Exception):
    """The engine refused a request: to ask again would not help."""

    def __init__(self, code, message):
        super().__init__(f"{code}: {message}")


class Lease:
    def __init__(self, message):
        self.token = message["leaseToken"]
        self.job = message.get("job") or {}
        self.interval = float(message["heartbeatInterval"].rstrip("s"))
        self.directive, self.cancel_reason = "DIRECTIVE_CONTINUE", ""
        self.progress = None

    def report(self, percent, summary=""):
        """Tells how far it is, with the next heartbeat. The place to stop, too: it raises Over where the job is to end."""
        self.progress = {"percent": percent, "summary": summary}
        if self.directive != "DIRECTIVE_CONTINUE":
            raise Over(self.cancel_reason)


class Worker:
    def __init__(self, url, namespace, handlers):
        self.url, self.namespace, self.handlers = url, namespace, handlers
        self.id = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self.held, self.lock, self.stopping = {}, threading.Lock(), threading.Event()
        self.refused = None  # why the engine gives it no jobs

    def ask(self, method, request, timeout=90):
        """One request. It is repeated until the engine has answered it; all that a worker asks may be asked twice."""
        body = json.dumps(request).encode()
        wait = 0.1
        while True:
            r = urllib.request.Request(f"{self.url}/progressor.v1.WorkerService/{method}", body, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(r, timeout=timeout) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                text = error.read()
                if error.code not in (408, 429, 502, 503, 504):
                    try:
                        refused = json.loads(text)
                    except ValueError:
                        refused = {"code": "unknown", "message": repr(text[:200])}
                    raise Refused(refused.get("code"), refused.get("message")) from error
            except OSError:
                pass  # the engine is away
            if self.stopping.wait(wait):
                raise Over("the worker stops")
            wait = min(2 * wait, 5)

    def work(self):
        """One thread: a job after the other."""
        while not self.stopping.is_set():
            try:
                polled = self.ask("Poll", {
                    "namespaces": [self.namespace], "workerId": self.id, "jobNames": list(self.handlers), "maxLeases": 1, "wait": "5s",
                })
            except Over:
                return
            except Refused as error:  # no such namespace, or one that no workers poll
                self.refused = f"poll: {error}"
                self.stopping.set()
                return
            if polled.get("worker") == "WORKER_DIRECTIVE_STOP":  # progressor worker stop
                self.stopping.set()
            for message in polled.get("leases", []):
                lease = Lease(message)
                with self.lock:
                    self.held[lease.token] = lease
                try:
                    self.run(lease)
                finally:
                    with self.lock:
                        self.held.pop(lease.token, None)

    def run(self, lease):
        request = {"leaseToken": lease.token}
        name = lease.job["name"]
        try:
            request["jobResult"] = {"result": self.handlers[name](lease, lease.job.get("args"))}
        except Over as over:
            request["cancelled"] = {"message": str(over)}
        except Failure as failure:
            request["response"] = failure.answer
        except Exception as error:
            traceback.print_exc()
            request["response"] = {"failure": {"reason": "error", "message": repr(error)}}
        if lease.directive == "DIRECTIVE_LOST":
            return  # nothing that is answered counts
        try:
            self.ask("Complete", request)
            print(f"{name} {lease.job['jobId']}: {'done' if 'jobResult' in request else request}", flush=True)
        except (Refused, Over) as error:  # failed_precondition: the lease was lost in this moment
            print(f"{name} {lease.job['jobId']}: not answered: {error}", flush=True)

    def beat(self):
        """Keeps all leases alive, in one request, at the shortest of their intervals."""
        while True:
            with self.lock:
                held = list(self.held.values())
            if held:
                beats = [{"leaseToken": l.token, "progress": l.progress} if l.progress else {"leaseToken": l.token} for l in held]
                try:
                    answer = self.ask("Heartbeat", {"workerId": self.id, "beats": beats}, timeout=10)
                    for lease, d in zip(held, answer["directives"]):
                        lease.cancel_reason = d.get("cancelReason", "lost")
                        lease.directive = d["directive"]
                        if "heartbeatInterval" in d:
                            lease.interval = float(d["heartbeatInterval"].rstrip("s"))
                    if answer.get("worker") == "WORKER_DIRECTIVE_STOP":
                        self.stopping.set()
                except (Refused, Over) as error:
                    print(f"heartbeat: {error}", flush=True)
            time.sleep(min([l.interval for l in held], default=0.5))

    def serve(self, threads):
        signal.signal(signal.SIGTERM, lambda *_: self.stopping.set())
        signal.signal(signal.SIGINT, lambda *_: self.stopping.set())
        threading.Thread(target=self.beat, daemon=True).start()
        working = [threading.Thread(target=self.work, daemon=True) for _ in range(threads)]
        for thread in working:
            thread.start()
        print(f"worker {self.id} takes jobs named {', '.join(self.handlers)}", flush=True)
        self.stopping.wait()
        end = time.monotonic() + GRACE
        for thread in working:
            thread.join(max(0, end - time.monotonic()))
        with self.lock:
            left = list(self.held)
        if left:  # no attempt is used up by that
            body = json.dumps({"workerId": self.id, "leaseTokens": left}).encode()
            urllib.request.urlopen(urllib.request.Request(
                f"{self.url}/progressor.v1.WorkerService/Release", body, {"Content-Type": "application/json"}), timeout=5).close()
        if self.refused:
            sys.exit(self.refused)


# What the jobs do is yours.


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
