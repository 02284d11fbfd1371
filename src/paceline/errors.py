"""The error tree. Every error a person can meet has a stable code, an HTTP status and says what to do next.

PacelineError
├── InvalidInput          422  invalid_input        a field is wrong; ``errors`` names each
├── MalformedBody         400  malformed_body       not JSON at all
├── Unauthenticated       401  unauthenticated
├── OverDailyCredits      402  over_daily_credits   ``cost``, ``credits_left`` and ``resets_ms`` are the figures
├── Forbidden             403  forbidden            the route is for admins
├── OutOfScope            403  out_of_scope         the token's scope does not cover the request
├── NotFound              404  not_found            also for things that belong to another user
├── AlreadyExists         409  already_exists
├── StaleLease            409  stale_lease          the lease ran out, or the run was settled
├── NotClaimable          409  not_claimable        the run is leased, settled, or may not start yet
├── OwnerDisabled         409  owner_disabled       nothing of a disabled user runs
├── LastAdmin             409  last_admin           the last enabled admin would be lost
├── JobFinished           409  job_finished         nothing of the job is left to cancel
├── RevisionMismatch      412  revision_mismatch    If-Match did not match
├── BodyTooLarge          413  body_too_large
├── BodyTooSlow           408  body_too_slow
├── LimitReached          403  limit_reached
├── Throttled             429  throttled
├── AtlasUnavailable      503  atlas_unavailable    RIPE Atlas gave no answer
├── StoreUnavailable      503  store_unavailable    disk full, read-only, locked
│   ├── NoStore           503  no_store             there is no file, or there are no tables
│   └── StoreDamaged      503  store_damaged        the file is gone, replaced or damaged; lasts until a restart
├── StoreTooNew           500  store_too_new        the file was written by a newer version
├── WrongSetting          500  wrong_setting        the process does not start
└── WrongSecretKey        500  wrong_secret_key     the store was made with another secret key
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, NamedTuple


class FieldProblem(NamedTuple):
    """One wrong field: a JSON pointer to it, and what to do."""

    pointer: str
    detail: str


class PacelineError(Exception):
    code: ClassVar[str] = "internal"
    title: ClassVar[str] = "Something went wrong"
    status: ClassVar[int] = 500

    def __init__(self, detail: str, *, errors: Sequence[FieldProblem] = (), retry_after_s: int | None = None) -> None:
        super().__init__(detail)
        self.detail = detail
        self.errors = tuple(errors)
        self.retry_after_s = retry_after_s


class InvalidInput(PacelineError):
    code = "invalid_input"
    title = "The input is not valid"
    status = 422

    @classmethod
    def of(cls, *problems: FieldProblem) -> InvalidInput:
        """Return one error for several wrong fields, each named."""
        return cls("; ".join(f"{p.pointer or '/'}: {p.detail}" for p in problems), errors=problems)


class MalformedBody(PacelineError):
    code = "malformed_body"
    title = "The body is not JSON"
    status = 400


class Unauthenticated(PacelineError):
    code = "unauthenticated"
    title = "A valid token is required"
    status = 401


class OverDailyCredits(PacelineError):
    code = "over_daily_credits"
    title = "Not enough daily credits left"
    status = 402

    def __init__(
        self, detail: str, *, cost: int, credits_left: int, resets_ms: int, refusal: str | None = None
    ) -> None:
        super().__init__(detail)
        self.cost = cost
        self.credits_left = credits_left
        self.resets_ms = resets_ms
        self.refusal = refusal
        """Id under which the refusal is explained later; None: it is not kept."""


class Forbidden(PacelineError):
    code = "forbidden"
    title = "Only an admin may do this"
    status = 403


class OutOfScope(PacelineError):
    code = "out_of_scope"
    title = "The token's scope does not cover this"
    status = 403


class NotFound(PacelineError):
    code = "not_found"
    title = "Not found"
    status = 404


class AlreadyExists(PacelineError):
    code = "already_exists"
    title = "Already exists"
    status = 409


class LastAdmin(PacelineError):
    code = "last_admin"
    title = "At least one admin is required"
    status = 409


class StaleLease(PacelineError):
    code = "stale_lease"
    title = "The lease is no longer valid"
    status = 409


class NotClaimable(PacelineError):
    code = "not_claimable"
    title = "The run cannot be claimed"
    status = 409


class OwnerDisabled(PacelineError):
    code = "owner_disabled"
    title = "The owner is disabled"
    status = 409


class JobFinished(PacelineError):
    code = "job_finished"
    title = "The job has already finished"
    status = 409


class RevisionMismatch(PacelineError):
    code = "revision_mismatch"
    title = "The revision does not match"
    status = 412


class BodyTooLarge(PacelineError):
    code = "body_too_large"
    title = "The body is too large"
    status = 413


class BodyTooSlow(PacelineError):
    code = "body_too_slow"
    title = "The body did not arrive in time"
    status = 408


class LimitReached(PacelineError):
    code = "limit_reached"
    title = "A limit has been reached"
    status = 403


class Throttled(PacelineError):
    code = "throttled"
    title = "Too many requests"
    status = 429


class AtlasUnavailable(PacelineError):
    code = "atlas_unavailable"
    title = "RIPE Atlas does not answer"
    status = 503


class StoreUnavailable(PacelineError):
    code = "store_unavailable"
    title = "The store is unavailable"
    status = 503


class NoStore(StoreUnavailable):
    code = "no_store"
    title = "There is no store"


class StoreDamaged(StoreUnavailable):
    """The files are not those that were opened. Nothing more is written until the process is restarted."""

    code = "store_damaged"
    title = "The store is damaged"


class StoreTooNew(PacelineError):
    code = "store_too_new"
    title = "The store was written by a newer version"
    status = 500


class WrongSetting(PacelineError):
    code = "wrong_setting"
    title = "A setting is wrong"


class WrongSecretKey(WrongSetting):
    code = "wrong_secret_key"
    title = "The secret key does not belong to this store"
