"""Figures of a job's results: the latency of each result that RIPE returns, by measurement. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec

from paceline.shells.dashboard import pictures
from paceline.shells.dashboard.words import count

Result = dict[str, Any]
HEIGHT = 64
SHOWN_MAX = 24
"""Most measurements with their own picture; the others are only counted."""
LONG_S = 120
"""If results lie further apart, they are drawn over time, otherwise probe by probe."""


class ProbeResult(NamedTuple):
    """One result: its time, its probe and its latency; None if there was no answer."""

    at_s: int
    probe: int
    latency_ms: float | None


class Small(NamedTuple):
    """Picture of one measurement. ``dots`` and ``missing`` are paths in a box of 100 by HEIGHT.

    ``first`` and ``last`` are the labels at its ends: times, or the number of probes.
    """

    name: str
    kind: str
    target: str
    results: int
    lost: int
    p50: float | None
    p95: float | None
    dots: str
    missing: str
    first: str
    last: str


class ResultFigures(NamedTuple):
    """All figures of a job. ``top`` is the highest value of the axis that all pictures share."""

    results: int
    lost: int
    p50: float | None
    p95: float | None
    top: float
    smalls: list[Small]
    others: int


def latency_ms(result: Result) -> float | None:
    """Returns the latency of a result in milliseconds; None if no answer came, or its type measures none."""
    match result.get("type"):
        case "ping":
            found = result.get("avg")
        case "traceroute":
            found = _last_hop(result.get("result"))
        case "dns":
            found = _dns(result)
        case "ntp":
            replies = _numbers(result.get("result"), "rtt")
            found = min(replies) * 1_000 if replies else None
        case "http":
            found = min(_numbers(result.get("result"), "rt"), default=None)
        case _:
            found = result.get("rt")
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) and found >= 0 else None


def read_lines(lines: Iterable[bytes]) -> dict[tuple[int, int], tuple[str, str, list[ProbeResult]]]:
    """Returns type, target and results by measurement and definition, from lines of the API.

    Lines of errors are left out.
    """
    found: dict[tuple[int, int], tuple[str, str, list[ProbeResult]]] = {}
    for text in lines:
        line = msgspec.json.decode(text)
        result = line.get("result")
        if not isinstance(result, dict):
            continue
        key = (line["measurement"], line["definition"])
        kind = str(result.get("type", ""))
        _, _, answered = found.setdefault(key, (kind, str(line["target"] or ""), []))
        at_s, probe = result.get("timestamp"), result.get("prb_id")
        if isinstance(at_s, int) and isinstance(probe, int):
            answered.append(ProbeResult(at_s, probe, latency_ms(result)))
    return found


def figures(read: dict[tuple[int, int], tuple[str, str, list[ProbeResult]]]) -> ResultFigures | None:
    """Returns the pictures of the results; None if there is no result yet."""
    every = [one for _, _, answered in read.values() for one in answered]
    if not every:
        return None
    values = _latencies(every)
    top = pictures.nice_top(values[-1]) if values else 1.0
    several = {measurement for measurement, definition in read if definition > 0}
    smalls = [
        _small(f"{measurement}.{definition}" if measurement in several else str(measurement), *found, top)
        for (measurement, definition), found in list(read.items())[:SHOWN_MAX]
    ]
    lost = len(every) - len(values)
    return ResultFigures(
        len(every), lost, _share(values, 0.5), _share(values, 0.95), top, smalls, len(read) - len(smalls)
    )


def _small(name: str, kind: str, target: str, answered: list[ProbeResult], top: float) -> Small:
    values = _latencies(answered)
    first, last = min(one.at_s for one in answered), max(one.at_s for one in answered)
    over_time = last - first >= LONG_S
    ordered = sorted(answered) if over_time else sorted(answered, key=lambda one: one.probe)
    dots, missing = [], []
    for place, one in enumerate(ordered):
        x = 100 * (one.at_s - first) / (last - first) if over_time else 100 * (place + 0.5) / len(ordered)
        if one.latency_ms is None:
            missing.append(f"M{x:.1f} {HEIGHT - 2}v-6")
        else:
            dots.append(f"M{x:.1f} {HEIGHT * (1 - one.latency_ms / top):.1f}h0")
    probes = len({one.probe for one in answered})
    return Small(
        name,
        kind,
        target,
        len(answered),
        len(answered) - len(values),
        _share(values, 0.5),
        _share(values, 0.95),
        "".join(dots),
        "".join(missing),
        pictures.axis_time(first, last) if over_time else "",
        pictures.axis_time(last, last) if over_time else count(probes, "probe"),
    )


def _latencies(answered: Iterable[ProbeResult]) -> list[float]:
    return sorted(one.latency_ms for one in answered if one.latency_ms is not None)


def _share(values: list[float], share: float) -> float | None:
    return values[min(int(len(values) * share), len(values) - 1)] if values else None


def _numbers(parts: Any, name: str) -> list[float]:
    """Returns the figures of this name in a list of objects; values of another shape are left out."""
    listed = parts if isinstance(parts, list) else []
    return [one[name] for one in listed if isinstance(one, dict) and isinstance(one.get(name), int | float)]


def _last_hop(hops: Any) -> float | None:
    """Returns the quickest answer of the last hop; None if that hop did not answer."""
    last = hops[-1] if isinstance(hops, list) and hops and isinstance(hops[-1], dict) else {}
    return min(_numbers(last.get("result"), "rtt"), default=None)


def _dns(result: Result) -> float | None:
    """Returns the response time: of the resolver that was asked, or of the quickest of the probe's own resolvers."""
    answers = [result, *(one for one in result.get("resultset") or [] if isinstance(one, dict))]
    return min(_numbers([one.get("result") for one in answers], "rt"), default=None)
