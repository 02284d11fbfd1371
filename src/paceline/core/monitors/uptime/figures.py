"""Uptime of a monitor as people read it: shares of good time, percentiles of latency, incidents, and days."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from paceline.core.monitors.uptime.latency import Percentiles, percentiles
from paceline.core.monitors.uptime.rollup import DAY_MS, Incident, Rollup, UptimeDay, days_until

WINDOWS_DAYS = (1, 7, 30, 90)


class DayFigures(NamedTuple):
    number: int
    """Number of the day, counted from 1970-01-01."""
    day: UptimeDay
    latency: Percentiles


class UptimeFigures(NamedTuple):
    shares: tuple[float | None, ...]
    """Share of good time in each of WINDOWS_DAYS; None: nothing is known."""
    since_ms: tuple[int, ...]
    """Start of the time that each of the shares covers."""
    latency: Percentiles
    """Latency in the longest window."""
    incidents: tuple[Incident, ...]
    """Incidents that were open in the longest window, newest first."""
    days: tuple[DayFigures, ...]
    """Days of the longest window with something in them, oldest first."""


def figures(rollup: Rollup, *, now_ms: int) -> UptimeFigures:
    """Return the figures. A window of n days is the last n whole UTC days and the running one."""
    today = now_ms // DAY_MS
    first = today - WINDOWS_DAYS[-1]
    days = {number: day for number, day in days_until(rollup, now_ms).items() if first <= number <= today}
    return UptimeFigures(
        tuple(share(day for number, day in days.items() if number >= today - window) for window in WINDOWS_DAYS),
        tuple((today - window) * DAY_MS for window in WINDOWS_DAYS),
        percentiles(_latencies(days.values())),
        tuple(one for one in reversed(rollup.incidents) if one.ended_ms is None or one.ended_ms >= first * DAY_MS),
        tuple(DayFigures(number, day, percentiles(_latencies([day]))) for number, day in days.items()),
    )


def share(days: Iterable[UptimeDay]) -> float | None:
    """Return the good part of the known time, from 0 to 1; None if none is known."""
    good_ms = known_ms = 0
    for day in days:
        good_ms += day.good_ms
        known_ms += day.known_ms
    return good_ms / known_ms if known_ms else None


def _latencies(days: Iterable[UptimeDay]) -> Counter[int]:
    total: Counter[int] = Counter()
    for day in days:
        total.update(day.latencies)
    return total
