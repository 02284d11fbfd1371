"""Recount of a circle's monitors, page by page, while others come and go.

Entries are read in the order of their generations. A circle that is being recounted has the generation that the recount
has reached; an entry below it that comes or goes is noted on the circle (``Walked.moved``), one above it is met later.
A page is written on the condition that the circle is still as it was before the entries were read. So the new counts
are exact at the end, however much moved meanwhile, as long as an entry and its circle are written together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from paceline.core.monitors.phases.circle import Circle, Walked, bucket_count, bucket_of
from paceline.core.monitors.schedule import Entry, allotted_ms


class NewCounts(msgspec.Struct, frozen=True):
    """Counts of a recount so far: entries in each bucket."""

    counts: list[int]


class RecountPage(NamedTuple):
    """A circle and its new counts after a page."""

    circle: Circle
    found: NewCounts


class Recounted(NamedTuple):
    """A circle after its recount; None: it has no monitors. ``wrong``: the sum of its errors over all buckets."""

    circle: Circle | None
    wrong: int


def buckets_by_interval(entries: Iterable[Entry]) -> dict[int, list[int]]:
    """Return the buckets in which these entries fire, by interval. Entries without an allotted phase have none."""
    found: dict[int, list[int]] = {}
    for entry in entries:
        phase_ms = allotted_ms(entry)
        if phase_ms is not None:
            every_ms = entry.cadence.every_ms
            found.setdefault(every_ms, []).append(bucket_of(phase_ms, every_ms))
    return found


def begin_recount(circle: Circle, *, walk: int) -> Circle:
    """Return the circle with a recount of this number in progress; an earlier one is given up."""
    return replace(circle, walked=Walked(walk, 0))


def recount_page(circle: Circle, found: NewCounts, buckets: Sequence[int], *, until: int) -> RecountPage:
    """Return the circle and its new counts after a page: the buckets of the entries from the last page to ``until``."""
    assert circle.walked is not None
    counts = list(found.counts)
    for bucket in buckets:
        counts[bucket] += 1
    for bucket, by in circle.walked.moved.items():
        counts[bucket] += by
    return RecountPage(replace(circle, walked=Walked(circle.walked.walk, until)), NewCounts(counts))


def counts_of(buckets: Iterable[int], every_ms: int) -> list[int]:
    """Return how often each bucket of the circle is named."""
    counts = [0] * bucket_count(every_ms)
    for bucket in buckets:
        counts[bucket] += 1
    return counts


def end_recount(circle: Circle, found: NewCounts) -> Recounted:
    """Return the circle with its new counts."""
    counts = [max(0, count) for count in found.counts]
    wrong = sum(abs(new - old) for new, old in zip(counts, circle.counts, strict=True))
    return Recounted(replace(circle, counts=counts, walked=None) if any(counts) else None, wrong)
