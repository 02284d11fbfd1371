"""Health of a monitor, from its entry, its newest runs and its health record."""

from __future__ import annotations

from typing import Literal

import msgspec

from paceline.core.monitors.alerting.record import NO_RECORD, HealthRecord
from paceline.core.monitors.outcome import RunState

Health = Literal["new", "ok", "failing", "late", "paused"]


class Glance(msgspec.Struct, frozen=True):
    """Facts of a monitor's runs that are enough to tell its health."""

    open_due_ms: int | None = None
    """Due time of the oldest run that is not settled."""
    settled: RunState | None = None
    """State of the newest settled run."""
    record: HealthRecord = NO_RECORD


def judge(*, resting: bool, due_ms: int | None, glance: Glance, now_ms: int, late_after_ms: int) -> Health:
    """Return the health. Late comes before failing: outdated results are worse than bad ones."""
    if resting:
        return "paused"
    behind = [ms for ms in (due_ms, glance.open_due_ms) if ms is not None and now_ms - ms > late_after_ms]
    if behind:
        return "late"
    if glance.record.failing:
        return "failing"
    return "new" if glance.settled is None and not glance.record.failures else "ok"
