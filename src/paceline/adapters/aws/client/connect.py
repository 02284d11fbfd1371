"""The clients: one of each service for a whole process, with time-outs, retries and errors that say what to do next.

boto3 finds region, credentials and endpoint in its usual ways. Its retries are off: ``call`` repeats a request within
milliseconds at first, while boto3 would wait up to a second. Every request that the store makes can be repeated.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import boto3
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
    ProfileNotFound,
)
from botocore.exceptions import ConnectionError as UnreachableError

from paceline.errors import NoStore, StoreUnavailable

T = TypeVar("T")
R = TypeVar("R")

THREADS = 16
"""Requests that one fan-out makes at the same time. A claim or a page of a plan is spread over them."""
CONNECTIONS = 2 * THREADS
ATTEMPTS_MAX = 10
"""Attempts of one request, of one batch with parts left over, or of one transaction that conflicts with others."""
BACKOFF_BASE_S = 0.025
BACKOFF_CAP_S = 2.0
REPEAT_S_MAX = 20.0
"""After this time no request is repeated, however few attempts were made."""
RECEIVE_WAIT_S_MAX = 20

THROTTLED = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ProvisionedThroughputExceeded",
        "ThrottlingException",
        "ThrottlingError",
        "Throttling",
        "RequestLimitExceeded",
        "RequestThrottled",
        "TooManyRequestsException",
        "OverLimit",
    }
)
_CREDENTIALS = frozenset(
    {
        "UnrecognizedClientException",
        "InvalidClientTokenId",
        "ExpiredToken",
        "ExpiredTokenException",
        "InvalidSignatureException",
        "SignatureDoesNotMatch",
        "IncompleteSignature",
        "MissingAuthenticationToken",
    }
)
_REFUSED = frozenset({"AccessDenied", "AccessDeniedException"})
_MISSING = frozenset(
    {
        "ResourceNotFoundException",
        "AWS.SimpleQueueService.NonExistentQueue",
        "QueueDoesNotExist",
        "TableNotFoundException",
    }
)
_BROKEN = frozenset({"InternalServerError", "InternalError", "InternalFailure", "ServiceUnavailable", "RequestTimeout"})


class Clients(NamedTuple):
    """The clients of boto3. Thread-safe, and costly to make: a process has one set."""

    dynamodb: Any
    sqs: Any


def open_clients() -> Clients:
    """Create the clients. Raises StoreUnavailable if boto3 finds no region.

    Missing credentials or a wrong endpoint show with the first request.
    """
    with faults():
        session = boto3.session.Session()
        try:
            return Clients(
                session.client("dynamodb", config=_config(read_timeout_s=10)),
                # A long poll answers at the end of its wait at the latest.
                session.client("sqs", config=_config(read_timeout_s=RECEIVE_WAIT_S_MAX + 10)),
            )
        except ValueError as error:  # boto3 raises it for an invalid address
            raise StoreUnavailable(f"AWS: {error}: set AWS_ENDPOINT_URL to a URL, or leave it out.") from error


def _config(*, read_timeout_s: int) -> Config:
    return Config(
        connect_timeout=5,
        read_timeout=read_timeout_s,
        max_pool_connections=CONNECTIONS,
        tcp_keepalive=True,
        retries={"mode": "standard", "total_max_attempts": 1},
    )


def close_clients(clients: Clients) -> None:
    for client in clients:
        client.close()


@contextmanager
def faults() -> Iterator[None]:
    """Turn errors of boto3 into StoreUnavailable with what to do next. Our own mistakes pass unchanged."""
    try:
        yield
    except ClientError as error:
        words = _client_words(error)
        if words is None:
            raise
        raise (NoStore if code_of(error) in _MISSING else StoreUnavailable)(words) from error
    except BotoCoreError as error:
        words = _connection_words(error)
        if words is None:
            raise
        raise StoreUnavailable(words) from error


def call(method: Callable[..., Any], **params: Any) -> Any:
    """Make one request, repeated while AWS is busy, broken or out of reach; then raise as ``faults`` does."""
    with faults():
        return _repeated(method, params)


def find(method: Callable[..., Any], **params: Any) -> Any | None:
    """Make one request like ``call``; None if there is no such table or queue."""
    with faults():
        try:
            return _repeated(method, params)
        except ClientError as error:
            if code_of(error) not in _MISSING:
                raise
            return None


def _repeated(method: Callable[..., Any], params: dict[str, Any]) -> Any:
    for attempt in attempts():
        try:
            return method(**params)
        except (ClientError, UnreachableError, HTTPClientError) as error:
            if attempt.last or not _passing(error):
                raise
    raise AssertionError("the last attempt returns or raises")


def _passing(error: Exception) -> bool:
    """Return True if the same request may succeed in a moment."""
    return not isinstance(error, ClientError) or _busy(error) or _broken(error)


def _busy(error: ClientError) -> bool:
    return code_of(error) in THROTTLED or code_of(error) == "TransactionInProgressException"


def _broken(error: ClientError) -> bool:
    status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    return code_of(error) in _BROKEN or status >= 500


def code_of(error: ClientError) -> str:
    return str(error.response.get("Error", {}).get("Code", ""))


def _client_words(error: ClientError) -> str | None:
    code, operation = code_of(error), error.operation_name
    if code in _MISSING:
        return f"AWS has no such table or queue ({operation}): run paceline aws init, or set another prefix or region."
    if code in _CREDENTIALS:
        return f"AWS refuses the credentials ({code}): renew them, or set AWS_PROFILE or AWS_ACCESS_KEY_ID."
    if code in _REFUSED:
        return f"AWS does not allow {operation} ({code}): give the role this right; deploy/aws lists those it needs."
    if _busy(error):
        return f"AWS throttles {operation} ({code}), also after several attempts: try again in a moment."
    if _broken(error):
        return f"AWS failed at {operation} ({code}), also after several attempts: try again in a moment."
    return None


def _connection_words(error: BotoCoreError) -> str | None:
    match error:
        case NoRegionError():
            return "AWS: no region is set: set AWS_REGION, or a region in the profile."
        case NoCredentialsError() | PartialCredentialsError() | CredentialRetrievalError():
            return f"AWS: no credentials ({error}): set AWS_PROFILE or AWS_ACCESS_KEY_ID, or give the host a role."
        case ProfileNotFound():
            return f"AWS: {error}: set AWS_PROFILE to one that there is."
        case UnreachableError() | HTTPClientError():
            return f"AWS cannot be reached: {error}: check the network, AWS_REGION and AWS_ENDPOINT_URL."
        case _:
            return None


def back_off(attempt: int) -> None:
    """Sleep before the next attempt: exponential with full jitter, so that colliding processes separate."""
    time.sleep(random.uniform(0, min(BACKOFF_CAP_S, BACKOFF_BASE_S * 2**attempt)))  # noqa: S311  no secret hangs on it


class Attempt(NamedTuple):
    number: int
    last: bool


def attempts() -> Iterator[Attempt]:
    """Yield attempts, bounded in number and in time, with a pause before each but the first."""
    began_s = time.monotonic()
    for number in range(ATTEMPTS_MAX):
        if number:
            back_off(number)
        last = number == ATTEMPTS_MAX - 1 or time.monotonic() - began_s > REPEAT_S_MAX
        yield Attempt(number, last)
        if last:
            return


def busy(what: str) -> StoreUnavailable:
    """Return the error of a write that lost to others too often."""
    return StoreUnavailable(f"AWS: too many write to {what} at once: try again in a moment.")


class Threads:
    """A bounded pool for requests that do not depend on each other."""

    def __init__(self, threads: int = THREADS) -> None:
        self._threads = threads
        self._pool: ThreadPoolExecutor | None = None
        self._lock = threading.Lock()
        self._inside = threading.local()

    def fan_out(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        """Make the requests and return the answers in order. All are tried; then the first error is raised."""
        given = list(items)
        if len(given) <= 1 or getattr(self._inside, "yes", False):
            # A thread of the pool that waits for the pool could wait for ever: a fan-out inside the pool runs in turn.
            return [work(item) for item in given]
        futures = [self._started().submit(work, item) for item in given]
        for future in futures:
            future.exception()  # waits: no request is under way when this returns or raises
        return [future.result() for future in futures]

    def _started(self) -> ThreadPoolExecutor:
        with self._lock:
            if self._pool is None:
                self._pool = ThreadPoolExecutor(self._threads, "paceline-aws", initializer=self._enter)
            return self._pool

    def _enter(self) -> None:
        self._inside.yes = True

    def close(self) -> None:
        with self._lock:
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
                self._pool = None
