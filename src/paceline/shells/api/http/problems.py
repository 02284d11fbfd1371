"""Errors as RFC 9457 problems: a text, a stable code, and nothing about the inside of the service."""

from __future__ import annotations

import msgspec

from paceline import errors
from paceline.core.instants import to_text
from paceline.core.schema import Instant

RETRY_AFTER_S = 5
"""Retry-After of a 503 whose error names no time itself."""


class MethodNotAllowed(errors.PacelineError):
    code = "method_not_allowed"
    title = "Method not allowed"
    status = 405


class UnsupportedMediaType(errors.PacelineError):
    code = "unsupported_media_type"
    title = "The body must be JSON"
    status = 415


class NotReady(errors.PacelineError):
    code = "not_ready"
    title = "Not ready"
    status = 503


class Internal(errors.PacelineError):
    """An unexpected exception; the log has the details."""


CODES: dict[str, type[errors.PacelineError]] = {
    error.code: error
    for error in (
        errors.InvalidInput,
        errors.MalformedBody,
        errors.Unauthenticated,
        errors.OverDailyCredits,
        errors.Forbidden,
        errors.OutOfScope,
        errors.LimitReached,
        errors.NotFound,
        MethodNotAllowed,
        errors.BodyTooSlow,
        errors.AlreadyExists,
        errors.StaleLease,
        errors.NotClaimable,
        errors.OwnerDisabled,
        errors.JobFinished,
        errors.LastAdmin,
        errors.RevisionMismatch,
        errors.BodyTooLarge,
        UnsupportedMediaType,
        errors.Throttled,
        errors.AtlasUnavailable,
        errors.StoreUnavailable,
        errors.NoStore,
        errors.StoreDamaged,
        errors.StoreTooNew,
        NotReady,
        Internal,
    )
}
"""Every code that an answer may carry."""


class WrongField(msgspec.Struct, frozen=True):
    """A wrong field: a JSON pointer into the body (or /query/…, /header/…) and what to do."""

    pointer: str
    detail: str


class Problem(msgspec.Struct, frozen=True):
    """A problem (RFC 9457). Programs use ``code``; people read ``detail``.

    The last four fields come with ``over_daily_credits``. ``refusal`` is the id under which `GET /v1/runs/{run}/why`
    explains it later.
    """

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: list[WrongField]
    cost: int | msgspec.UnsetType = msgspec.UNSET
    credits_left: int | msgspec.UnsetType = msgspec.UNSET
    resets_at: Instant | msgspec.UnsetType = msgspec.UNSET
    refusal: str | msgspec.UnsetType = msgspec.UNSET


def point_into(error: errors.PacelineError, pointer: str) -> errors.PacelineError:
    """The error of one item of many. A step names only the wrong field; ``pointer`` says which item it belongs to."""
    if not error.errors or error.errors[0].pointer.startswith(pointer):
        return error
    return errors.InvalidInput.of(
        *(errors.FieldProblem(pointer + field.pointer, field.detail) for field in error.errors)
    )


def problem_of(error: errors.PacelineError) -> Problem:
    over = error if isinstance(error, errors.OverDailyCredits) else None
    return Problem(
        type=f"/docs#error-{error.code}",
        title=error.title,
        status=error.status,
        detail=error.detail,
        code=error.code,
        errors=[WrongField(pointer=field.pointer, detail=field.detail) for field in error.errors],
        cost=msgspec.UNSET if over is None else over.cost,
        credits_left=msgspec.UNSET if over is None else over.credits_left,
        resets_at=msgspec.UNSET if over is None else to_text(over.resets_ms),
        refusal=msgspec.UNSET if over is None or over.refusal is None else over.refusal,
    )


def internal() -> Internal:
    return Internal("Internal error; the log has the details. Try again, and tell the operator if it happens again.")


def retry_after_s(error: errors.PacelineError) -> int | None:
    """Returns the Retry-After of the error's answer, or None if the answer has none."""
    if error.retry_after_s is not None:
        return max(1, error.retry_after_s)
    return RETRY_AFTER_S if error.status == 503 else None
