import ast
import base64
import http.client
import io
import json
import os
import pathlib
import tempfile
import threading
import time
import unittest
import unittest.mock
import urllib.parse

import progressor
from progressor import Client, Failure, Processor, ProgressorError, Rejection, Retry, TaskFailed, TaskRejected
from world import Case, client, namespace


def carts(**options):
    processor = Processor(**options)

    @processor.init
    def init(task):
        if (task.get("args") or {}).get("no"):
            raise Rejection("no", "not this one", {"why": [1]})
        return {"aux_state": {"items": []}, "response": None}

    @processor.call
    def call(task):
        args, state = task["args"], task["process"]["aux_state"]
        if "fail" in args:
            raise Failure("broken", "the cart broke", details={"at": args["fail"]})
        if "bug" in args:
            raise TypeError("a bug")
        if "nan" in args:
            return {"response": float("nan")}
        state["items"].append(args["add"])
        events = [{"payload": {"added": args["add"]}}]
        return {"aux_state": state, "response": state["items"], "events": events, "set_timer": {"after": "3600s"}}

    @processor.repair
    def repair(task):
        return {"response": "repaired"}

    return processor


class ClientTest(Case):
    def pushed(self, processor=None, **more):
        url = self.listen((processor or carts()).server(port=0))
        return namespace({"connect": {"url": url, "encoding": "ENCODING_JSON", **more}})

    def refused(self, do, *args, **options):
        with self.assertRaises(ProgressorError) as caught:
            do(*args, **options)
        return caught.exception

    def test_plain_json_in_and_out(self):
        ns = self.pushed()
        started = client.process.start({"namespace": ns, "process_id": "ada"})
        self.assertEqual((started["process_id"], started["response"]), ("ada", None))
        self.assertIsInstance(started["task_id"], int)
        items = ["tea", {"sku": "cäke"}]
        for n, add in enumerate(items):
            answer = client.process.call({"namespace": ns, "process_id": "ada", "args": {"add": add}})
            self.assertEqual(answer["response"], items[: n + 1])
        ada = client.process.get_process({"namespace": ns, "process_id": "ada"})["process"]
        self.assertEqual(ada["aux_state"], {"items": items})
        self.assertEqual([event["payload"] for event in ada["history"]], [{"added": item} for item in items])
        self.assertEqual(ada["last_event_id"], 2)
        counted = client.insight.count_processes({"namespace": ns})
        self.assertEqual(counted["count_by_status"]["running"], 1)  # a map of 64-bit integers

    def test_errors_have_a_type_a_code_and_a_reason(self):
        ns = self.pushed()
        error = self.refused(client.process.start, {"namespace": ns, "process_id": "no", "args": {"no": True}})
        self.assertIsInstance(error, TaskRejected)
        self.assertEqual(error.rejection, {"reason": "no", "message": "not this one", "details": {"why": [1]}})
        self.assertEqual((error.code, error.reason), ("failed_precondition", "REASON_TASK_REJECTED"))

        client.process.start({"namespace": ns, "process_id": "ada"})
        call = {"namespace": ns, "process_id": "ada"}
        error = self.refused(client.process.call, {**call, "args": {"fail": 7}})
        self.assertIsInstance(error, TaskFailed)
        self.assertEqual((error.failure["reason"], error.failure["details"]), ("broken", {"at": 7}))
        self.assertIn("the cart broke", str(error))
        self.assertEqual(error.detail["process_status"], "PROCESS_STATUS_ERROR")
        self.assertIsInstance(error.detail["task_id"], int)
        self.assertEqual(self.refused(client.process.call, {**call, "args": {"bug": 1}}).reason, "REASON_PROCESS_STATUS")
        for fault, message in (("bug", "TypeError: a bug"), ("nan", "Out of range")):
            repaired = client.process.repair({**call, "processor": {"args": None}})
            self.assertEqual(repaired["response"], "repaired")
            failure = self.refused(client.process.call, {**call, "args": {fault: 1}}).failure
            self.assertEqual(failure["reason"], "error")
            self.assertIn(message, failure["message"])

        error = self.refused(client.process.get_process, {"namespace": ns, "process_id": "bob"})
        self.assertEqual((error.code, error.reason), ("not_found", "REASON_PROCESS_NOT_FOUND"))
        error = self.refused(client.process.start, {"namespace": "no spaces"})
        self.assertEqual((error.reason, error.detail["field"]), ("REASON_INVALID", "namespace"))
        error = self.refused(client.process.start, {"namespaces": ns})
        self.assertEqual(error.code, "invalid_argument")
        self.assertIn("namespaces", str(error))

    def test_errors_of_other_servers(self):
        error = self.refused(Client("http://127.0.0.1:1", retry=Retry(max_attempts=1)).namespace.list_namespaces, {})
        self.assertEqual((error.code, error.reason), ("unavailable", None))
        self.assertIn("127.0.0.1:1", str(error))
        for answer, code, text in (((404, b"not here"), "unimplemented", "not here"), ((200, b"<html>"), "unknown", "address")):
            error = self.refused(Client(self.answer(lambda *_: answer)).namespace.list_namespaces, {})
            self.assertEqual(error.code, code)
            self.assertIn(text, str(error))
        with self.assertRaisesRegex(ValueError, "http"):
            Client("127.0.0.1:8080")

    def test_a_request_whose_response_is_lost_is_sent_again_and_done_once(self):
        ns = self.pushed()
        client.process.start({"namespace": ns, "process_id": "ada"})
        call = {"namespace": ns, "process_id": "ada", "args": {"add": "tea"}}
        url, requests = self.losing("Call", 2)
        self.assertEqual(Client(url).process.call(call)["response"], ["tea"])
        keys = [request["idempotency_key"] for request in requests]
        self.assertEqual(len(keys), 3)
        self.assertRegex(keys[0], "^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$")
        age = time.time() - int(keys[0][:13].replace("-", ""), 16) / 1000
        self.assertTrue(0 <= age < 60)
        self.assertEqual(len(set(keys)), 1)
        tasks = client.process.trace_process({"namespace": ns, "process_id": "ada"})["tasks"]
        self.assertEqual([task["type"] for task in tasks].count("TASK_TYPE_CALL"), 1)

        url, requests = self.losing("StartRun")
        template = {"namespace": ns, "type": "t", "steps": [{"step_id": "a", "job": {}}]}
        client.flow.put_template({"template": template})
        run_id = Client(url).flow.start_run({"namespace": ns, "type": "t"})["run"]["run_id"]
        self.assertEqual([request["run_id"] for request in requests], [run_id, run_id])

        url, requests = self.losing("Call")
        self.assertEqual(self.refused(Client(url, auto_keys=False).process.call, call).code, "unavailable")
        self.assertEqual(len(requests), 1)
        url, requests = self.losing("Call")
        Client(url, auto_keys=False).process.call({**call, "idempotency_key": "mine"})
        self.assertEqual([request["idempotency_key"] for request in requests], ["mine", "mine"])
        url, requests = self.losing("GetProcess")
        Client(url).process.get_process({"namespace": ns, "process_id": "ada"})
        self.assertEqual(len(requests), 2)
        url, requests = self.losing("CancelProcess")
        cancel = {"namespace": ns, "process_id": "ada"}
        self.assertEqual(self.refused(Client(url).process.cancel_process, cancel).code, "unavailable")
        self.assertEqual(len(requests), 1)

    def test_a_request_to_an_overloaded_engine_is_sent_again_even_without_a_key(self):
        details = [{"type": "progressor.v1.ErrorDetail", "debug": {"reason": "REASON_OVERLOADED"}}]
        busy = json.dumps({"code": "resource_exhausted", "message": "busy", "details": details}).encode()
        answers = [(429, busy), (429, busy), (200, b"{}")]
        url = self.answer(lambda *_: answers.pop(0))
        Client(url).process.remove_process({"namespace": "a", "process_id": "b"})
        self.assertEqual(answers, [])

    def test_a_timeout_ends_the_wait(self):
        start = {"namespace": namespace({"pull": {}}), "process_id": "ada"}  # without a worker
        error = self.refused(client.process.start, start, timeout=0.1)
        self.assertEqual((error.code, error.reason), ("deadline_exceeded", "REASON_WAIT_TIMEOUT"))
        hanging = threading.Event()
        self.addCleanup(hanging.set)
        url = self.answer(lambda *_: hanging.wait(60) and None)
        began = time.monotonic()
        self.assertEqual(self.refused(Client(url, timeout=0.01).process.start, start).code, "deadline_exceeded")
        self.assertLess(time.monotonic() - began, 20)

    def test_payloads_that_are_not_json_are_bytes(self):
        ns = namespace({"builtin": {"name": "echo"}})
        for args in (b"\x00\xff\x01", b'"\xff"', b"NaN", [], "text", 0, False, None):
            self.assertEqual(client.process.start({"namespace": ns, "args": args})["response"], args)
        self.assertNotIn("response", client.process.start({"namespace": ns}))
        raw = Client(payloads="bytes").process.start({"namespace": ns, "args": {"a": 1}})
        self.assertEqual(raw["response"], b'{"a":1}')
        with self.assertRaises(ValueError):
            client.process.start({"namespace": ns, "args": float("nan")})

    def test_a_processor_refuses_requests_that_are_not_signed(self):
        url = self.listen(carts(keys=[os.environ["SIGNING_KEY"]]).server(port=0))

        def put(signing_secrets):
            connect = {"url": url, "encoding": "ENCODING_JSON", "signing_secrets": signing_secrets}
            client.namespace.put_namespace({"namespace": {"namespace": "signed", "processor": {"connect": connect}}})

        put(["key"])
        self.assertIsNone(client.process.start({"namespace": "signed", "process_id": "py-signed"})["response"])
        put([])
        error = self.refused(client.process.start, {"namespace": "signed", "process_id": "py-unsigned"})
        self.assertEqual(error.failure["reason"], "bad_response")
        self.assertIn("401", str(error))
        self.assertEqual(carts(keys=[]).respond({}, b"{}")[0], 401)

    def test_tasks_without_a_function(self):
        processor = Processor()
        processor.init(lambda task: {})
        ns = self.pushed(processor)
        for name in ("ada", "bob"):
            client.process.start({"namespace": ns, "process_id": name})
        error = self.refused(client.process.call, {"namespace": ns, "process_id": "ada"})
        self.assertEqual(error.rejection["reason"], "not_handled")
        client.process.cancel_process({"namespace": ns, "process_id": "bob"})

    def test_a_processor_is_a_wsgi_application(self):
        body = json.dumps({"type": "TASK_TYPE_INIT", "process": {}}).encode()
        for method, size, want in (("POST", len(body), "200 OK"), ("GET", 0, "405 "), ("POST", 18 << 20, "413 ")):
            said = []
            environ = {"REQUEST_METHOD": method, "CONTENT_LENGTH": str(size), "wsgi.input": io.BytesIO(body)}
            text = b"".join(carts()(environ, lambda status, headers: said.append(status)))
            self.assertTrue(said[0].startswith(want), said)
        environ = {"REQUEST_METHOD": "POST", "CONTENT_LENGTH": str(len(body)), "wsgi.input": io.BytesIO(body)}
        (text,) = carts()(environ, lambda *_: None)
        self.assertEqual(json.loads(base64.b64decode(json.loads(text)["result"]["aux_state"])), {"items": []})

    def test_a_token_is_a_text_a_function_or_a_file(self):
        seen = []
        url = self.answer(lambda handler, _: seen.append(handler.headers["Authorization"]) or (200, b"{}"))
        with tempfile.TemporaryDirectory() as directory:
            file = pathlib.Path(directory, "token")
            file.write_text("of-a-file\n")
            for options in ({}, {"token": "text"}, {"token": lambda: "called"}, {"token_file": str(file)}):
                Client(url + "/", **options).namespace.list_namespaces({})
        self.assertEqual(seen, [None, "Bearer text", "Bearer called", "Bearer of-a-file"])

    def test_connections_are_used_again_unless_the_server_closed_them(self):
        ports = []

        def respond(handler, _):
            ports.append(handler.client_address[1])
            if len(ports) == 2:
                handler.close_connection = True  # without telling the client
            return 200, b"{}"

        one = Client(self.answer(respond))
        for n in range(3):
            one.process.remove_process({"namespace": "a", "process_id": "b"})  # this request is not sent again
            if n == 1:
                (_, connection), = one._connections._idle
                while connection.sock.recv(1, 2):  # MSG_PEEK: wait until the server has closed it
                    pass
        self.assertEqual(ports[0], ports[1])
        self.assertNotEqual(ports[1], ports[2])
        one.close()

    def test_a_proxy_of_the_environment_is_used(self):
        seen = []
        proxy = self.answer(lambda handler, _: seen.append(handler.path) or (200, b"{}"))
        with unittest.mock.patch.dict(os.environ, {"http_proxy": proxy, "no_proxy": ""}):
            Client("http://engine.example:8080/base").namespace.list_namespaces({})
        self.assertEqual(seen, ["http://engine.example:8080/base/progressor.v1.NamespaceService/ListNamespaces"])

    def test_the_package_runs_on_python_3_9(self):
        for file in pathlib.Path(progressor.__file__).parent.glob("*.py"):
            ast.parse(file.read_text(), str(file), feature_version=(3, 9))


if __name__ == "__main__":
    unittest.main()
