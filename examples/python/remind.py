"""A worker: it takes jobs named remind. worker.py is one with heartbeats, progress, cancels and an orderly stop."""

import json
import urllib.request


def ask(method, request):
    url = "http://127.0.0.1:8080/progressor.v1.WorkerService/" + method
    return json.load(urllib.request.urlopen(urllib.request.Request(url, json.dumps(request).encode(), {"Content-Type": "application/json"})))


while True:
    polled = ask("Poll", {"namespaces": ["mails-python"], "workerId": "python-1", "jobNames": ["remind"], "wait": "20s"})
    for lease in polled.get("leases", []):
        text = f"Dear {lease['job']['args']['to']}, your cart waits."
        ask("Complete", {"leaseToken": lease["leaseToken"], "jobResult": {"result": {"text": text}}})
