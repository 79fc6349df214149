"""The client of the API."""

from __future__ import annotations

import dataclasses
import http.client
import json
import os
import random
import re
import select
import socket
import ssl
import threading
import time
import urllib.parse
import urllib.request
import uuid
from typing import Any, Callable, Dict, List, Optional, Tuple, Union

from . import api
from ._json import decode, dump, encode
from ._version import VERSION
from .errors import ProgressorError, error_of, message_of

TIMEOUT_MARGIN = 0.5  # how much longer a request waits for a response that reports its outcome
LONGEST = 2_000_000.0  # seconds; sockets and the engine limit the timeout of a request
IDLE_TIME = 30  # seconds that an unused connection is kept
TOKEN_FILE_TIME = 10


@dataclasses.dataclass(frozen=True)
class Retry:
    """How requests are retried if the engine is unavailable or overloaded, or a connection breaks.

    The wait before attempt n is a random time from 50% to 100% of min(initial * 2^(n-2), max)
    seconds. max_attempts includes the first attempt. The default takes about 9 s.
    """

    max_attempts: int = 10
    initial: float = 0.05
    max: float = 2.0

    def interval(self, attempt: int) -> float:
        """Returns the wait after an attempt, counted from 1."""
        return min(self.initial * 2 ** min(attempt - 1, 30), self.max) * random.uniform(0.5, 1)


class Client:
    """A client of one engine, or of a load balancer in front of several. Threads can share it.

    Requests that can have an idempotency key get a random one, so that they can be sent again after
    a lost response. Reads can also be sent again. Other requests are sent again only if the engine
    reported that it stored nothing.

    :param url: such as "https://progressor.example.com". Without it, the client reads
        PROGRESSOR_ADDRESS (default: http://127.0.0.1:8080), PROGRESSOR_TOKEN and
        PROGRESSOR_TOKEN_FILE.
    :param token: sent as Authorization: Bearer. A function is called for each request, and must not
        block for a long time. If it raises an error, the request fails with the code "unauthenticated".
    :param token_file: a file with the token. It is read again every 10 s.
    :param timeout: seconds for a request, including its retries.
    :param auto_keys: if False, the client does not add idempotency keys.
    :param payloads: "bytes" does not decode the bytes of processes, for payloads that are not JSON.
    :param tls: an SSL context with CA certificates or a client certificate. The default trusts the
        CA certificates of the system.
    """

    def __init__(
        self, url: Optional[str] = None, *,
        token: Union[None, str, Callable[[], str]] = None, token_file: Optional[str] = None,
        timeout: float = 60.0, retry: Retry = Retry(), auto_keys: bool = True, payloads: str = "json",
        tls: Optional[ssl.SSLContext] = None,
    ) -> None:
        if not url:
            url = os.environ.get("PROGRESSOR_ADDRESS") or "http://127.0.0.1:8080"
            if token is None and token_file is None:
                token = os.environ.get("PROGRESSOR_TOKEN") or None
                token_file = os.environ.get("PROGRESSOR_TOKEN_FILE") or None
        self.url = url.rstrip("/")
        self.timeout, self.retry, self.payloads = timeout, retry, payloads
        self._auto_keys = auto_keys
        self._connections = _Connections(self.url, tls)
        self._token: Optional[Callable[[], str]] = None
        if token is not None:
            self._token = token if callable(token) else lambda: str(token)
        elif token_file is not None:
            self._token = _TokenFile(token_file).token
        self.process = api.ProcessService(self._send)
        self.job = api.JobService(self._send)
        self.flow = api.FlowService(self._send)
        self.cron = api.CronService(self._send)
        self.namespace = api.NamespaceService(self._send)
        self.worker = api.WorkerService(self._send)
        self.insight = api.InsightService(self._send)
        self.bulk = api.BulkService(self._send)
        self.change = api.ChangeService(self._send)
        self.job_event = api.JobEventService(self._send)

    def close(self) -> None:
        """Closes the connections that are not in use."""
        self._connections.close()

    def _send(self, method: api.Method, request: Any, timeout: Optional[float], max_attempts: Optional[int]) -> Any:
        if method.repeat == "key" and self._auto_keys and not request.get("idempotency_key"):
            request = {**request, "idempotency_key": _new_key()}
            # The IDs that the engine derives from keys grow with time, except those of runs.
            if method.path == "FlowService/StartRun" and not request.get("run_id") and not request.get("validate_only"):
                request["run_id"] = request["idempotency_key"]
        safe = method.repeat == "always" or method.repeat == "key" and bool(request.get("idempotency_key"))
        body = dump(encode(method.request, request)).encode()
        end = time.monotonic() + (self.timeout if timeout is None else timeout)
        attempt = 1
        while True:
            try:
                return decode(method.response, self._post(method.path, body, end), self.payloads)
            except ProgressorError as error:
                wait = self.retry.interval(attempt)
                last = attempt >= (max_attempts or self.retry.max_attempts) or time.monotonic() + wait >= end
                if last or not _is_repeatable(error, safe):
                    raise
            time.sleep(wait)
            attempt += 1

    def _post(self, path: str, body: bytes, end: float) -> Any:
        """Sends the JSON of a request once. Returns the JSON of the response."""
        headers = {
            "Content-Type": "application/json", "Connect-Protocol-Version": "1", "User-Agent": "progressor-python/" + VERSION,
        }
        if self._token is not None:
            headers["Authorization"] = "Bearer " + _read_token(self._token)
        left = min(max(end - time.monotonic(), 0.001), LONGEST)
        headers["Connect-Timeout-Ms"] = str(max(1, int(left * 1000)))
        try:
            status, text = self._connections.post("/progressor.v1." + path, body, headers, left + TIMEOUT_MARGIN)
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, socket.timeout) and time.monotonic() >= end:
                raise ProgressorError("deadline_exceeded", f"{path}: no response within the timeout") from error
            raise ProgressorError(
                "unavailable", f"no response from {self.url}: {error or type(error).__name__}") from error
        if status != 200:
            raise error_of(status, text, lambda detail: decode("ErrorDetail", detail, self.payloads))
        try:
            return _json_object(text)
        except (ValueError, RecursionError):
            raise ProgressorError("unknown", f"{self.url} did not send JSON: is it the address of an engine?") from None


def _read_token(read: Callable[[], str]) -> str:
    try:
        token = read()
        if not isinstance(token, str) or not re.fullmatch("[!-~]*", token):
            raise ValueError("it must be a string of printable ASCII characters")
    except Exception as error:
        raise ProgressorError("unauthenticated", f"there is no token: {message_of(error)}") from error
    return token


def _json_object(text: bytes) -> Any:
    value = json.loads(text)
    if not isinstance(value, dict):
        raise ValueError("not an object")
    return value


def _new_key() -> str:
    """Returns a UUIDv7. The IDs that the engine derives from such keys grow with time."""
    text = f"{time.time_ns() // 1_000_000:012x}"
    return f"{text[:8]}-{text[8:]}-7{str(uuid.uuid4())[15:]}"


def _is_repeatable(error: ProgressorError, safe: bool) -> bool:
    """Reports whether another attempt may succeed and does no harm."""
    # Without a reason, resource_exhausted means that the message is too large.
    return error.reason == "REASON_OVERLOADED" or safe and error.code == "unavailable"


class _Connections:
    """Connections to one server. Each is used by one request at a time."""

    def __init__(self, url: str, tls: Optional[ssl.SSLContext]) -> None:
        parts = urllib.parse.urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"url: must begin with http:// or https:// (got {url})")
        self._host, self._port = parts.hostname, parts.port
        self._tls = (tls or ssl.create_default_context()) if parts.scheme == "https" else None
        self._prefix = parts.path
        proxy = urllib.request.getproxies().get(parts.scheme)
        self._proxy = urllib.parse.urlsplit(proxy) if proxy and not urllib.request.proxy_bypass(parts.netloc) else None
        if self._proxy and not self._tls:
            self._prefix = url
        self._lock = threading.Lock()
        self._idle: List[Tuple[float, http.client.HTTPConnection]] = []  # the last one was used last
        self._active: Dict[int, http.client.HTTPConnection] = {}  # by thread

    def post(self, path: str, body: bytes, headers: Any, timeout: float) -> Tuple[int, bytes]:
        connection = self._take() or self._new(timeout)
        self._active[threading.get_ident()] = connection
        try:
            connection.sock.settimeout(timeout)
            connection.request("POST", self._prefix + path, body, headers)
            response = connection.getresponse()
            text = response.read()
        except BaseException:
            connection.close()
            raise
        finally:
            del self._active[threading.get_ident()]
        if response.will_close:
            connection.close()
        else:
            with self._lock:
                self._idle.append((time.monotonic(), connection))
        return response.status, text

    def abort(self, thread: Optional[int]) -> None:
        """Breaks the connection of the request that a thread waits for, if there is one."""
        connection = self._active.get(thread or 0)
        if connection is not None:
            try:
                connection.sock.shutdown(socket.SHUT_RDWR)
            except (OSError, AttributeError):
                pass  # it has ended

    def close(self) -> None:
        with self._lock:
            idle, self._idle = self._idle, []
        for _, connection in idle:
            connection.close()

    def _take(self) -> Optional[http.client.HTTPConnection]:
        """Returns an idle connection that the server has not closed."""
        oldest = time.monotonic() - IDLE_TIME
        with self._lock:
            expired = [connection for used, connection in self._idle if used < oldest]
            self._idle = [entry for entry in self._idle if entry[0] >= oldest]
            found = None
            while self._idle and found is None:
                found = self._idle.pop()[1]
                if _is_readable(found.sock):
                    expired.append(found)
                    found = None
        for connection in expired:
            connection.close()
        return found

    def _new(self, timeout: float) -> http.client.HTTPConnection:
        host, port = self._host, self._port
        if self._proxy and self._proxy.hostname:
            host, port = self._proxy.hostname, self._proxy.port
        if self._tls is None:
            connection = http.client.HTTPConnection(host, port, timeout=timeout)
        else:
            connection = http.client.HTTPSConnection(host, port, timeout=timeout, context=self._tls)
            if self._proxy:
                connection.set_tunnel(self._host, self._port)
        connection.connect()
        connection.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection


def _is_readable(sock: Any) -> bool:
    """Reports whether a socket without a request is readable, which means that it was closed."""
    if not hasattr(select, "poll"):
        return bool(select.select([sock], [], [], 0)[0])
    poller = select.poll()
    poller.register(sock, select.POLLIN)
    return bool(poller.poll(0))


class _TokenFile:
    def __init__(self, path: str) -> None:
        self._path, self._lock = path, threading.Lock()
        self._token, self._time = "", float("-inf")

    def token(self) -> str:
        with self._lock:
            if time.monotonic() - self._time >= TOKEN_FILE_TIME:
                with open(self._path, encoding="utf-8") as file:
                    text = file.read().strip()
                if not text or "\n" in text or "\r" in text:
                    raise ValueError(f"token file {self._path}: must contain one token")
                self._token, self._time = text, time.monotonic()
            return self._token
