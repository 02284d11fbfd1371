"""How a monitor is doing, from its entry, its newest runs and what is remembered of its outcomes."""

from __future__ import annotations

from typing import Literal

import msgspec

from paceline.core.monitors.alerting.record import NO_RECORD, HealthRecord
from paceline.core.monitors.outcome import RunState

Health = Literal["new", "ok", "failing", "late", "paused"]


class Glance(msgspec.Struct, frozen=True):
    """Just enough of a monitor's runs to tell its health."""

    open_due_ms: int | None = None
    """When the oldest run that is not settled was due."""
    settled: RunState | None = None
    """How the newest settled run ended."""
    record: HealthRecord = NO_RECORD


def judge(*, resting: bool, due_ms: int | None, glance: Glance, now_ms: int, late_after_ms: int) -> Health:
    """Late comes before failing: old news is worse than bad news."""
    if resting:
        return "paused"
    behind = [ms for ms in (due_ms, glance.open_due_ms) if ms is not None and now_ms - ms > late_after_ms]
    if behind:
        return "late"
    if glance.record.failing:
        return "failing"
    return "new" if glance.settled is None and not glance.record.failures else "ok"
