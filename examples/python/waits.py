"""Answers waits of flows with Python's standard library only.

It lists the open waits, does the work, reports progress, and completes each step with the token of
its wait. All requests are JSON by POST. It has no lease: the run waits for the answer until the wait
is due.

    python3 waits.py [URL [NAMESPACE]]

It answers the step "translate" of examples/flows/external_worker_task.yaml.
"""

import http.client
import json
import os
import signal
import socket
import sys
import threading
import time
import urllib.error
import urllib.request

WORDS = {"gut": "good", "guten": "good", "tag": "day", "welt": "world", "und": "and"}


class WaitEnded(Exception):
    """The engine does not accept the answer, or this program stops."""


class ExternalWorker:
    def __init__(self, url, namespace):
        self.url, self.namespace = url, namespace
        self.id = f"{socket.gethostname()}-{os.getpid()}"
        self.stopping = threading.Event()

    def ask(self, method, request):
        """Sends a request until the engine has answered it. A repeated answer counts once."""
        body = json.dumps(request).encode()
        wait = 0.1
        while True:
            r = urllib.request.Request(f"{self.url}/progressor.v1.FlowService/{method}", body, {"Content-Type": "application/json"})
            try:
                with urllib.request.urlopen(r, timeout=30) as answer:
                    return json.load(answer)
            except urllib.error.HTTPError as error:
                text = error.read()
                if error.code not in (408, 429, 502, 503, 504):
                    try:
                        refused = json.loads(text)
                    except ValueError:
                        refused = {"code": "unknown", "message": repr(text[:200])}
                    raise WaitEnded(f"{refused.get('code')}: {refused.get('message')}") from error
            except (OSError, http.client.HTTPException):
                pass  # there is no response
            if self.stopping.wait(wait):
                raise WaitEnded("the worker stops")
            wait = min(2 * wait, 5)

    def key_of(self, wait):
        """Returns the fields that identify a wait: its run, step, item (of a for_each) and token."""
        return {name: wait[name] for name in ("namespace", "runId", "stepId", "index", "token") if name in wait}

    def serve(self, template, step, work):
        """Answers the waits of a step, one after the other."""
        while not self.stopping.is_set():
            waits = self.ask("ListOpenWaits", {
                "namespace": self.namespace, "filter": f'kind = EXTERNAL AND template_type = "{template}"', "pageSize": 10,
            }).get("waits", [])
            waits = [wait for wait in waits if wait["stepId"] == step]
            for wait in waits:
                try:
                    self.answer(wait, work)
                except WaitEnded as error:  # failed_precondition: it was answered, was due, or its attempt has ended
                    print(f"{wait['runId']} {step}: {error}", flush=True)
            if not waits:
                self.stopping.wait(1)

    def answer(self, wait, work):
        key = self.key_of(wait)

        def report(percent, summary=""):
            response = self.ask("ReportStep", {**key, "progress": {"percent": percent, "summary": summary}})
            return response["directive"].get("directive") == "DIRECTIVE_CANCEL"

        outcome = {"cancelled": {"message": "the translation was stopped"}}  # acknowledges a cancel
        if not wait.get("cancelRequested"):
            try:
                result = work(wait.get("input"), report)
                if result is not None:
                    outcome = {"result": result}
            except (TypeError, KeyError, ValueError) as error:
                outcome = {"failure": {"reason": "bad_input", "message": repr(error)}}
        self.ask("CompleteStep", {**key, "workerId": self.id, **outcome})
        print(f"{wait['runId']} {wait['stepId']}: {', '.join(outcome)}", flush=True)


# Replace this with your own work.


def translate(job, report):
    """Translates word by word. Returns None if the run was cancelled."""
    words = job["text"].split()
    done = []
    for word in words:
        if report(100 * len(done) / len(words), f"{len(done)} of {len(words)} words"):
            return None
        done.append(WORDS.get(word.lower(), word))
        time.sleep(0.05)
    return {"text": " ".join(done), "words": len(done)}


if __name__ == "__main__":
    worker = ExternalWorker(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080", sys.argv[2] if len(sys.argv) > 2 else "flows")
    signal.signal(signal.SIGTERM, lambda *_: worker.stopping.set())
    signal.signal(signal.SIGINT, lambda *_: worker.stopping.set())
    print(f"{worker.id} answers waits of {worker.namespace}", flush=True)
    try:
        worker.serve("external_worker_task", "translate", translate)
    except WaitEnded as error:
        print(error, flush=True)
