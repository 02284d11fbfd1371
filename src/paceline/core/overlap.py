"""Runs of one monitor that would overlap: which firings are skipped, and how those that queue follow one another."""

from __future__ import annotations

from paceline.core.schedule import Cadence

QUEUED = "queues behind an earlier run of this monitor, and follows it at no more than twice the usual pace"
"""Why a run waits that was made while an earlier one of its monitor was open."""


def is_skipped(cadence: Cadence, *, busy: bool, made_up: bool) -> bool:
    """Whether a firing makes no run because an earlier run of its monitor has not ended.

    ``made_up``: the firing is one of those that ``missed: all`` makes up for. They are wanted, each of them.
    """
    if not busy or cadence.overlap == "queue":
        return False
    return not (made_up and cadence.missed == "all")


def follow_ms(*, started_ms: int, previous_due_ms: int, due_ms: int) -> int:
    """When a queued run may start: half of the distance to the due time before its own after the run before started."""
    return started_ms + max(due_ms - previous_due_ms, 0) // 2


def superseded_reason(waiting_max: int) -> str:
    """Why a waiting run ended without being sent."""
    return f"superseded: more than {waiting_max} runs of this monitor were waiting; the newest are kept"
