"""Unwanted runs, which must not start where they are: ended, set aside with their batch, or moved elsewhere."""

from __future__ import annotations

from typing import Literal, NamedTuple

from paceline.core.batches.calls import is_missed
from paceline.core.batches.reruns import is_round

GONE = "its record was deleted or is not active any more"
GONE_LOST = "it was cut short and may have arrived, and its record was deleted or is not active any more"
MISSED = "missed: its time had passed, and its batch skips what it missed"
MISSED_WHEN_PLANNED = "missed: its time had passed when the day was planned"
ASIDE = "its batch is paused"
WAIT_MS_MIN, WAIT_MS_MAX, WAIT_SHARE = 1_000, 900_000, 1_440
"""Pause before a run whose predecessor has not ended is looked at again: a quarter of the delay, within limits.

The pause is at least a second, or a minute for a whole day, and at most a quarter of an hour.
"""


class DayFacts(NamedTuple):
    """Facts of a run's day and batch. ``skips``: runs that missed their time are not caught up."""

    batch: str
    batch_number: int
    date: str
    start_ms: int
    end_ms: int
    paused: bool
    skips: bool


class Predecessor(NamedTuple):
    """The run of the same day that must be done first. ``state`` None: its record has no run on that day."""

    record: str
    state: str | None = None
    due_ms: int = 0


class RunFacts(NamedTuple):
    """A run that has not ended. ``at_ms``: its due time, its next try, or its lease's end."""

    state: Literal["waiting", "out", "retry"]
    due_ms: int
    at_ms: int
    attempt: int
    lost: int
    """Nonzero if an earlier attempt may have arrived."""
    provider: int
    record_provider: int | None
    """The provider that its record names; None: the record was deleted or is not active."""
    before: Predecessor | None = None
    """Predecessor of a due run whose record comes after another."""


class End(NamedTuple):
    """Decision that the run ends without a call."""

    state: Literal["skipped", "failed", "unknown"]
    reason: str


class Defer(NamedTuple):
    """Decision that the run is due later, at the same provider."""

    due_ms: int
    reason: str


Unwanted = End | Defer | Literal["set_aside", "move"]


def may_have_arrived(state: str, lost: int) -> bool:
    """Return whether an attempt of a run may have reached the provider: one was cut short, or is still out."""
    return bool(lost) or state == "out"


def judge_run(run: RunFacts, day: DayFacts, *, now_ms: int) -> Unwanted | None:
    """Decide on a run that could start now. None: it may start, or its time has not come.

    A run that may have arrived stays with the provider to which it was sent.
    """
    state, due_ms, at_ms, attempt, lost, provider, record_provider, before = run
    if at_ms > now_ms:
        return None
    if record_provider is None:
        return End("unknown", GONE_LOST) if may_have_arrived(state, lost) else End("skipped", GONE)
    if day.paused:
        return "set_aside"
    if record_provider != provider:
        return None if may_have_arrived(state, lost) else "move"
    if day.skips and attempt == 0 and is_missed(due_ms, day.start_ms, day.end_ms, now_ms=now_ms):
        return End("skipped", MISSED)
    return judge_follower(before, day, now_ms=now_ms) if before is not None and attempt == 0 else None


def judge_follower(before: Predecessor, day: DayFacts, *, now_ms: int) -> End | Defer | None:
    """Decide on a run that comes after another: it ends if that one ended badly, and starts if that one is done.

    Otherwise it is looked at again after a pause that grows with the delay, and is skipped after a whole window more.
    """
    first = f"{before.record!r}, which comes first,"
    match before.state:
        case "done":
            return None
        case None if is_round(day.date):
            return None  # the predecessor was not run again
        case None:
            return End("skipped", f"{first} has no run on this day")
        case "skipped":
            return End("skipped", f"{first} was skipped")
        case "failed" | "unknown":
            return End("failed", f"{first} is {before.state}")
    if now_ms > 2 * day.end_ms - day.start_ms:
        return End("skipped", f"{first} has not ended for too long")
    least_ms = max(WAIT_MS_MIN, (day.end_ms - day.start_ms) // WAIT_SHARE)
    late_ms = now_ms - before.due_ms
    pause_ms = least_ms - late_ms if late_ms < 0 else max(least_ms, min(late_ms // 4, WAIT_MS_MAX))
    return Defer(now_ms + pause_ms, f"waits for {before.record!r}, which comes first and is {before.state}")
