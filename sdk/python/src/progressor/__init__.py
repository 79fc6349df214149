"""Client, worker and processor for the process engine Progressor."""

from . import api
from ._version import VERSION as __version__
from .client import Client, Retry
from .errors import (
    AttemptTimeout, Failure, JobCancelled, JobStopped, LeaseLost, ProgressorError, Rejection, Release, TaskFailed,
    TaskRejected, WorkerStopped,
)
from .processor import Processor, TaskHandler
from .signature import verify
from .worker import Attempt, Job, JobHandler, Worker

__all__ = [
    "AttemptTimeout", "Attempt", "Client", "Failure", "Job", "JobCancelled", "JobHandler", "JobStopped", "LeaseLost",
    "Processor", "ProgressorError", "Rejection", "Release", "Retry", "TaskFailed", "TaskHandler", "TaskRejected", "Worker",
    "WorkerStopped", "__version__", "api", "verify",
]
