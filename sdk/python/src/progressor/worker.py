"""Workers: they lease jobs, run them, and send heartbeats and answers.

A worker runs each handler in a thread: handlers are ordinary functions, and may use any library.
"""

from __future__ import annotations

import dataclasses
import datetime
import json
import logging
import os
import signal
import socket
import threading
import time
import uuid
from typing import Any, Callable, Dict, Iterable, List, Optional, Sequence, Tuple

from . import api
from ._json import decode, dump, encode
from .client import LONGEST, Client, Retry
from .errors import (
    AttemptTimeout, Failure, JobCancelled, JobStopped, LeaseLost, ProgressorError, Rejection, Release, WorkerStopped,
    message_of,
)
from .processor import Processor, duration, response_of, well_formed

MAX_POLLED = 256  # leases per poll
POLL_WAIT = 20.0
REQUEST_TIMEOUT = 30.0
QUIET_PAUSE = 1.0  # seconds between two polls of a worker that takes no new tasks
POLL_MARGIN = 2.0  # seconds for the last poll to end when the worker stops
STOP_MARGIN = 2.0  # seconds for handlers to return after they were stopped
PROGRESS_EVERY = 1.0
BEAT_RETRY = 0.25
MAX_SUMMARY = 4096  # bytes
MAX_PROGRESS = 64 << 10  # bytes of JSON
MAX_BEAT = 8 << 20  # bytes of progress in one heartbeat
OUTAGE_RETRY = Retry(initial=0.1, max=5.0)  # the waits while the engine cannot be reached

#: Takes the args and the job. The return value is the result of the job.
JobHandler = Callable[[Any, "Job"], Any]


@dataclasses.dataclass(frozen=True)
class Attempt:
    """An attempt that has ended.

    The outcome is "done", "failed", "cancelled", "released", or "lost" if the engine did not accept
    an answer. error is the exception that the handler raised. duration is in seconds.
    """

    lease: api.Lease
    outcome: str
    duration: float
    error: Optional[BaseException]


class Job:
    """The job that a handler runs."""

    def __init__(self, worker: "Worker", lease: api.Lease, received: float) -> None:
        request, job = lease["request"], lease.get("job", {})
        #: The lease, with everything that the engine sent.
        self.lease = lease
        self.namespace = lease["namespace"]
        self.id = job.get("job_id", request["process"]["process_id"])
        self.name = job.get("name", "")
        self.args = job.get("args")
        #: The number of the attempt, counted from 1.
        self.attempt = request["attempt"]
        #: Grows with every attempt, so that other systems can reject late ones.
        self.fencing_token = request["fencing_token"]
        #: The progress that the last attempt reported.
        self.last_progress: Optional[api.Progress] = job.get("progress")
        #: The failures of earlier attempts, oldest first.
        self.failures: List[api.Failure] = job.get("failures", [])
        self._worker = worker
        self._began = received
        self._ends = self._local(request["deadline"])
        #: When this attempt times out, by the clock of this machine.
        self.deadline = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=self._ends - self._began)
        self._expires = self._local(lease["expires_time"])
        self._interval = _seconds(lease["heartbeat_interval"])
        self._last_beat = self._began
        self._progress: Optional[api.Progress] = None  # not sent yet
        self._progress_sent = float("-inf")
        self._answering = False  # the handler has returned
        self._lost = False
        self._stopped: Optional[JobStopped] = None
        self._stop_event = threading.Event()

    def progress(self, percent: float, summary: str = "", details: Optional[Dict[str, Any]] = None) -> None:
        """Sets the progress: 0 to 100, a text, and details for the next attempt.

        The next heartbeat carries it. Raises JobStopped as check does.
        """
        progress: api.Progress = {"percent": min(max(0, percent), 100), "summary": well_formed(summary, MAX_SUMMARY)}
        if details:
            progress["details"] = details
        content = json.dumps(progress, allow_nan=False)
        if len(content) > MAX_PROGRESS:
            raise ValueError(f"progress: must have at most {MAX_PROGRESS} bytes of JSON")
        with self._worker._changed:
            self._progress = json.loads(content)  # a copy: the program may change details afterwards
            self._worker._changed.notify_all()
        self.check()

    def check(self) -> None:
        """Raises JobCancelled, LeaseLost, WorkerStopped or AttemptTimeout if the attempt is over."""
        if self._stopped is not None:
            raise self._stopped

    def sleep(self, seconds: float) -> None:
        """Waits, and raises as check does as soon as the attempt is over."""
        self._stop_event.wait(min(seconds, threading.TIMEOUT_MAX))
        self.check()

    def _stop(self, reason: JobStopped) -> None:
        if self._stopped is None:
            self._stopped = reason
            self._stop_event.set()

    def _lose(self, why: str) -> None:
        self._lost = True
        self._stop(LeaseLost(f"the lease was lost: {why}"))

    def _local(self, moment: str) -> float:
        """Converts a time of the engine's clock to time.monotonic."""
        return self._began + (_time(moment) - _time(self.lease["leased_time"])).total_seconds()

    def __str__(self) -> str:
        return f"{self.name or 'task'} {self.namespace}/{self.id}, attempt {self.attempt}"


class Worker:
    """Leases tasks of namespaces whose processor is `pull`, and runs them.

    All its connections are outgoing. It runs once.

        worker = Worker(Client(), ["mail"])

        @worker.job("send")
        def send(args, job):
            return {"sent": args["to"]}

        worker.run()

    :param id: the default consists of the host, the process ID and a random part.
    :param concurrency: how many tasks run at a time, each in a thread.
    :param stop_grace: how long running handlers may continue after a stop, in seconds.
    :param lease_duration: the time without a heartbeat after which tasks go to another worker, in
        seconds. The default is that of the namespace.
    :param signals: the signals that stop the worker, if run is called in the main thread.
    :param ended: called after every attempt.
    """

    def __init__(
        self, client: Client, namespaces: Sequence[str], *,
        id: Optional[str] = None, concurrency: int = 10, stop_grace: float = 30.0, lease_duration: Optional[float] = None,
        signals: Iterable[int] = (signal.SIGTERM, signal.SIGINT), logger: Optional[logging.Logger] = None,
        ended: Optional[Callable[[Attempt], None]] = None,
    ) -> None:
        self.id = id or f"{socket.gethostname()[:100]}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        self._client, self._namespaces = client, list(namespaces)
        self._concurrency = min(max(concurrency, 1), 10_000)
        self._stop_grace, self._lease_duration = stop_grace, lease_duration
        self._signals, self._ended = list(signals), ended
        self._logger = logger or logging.getLogger("progressor")
        self._handlers: Dict[str, JobHandler] = {}
        self._others: Optional[JobHandler] = None
        self._rest: Optional[Processor] = None
        self._stopping = threading.Event()
        self._changed = threading.Condition()  # guards what follows
        self._held: Dict[str, Job] = {}  # by lease token
        self._quiet = False
        self._over = False
        self._error: Optional[BaseException] = None

    def job(self, name: str) -> Callable[[JobHandler], JobHandler]:
        """Registers the decorated function as the handler for jobs with the given name."""

        def register(handler: JobHandler) -> JobHandler:
            self._handlers[name] = handler
            return handler

        return register

    def jobs(self, handler: JobHandler) -> JobHandler:
        """Registers the handler for all other jobs."""
        self._others = handler
        return handler

    def processes(self, processor: Processor) -> None:
        """Registers a processor for the tasks of processes that are not jobs."""
        self._rest = processor

    def stop(self) -> None:
        """Stops taking new tasks. run() returns when the running tasks have ended or been released."""
        self._stopping.set()

    def run(self) -> None:
        """Runs tasks until the worker is stopped by stop(), by a signal or by an operator.

        Raises ProgressorError if the engine refuses the first poll, for example because a namespace
        is missing. If a thread of the worker itself fails, the worker stops, and run raises its error.
        """
        if not self._handlers and self._others is None and self._rest is None:
            raise ValueError("the worker has no handler")
        previous = {}
        if threading.current_thread() is threading.main_thread():
            for number in self._signals:
                previous[number] = signal.signal(number, lambda *_: self.stop())
        try:
            threading.Thread(target=self._serve, args=(self._beat,), name="progressor-beat", daemon=True).start()
            poller = threading.Thread(target=self._serve, args=(self._poll,), name="progressor-poll", daemon=True)
            poller.start()
            self._stopping.wait()
            self._end_poll(poller)
            self._drain()
        finally:
            self._stopping.set()
            with self._changed:
                self._over = True
                self._changed.notify_all()
            for number, handler in previous.items():
                signal.signal(number, handler)
        if self._error is not None:
            raise self._error

    def _serve(self, loop: Callable[[], None]) -> None:
        """Runs a loop of the worker. If it fails, the worker stops, and run raises the error."""
        try:
            loop()
        except BaseException as error:
            self._error = self._error or error
            self._stopping.set()

    def _poll(self) -> None:
        accepted, failures = False, 0
        while not self._stopping.is_set():
            with self._changed:
                free = self._concurrency - len(self._held)
                if free <= 0:
                    if not self._stopping.is_set():
                        self._changed.wait(1.0)
                    continue
            try:
                body = dump(encode("PollRequest", self._poll_request(min(free, MAX_POLLED)))).encode()
                response = self._client._post("WorkerService/Poll", body, time.monotonic() + POLL_WAIT + REQUEST_TIMEOUT)
                accepted = True
                self._start(response.get("leases", []))
                self._obey(response.get("worker"))
            except Exception as error:
                if not accepted and _is_permanent(error):
                    raise
                failures += 1
                if failures == 1 and not self._stopping.is_set():
                    self._logger.warning("polling failed; retrying: %s", message_of(error))
                self._stopping.wait(OUTAGE_RETRY.interval(failures))
                continue
            failures = 0
            if self._quiet:
                self._stopping.wait(QUIET_PAUSE)

    def _end_poll(self, poller: threading.Thread) -> None:
        """Lets the engine end the last poll. The poller must receive its response, which may contain leases."""
        end = time.monotonic() + POLL_MARGIN
        with self._changed:
            self._changed.notify_all()
        try:
            self._client.worker.release({"worker_id": self.id, "end_polls": True}, timeout=POLL_MARGIN)
        except Exception as error:
            self._logger.info("ending the poll failed: %s", message_of(error))
        poller.join(max(0.0, end - time.monotonic()))
        if poller.is_alive():
            self._client._connections.abort(poller.ident)  # otherwise, it would take the released tasks
            poller.join(STOP_MARGIN)

    def _poll_request(self, leases: int) -> api.PollRequest:
        request: api.PollRequest = {
            "namespaces": self._namespaces, "worker_id": self.id, "max_leases": leases, "wait": duration(POLL_WAIT),
            "job_names": [] if self._others or self._rest else list(self._handlers), "jobs_only": self._rest is None,
        }
        if self._lease_duration is not None:
            request["lease_duration"] = duration(self._lease_duration)
        return request

    def _obey(self, directive: Optional[str]) -> None:
        """Applies the engine's directive to the whole worker."""
        self._quiet = directive == "WORKER_DIRECTIVE_QUIET"
        if directive == "WORKER_DIRECTIVE_STOP":
            self.stop()

    def _start(self, leases: List[Any]) -> None:
        """Runs the leased tasks of a Poll. Releases those that cannot start, or that arrive after a stop."""
        received, left = time.monotonic(), [lease["leaseToken"] for lease in leases]
        try:
            for lease in leases:
                job, undecodable = self._decode(lease, received)
                run = threading.Thread(target=self._run, args=(job, undecodable), name=f"progressor-{job.id}", daemon=True)
                with self._changed:
                    if self._stopping.is_set():
                        return
                    self._held[left[0]] = job
                    self._changed.notify_all()
                run.start()
                left.pop(0)
        finally:
            if left:
                with self._changed:
                    self._held.pop(left[0], None)  # if its thread could not start
                    self._changed.notify_all()
                self._release(left)

    def _decode(self, lease: Any, received: float) -> Tuple[Job, Optional[Exception]]:
        """Returns the job of a lease, and the exception for its handler if the lease cannot be decoded."""
        try:
            return Job(self, decode("Lease", lease, self._client.payloads), received), None
        except Exception as error:
            refusable = lease["request"]["type"] in ("TASK_TYPE_CALL", "TASK_TYPE_REPAIR")
            undecodable = (Rejection if refusable else Failure)("undecodable", f"decode the request: {message_of(error)}")
            return Job(self, decode("Lease", lease, "bytes"), received), undecodable

    def _run(self, job: Job, undecodable: Optional[Exception]) -> None:
        """Runs the task of a lease and removes the lease at the end."""
        outcome, error = "lost", None
        try:
            outcome, error = self._execute(job, undecodable)
        except Exception:
            self._logger.exception("%s: attempt without an answer: its lease will expire", job)
        finally:
            with self._changed:
                self._held.pop(job.lease["lease_token"], None)
                self._changed.notify_all()
        if self._ended is not None:
            try:
                self._ended(Attempt(job.lease, outcome, time.monotonic() - job._began, error))
            except Exception:
                self._logger.exception("the function ended failed")

    def _execute(self, job: Job, undecodable: Optional[Exception]) -> Tuple[str, Optional[BaseException]]:
        """Runs the handler of a lease and sends its answer. Returns how the attempt ended."""
        answer: Optional[api.CompleteRequest] = None
        delay: float = 0
        error: Optional[BaseException] = None
        try:
            if undecodable is not None:
                raise undecodable
            answer = self._handle(job)
        except Release as release:
            delay, error = release.delay, release
        except WorkerStopped as stopped:
            error = stopped
        except JobCancelled as cancelled:
            answer, error = {"cancelled": {"message": well_formed(message_of(cancelled), MAX_SUMMARY)}}, cancelled
        except BaseException as raised:
            answer, error = {"response": response_of(raised)}, raised
        with self._changed:
            job._answering = True
        if job._progress and not job._lost and error is not None:
            self._send_progress(job)
        if job._lost:
            return "lost", error
        if job.lease["lease_token"] not in self._held:
            return "released", error  # _drain has released it
        if answer is not None:
            return self._complete(job, answer), error
        self._release([job.lease["lease_token"]], delay)
        return "released", error

    def _handle(self, job: Job) -> api.CompleteRequest:
        """Calls the handler of a lease."""
        if "job" in job.lease:
            handler = self._handlers.get(job.name, self._others)
            if handler is not None:
                return {"job_result": {"result": handler(job.args, job)}}
        if self._rest is not None:
            return {"response": self._rest.process(job.lease["request"])}
        raise Failure("not_handled", f"this worker handles only jobs named {', '.join(self._handlers)}")

    def _complete(self, job: Job, answer: api.CompleteRequest) -> str:
        """Sends an answer until the engine accepts or refuses it, or the lease has expired."""
        token, outcome, failures, replaced = job.lease["lease_token"], _outcome(answer), 0, False
        try:
            body = _encode_answer(token, answer)  # once: the program may change the value afterwards
        except Exception as error:
            body, outcome, replaced = _bad_response(token, f"the answer is not JSON: {message_of(error)}"), "failed", True
        while True:
            try:
                self._client._post("WorkerService/Complete", body, time.monotonic() + REQUEST_TIMEOUT)
                return outcome
            except Exception as error:
                if isinstance(error, ProgressorError) and error.reason == "REASON_LEASE_LOST":
                    return "lost"
                if _is_refused(error):
                    if replaced:
                        self._logger.error("%s: answer dropped: the engine refused it twice: %s", job, error)
                        return "lost"
                    # Otherwise the lease would expire, and the next worker would run into the same error.
                    body, outcome, replaced = _bad_response(token, f"the engine refused the answer: {error}"), "failed", True
                    continue
                failures += 1
                if token not in self._held or time.monotonic() > job._expires:
                    self._logger.warning("%s: answer dropped: it did not reach the engine before the lease expired", job)
                    return "lost"
                if failures == 1:
                    self._logger.warning("%s: sending the answer failed; retrying: %s", job, message_of(error))
            time.sleep(OUTAGE_RETRY.interval(failures))

    def _send_progress(self, job: Job) -> None:
        """Sends the progress of an attempt that has failed or is released, for the next attempt."""
        beat: api.LeaseBeat = {"lease_token": job.lease["lease_token"], "progress": job._progress or {}}
        job._progress = None
        try:
            self._client.worker.heartbeat({"worker_id": self.id, "beats": [beat]}, timeout=5, max_attempts=1)
        except Exception as error:
            self._logger.warning("%s: sending the last progress failed: %s", job, error)

    def _release(self, tokens: List[str], delay: float = 0) -> None:
        request: api.ReleaseRequest = {"worker_id": self.id, "lease_tokens": tokens}
        if delay > 0:
            request["delay"] = duration(delay)
        try:
            self._client.worker.release(request, timeout=REQUEST_TIMEOUT)
        except Exception as error:
            self._logger.warning("releasing %d tasks failed: their leases will expire: %s", len(tokens), error)

    def _beat(self) -> None:
        """Sends heartbeats, and stops the attempts that exceed their timeout, until the run is over."""
        failed: Optional[float] = None
        while True:
            with self._changed:
                if self._over:
                    return
                now = time.monotonic()
                for job in self._held.values():
                    if now >= job._ends:
                        job._stop(AttemptTimeout("the attempt exceeded its timeout"))
                due = self._next_beat(failed)
                ends = [job._ends for job in self._held.values() if job._stopped is None]
                if now < due:
                    self._changed.wait(max(0.0, min([due, now + 3600, *ends]) - now))
                    continue
                jobs = [job for job in self._held.values() if not job._lost]
            try:
                failed = self._beat_once(jobs, failed)
            except Exception:
                self._logger.exception("heartbeat failed; retrying")
                failed = time.monotonic()

    def _next_beat(self, failed: Optional[float]) -> float:
        due = float("inf")
        for job in self._held.values():
            if job._lost:
                continue
            due = min(due, job._last_beat + job._interval)
            if job._progress:
                due = min(due, job._progress_sent + PROGRESS_EVERY)
        return due if failed is None else max(due, failed + BEAT_RETRY)

    def _beat_once(self, jobs: List[Job], failed: Optional[float]) -> Optional[float]:
        """Sends one heartbeat, and applies the directives. Returns the time if it failed."""
        beats: List[api.LeaseBeat] = []
        room, now = MAX_BEAT, time.monotonic()
        for job in jobs:
            beat: api.LeaseBeat = {"lease_token": job.lease["lease_token"]}
            progress = job._progress
            if progress and now - job._progress_sent >= PROGRESS_EVERY and room >= _size(progress):
                beat["progress"] = progress
                room -= _size(progress)
            beats.append(beat)
        timeout = min([REQUEST_TIMEOUT] + [max(job._interval, 1.0) for job in jobs])
        try:
            response = self._client.worker.heartbeat({"worker_id": self.id, "beats": beats}, timeout=timeout, max_attempts=1)
        except Exception as error:
            if failed is None:
                self._logger.warning("heartbeat failed; retrying: %s", error)
            now = time.monotonic()
            for job in jobs:
                if _is_refused(error):  # one progress made the engine refuse all
                    job._progress = None
                if not job._answering and now > job._expires:
                    job._lose("the heartbeats did not reach the engine")
            return now
        with self._changed:
            for job, beat, directive in zip(jobs, beats, response.get("directives", [])):
                _apply(job, directive, beat.get("progress"))
        self._obey(response.get("worker"))
        return None

    def _drain(self) -> None:
        """Waits for the handlers until the grace period ends. Then it stops them and releases the rest."""
        with self._changed:
            if self._changed.wait_for(lambda: not self._held, min(self._stop_grace, LONGEST)):
                return
            for job in self._held.values():
                job._stop(WorkerStopped("the worker stops"))
            if self._changed.wait_for(lambda: not self._held, STOP_MARGIN):
                return
            rest = list(self._held.values())
            self._held.clear()
        for job in rest:
            self._logger.warning("%s: the handler did not stop; releasing its task anyway", job)
        if rest:
            self._release([job.lease["lease_token"] for job in rest])


def _apply(job: Job, directive: api.LeaseDirective, sent: Optional[api.Progress]) -> None:
    job._last_beat = time.monotonic()
    if sent is not None:
        job._progress_sent = job._last_beat
        if job._progress is sent:
            job._progress = None
    kind = directive.get("directive")
    if kind == "DIRECTIVE_LOST":
        if not job._answering:  # otherwise the answer may be stored, and the response to it decides
            job._lose("another worker has the task, or it has ended")
        return
    if kind == "DIRECTIVE_CANCEL":
        job._stop(JobCancelled(directive.get("cancel_reason") or "the job was cancelled"))
    if "expires_time" in directive:
        job._expires = job._local(directive["expires_time"])
    if "heartbeat_interval" in directive:
        job._interval = _seconds(directive["heartbeat_interval"])


def _encode_answer(token: str, answer: api.CompleteRequest) -> bytes:
    return dump(encode("CompleteRequest", {**answer, "lease_token": token})).encode()


def _bad_response(token: str, why: str) -> bytes:
    """Returns the answer in place of one that the engine cannot accept."""
    return _encode_answer(token, {"response": response_of(Failure("bad_response", why, non_retryable=True))})


def _outcome(answer: api.CompleteRequest) -> str:
    if "cancelled" in answer:
        return "cancelled"
    return "failed" if "failure" in answer.get("response", {}) else "done"


def _is_permanent(error: BaseException) -> bool:
    """Reports whether every poll would fail with an error: the worker is misconfigured."""
    codes = ("invalid_argument", "not_found", "unauthenticated", "permission_denied", "unimplemented")
    return not isinstance(error, ProgressorError) or error.code in codes


def _is_refused(error: BaseException) -> bool:
    """Reports whether the engine would refuse a request each time it is sent."""
    if not isinstance(error, ProgressorError):
        return False
    return error.code == "invalid_argument" or error.code == "resource_exhausted" and error.reason != "REASON_OVERLOADED"


def _size(progress: api.Progress) -> int:
    return len(json.dumps(progress, allow_nan=False))


def _seconds(text: str) -> float:
    return max(0.01, float(text[:-1]))


def _time(text: str) -> datetime.datetime:
    """Parses a time of the API, which has up to nine digits after the second."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    moment = datetime.datetime.strptime(whole, "%Y-%m-%dT%H:%M:%S").replace(tzinfo=datetime.timezone.utc)
    return moment + datetime.timedelta(microseconds=int((fraction + "000000")[:6]))
