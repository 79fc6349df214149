"""What the tests share: the engine of PROGRESSOR_ADDRESS, namespaces, and proxies that lose responses."""

import http.client
import json
import logging
import threading
import time
import unittest
import urllib.parse
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from progressor import Client, Worker

client = Client()
logging.getLogger("progressor").setLevel(logging.CRITICAL)


def namespace(processor):
    """Returns the name of a new namespace."""
    name = f"sdk-{uuid.uuid4().hex[:8]}"
    client.namespace.put_namespace({"namespace": {"namespace": name, "processor": processor}})
    return name


def forward(handler, body):
    """Sends the request of a proxy to the engine. Returns the status and the text of the response."""
    engine = urllib.parse.urlsplit(client.url)
    connection = http.client.HTTPConnection(engine.hostname, engine.port)
    connection.request("POST", handler.path, body, dict(handler.headers))
    response = connection.getresponse()
    status, text = response.status, response.read()
    connection.close()
    return status, text


def eventually(check):
    """Repeats a check until it returns something true, and returns that."""
    end = time.monotonic() + 30
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError("this did not happen")
        time.sleep(0.02)


class Case(unittest.TestCase):
    maxDiff = None

    def listen(self, server):
        """Runs a server until the test ends, and returns its address."""
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        self.addCleanup(server.server_close)
        self.addCleanup(server.shutdown)
        return f"http://127.0.0.1:{server.server_port}"

    def answer(self, respond):
        """Runs a server that answers with what respond(handler, body) returns: a status and a text."""

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                answered = respond(self, self.rfile.read(int(self.headers["Content-Length"])))
                if answered is None:  # the response is lost
                    self.close_connection = True
                    return
                status, text = answered
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args):
                pass

        return self.listen(ThreadingHTTPServer(("127.0.0.1", 0), Handler))

    def losing(self, method, count=1):
        """Runs a proxy of the engine that loses the first responses of a method.

        It returns its address and a list of the requests that it has seen for the method.
        """
        requests = []

        def respond(handler, body):
            status, text = forward(handler, body)
            if handler.path.endswith("/" + method):
                requests.append(json.loads(body))
                if len(requests) <= count:
                    return None
            return status, text

        return self.answer(respond), requests

    def work(self, worker):
        """Runs a worker until the test ends. Returns its thread."""
        thread = threading.Thread(target=worker.run, daemon=True)
        thread.start()
        self.addCleanup(thread.join, 10)
        self.addCleanup(worker.stop)
        return thread

    def worker(self, namespace, of=client, **options):
        """Returns a worker, and a list of the attempts that have ended."""
        attempts = []
        return Worker(of, [namespace], ended=attempts.append, **{"stop_grace": 0, **options}), attempts


def enqueue(namespace, name, args=None, **options):
    """Enqueues a job that keeps its result, and returns its ID."""
    request = {"namespace": namespace, "name": name, "args": args, "options": {"keep_result": True, **options}}
    return client.job.enqueue(request)["job"]["job_id"]


def job(namespace, job_id):
    return client.job.get_job({"namespace": namespace, "job_id": job_id})["job"]


def ended(namespace, job_id):
    """Waits for the end of a job."""
    found = client.job.get_job({"namespace": namespace, "job_id": job_id, "await_end": "30s"})["job"]
    assert "finished_time" in found, found
    return found
