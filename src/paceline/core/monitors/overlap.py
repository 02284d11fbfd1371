"""Runs of one monitor that would overlap: which firings are skipped, and how those that queue follow one another."""

from __future__ import annotations

from typing import Literal

from paceline.core.monitors.schedule import Cadence, next_due_ms

QUEUED = "queues behind an earlier run of this monitor, and follows it at no more than twice the usual pace"
"""Why a run waits that was made while an earlier one of its monitor was open."""


def is_skipped(cadence: Cadence, *, busy: bool, made_up: bool) -> bool:
    """Whether a firing makes no run because an earlier run of its monitor has not ended.

    ``made_up``: the firing is one of those that ``missed: all`` makes up for. They are wanted, each of them.
    """
    if not busy or cadence.overlap == "queue":
        return False
    return not (made_up and cadence.missed == "all")


def state_made(after_ms: int, *, busy: bool, now_ms: int) -> Literal["later", "queued", "waiting"]:
    """How a new run begins: it has a moment of its own, follows an open run at a pace, or may start.

    ``after_ms`` is its ``Firing.after_ms``; ``busy``: its monitor has an open run.
    """
    if after_ms > now_ms:
        return "later"
    return "queued" if busy else "waiting"


def follow_ms(cadence: Cadence | None, *, started_ms: int, previous_due_ms: int, due_ms: int, generation: int) -> int:
    """Returns when a queued run may start: after the start of the run before, by half the distance of their due times.

    Between the two the monitor may have been paused, or the machine asleep. The distance is therefore at most the
    cadence's own. Without a cadence the monitor is gone: nothing is sent, and nothing has to wait.
    """
    if cadence is None:
        return started_ms
    usual_ms = next_due_ms(cadence, after_ms=due_ms, due_ms=due_ms, generation=generation) - due_ms
    return started_ms + max(min(due_ms - previous_due_ms, usual_ms), 0) // 2


SUPERSEDED_MAX = 2
"""By one advance: it adds one run as a rule, and after the limit was lowered the surplus goes little by little."""


def superseded(*, waiting: int, made: int, waiting_max: int) -> int:
    """How many of the runs that wait behind the oldest open one end, the oldest first, so that not too many wait.

    ``waiting`` of them were there before, queued or to be made up for, and ``made`` came now. ``waiting_max`` 0: all
    are kept.
    """
    if not waiting_max:
        return 0
    return max(0, min(waiting + made - waiting_max, waiting, SUPERSEDED_MAX))


def superseded_reason(waiting_max: int) -> str:
    """Why a waiting run ended without being sent."""
    return f"superseded: more than {waiting_max} runs of this monitor were waiting; the newest are kept"
