"""Upkeep of health without an outcome: alerts on late monitors, and hours in which alerts were held back."""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.monitors.alerting.found import LATE_TOLD_MS
from paceline.core.monitors.alerting.record import HealthRecord, RecordAndAlerts, Subject, close_hour, turn_late
from paceline.core.monitors.alerting.stored import HealthChange
from paceline.core.monitors.definition import Monitor
from paceline.core.store_status import StoreStatus
from paceline.ports import MonitorStore

LOOKED_MAX = 500
CLOSED_MAX = 100


class LateReport(NamedTuple):
    """Number of monitors that were reported late, and where the next page begins; None: the round is over."""

    reported: int
    after: int | None


def is_any_late(status: StoreStatus, *, now_ms: int) -> bool:
    """Return whether a run of a monitor could have started so long ago that ``tell_late`` has something to do."""
    starts_ms = (status.check_start_ms, status.outgoing_start_ms)
    return any(start_ms is not None and now_ms - start_ms > LATE_TOLD_MS for start_ms in starts_ms)


def tell_late(store: MonitorStore, *, after: int, now_ms: int, limit: int = LOOKED_MAX) -> LateReport:
    """Make one pass over runs that nobody starts.

    Each episode of a monitor is reported once, until an outcome ends it.
    """
    page = store.late_runs(before_ms=now_ms - LATE_TOLD_MS, after=after, limit=limit)
    changes = []
    for run in page.runs:
        followed = turn_late(run.record, _subject(run.monitor), counter=run.counter, due_ms=run.since_ms, now_ms=now_ms)
        changes += [one._replace(open_run=run.handle) for one in _change(run.monitor, run.record, followed)]
    won = store.change_health(changes) if changes else []
    return LateReport(sum(won), page.after)


def close_hours(store: MonitorStore, *, now_ms: int, limit: int = CLOSED_MAX) -> int:
    """Send one message for each monitor whose hour with held-back alerts is over. Return how many were sent."""
    waiting = store.hours_to_close(now_ms=now_ms, limit=limit)
    changes = [
        change
        for one in waiting
        for change in _change(one.monitor, one.record, close_hour(one.record, _subject(one.monitor), now_ms=now_ms))
    ]
    return sum(store.change_health(changes)) if changes else 0


def _subject(monitor: Monitor) -> Subject:
    return Subject(monitor.owner, monitor.id, monitor.generation, monitor.spec.alert)


def _change(monitor: Monitor, before: HealthRecord, followed: RecordAndAlerts) -> list[HealthChange]:
    if followed.record == before:
        return []
    return [HealthChange(monitor.owner, monitor.id, monitor.generation, before, *followed)]
