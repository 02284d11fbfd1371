"""Runs that must not start where they stand: ended, set aside with their batch, or moved to another provider."""

from __future__ import annotations

from typing import Literal, NamedTuple

from paceline.core.batches.calls import is_missed

GONE = "its record was deleted or is not active any more"
GONE_LOST = "it was cut short and may have arrived, and its record was deleted or is not active any more"
MISSED = "missed: its time had passed, and its batch skips what it missed"
MISSED_WHEN_PLANNED = "missed: its time had passed when the day was planned"
ASIDE = "its batch is paused"


class DayFacts(NamedTuple):
    """What a run's day and batch say of it. ``skips``: runs that missed their time are not caught up."""

    batch: str
    batch_number: int
    date: str
    start_ms: int
    end_ms: int
    paused: bool
    skips: bool


class RunFacts(NamedTuple):
    """A run that has not ended. ``at_ms``: its due time, its next try, or its lease's end."""

    state: Literal["waiting", "out", "retry"]
    due_ms: int
    at_ms: int
    attempt: int
    lost: int
    """An earlier attempt may have arrived."""
    provider: int
    record_provider: int | None
    """The provider that its record names; None: the record was deleted or is not active."""


class End(NamedTuple):
    """The run ends without a call."""

    state: Literal["skipped", "unknown"]
    reason: str


Unwanted = End | Literal["set_aside", "move"]


def may_have_arrived(state: str, lost: int) -> bool:
    """Whether an attempt of a run may have reached the provider: one was cut short, or is still out."""
    return bool(lost) or state == "out"


def judge_run(run: RunFacts, day: DayFacts, *, now_ms: int) -> Unwanted | None:
    """What becomes of a run that could start now. None: it may start, or its time has not come.

    What may have arrived stays with the provider to which it was sent.
    """
    state, due_ms, at_ms, attempt, lost, provider, record_provider = run
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
    return None
