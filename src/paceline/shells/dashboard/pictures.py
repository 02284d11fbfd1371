"""Geometry of the pictures: paths and ticks of inline SVG, computed from figures. Pure functions of their arguments."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from math import ceil, floor, log10
from typing import Any, NamedTuple

BAR_GAP = 0.07
GOOD_HEIGHT = 0.6
"""A good day is drawn lower than one with failures, so that the shape tells them apart before the colour does."""


class Tick(NamedTuple):
    """A label of an axis: its place and its text. ``low``: it is left out first if there is little room."""

    at: float
    text: str
    low: bool = False


class MeterPart(NamedTuple):
    """A part of a meter in percent: where it begins, and how wide it is."""

    paint: str
    x: float
    width: float


def nice_top(most: float) -> float:
    """Returns a round figure at or above the largest value, for the top of an axis."""
    if most <= 0:
        return 1.0
    size = 10 ** floor(log10(most))
    return next(float(size * step) for step in (1, 2, 3, 4, 5, 6, 8, 10) if size * step >= most)


def value_ticks(top: float, height: float) -> list[Tick]:
    """Returns the lines of the value axis from the bottom up, at round figures; ``at`` is in pixels from the top."""
    first = int(f"{top:e}"[0])
    steps = {1: 5, 2: 4, 6: 3, 8: 4}.get(first, first)
    if 1 <= top < steps:
        steps = int(top)
    return [Tick(round(height * (1 - step / steps), 2), _figure(top * step / steps)) for step in range(steps + 1)]


def time_ticks(start: datetime, end: datetime, parts: int = 8, last: str = "") -> list[Tick]:
    """Returns the labels of the time axis; ``at`` is in percent. ``last`` replaces the time at the right end."""
    span = end - start
    days, short = span > timedelta(hours=36), span < timedelta(minutes=parts)
    parts = parts // 2 if short else parts  # seconds need more room
    found = []
    for step in range(parts + 1):
        at = start + span * step / parts
        text = f"{at:%-d %b}" if days else f"{at:%H:%M:%S}" if short else f"{at:%H:%M}"
        found.append(Tick(round(100 * step / parts, 3), last if last and step == parts else text, low=bool(step % 2)))
    return found


def axis_time(at_s: int, beside_s: int) -> str:
    """Returns the text at one end of an axis: the time, with the date if the other end is on another day."""
    at, beside = datetime.fromtimestamp(at_s, UTC), datetime.fromtimestamp(beside_s, UTC)
    return f"{at:%H:%M}" if at.date() == beside.date() else f"{at:%-d %b %H:%M}"


def bars(values: Sequence[float], top: float, height: float, floor_values: Sequence[float] | None = None) -> str:
    """Returns one path with all bars of a series, each one unit wide.

    ``floor_values``: the value each bar starts from.
    """
    path = []
    for index, value in enumerate(values):
        if value <= 0:
            continue
        base = floor_values[index] if floor_values else 0
        low, high = height * (1 - base / top), height * (1 - (base + value) / top)
        path.append(f"M{index + BAR_GAP:g} {low:.1f}V{high:.1f}h{1 - 2 * BAR_GAP:g}V{low:.1f}z")
    return "".join(path)


def line(points: Sequence[tuple[float, float]], top: float, height: float) -> str:
    """Returns a path through points (x, value)."""
    return "".join(
        f"{'L' if index else 'M'}{x:.2f} {height * (1 - value / top):.1f}" for index, (x, value) in enumerate(points)
    )


def meter(*parts: tuple[str, float], of: float) -> list[MeterPart]:
    """Returns parts of a whole side by side. Each is at least half a percent wide, so that it can be seen."""
    found, x = [], 0.0
    for paint, value in parts:
        if value <= 0 or of <= 0:
            continue
        width = min(max(100 * value / of, 0.5), 100 - x)
        found.append(MeterPart(paint, round(x, 2), round(width, 2)))
        x += width
    return found


class ChartFlag(NamedTuple):
    """A numbered mark above a bar: its place in percent, and how far down its line goes."""

    number: int
    x: float
    y: float


class AheadChart(NamedTuple):
    """Chart of the next hours. ``capacity`` is empty if it lies above the picture."""

    height: int
    windows: int
    series: tuple[tuple[str, str], ...]
    over: str
    capacity: str
    values: list[Tick]
    times: list[Tick]
    flags: list[ChartFlag]


CAPACITY_SHOWN = 3
"""A capacity above this multiple of the busiest minute is not drawn, only written: the bars would be flat."""


def ahead_chart(ahead: dict[str, Any], height: int = 168) -> AheadChart:
    """Returns stacked bars of the busiest minute of each window, against the capacity in it."""
    windows = ahead["windows"]
    busiest = [window["busiest"] for window in windows]
    totals = [one["monitors"] + one["batches"] + one["jobs"] for one in busiest]
    capacity = [one["capacity"] for one in busiest]
    most = max(totals)
    is_drawn = 0 < min(capacity) <= CAPACITY_SHOWN * most
    top = nice_top(max(most, *capacity) if is_drawn and max(capacity) <= CAPACITY_SHOWN * most else most)
    series, floor_values = [], [0] * len(windows)
    for kind, paint in (("monitors", "fa"), ("batches", "fb"), ("jobs", "fc")):
        values = [one[kind] for one in busiest]
        series.append((paint, bars(values, top, height, floor_values)))
        floor_values = [low + value for low, value in zip(floor_values, values, strict=True)]
    over = bars([max(0, total - cap) for total, cap in zip(totals, capacity, strict=True)], top, height, capacity)
    starts = [datetime.fromisoformat(window["start"]).astimezone(UTC) for window in windows]
    end = starts[-1] + timedelta(hours=ahead["hours"]) / len(windows)
    flags = []
    for number, worst in enumerate(ahead["worst"], 1):
        at = datetime.fromisoformat(worst["start"]).astimezone(UTC)
        index = max(place for place, start in enumerate(starts) if start <= at)
        flags.append(
            ChartFlag(number, round(100 * (index + 0.5) / len(windows), 2), height * (1 - totals[index] / top) + 8)
        )
    return AheadChart(
        height,
        len(windows),
        tuple(series),
        over,
        _steps([min(value, top) for value in capacity], top, height) if is_drawn else "",
        value_ticks(top, height),
        time_ticks(starts[0], end),
        flags,
    )


def _steps(values: Sequence[float], top: float, height: float) -> str:
    """Returns a path that keeps each value for one unit."""
    path, before = [], None
    for index, value in enumerate(values):
        if value != before:
            y = f"{height * (1 - value / top):.1f}"
            path.append(f"M0 {y}" if before is None else f"H{index}V{y}")
            before = value
    return "".join(path) + f"H{len(values)}"


class ForecastChart(NamedTuple):
    """Chart of what is left over the coming days at the current use: ``line`` is expected, ``band`` is possible."""

    height: int
    line: str
    band: str
    values: list[Tick]
    times: list[Tick]


FORECAST_DAYS_MAX = 90


def forecast_chart(left: float, a_day: tuple[float, float], now: datetime, height: int = 132) -> ForecastChart:
    """Returns the chart of ``left`` from now on. ``a_day``: the least and the most that is used in a day."""
    slow, fast = a_day
    lasts = left / slow if slow > 0 else FORECAST_DAYS_MAX
    days = min(max(lasts * 1.1, 1.0), FORECAST_DAYS_MAX)
    top = nice_top(left)

    def end(used: float) -> tuple[float, float]:
        """Returns the point where a line with this daily use leaves the picture or reaches zero."""
        return (100 * left / used / days, 0.0) if used * days > left > 0 else (100.0, left - used * days)

    low, high = end(fast), end(slow)
    band = line([(0, left), high, (100.0, max(0.0, high[1])), (low[0], low[1])], top, height) + "z"
    times = time_ticks(now, now + timedelta(days=days), parts=4)
    return ForecastChart(height, line([(0, left), low], top, height), band, value_ticks(top, height), times)


class StatusDay(NamedTuple):
    """One bar of the picture of days: ``tone`` ok, bad or none; the heights of its bad and good parts; its text."""

    x: int
    tone: str
    bad: float
    good: float
    text: str


def status_days(days: Sequence[dict[str, Any]], today: date, height: float, count: int = 90) -> list[StatusDay]:
    """Returns one bar for each of the last ``count`` days. Days with failures are tall, with a part for the bad share.

    A bad part has at least a fifth of the height, so that one bad minute can be seen.
    """
    known = {day["date"]: day for day in days}
    found = []
    for x in range(count):
        at = today - timedelta(days=count - 1 - x)
        day = known.get(at.isoformat())
        share = None if day is None else day["share"]
        name = f"{at:%a %-d %b}"
        if share is None:
            found.append(StatusDay(x, "none", 0, 0, f"{name}: nothing is known"))
        elif share >= 1:
            found.append(StatusDay(x, "ok", 0, height * GOOD_HEIGHT, f"{name}: 100 % good"))
        else:
            bad = round(height * max(0.2, min(1.0, 1 - share)), 1)
            good = round(max(0.0, height - bad - 1.5), 1)
            found.append(StatusDay(x, "bad", bad, good, f"{name}: {int(share * 10_000) / 100:.2f} % good"))
    return found


class SmallDays(NamedTuple):
    """The days of one monitor in a row of a list: paths in a box of as many units as there are days."""

    good: str
    bad: str
    none: str
    line: str
    width: int


SMALL_HEIGHT = 20
LINE_DAYS_MIN = 3
"""With fewer days no line is drawn."""


def small_days(shares: Sequence[float | None], medians: Sequence[float | None]) -> SmallDays:
    """Returns bars of days, taller for days with failures, and a line through their medians on its own scale."""
    good, bad, none = [], [], []
    for x, share in enumerate(shares):
        if share is None:
            none.append(f"M{x}.2 19h.6v1h-.6z")
        else:
            good.append(f"M{x}.2 8h.6v12h-.6z")
            if share < 1:
                bad.append(f"M{x}.1 0h.8v7h-.8z")
    known = [(float(x), value) for x, value in enumerate(medians) if value is not None]
    top = 1.2 * max((value for _, value in known), default=0) or 1.0
    drawn = line(known, top, SMALL_HEIGHT) if len(known) >= LINE_DAYS_MIN else ""
    return SmallDays("".join(good), "".join(bad), "".join(none), drawn, len(shares))


def latency_points(
    runs: Sequence[dict[str, object]], start: datetime, end: datetime
) -> tuple[list[tuple[float, float]], list[float]]:
    """Returns points (percent, ms) of runs with a latency, oldest first, and the percents of failed runs."""
    points, failed, span = [], [], (end - start).total_seconds() or 1.0
    for run in reversed(runs):
        at = run.get("ended_at") or run.get("started_at") or run.get("due")
        x = 100 * (datetime.fromisoformat(str(at)).astimezone(UTC) - start).total_seconds() / span
        if not 0 <= x <= 100:
            continue
        latency = run.get("latency_ms")
        if run.get("state") == "ok" and isinstance(latency, int | float):
            points.append((x, float(latency)))
        elif run.get("state") in ("failed", "dead", "unknown"):
            failed.append(round(x, 2))
    return points, failed


def _figure(value: float) -> str:
    if value >= 1_000_000:
        return f"{value / 1_000_000:g} M"
    if value >= 10_000:
        return f"{value / 1_000:g} k"
    return f"{ceil(value * 10) / 10:,g}" if value >= 1 else f"{value:.2g}"
