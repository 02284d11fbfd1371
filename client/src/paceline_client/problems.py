"""What can go wrong. Everything that this package raises of its own accord is a ``ClientError``.

ClientError
├── NoAnswer                 no answer came; ``may_have_counted`` says whether the request may have arrived
├── UnexpectedAnswer         an answer that this version cannot read
└── Problem                  the service refused: ``status``, ``code``, ``detail``, ``errors``
    ├── Unauthenticated      401
    ├── OverBudget           402  ``cost``, ``credits_left`` and ``resets_at`` are the figures
    ├── Forbidden            403
    │   └── LimitReached          limit_reached
    ├── NotFound             404
    ├── Conflict             409
    │   ├── AlreadyExists         already_exists
    │   ├── StaleLease            stale_lease
    │   ├── NotClaimable          not_claimable
    │   ├── OwnerDisabled         owner_disabled
    │   └── JobFinished           job_finished
    ├── PreconditionFailed   412
    ├── InvalidInput         422  ``errors`` names each wrong field
    ├── Throttled            429
    └── Unavailable          503
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import ClassVar

import msgspec

TEXT_CHARS_MAX = 500


class ClientError(Exception):
    """Any error of this package."""

    may_have_counted: bool = False
    """True if the request, or an earlier try, may have been done although no answer says so."""


class NoAnswer(ClientError):
    """The service could not be reached, or the connection ended before the answer."""

    def __init__(self, detail: str, *, may_have_counted: bool) -> None:
        super().__init__(detail)
        self.may_have_counted = may_have_counted


class UnexpectedAnswer(ClientError):
    """The service answered something that this version of the client cannot read."""


class FieldError(msgspec.Struct, frozen=True):
    """One wrong field: a JSON pointer into the body (or ``/query/…``) and what to do."""

    pointer: str
    detail: str


class ProblemDocument(msgspec.Struct, frozen=True):
    """An RFC 9457 problem as the service writes it. The last four fields come with ``over_daily_credits``."""

    status: int
    code: str
    detail: str
    title: str = ""
    type: str = ""
    errors: tuple[FieldError, ...] = ()
    cost: int | None = None
    credits_left: int | None = None
    resets_at: datetime | None = None
    refusal: str | None = None


class Problem(ClientError):
    """The service refused the request. Programs go by ``code``; people read ``detail``."""

    by_status: ClassVar[dict[int, type[Problem]]] = {}
    by_code: ClassVar[dict[str, type[Problem]]] = {}

    def __init__(self, document: ProblemDocument, *, retry_after_s: float | None = None) -> None:
        super().__init__(document.detail)
        self.document = document
        self.retry_after_s = retry_after_s

    def __init_subclass__(cls, *, status: int = 0, code: str = "") -> None:
        if code:
            cls.by_code[code] = cls
        else:
            cls.by_status[status] = cls

    @property
    def status(self) -> int:
        return self.document.status

    @property
    def code(self) -> str:
        return self.document.code

    @property
    def detail(self) -> str:
        return self.document.detail

    @property
    def errors(self) -> Sequence[FieldError]:
        return self.document.errors

    def __str__(self) -> str:
        unsure = " (an earlier try was cut off and may have counted)" if self.may_have_counted else ""
        return f"{self.status} {self.code}: {self.detail}{unsure}"


class Unauthenticated(Problem, status=401):
    """The token is missing, wrong or revoked."""


class OverBudget(Problem, status=402):
    """The job costs more than the user's credits that are left today."""

    @property
    def cost(self) -> int | None:
        return self.document.cost

    @property
    def credits_left(self) -> int | None:
        return self.document.credits_left

    @property
    def resets_at(self) -> datetime | None:
        return self.document.resets_at

    @property
    def refusal(self) -> str | None:
        """The id under which ``client.runs.why`` explains it later."""
        return self.document.refusal


class Forbidden(Problem, status=403):
    """The token may not do this."""


class LimitReached(Forbidden, code="limit_reached"):
    """The service allows no more of these."""


class NotFound(Problem, status=404):
    """There is no such thing, or it belongs to somebody else."""


class Conflict(Problem, status=409):
    """The request contradicts the current state."""


class AlreadyExists(Conflict, code="already_exists"):
    """It already exists."""


class StaleLease(Conflict, code="stale_lease"):
    """The lease ran out, or the run was settled."""


class NotClaimable(Conflict, code="not_claimable"):
    """The run is leased, settled, or may not start yet."""


class OwnerDisabled(Conflict, code="owner_disabled"):
    """Nothing runs for a disabled user."""


class JobFinished(Conflict, code="job_finished"):
    """Nothing is left of the job to cancel."""


class PreconditionFailed(Problem, status=412):
    """Somebody else has changed it since it was read."""


class InvalidInput(Problem, status=422):
    """A field is wrong; ``errors`` names each."""


class Throttled(Problem, status=429):
    """Too many requests."""


class Unavailable(Problem, status=503):
    """The service cannot do it now."""


_DOCUMENT = msgspec.json.Decoder(ProblemDocument)


def problem_of(status: int, headers: Mapping[str, str], body: bytes) -> Problem:
    """Returns the exception for an answer from 400 on, even if it is no problem document, such as a proxy's page."""
    try:
        document = _DOCUMENT.decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError):
        text = body[:TEXT_CHARS_MAX].decode("utf-8", "replace").strip()
        document = ProblemDocument(status, f"http_{status}", text or f"The answer was {status} without a text.")
    class_ = Problem.by_code.get(document.code) or Problem.by_status.get(status) or Problem
    return class_(document, retry_after_s=_retry_after_s(headers))


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Returns the seconds. The form with a date is ignored: Paceline does not send it, only proxies do."""
    text = headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None
