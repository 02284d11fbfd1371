"""View of a monitor's uptime: shares of good time, latencies, incidents and days; and the days as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence

import msgspec

from paceline.core.instants import to_datetime, to_text, to_text_or_none
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.uptime.figures import WINDOWS_DAYS, DayFigures, figures, share
from paceline.core.monitors.uptime.rollup import DAY_MS, Rollup
from paceline.core.schema import Date, Instant
from paceline.ports import Store
from paceline.steps.views.report import MonitorFigures, MonitorView

LISTED_DAYS = 30


class LatencyView(msgspec.Struct, frozen=True):
    """Percentiles of the latency of good runs, in milliseconds, accurate to 2.5 %. Null: no run has a latency."""

    p50: float | None
    p95: float | None
    p99: float | None


class IncidentView(msgspec.Struct, frozen=True):
    """Time from the first failed run to the next good one. ``ended`` null: the incident is not over."""

    began: Instant
    ended: Instant | None
    reason: str


class UptimeDayView(msgspec.Struct, frozen=True):
    """One UTC day of a monitor. ``share``: ``good_s`` divided by ``known_s``, from 0 to 1; null if nothing is known."""

    date: Date
    share: float | None
    good_s: float
    known_s: float
    ok: int
    failed: int
    incidents: int
    p50: float | None
    p95: float | None
    p99: float | None


class SharesSinceView(msgspec.Struct, frozen=True):
    """Start of the period of each share: midnight UTC, that many whole days ago. Each period lasts until now."""

    since_1d: Instant = msgspec.field(name="1d")
    since_7d: Instant = msgspec.field(name="7d")
    since_30d: Instant = msgspec.field(name="30d")
    since_90d: Instant = msgspec.field(name="90d")


class UptimeView(msgspec.Struct, frozen=True):
    """Uptime of a monitor, as shares of good time from 0 to 1; null: nothing is known.

    The shares cover the last 1, 7, 30 and 90 whole UTC days and the current day. ``since``: where each period begins.
    """

    share_1d: float | None = msgspec.field(name="1d")
    share_7d: float | None = msgspec.field(name="7d")
    share_30d: float | None = msgspec.field(name="30d")
    share_90d: float | None = msgspec.field(name="90d")
    since: SharesSinceView
    latency_ms: LatencyView
    incidents: list[IncidentView]
    """Incidents, newest first."""
    days: list[UptimeDayView]
    """Days, oldest first, up to 91."""


def uptime_view(store: Store, monitor: Monitor, *, now_ms: int) -> UptimeView:
    [rollup] = store.uptimes([monitor], now_ms=now_ms)
    found = figures(rollup, now_ms=now_ms)
    incidents = [
        IncidentView(to_text(one.began_ms), to_text_or_none(one.ended_ms), one.reason) for one in found.incidents
    ]
    share_1d, share_7d, share_30d, share_90d = found.shares
    return UptimeView(
        share_1d=share_1d,
        share_7d=share_7d,
        share_30d=share_30d,
        share_90d=share_90d,
        since=SharesSinceView(*(to_text(ms) for ms in found.since_ms)),
        latency_ms=LatencyView(*found.latency),
        incidents=incidents,
        days=[_day_view(one) for one in found.days],
    )


def with_figures(store: Store, views: Sequence[MonitorView], *, now_ms: int) -> list[MonitorView]:
    """Return the views of a page with their figures. The roll-ups are read together."""
    monitors = store.monitors_by_generation([view.schedule.generation for view in views])
    rollups = dict(zip(monitors, store.uptimes(list(monitors.values()), now_ms=now_ms), strict=True))
    return [
        msgspec.structs.replace(view, figures=_monitor_figures(rollups[view.schedule.generation], now_ms=now_ms))
        if view.schedule.generation in rollups
        else view
        for view in views
    ]


def _monitor_figures(rollup: Rollup, *, now_ms: int) -> MonitorFigures:
    found = figures(rollup, now_ms=now_ms)
    known = {one.number: one for one in found.days}
    days = [known.get(now_ms // DAY_MS - back) for back in reversed(range(LISTED_DAYS))]
    return MonitorFigures(
        found.shares[WINDOWS_DAYS.index(LISTED_DAYS)],
        found.latency.p95,
        [None if one is None else share([one.day]) for one in days],
        [None if one is None else one.latency.p50 for one in days],
    )


def days_csv(view: UptimeView) -> bytes:
    """Return a line with the names of the columns, and a line for each day."""
    text = io.StringIO(newline="")
    rows = csv.writer(text)
    rows.writerow(UptimeDayView.__struct_fields__)
    rows.writerows(msgspec.structs.astuple(day) for day in view.days)
    return text.getvalue().encode()


def _day_view(one: DayFigures) -> UptimeDayView:
    day, date = one.day, to_datetime(one.number * DAY_MS).date().isoformat()
    counts = (day.ok, day.failed, day.incidents)
    return UptimeDayView(date, share([day]), day.good_ms / 1_000, day.known_ms / 1_000, *counts, *one.latency)
