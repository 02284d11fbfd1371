"""Facts that a store finds for the upkeep of health: late runs, and hours that are over."""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.monitors.alerting.record import HealthRecord
from paceline.core.monitors.definition import Monitor

LATE_TOLD_MS = 300_000
"""Delay of a run's start after which an alert says that its monitor is late. Health says so much sooner."""


class Remembered(NamedTuple):
    """A monitor with its health record."""

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
    """A page of late runs. ``after`` is where the next page begins; None: this was the last."""

    runs: list[LateRun]
    after: int | None
