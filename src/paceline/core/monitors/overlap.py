"""Overlapping runs of one monitor: which firings are skipped, and how queued runs follow one another."""

from __future__ import annotations

from typing import Literal

from paceline.core.monitors.schedule import Cadence, next_due_ms

QUEUED = "queues behind an earlier run of this monitor, and follows it at no more than twice the usual pace"
"""Reason why a run waits that was made while an earlier one of its monitor was open."""


def is_skipped(cadence: Cadence, *, busy: bool, made_up: bool) -> bool:
    """Return whether a firing makes no run because an earlier run of its monitor has not ended.

    ``made_up``: the firing is one of those that ``missed: all`` makes up for. They are wanted, each of them.
    """
    if not busy or cadence.overlap == "queue":
        return False
    return not (made_up and cadence.missed == "all")


def state_made(after_ms: int, *, busy: bool, now_ms: int) -> Literal["later", "queued", "waiting"]:
    """Return how a new run begins: at its own moment, queued behind an open run, or free to start.

    ``after_ms`` is its ``Firing.after_ms``; ``busy``: its monitor has an open run.
    """
    if after_ms > now_ms:
        return "later"
    return "queued" if busy else "waiting"


def follow_ms(cadence: Cadence | None, *, started_ms: int, previous_due_ms: int, due_ms: int, generation: int) -> int:
    """Return when a queued run may start: half the distance of the due times after the start of the run before it.

    Between the two the monitor may have been paused, or the machine asleep. The distance is therefore at most the
    cadence's own. Without a cadence the monitor is gone: nothing is sent, and nothing has to wait.
    """
    if cadence is None:
        return started_ms
    usual_ms = next_due_ms(cadence, after_ms=due_ms, due_ms=due_ms, generation=generation) - due_ms
    return started_ms + max(min(due_ms - previous_due_ms, usual_ms), 0) // 2


SUPERSEDED_MAX = 2
"""Maximum number of runs that one advance supersedes.

An advance usually adds one run; after the limit was lowered, the surplus is removed little by little.
"""


def superseded(*, waiting: int, made: int, waiting_max: int) -> int:
    """Return how many of the runs that wait behind the oldest open one end, the oldest first.

    ``waiting`` of them were there before, queued or to be made up for, and ``made`` are new. ``waiting_max`` 0: all are
    kept.
    """
    if not waiting_max:
        return 0
    return max(0, min(waiting + made - waiting_max, waiting, SUPERSEDED_MAX))


def superseded_reason(waiting_max: int) -> str:
    """Return why a waiting run ended without being sent."""
    return f"superseded: more than {waiting_max} runs of this monitor were waiting; the newest are kept"
