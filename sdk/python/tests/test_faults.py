"""What goes wrong around a worker and a processor: tokens, proxies, threads, and odd requests."""

import io
import json
import logging
import pathlib
import socket
import tempfile
import threading
import unittest
import unittest.mock
import urllib.parse

import progressor.worker
from progressor import Client, Processor, ProgressorError, Worker
from world import Case, client, ended, enqueue, eventually, job, namespace

DEEP = b"[" * 200_000 + b"]" * 200_000  # JSON that Python cannot decode


class WorkerFaultsTest(Case):
    def test_a_token_that_cannot_be_read_once_does_not_change_an_answer(self):
        ns = namespace({"pull": {}})
        failures = []

        def token():
            if failures:
                failures.pop()
                raise OSError("the issuer is down")
            return "a-token"

        worker, attempts = self.worker(ns, Client(token=token), concurrency=1)  # it polls only after it has answered

        @worker.job("pay")
        def pay(args, job):
            failures.append(1)
            return "paid"

        self.work(worker)
        found = ended(ns, enqueue(ns, "pay", timeout="60s"))
        self.assertEqual((found["state"], found.get("result"), found.get("failures")), ("JOB_STATE_SUCCEEDED", "paid", None))
        eventually(lambda: attempts)
        self.assertEqual(attempts[0].outcome, "done")

    def test_a_program_without_a_token(self):
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory, "token")
            file.write_text("")
            for options in ({"token_file": str(file)}, {"token_file": directory + "/none"}, {"token": "two\nlines"}, {"token": lambda: None}):
                with self.assertRaises(ProgressorError) as caught:
                    Client(**options).namespace.list_namespaces({})
                self.assertEqual(caught.exception.code, "unauthenticated")
                self.assertIn("there is no token", str(caught.exception))
                self.assertNotIn("lines", str(caught.exception))
            worker = Worker(Client(token_file=str(file)), ["a"])
            worker.jobs(lambda args, job: None)
            with self.assertRaises(ProgressorError):
                worker.run()

    def test_jobs_whose_threads_do_not_start_are_released(self):
        ns = namespace({"pull": {}})
        ids = [enqueue(ns, "short") for _ in range(3)]
        start, refused = threading.Thread.start, []

        def refuse(thread):
            if thread.name.startswith("progressor-") and thread.name[11:] in ids and len(refused) < 2:
                refused.append(thread.name)
                raise RuntimeError("can't start new thread")
            start(thread)

        worker, attempts = self.worker(ns)
        worker.job("short")(lambda args, job: job.attempt)
        with unittest.mock.patch.object(threading.Thread, "start", refuse):
            self.work(worker)
            for job_id in ids:
                found = ended(ns, job_id)
                self.assertEqual((found["state"], found.get("failures")), ("JOB_STATE_SUCCEEDED", None))
        self.assertEqual(len(refused), 2)

    def test_a_worker_whose_own_thread_fails_ends_with_the_error(self):
        ns = namespace({"pull": {}})
        for loop in ("_beat", "_poll"):
            worker, _ = self.worker(ns)
            worker.jobs(lambda args, job: None)
            with unittest.mock.patch.object(worker, loop, side_effect=MemoryError(loop)):
                with self.assertRaisesRegex(MemoryError, loop):
                    worker.run()

    def test_details_may_change_after_they_were_reported(self):
        ns = namespace({"pull": {}})
        worker, _ = self.worker(ns)

        @worker.job("long")
        def long(args, running):
            details = {"page": 7}
            running.progress(float("nan"), "", details)
            details["set"] = {1, 2}  # is not JSON
            first = running._expires

            def reported():
                return job(ns, running.id).get("progress", {}).get("details") == {"page": 7} and running._expires > first + 0.5

            eventually(reported)
            with self.assertRaises(TypeError):
                running.progress(1, "", details)
            return running.attempt

        self.work(worker)
        self.assertEqual(ended(ns, enqueue(ns, "long", lease_duration="1s", heartbeat_interval="0.05s", timeout="60s"))["result"], 1)

    def test_heartbeats_continue_after_an_unexpected_error(self):
        ns = namespace({"pull": {}})
        worker, _ = self.worker(ns)
        beat_once, failures = worker._beat_once, [KeyError("once")]

        def once(jobs, failed):
            if failures:
                raise failures.pop()
            return beat_once(jobs, failed)

        @worker.job("long")
        def long(args, running):
            first = running._expires
            eventually(lambda: running._expires > first + 0.5)
            return running.attempt

        with unittest.mock.patch.object(worker, "_beat_once", once):
            self.work(worker)
            found = ended(ns, enqueue(ns, "long", lease_duration="3s", heartbeat_interval="0.05s", timeout="60s"))
        self.assertEqual((found["result"], failures), (1, []))

    def test_errors_without_a_text_and_callbacks_that_raise(self):
        class Odd(Exception):
            def __str__(self):
                raise ValueError("no text")

        ns = namespace({"pull": {}})
        calls = []

        def fails(attempt):
            calls.append(attempt.outcome)
            raise ValueError("a bug")

        logger = logging.getLogger("progressor.faults")
        worker = Worker(client, [ns], stop_grace=0, ended=fails, logger=logger)

        @worker.job("odd")
        def odd(args, job):
            raise Odd

        with self.assertLogs(logger, "ERROR") as logged:
            self.work(worker)
            found = ended(ns, enqueue(ns, "odd"))
            self.assertEqual(found["failures"][0]["message"], "Odd: the error has no text")
            eventually(lambda: logged.output)
        self.assertEqual(calls, ["failed"])
        self.assertIn("the function ended failed", logged.output[0])

    def test_payloads_that_are_nested_too_deeply_are_bytes(self):
        processor = Processor()
        processor.init(lambda task: {"response": len(task["args"]), "aux_state": task["args"]})
        processor.call(lambda task: {"response": task["process"]["aux_state"]})
        pulled = namespace({"pull": {}})
        worker, _ = self.worker(pulled)
        worker.processes(processor)
        self.work(worker)
        pushed = namespace({"connect": {"url": self.listen(processor.server(port=0)), "encoding": "ENCODING_JSON"}})
        for ns in (pulled, pushed):
            key = {"namespace": ns, "process_id": "deep"}
            self.assertEqual(client.process.start({**key, "args": DEEP})["response"], len(DEEP))
            self.assertEqual(client.process.call(key)["response"], DEEP)
            self.assertEqual(client.process.start({"namespace": ns, "args": [1]})["response"], 1)

    def test_answers_that_are_nested_too_deeply_fail(self):
        def nested(*_):
            value = []
            for _ in range(100_000):
                value = [value]
            return value

        ns = namespace({"pull": {}})
        worker, _ = self.worker(ns)
        worker.job("nested")(nested)
        self.work(worker)
        self.assertEqual(ended(ns, enqueue(ns, "nested"))["failures"][0]["reason"], "bad_response")
        processor = Processor()
        processor.init(lambda task: {"response": nested()})
        status, text = processor.respond({}, b'{"type": "TASK_TYPE_INIT", "process": {}}')
        self.assertEqual((status, json.loads(text)["failure"]["reason"]), (200, "error"))
        for body in (DEEP, b"[]", b'{"process": 1}', b'{"process": {"history": {"a": 1}}, "args": 1}'):
            self.assertEqual(processor.respond({}, body)[0], 400, body[:50])

    def test_a_lease_that_cannot_be_decoded_fails_alone(self):
        ns = namespace({"pull": {}})
        ids = [enqueue(ns, name, name, max_retry=0) for name in ("bad", "good")]
        worker, _ = self.worker(ns)
        worker.jobs(lambda args, job: args)
        decode = progressor.worker.decode

        def refuse(message, lease, payloads):
            if lease["job"]["name"] == "bad" and payloads != "bytes":
                raise MemoryError("too large")
            return decode(message, lease, payloads)

        with unittest.mock.patch("progressor.worker.decode", refuse):
            self.work(worker)
            bad, good = [ended(ns, job_id) for job_id in ids]
        self.assertEqual(good["result"], "good")
        self.assertEqual((bad["failures"][0]["reason"], bad["failures"][0]["message"]), ("undecodable", "decode the request: too large"))

    def test_infinite_times_are_long_times(self):
        forever = float("inf")
        Client(timeout=forever).namespace.list_namespaces({})
        ns = namespace({"pull": {}})
        worker, attempts = self.worker(ns, stop_grace=forever)
        sleeping, running, finish = threading.Event(), threading.Event(), threading.Event()

        @worker.job("long")
        def long(args, job):
            if args == "sleep":
                sleeping.set()
                job.sleep(forever)
            running.set()
            return finish.wait(60)

        thread = self.work(worker)
        slept = enqueue(ns, "long", "sleep", timeout="60s", heartbeat_interval="0.05s")
        eventually(sleeping.is_set)
        client.job.cancel_job({"namespace": ns, "job_id": slept})
        self.assertEqual(ended(ns, slept)["state"], "JOB_STATE_CANCELLED")
        last = enqueue(ns, "long", timeout="60s")
        eventually(running.is_set)
        worker.stop()
        finish.set()
        thread.join(30)
        self.assertEqual((thread.is_alive(), ended(ns, last)["result"]), (False, True))
        self.assertEqual([attempt.outcome for attempt in attempts], ["cancelled", "done"])


class ServerFaultsTest(Case):
    def test_an_error_of_a_proxy_has_the_code_of_its_status(self):
        odd = [None, {"type": "progressor.v1.ErrorDetail", "debug": "text"}, {"type": "other"}]
        bodies = (
            {"code": 503}, {"code": "Overloaded"}, {"code": ["unavailable"]}, {"code": "Overloaded", "details": odd}, None, [], "busy",
            {"code": "unavailable", "message": None, "details": None}, {"code": "unavailable", "details": odd},
        )
        for text in [json.dumps(body).encode() for body in bodies] + [DEEP]:
            answers = [(503, text), (503, text), (200, b"{}")]
            of = Client(self.answer(lambda *_: answers.pop(0)))
            with self.assertRaises(ProgressorError) as caught:
                of.namespace.list_namespaces({}, max_attempts=1)
            self.assertEqual((caught.exception.code, caught.exception.reason), ("unavailable", None))
            of.namespace.list_namespaces({})
            self.assertEqual(answers, [], text[:50])
        for answer, code in (((403, b'{"code": "AccessDenied"}'), "permission_denied"), ((200, DEEP), "unknown")):
            with self.assertRaises(ProgressorError) as caught:
                Client(self.answer(lambda *_: answer)).namespace.list_namespaces({})
            self.assertEqual(caught.exception.code, code)

    def test_a_body_needs_one_length(self):
        url = urllib.parse.urlsplit(self.listen(Processor().server(port=0)))
        for headers, want in (
            ("Content-Length: -1", "411"), ("Content-Length: x", "411"), ("Content-Length: +2", "411"), ("X: y", "411"),
            ("Content-Length: 2\r\nContent-Length: 3", "411"), ("Content-Length: 2, 2", "411"), ("Content-Length:", "411"),
            ("Transfer-Encoding: chunked", "411"), ("Content-Length: 2\r\nTransfer-Encoding: chunked", "411"),
            ("Content-Length: " + "9" * 5000, "411"), (f"Content-Length: {18 << 20}", "413"),
        ):
            with socket.create_connection((url.hostname, url.port), timeout=30) as connection:
                connection.sendall(f"POST / HTTP/1.1\r\nHost: x\r\n{headers}\r\n\r\n".encode())
                text = b""
                while len(found := connection.recv(65536)) > 0:  # until the server closes the connection
                    text += found
                self.assertEqual(text.split()[1].decode(), want, headers)
                self.assertEqual(text.count(b"HTTP/1.1 "), 1)
        for length, want in (("-1", "411"), ("x", "411"), ("", "411"), (None, "411"), (str(18 << 20), "413"), ("0", "400")):
            said = []
            environ = {"REQUEST_METHOD": "POST", "CONTENT_LENGTH": length, "wsgi.input": io.BytesIO(b"{" * 9)}
            list(Processor()(environ, lambda status, headers: said.append(status)))
            self.assertEqual(said[0].split()[0], want, length)


if __name__ == "__main__":
    unittest.main()
