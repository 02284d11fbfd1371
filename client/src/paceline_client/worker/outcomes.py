"""Turns the result or the error of a function into the outcome of its run."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from paceline_client.answers import plain
from paceline_client.durations import DurationLike, duration_text
from paceline_client.models.states import OutcomeStatus

REASON_CHARS_MAX = 1_000
DETAIL_BYTES_MAX = 16_384


class Retry(Exception):
    """Raised by a worker's function: the run comes again after a pause, and not before ``after``."""

    def __init__(self, reason: str = "", *, after: DurationLike | None = None) -> None:
        super().__init__(reason or "the worker asked for a retry")
        self.after = None if after is None else duration_text(after)


class Outcome(NamedTuple):
    """A report about a run, without its name and lease."""

    status: OutcomeStatus
    detail: Mapping[str, Any]
    after: str | None = None


def outcome_of_value(value: object, *, latency_ms: float) -> Outcome:
    """Returns the outcome ok.

    A dictionary is its detail; any other value is put into one. Too large a detail is left out.
    """
    detail = {} if value is None else dict(value) if isinstance(value, Mapping) else {"value": value}
    return Outcome("ok", _fitting({"latency_ms": latency_ms} | detail, latency_ms))


def outcome_of_error(error: BaseException, *, latency_ms: float | None = None) -> Outcome:
    """Returns the outcome: retry for Retry, else failed with the text of the error."""
    measured = {} if latency_ms is None else {"latency_ms": latency_ms}
    if isinstance(error, Retry):
        return Outcome("retry", measured | {"reason": _text(str(error))}, error.after)
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return Outcome("failed", measured | {"reason": _text(text)})


def without_detail(outcome: Outcome, why: str) -> Outcome:
    """Returns the outcome without its detail, for a service that refused the detail."""
    return Outcome(outcome.status, {"reason": _text(f"the detail was refused: {why}")})


def _fitting(detail: dict[str, Any], latency_ms: float) -> dict[str, Any]:
    """Returns the detail, or the reason if it cannot be sent: the work is done and must not be repeated."""
    try:
        document: dict[str, Any] = plain(detail)
        bytes_ = len(msgspec.json.encode(document))
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return {"latency_ms": latency_ms, "reason": _text(f"the detail is not JSON: {error}")}
    if bytes_ > DETAIL_BYTES_MAX:
        return {"latency_ms": latency_ms, "reason": f"the detail was left out: {bytes_} bytes"}
    return document


def _text(text: str) -> str:
    return text[:REASON_CHARS_MAX].replace("\x00", "")
