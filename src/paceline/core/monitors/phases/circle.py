"""Circle of an interval: how many of its monitors fire in which part of it. Its size is bounded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import msgspec

from paceline.core.monitors.schedule import SLOT_MS

BUCKETS_MAX = 3_600
"""Maximum number of buckets: an interval of up to an hour has buckets of one second, a day has buckets of 24."""
MOVED_MAX = 256
"""Maximum number of buckets whose moves are kept for a recount between two of its pages."""
_SECOND_MS = 1_000


class CirclePosition(NamedTuple):
    """A monitor on the circle of its interval."""

    host: str
    phase_ms: int
    first_ms: int = 0
    """Due time of its first check, if that is before its grid."""
    generation: int = 0


class Walked(msgspec.Struct, frozen=True, array_like=True):
    """Progress of a recount of the circle (``core.monitors.phases.recount``)."""

    walk: int
    """Number of the recount."""
    until: int
    """Generation up to which entries are counted again."""
    moved: dict[int, int] = {}
    """Changes of such entries since then, by bucket: the next page takes them over."""


class Circle(msgspec.Struct, frozen=True, omit_defaults=True):
    """The monitors of one interval, as far as allotment needs to know: hints, whose size is bounded."""

    counts: list[int]
    """Number of monitors in each bucket."""
    made: int = 0
    """Number of monitors ever added."""
    hosts_made: int = 0
    """Number of hosts ever noted (``core.monitors.phases.hosts``)."""
    first_ms: int = 0
    """Latest first check that was ever given to a monitor of this interval."""
    born: int = 0
    """Generation of the first monitor that came. It tells this circle from an earlier one that all monitors left."""
    walked: Walked | None = None
    """Recount in progress; None: there is none."""


@lru_cache(maxsize=1_024)
def bucket_count(every_ms: int) -> int:
    """Return the number of buckets of an interval's circle: one a second, or fewer if they would be too many."""
    seconds = max(1, every_ms // _SECOND_MS)
    return seconds // -(-seconds // BUCKETS_MAX)


def bucket_of(phase_ms: int, every_ms: int) -> int:
    return phase_ms % every_ms // SLOT_MS * bucket_count(every_ms) // (every_ms // SLOT_MS)


def after_moves(
    circle: Circle | None,
    every_ms: int,
    *,
    come: Sequence[CirclePosition] = (),
    gone: Sequence[CirclePosition] = (),
    hosts: int = 0,
) -> Circle | None:
    """Return the circle after monitors have come and gone, with ``hosts`` new hosts; None if it has no monitors."""
    counts = list(circle.counts) if circle else [0] * bucket_count(every_ms)
    made, known = (circle.made, circle.hosts_made) if circle else (0, 0)
    first_ms = max([circle.first_ms if circle else 0, *(one.first_ms for one in come)])
    buckets, slots = len(counts), every_ms // SLOT_MS
    for place in gone:
        bucket = place.phase_ms % every_ms // SLOT_MS * buckets // slots  # bucket_of, for thousands at a time
        counts[bucket] = max(0, counts[bucket] - 1)
    for place in come:
        counts[place.phase_ms % every_ms // SLOT_MS * buckets // slots] += 1
    if not any(counts):
        return None
    walked = circle.walked and _after_moves(circle.walked, every_ms, come=come, gone=gone) if circle else None
    born = circle.born if circle else max((one.generation for one in come[:1]), default=0)
    return Circle(counts, made + len(come), known + hosts, first_ms, born, walked)


def _after_moves(
    walked: Walked, every_ms: int, *, come: Sequence[CirclePosition], gone: Sequence[CirclePosition]
) -> Walked | None:
    """Return the progress of a recount after these moves.

    None: it is given up, since nobody has continued it for long.
    """
    moved = dict(walked.moved)
    for places, by in ((gone, -1), (come, 1)):
        for place in places:
            if place.generation <= walked.until:
                bucket = bucket_of(place.phase_ms, every_ms)
                moved[bucket] = moved.get(bucket, 0) + by
    return Walked(walked.walk, walked.until, moved) if len(moved) <= MOVED_MAX else None


def fullest_second(phases_ms: Mapping[str, int] | Sequence[int], every_ms: int) -> int:
    """Return how many of these phases fall into the fullest second of the circle."""
    seconds: dict[int, int] = {}
    for phase_ms in phases_ms.values() if isinstance(phases_ms, Mapping) else phases_ms:
        second = phase_ms % every_ms // _SECOND_MS
        seconds[second] = seconds.get(second, 0) + 1
    return max(seconds.values(), default=0)
