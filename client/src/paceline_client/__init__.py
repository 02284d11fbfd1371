"""The Python client of Paceline: every operation of its REST API, blocking and asynchronous."""

from paceline_client.client import AsyncClient, Client
from paceline_client.durations import Duration
from paceline_client.items import AsyncItems, Items
from paceline_client.models.batches import ClaimedRecord
from paceline_client.models.monitors import ClaimedRun
from paceline_client.problems import (
    AlreadyExists,
    ClientError,
    Conflict,
    FieldError,
    Forbidden,
    InvalidInput,
    JobFinished,
    LimitReached,
    NoAnswer,
    NotClaimable,
    NotFound,
    OverBudget,
    OwnerDisabled,
    PreconditionFailed,
    Problem,
    StaleLease,
    Throttled,
    Unauthenticated,
    Unavailable,
    UnexpectedAnswer,
)
from paceline_client.resources.jobs import AsyncJob, Job
from paceline_client.worker.outcomes import Retry
from paceline_client.worker.worker import Worker

__version__ = "0.1.0"
__all__ = [
    "AlreadyExists",
    "AsyncClient",
    "AsyncItems",
    "AsyncJob",
    "ClaimedRecord",
    "ClaimedRun",
    "Client",
    "ClientError",
    "Conflict",
    "Duration",
    "FieldError",
    "Forbidden",
    "InvalidInput",
    "Items",
    "Job",
    "JobFinished",
    "LimitReached",
    "NoAnswer",
    "NotClaimable",
    "NotFound",
    "OverBudget",
    "OwnerDisabled",
    "PreconditionFailed",
    "Problem",
    "Retry",
    "StaleLease",
    "Throttled",
    "Unauthenticated",
    "Unavailable",
    "UnexpectedAnswer",
    "Worker",
]
