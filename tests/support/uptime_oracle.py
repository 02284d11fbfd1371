"""Uptime recomputed from all outcomes of a monitor at once, without folding: what the roll-ups must equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from paceline.core.monitors.uptime.latency import bucket_of
from paceline.core.monitors.uptime.rollup import EndedRun

DAY_MS = 86_400_000
NaiveDay = tuple[int, int, int, int, int, Counter[int]]
"""Good and known milliseconds, good and failed outcomes, incidents that began, latencies by bucket."""


def naive_days(runs: Sequence[EndedRun], now_ms: int) -> dict[int, NaiveDay]:
    """Returns the days with something in them, by number, as they stand now."""
    said = [run for run in runs if run.state in ("ok", "failed")]
    spans = _spans(said, now_ms)
    began = [one[0] for one in naive_incidents(runs)]
    numbers = {run.ended_ms // DAY_MS for run in said}
    for begin, end, _ in spans:
        numbers |= set(range(begin // DAY_MS, (end - 1) // DAY_MS + 1))
    days: dict[int, NaiveDay] = {}
    for number in numbers:
        inside = [run for run in said if run.ended_ms // DAY_MS == number]
        parts = [(_overlap(begin, end, number), good) for begin, end, good in spans]
        latencies = [run.latency_ms for run in inside if run.state == "ok" and run.latency_ms is not None]
        days[number] = (
            sum(part for part, good in parts if good),
            sum(part for part, _ in parts),
            sum(run.state == "ok" for run in inside),
            sum(run.state == "failed" for run in inside),
            sum(at_ms // DAY_MS == number for at_ms in began),
            Counter(map(bucket_of, latencies)),
        )
    return days


def naive_incidents(runs: Sequence[EndedRun]) -> list[tuple[int, int | None, str]]:
    """Returns begin, end and reason of each row of failed outcomes."""
    found: list[tuple[int, int | None, str]] = []
    before = "ok"
    for run in runs:
        if run.state == "failed" and before == "ok":
            found.append((run.ended_ms, None, run.reason))
        elif run.state == "ok" and before == "failed":
            began_ms, _, reason = found[-1]
            found[-1] = began_ms, max(run.ended_ms, began_ms), reason
        if run.state in ("ok", "failed"):
            before = run.state
    return found


def _spans(said: Sequence[EndedRun], now_ms: int) -> list[tuple[int, int, bool]]:
    """Returns for which time each outcome speaks, and whether that was good."""
    spans = []
    forward: list[int] = []
    for at, run in enumerate(said):
        if at and run.due_ms > said[at - 1].due_ms:
            forward.append(run.due_ms - said[at - 1].due_ms)
        longest_ms = max(forward[-4:], default=0)
        end_ms = said[at + 1].ended_ms if at + 1 < len(said) else now_ms
        end_ms = min(end_ms, run.ended_ms + min(2 * longest_ms + 60_000, 90 * DAY_MS))
        if end_ms > run.ended_ms:
            spans.append((run.ended_ms, end_ms, run.state == "ok"))
    return spans


def _overlap(begin_ms: int, end_ms: int, number: int) -> int:
    return max(0, min(end_ms, (number + 1) * DAY_MS) - max(begin_ms, number * DAY_MS))
