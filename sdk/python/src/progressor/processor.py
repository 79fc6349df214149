"""Processors: functions that decide what a task changes."""

from __future__ import annotations

import json
import logging
import re
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Callable, Dict, Iterable, List, Mapping, Optional, Tuple

from . import api
from ._json import decode, dump, encode
from .errors import AttemptTimeout, Failure, JobStopped, Rejection, message_of
from .signature import verify

#: Takes a task with its process, and returns what changes. None changes nothing.
TaskHandler = Callable[[api.ProcessRequest], Optional[api.Result]]

MAX_REQUEST = 17 << 20  # bytes; the engine sends at most 16 MiB
MAX_MESSAGE = 8 << 10  # bytes
MAX_DURATION = 365 * 24 * 3600.0  # seconds


class Processor:
    """The functions of a processor, by type of task.

    If there is no function for notifications, the function for calls handles them. If there is no
    function for cancels, a cancelled process ends without a cleanup. Other tasks without a function
    are refused.

        carts = Processor()

        @carts.call
        def call(task):
            return {"response": task["args"]}

        carts.serve("127.0.0.1", 9000)

    It serves a namespace with `--connect-url` and `--encoding json`. It is also a WSGI application.

    :param keys: refuses requests that none of these keys has signed (see verify).
    :param payloads: "bytes" does not decode the bytes of processes.
    """

    def __init__(
        self, *, keys: Optional[List[str]] = None, payloads: str = "json", logger: Optional[logging.Logger] = None,
    ) -> None:
        self._keys, self._payloads = keys, payloads
        self._logger = logger or logging.getLogger("progressor")
        self._handlers: Dict[str, TaskHandler] = {}

    def init(self, handler: TaskHandler) -> TaskHandler:
        """Registers the function for new processes."""
        return self._register("INIT", handler)

    def call(self, handler: TaskHandler) -> TaskHandler:
        """Registers the function for calls."""
        return self._register("CALL", handler)

    def notify(self, handler: TaskHandler) -> TaskHandler:
        """Registers the function for calls whose caller does not wait, and for messages."""
        return self._register("NOTIFY", handler)

    def timeout(self, handler: TaskHandler) -> TaskHandler:
        """Registers the function for timers."""
        return self._register("TIMEOUT", handler)

    def repair(self, handler: TaskHandler) -> TaskHandler:
        """Registers the function for repairs of processes in ERROR."""
        return self._register("REPAIR", handler)

    def cancel(self, handler: TaskHandler) -> TaskHandler:
        """Registers the function for the cleanup of cancelled processes."""
        return self._register("CANCEL", handler)

    def _register(self, task_type: str, handler: TaskHandler) -> TaskHandler:
        self._handlers[task_type] = handler
        return handler

    def process(self, task: api.ProcessRequest) -> api.ProcessResponse:
        """Calls the function for a task, and returns the response."""
        try:
            return {"result": self._handler_of(task["type"])(task) or {}}
        except Exception as error:
            if not isinstance(error, (Rejection, Failure)):
                self._logger.exception("handler failed")
            return response_of(error)

    def _handler_of(self, task_type: str) -> TaskHandler:
        name = task_type[len("TASK_TYPE_"):]
        handler = self._handlers.get(name) or (self._handlers.get("CALL") if name == "NOTIFY" else None)
        if handler is not None:
            return handler
        message = f"this processor does not handle {task_type}"
        if name == "TIMEOUT":
            raise Failure("not_handled", message, non_retryable=True)
        if name == "CANCEL":
            return lambda task: None
        raise Rejection("not_handled", message)

    def respond(self, headers: Mapping[str, str], body: bytes) -> Tuple[int, bytes]:
        """Returns the status and the body of the response to a POST of the engine."""
        try:
            if self._keys is not None:
                verify(headers, body, self._keys)
        except (ValueError, RuntimeError) as error:
            return 401, str(error).encode()
        try:
            task = decode("ProcessRequest", json_of(body), self._payloads)
        except Exception as error:
            return 400, f"the request is not a task in JSON: {error}".encode("utf-8", "replace")
        response = self.process(task)
        try:
            return 200, dump(encode("ProcessResponse", response)).encode()
        except Exception as error:
            self._logger.exception("the response is not JSON")
            return 200, dump({"failure": failure_of(error)}).encode()

    def server(self, host: str = "127.0.0.1", port: int = 9000) -> ThreadingHTTPServer:
        """Returns a server that runs with serve_forever, one thread for each connection."""
        return ThreadingHTTPServer((host, port), type("Handler", (_Handler,), {"processor": self}))

    def serve(self, host: str = "127.0.0.1", port: int = 9000) -> None:
        """Serves the processor until the program ends."""
        with self.server(host, port) as server:
            server.serve_forever()

    def __call__(self, environ: Dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Handles a request as a WSGI application."""
        headers = {key[5:].replace("_", "-").lower(): value for key, value in environ.items() if key.startswith("HTTP_")}
        size = _size_of([environ.get("CONTENT_LENGTH") or ""])
        if environ["REQUEST_METHOD"] != "POST":
            status, text = 405, b""
        elif size is None or size > MAX_REQUEST:
            status, text = 411 if size is None else 413, b""
        else:
            status, text = self.respond(headers, environ["wsgi.input"].read(size))
        kind = "application/json" if status == 200 else "text/plain; charset=utf-8"
        start_response(f"{status} {HTTPStatus(status).phrase}", [("Content-Type", kind), ("Content-Length", str(len(text)))])
        return [text]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections open
    disable_nagle_algorithm = True
    processor: Processor

    def do_POST(self) -> None:
        chunked = "Transfer-Encoding" in self.headers
        size = None if chunked else _size_of(self.headers.get_all("Content-Length", []))
        if size is None or size > MAX_REQUEST:
            self.close_connection = True  # the next request would begin in the body
            self.send_error(411 if size is None else 413)
            return
        status, text = self.processor.respond(self.headers, self.rfile.read(size))
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if status == 200 else "text/plain; charset=utf-8")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def _size_of(lengths: List[str]) -> Optional[int]:
    """Returns the size of a body by its headers Content-Length, or None if there is not exactly one."""
    if len(lengths) != 1 or not re.fullmatch("[0-9]{1,18}", lengths[0].strip(), re.ASCII):
        return None
    return int(lengths[0])


def json_of(body: bytes) -> Dict[str, Any]:
    value = json.loads(body)
    if not isinstance(value, dict):
        raise ValueError("it is not an object")
    return value


def response_of(error: BaseException) -> api.ProcessResponse:
    """Returns the response of a processor whose function raised an error."""
    if not isinstance(error, Rejection):
        return {"failure": failure_of(error)}
    rejection: api.Rejection = {"reason": error.reason, "message": well_formed(error.message)}
    if error.details is not None:
        rejection["details"] = error.details
    return {"rejection": rejection}


def failure_of(error: BaseException) -> api.Failure:
    """Returns what is stored about an error that a handler raised."""
    if isinstance(error, AttemptTimeout):
        return {"reason": "timeout", "message": message_of(error)}
    if not isinstance(error, Failure):
        text = message_of(error) if isinstance(error, JobStopped) else f"{type(error).__name__}: {message_of(error)}"
        return {"reason": "error", "message": well_formed(text)}
    failure: api.Failure = {"reason": error.reason, "message": well_formed(error.message), "non_retryable": error.non_retryable}
    if error.retry_after is not None:
        failure["retry_after"] = duration(error.retry_after)
    if error.details is not None:
        failure["details"] = error.details
    return failure


def duration(seconds: float) -> str:
    """Returns the text that the API uses for a number of seconds, at most 365 days."""
    return f"{min(max(0, seconds), MAX_DURATION):.3f}s"


def well_formed(text: str, max_bytes: int = MAX_MESSAGE) -> str:
    """Cuts a text, and replaces what the engine would refuse."""
    content = str(text).replace("\0", "\ufffd").encode("utf-8", "replace")
    return content[:max_bytes].decode("utf-8", "ignore")
