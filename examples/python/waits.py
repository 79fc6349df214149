"""Answers waits of flows in Python's standard library: it lists those that are open, does the work, tells how far it is, and answers with the token
of the wait. It holds no lease: until it answers, or the wait is due, the run waits. All it speaks is JSON by POST.

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


class Over(Exception):
    """Nobody waits for the answer any more, or the run was cancelled."""


class Outside:
    def __init__(self, url, namespace):
        self.url, self.namespace = url, namespace
        self.id = f"{socket.gethostname()}-{os.getpid()}"
        self.stopping = threading.Event()

    def ask(self, method, request):
        """One request. It is repeated until the engine has answered it: whatever was said twice counts once, because the token is used up."""
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
                    raise Over(f"{refused.get('code')}: {refused.get('message')}") from error
            except (OSError, http.client.HTTPException):
                pass  # there is no response
            if self.stopping.wait(wait):
                raise Over("the worker stops")
            wait = min(2 * wait, 5)

    def place(self, wait):
        """What names a wait: its run, its step, the item where the step has items, and the token of this attempt."""
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
                except Over as over:  # failed_precondition: it was answered, was due, or is of an attempt that is over
                    print(f"{wait['runId']} {step}: {over}", flush=True)
            if not waits:
                self.stopping.wait(1)

    def answer(self, wait, work):
        place = self.place(wait)

        def report(percent, summary=""):
            told = self.ask("ReportStep", {**place, "progress": {"percent": percent, "summary": summary}})["directive"]
            return told.get("directive") == "DIRECTIVE_CANCEL"

        outcome = {"cancelled": {"message": "stopped at the last word"}}  # the acknowledgement of a cancel
        if not wait.get("cancelRequested"):
            try:
                result = work(wait.get("input"), report)
                if result is not None:
                    outcome = {"result": result}
            except (TypeError, KeyError, ValueError) as error:
                outcome = {"failure": {"reason": "bad_input", "message": repr(error)}}
        self.ask("CompleteStep", {**place, "workerId": self.id, **outcome})
        print(f"{wait['runId']} {wait['stepId']}: {', '.join(outcome)}", flush=True)


# What the work is is yours.


def translate(job, report):
    """Translates word by word. None: the run was cancelled."""
    words = job["text"].split()
    done = []
    for word in words:
        if report(100 * len(done) / len(words), f"{len(done)} of {len(words)} words"):
            return None
        done.append(WORDS.get(word.lower(), word))
        time.sleep(0.05)
    return {"text": " ".join(done), "words": len(done)}


if __name__ == "__main__":
    outside = Outside(sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080", sys.argv[2] if len(sys.argv) > 2 else "flows")
    signal.signal(signal.SIGTERM, lambda *_: outside.stopping.set())
    signal.signal(signal.SIGINT, lambda *_: outside.stopping.set())
    print(f"{outside.id} answers waits of {outside.namespace}", flush=True)
    try:
        outside.serve("external_worker_task", "translate", translate)
    except Over as over:
        print(over, flush=True)
