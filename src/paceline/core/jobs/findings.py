"""Findings of ``paceline check`` about jobs in a store of either engine: their texts and rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, NamedTuple

from paceline.core.findings import Finding
from paceline.core.jobs.meters import Balance, Window
from paceline.core.jobs.transitions import ENDED, WAITING

POSTINGS = "promise 8: the postings do not add up to what is held or spent on a meter ({})"
NO_MEASUREMENT = "promise 8: a posting is of no measurement (hold {})"
RELEASES = "promise 8: a sliding meter's releases do not add up to what is spent on it ({})"
UNEQUAL_CLOSE = "promise 8: a hold is not closed on exactly what it held (hold {})"
OWNERS_HOLD = "promise 8: a measurement has ended and its owner's hold is open, or the other way round (measurement {})"
SLOT = "promise 8: a measurement's slot is held and its line is closed, or the other way round (measurement {})"
COUNTS = "promise 11: a job's counts or sums are not those of its measurements (job {})"
DEFINITIONS = "promise 11: a job's counts or sums of definitions are not those of its measurements (job {})"
REMOVAL = "promise 10: a job on its way out is not finished, or more of it is gone than was removed (job {})"
EMPTY_JOB = "promise 10: a job has no measurements (job {})"
LINE = "promise 10: a queued measurement's owner is not in the line ({})"
ATLAS_IDS = "promise 9: a measurement runs and has no id at RIPE, or fewer than definitions (measurement {})"
JOB_COUNTS = (
    *("measurements", "open", "waiting", "done", "failed", "cancelled", "reserved", "settled", "refunded", "slots"),
    *("definitions", "definitions_done", "definitions_failed", "definitions_cancelled"),
)
"""Names of a job's counts and sums. SQLite stores neither ``waiting`` nor ``slots``."""


class MeterFacts(NamedTuple):
    """A stored meter with the sums of its postings and releases. ``opened``: the sum of postings removed since."""

    name: str
    window: Window
    stored: Balance
    opened: Balance
    posted: Balance
    released: int


def meter_findings(meter: MeterFacts) -> Iterator[Finding]:
    """Yield the sums that do not add up on a meter."""
    held, spent = meter.opened.held + meter.posted.held, meter.opened.spent + meter.posted.spent
    if meter.stored != (held, spent):
        yield Finding(POSTINGS, meter.name)
    if meter.window == "sliding" and meter.released != meter.stored.spent:
        yield Finding(RELEASES, meter.name)


class StateSums(NamedTuple):
    """Sums over a job's measurements in one state."""

    state: str
    measurements: int
    definitions: int
    reserved: int
    settled: int
    slots: int


def job_findings(name: str, stored: Mapping[str, Any], sums: Iterable[StateSums]) -> Iterator[Finding]:
    """Yield the problems of a job. ``stored``: it has ``purged``, ``finished_ms`` and, mostly, ``JOB_COUNTS``."""
    expected = _job_counts(sums)
    if not expected["measurements"]:
        yield Finding(EMPTY_JOB, name)
    if stored["purged"]:
        left = stored["measurements"] - stored["purged"]
        if stored.get("finished_ms") is None or expected["measurements"] != left:
            yield Finding(REMOVAL, name)
        return
    wrong = [count for count in JOB_COUNTS if count in stored and stored[count] != expected[count]]
    for text, some in groupby(wrong, key=lambda count: DEFINITIONS if count.startswith("definitions") else COUNTS):
        yield Finding(text, f"{name}: {', '.join(some)}")


def _job_counts(sums: Iterable[StateSums]) -> Counter[str]:
    """Return the counts that a job with these measurements must have stored."""
    counts: Counter[str] = Counter()
    for one in sums:
        counts.update(measurements=one.measurements, reserved=one.reserved, definitions=one.definitions)
        if one.state not in ENDED:
            counts.update(open=one.measurements, waiting=one.measurements if one.state in WAITING else 0)
            continue
        counts.update({one.state: one.measurements, f"definitions_{one.state}": one.definitions})
        counts.update(settled=one.settled, refunded=one.reserved - one.settled, slots=one.slots)
    return counts
