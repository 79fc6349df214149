"""The errors that requests raise, and those that handlers raise."""

from __future__ import annotations

import json
from typing import Any, Callable, Dict, Optional

from . import api

# Connect defines these codes for HTTP responses that do not come from the engine.
_CODES = {
    400: "internal", 401: "unauthenticated", 403: "permission_denied", 404: "unimplemented",
    429: "unavailable", 502: "unavailable", 503: "unavailable", 504: "unavailable",
}

_KNOWN = frozenset((
    "canceled", "unknown", "invalid_argument", "deadline_exceeded", "not_found", "already_exists",
    "permission_denied", "resource_exhausted", "failed_precondition", "aborted", "out_of_range",
    "unimplemented", "internal", "unavailable", "data_loss", "unauthenticated",
))


class ProgressorError(Exception):
    """Raised if the engine refuses a request or does not respond.

    Check its reason, or its code if it has no reason. The text is the engine's message, which is
    meant for people. The code "unavailable" without a reason means that the engine could not be
    reached, or that the response was lost.
    """

    def __init__(self, code: str, message: str, detail: Optional[api.ErrorDetail] = None) -> None:
        super().__init__(message)
        self.code = code
        #: The namespace, process, task and field of the error, as far as they are known.
        self.detail: api.ErrorDetail = detail or {}

    @property
    def reason(self) -> Optional[str]:
        """Why the engine refused the request, such as "REASON_PROCESS_NOT_FOUND"."""
        return self.detail.get("reason")


class TaskRejected(ProgressorError):
    """The processor rejected the request, and the process did not change."""

    @property
    def rejection(self) -> api.Rejection:
        return self.detail.get("rejection", {})


class TaskFailed(ProgressorError):
    """The processor failed, and the process is in ERROR."""

    @property
    def failure(self) -> api.Failure:
        return self.detail.get("failure", {})


_CLASSES = {"REASON_TASK_REJECTED": TaskRejected, "REASON_TASK_FAILED": TaskFailed}


def error_of(status: int, text: bytes, decode_detail: Callable[[Any], Any]) -> ProgressorError:
    """Returns the error for an unsuccessful HTTP response."""
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    code = body.get("code") if isinstance(body, dict) else None
    if not isinstance(code, str) or code not in _KNOWN:  # a response of a proxy, which may be JSON
        return ProgressorError(_CODES.get(status, "unknown"), f"HTTP status {status}: {text[:200]!r}")
    message, details = body.get("message"), body.get("details")
    message = message if isinstance(message, str) else code
    detail: Dict[str, Any] = {}
    for found in details if isinstance(details, list) else []:
        if isinstance(found, dict) and found.get("type") == "progressor.v1.ErrorDetail" and isinstance(found.get("debug"), dict):
            detail = decode_detail(found["debug"])
    return _CLASSES.get(detail.get("reason", ""), ProgressorError)(code, message, detail)


def message_of(error: BaseException) -> str:
    """Returns the text of an error of any class."""
    try:
        return str(error)
    except Exception:
        return "the error has no text"


class Rejection(Exception):
    """Raised by handlers to reject a task, or to fail a job without a retry.

    A rejected task does not change its process. The reason is a short, stable name for programs.
    """

    def __init__(self, reason: str, message: str, details: Any = None) -> None:
        super().__init__(message)
        self.reason, self.message, self.details = reason, message, details


class Failure(Exception):
    """Raised by handlers to fail an attempt with a reason. Any other exception has the reason "error".

    With non_retryable, there is no retry. retry_after is in seconds and replaces the backoff.
    """

    def __init__(
        self, reason: str, message: str, *,
        non_retryable: bool = False, retry_after: Optional[float] = None, details: Any = None,
    ) -> None:
        super().__init__(message)
        self.reason, self.message, self.details = reason, message, details
        self.non_retryable, self.retry_after = non_retryable, retry_after


class Release(Exception):
    """Raised by handlers of a worker to return a task without an answer. No attempt is counted.

    Any worker can take the task again after delay, in seconds.
    """

    def __init__(self, delay: float = 0) -> None:
        super().__init__("the task was released")
        self.delay = delay


class JobStopped(Exception):
    """The attempt is over. Job.check raises a subclass of this exception. Handlers must not catch it."""


class JobCancelled(JobStopped):
    """The job was cancelled."""


class LeaseLost(JobStopped):
    """The lease was lost: another worker may have the task, or the task has ended."""


class WorkerStopped(JobStopped):
    """The worker stops: the task goes to another worker."""


class AttemptTimeout(JobStopped):
    """The attempt exceeded its timeout."""
