"""Settlement of a run that is out, and when to look at its provider again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.pace import Pace, ends_well
from paceline.core.batches.provider import Policy

DEAD_STATES = frozenset({"failed", "unknown"})
"""End states that make a run a dead letter."""
RELEASED = "given back before it started"
PURGED_DAYS_MAX = 1_000
"""Number of days that one pass of the purge looks at."""


class Held(NamedTuple):
    """A run that is out or in back-off. ``at_ms``: when its lease ends, or when it may be tried again."""

    run: int
    state: Literal["out", "retry"]
    at_ms: int
    attempt: int
    lost: int
    started_ms: int | None


def counts(held: Held | None, item: CallSettlement) -> bool:
    """Return whether a settlement counts: the run is still out at this attempt, and ended before its lease did."""
    return held is not None and held.state == "out" and held.attempt == item.attempt and item.ended_ms <= held.at_ms


def is_plain(item: CallSettlement) -> bool:
    """Return whether a settlement is a good call that ends its run and closes nothing: it does not need the pace."""
    return item.state == "done" and ends_well(item.verdict, item.closed_until_ms)


def look_ms(item: CallSettlement, policy: Policy, pace: Pace, *, ready_ms: int) -> int | None:
    """Return when to look at a provider after a settlement that is not plain; None: as ``first_ready_ms`` says.

    ``pace`` is the one after the settlement. With one call at a time the next start is known. Otherwise a place may be
    free at once.
    """
    if policy.max_in_flight > 1:
        return min(ready_ms, item.ended_ms)
    if item.state == "retry":
        return max(item.not_before_ms, pace.closed_until_ms)
    return None


def first_ready_ms(first_due_ms: int, held_at_ms: Iterable[int], *, closed_until_ms: int, now_ms: int) -> int:
    """Return when the first of a provider's runs may start.

    ``first_due_ms``: when the first waiting run is due. A run that is out may start again when its lease ends, and a
    run in back-off when its pause ends: not when it was due.
    """
    first_ms = first_due_ms if first_due_ms <= now_ms else min((first_due_ms, *held_at_ms))
    return max(first_ms, closed_until_ms)


def released(held: Held, *, now_ms: int) -> Held | None:
    """Return a run whose attempt never began, without that attempt. None: it waits as if nobody had claimed it."""
    if held.attempt == 1:
        return None
    return held._replace(state="retry", at_ms=now_ms, attempt=held.attempt - 1, started_ms=None)


def extended(held: Held | None, *, attempt: int, until_ms: int, now_ms: int) -> Held | None:
    """Return the run with another end of its lease. None: it is not out at this attempt, or its lease has ended."""
    if held is None or held.state != "out" or held.attempt != attempt or held.at_ms < now_ms:
        return None
    return held._replace(at_ms=until_ms)


def pulled_back(held: Held, *, now_ms: int, wait_ms_max: int) -> Held:
    """Return the run after the clock was set back: no lease and no pause ends later than it can have meant."""
    if held.state == "out" and held.started_ms is not None and held.started_ms > now_ms:
        return held._replace(at_ms=now_ms + held.at_ms - held.started_ms, started_ms=now_ms)
    if held.state == "retry" and held.at_ms > now_ms + wait_ms_max:
        return held._replace(at_ms=now_ms + wait_ms_max)
    return held


def is_old(ended_ms: int | None, *, dead: bool, ended_before_ms: int, dead_before_ms: int) -> bool:
    """Return whether a run ended so long ago that it is deleted; dead letters have their own retention."""
    return ended_ms is not None and ended_ms < (dead_before_ms if dead else ended_before_ms)
