"""Charts of latencies: of single runs over time, and of whole days."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from paceline.core.instants import to_datetime
from paceline.shells.dashboard import pictures
from paceline.shells.dashboard.words import moment

CHART_HEIGHT = 160


def latency_chart(runs: list[dict[str, Any]]) -> dict[str, Any] | None:
    """Returns the chart of the newest runs, from the oldest of them to the newest."""
    timed = [run for run in runs if run["ended_at"]]
    if len(timed) < 2:
        return None
    start, end = moment(timed[-1]["ended_at"]), moment(timed[0]["ended_at"])
    if end <= start:
        return None
    points, failed = pictures.latency_points(timed, start, end)
    values = sorted(value for _, value in points)
    top = pictures.nice_top(values[-1]) if values else 1.0
    return {
        "height": CHART_HEIGHT,
        "line": pictures.line(points, top, CHART_HEIGHT),
        "failed": failed,
        "values": pictures.value_ticks(top, CHART_HEIGHT),
        "times": pictures.time_ticks(start, end),
        "median": values[len(values) // 2] if values else None,
        "p95": values[int(len(values) * 0.95)] if values else None,
        "runs": len(timed),
    }


def days_chart(days: list[dict[str, Any]], count: int, now_ms: int) -> dict[str, Any] | None:
    """Returns the chart of the median and the 95th percentile of each of the last days."""
    end = to_datetime(now_ms)
    start = end - timedelta(days=count)
    timed = [(day, 100 * (moment(f"{day['date']}T12:00:00Z") - start) / (end - start)) for day in days]
    known = [(day, min(max(x, 0.0), 100.0)) for day, x in timed if day["p50"] is not None and x > -1]
    if not known:
        return None
    first, begin = known[0]
    drawn = [(first, max(0.0, begin - 100 / count)), *known]  # a single day is a dash as wide as a day
    top = pictures.nice_top(max(day["p95"] for day, _ in known))
    return {
        "height": CHART_HEIGHT,
        "line": pictures.line([(x, day["p50"]) for day, x in drawn], top, CHART_HEIGHT),
        "upper": pictures.line([(x, day["p95"]) for day, x in drawn], top, CHART_HEIGHT),
        "failed": [],
        "values": pictures.value_ticks(top, CHART_HEIGHT),
        "times": pictures.time_ticks(start, end, last="today"),
        "median": None,
        "days": len(known),
    }
