"""What a store finds for those who look after health without an outcome: late runs, and hours that are over."""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.monitors.alerting.record import HealthRecord
from paceline.core.monitors.definition import Monitor

LATE_TOLD_MS = 300_000
"""A monitor whose run could have started so long ago is told to be late. Health says so much sooner."""


class Remembered(NamedTuple):
    """A monitor with its record."""

    monitor: Monitor
    record: HealthRecord


class LateRun(NamedTuple):
    """The first open run of a monitor, which could have started since ``since_ms``."""

    monitor: Monitor
    handle: int
    counter: int
    since_ms: int
    record: HealthRecord


class LatePage(NamedTuple):
    """``after`` is where the next page begins; None: there is none."""

    runs: list[LateRun]
    after: int | None
