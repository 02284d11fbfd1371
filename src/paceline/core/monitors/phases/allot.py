"""Phases of interval monitors: who fires when on the circle of an interval, so that monitors share it evenly.

The circle of an interval is cut into buckets of one second, or wider ones if the interval is long. A monitor only ever
comes into one of the emptiest buckets, and nobody is moved. From this alone follows the bound, whatever was added and
removed in whichever order: the fullest bucket has at most one more than the average at the time when it got its newest
monitor, so at most one more than the largest average there ever was.

Monitors that come together on a level circle are spaced exactly evenly, and dealt to their hosts as the slots of a day
are dealt to providers (``core.batches.spread``): two neighbours of a host are less than two of its ideal gaps apart.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from heapq import heapify, heapreplace

from paceline.core.batches.spread import assign_slots
from paceline.core.monitors.phases.circle import Circle, bucket_count, bucket_of, note_of
from paceline.core.monitors.schedule import SLOT_MS, SOON_MS, Phase, on_raster

COMBS_MAX = 16
FIRST_CHECKS_MS = 3_600_000
"""First checks of monitors that come together are due within this time; the others begin on their grids."""
_SECOND_MS = 1_000
_PARTS = 1 << 16


def allot_one(circle: Circle | None, every_ms: int, host: str, *, now_ms: int) -> Phase:
    """The phase of a monitor that is put by itself; its first check is due at once.

    Of the emptiest buckets it gets the one nearest to where its host has the widest gap. The first monitor of a host is
    aimed at now, so that its first check is on its grid already.
    """
    now_ms = on_raster(now_ms)
    slots = every_ms // SLOT_MS
    note = circle.hosts.get(note_of(host)) if circle else None
    aim = now_ms // SLOT_MS % slots
    if note is not None:
        aim = (note.base + _inverse(note.made) * slots // _PARTS) % slots
    if circle is None:
        return Phase(aim * SLOT_MS, now_ms)
    buckets, wanted = len(circle.counts), aim * len(circle.counts) // slots
    bucket = _nearest(circle.counts, wanted)
    if bucket != wanted:
        aim = _slot_in(bucket, circle.made // buckets, buckets=buckets, slots=slots)
    return Phase(aim * SLOT_MS, now_ms)


def allot_together(circle: Circle | None, every_ms: int, hosts: Sequence[str], *, now_ms: int) -> list[Phase]:
    """The phases of monitors that come together, in the order of their hosts.

    Seconds of the circle that nobody has are used for first checks, one each, from now on. Where there are none left,
    monitors begin on their grids.
    """
    circle = circle or Circle([0] * bucket_count(every_ms))
    positions = _comb(circle, every_ms, len(hosts)) or _fill(circle, every_ms, len(hosts))
    members: dict[str, list[int]] = {}
    for index, host in enumerate(hosts):
        members.setdefault(host, []).append(index)
    phases = [Phase(0)] * len(hosts)
    for mine, slots in zip(members.values(), assign_slots([len(one) for one in members.values()]), strict=True):
        for index, slot in zip(mine, slots, strict=True):
            phases[index] = Phase(positions[slot] * SLOT_MS)
    return _with_first_checks(circle, every_ms, phases, now_ms=now_ms)


def _with_first_checks(circle: Circle, every_ms: int, phases: Sequence[Phase], *, now_ms: int) -> list[Phase]:
    """Gives free seconds to those first whose grid is furthest away."""
    counts = list(circle.counts)
    for phase in phases:
        counts[bucket_of(phase.ms, every_ms)] += 1
    start_ms = at_ms = _first_free_ms(circle, now_ms)
    end_ms = start_ms + FIRST_CHECKS_MS
    found = list(phases)
    waits = sorted((((phase.ms - start_ms) % every_ms, index) for index, phase in enumerate(phases)), reverse=True)
    for wait_ms, index in waits:
        while at_ms < end_ms and counts[bucket_of(at_ms, every_ms)]:
            at_ms += _SECOND_MS
        if at_ms >= end_ms or at_ms - start_ms + SOON_MS >= wait_ms:
            break
        found[index] = Phase(phases[index].ms, at_ms)
        at_ms += _SECOND_MS
    return found


def _first_free_ms(circle: Circle, now_ms: int) -> int:
    """The first second that no first check was given; one far ahead is of a clock that was set back since."""
    ahead = now_ms <= circle.first_ms <= now_ms + FIRST_CHECKS_MS
    return on_raster(circle.first_ms + _SECOND_MS if ahead else now_ms)


def _comb(circle: Circle, every_ms: int, count: int) -> list[int] | None:
    """Exactly even slots, rising, if no bucket then has more than one above the average. None: no shift does that."""
    counts, slots = circle.counts, every_ms // SLOT_MS
    buckets = len(counts)
    most = (sum(counts) + count) // buckets + 1
    for turn in range(COMBS_MAX):
        shift = _inverse(circle.made // count + turn)
        positions = [(index * _PARTS + shift) * slots // (count * _PARTS) for index in range(count)]
        after = list(counts)
        for position in positions:
            after[position * buckets // slots] += 1
        if max(after) <= most:
            return positions
    return None


def _fill(circle: Circle, every_ms: int, count: int) -> list[int]:
    """Slots, rising, each in one of the buckets that are then emptiest; equal ones from all over the circle in turn."""
    buckets, slots = len(circle.counts), every_ms // SLOT_MS
    heap = list(zip(circle.counts, _places(buckets), range(buckets), strict=True))
    heapify(heap)
    found: list[int] = []
    for index in range(count):
        held, place, bucket = heap[0]
        heapreplace(heap, (held + 1, place, bucket))
        found.append(_slot_in(bucket, (circle.made + index) // buckets, buckets=buckets, slots=slots))
    return sorted(found)


def _nearest(counts: Sequence[int], wanted: int) -> int:
    """The emptiest bucket that is nearest to the wanted one on the circle."""
    least, buckets = min(counts), len(counts)
    for distance in range(buckets // 2 + 1):
        for bucket in ((wanted + distance) % buckets, (wanted - distance) % buckets):
            if counts[bucket] == least:
                return bucket
    raise AssertionError("one of them is the least")


def _slot_in(bucket: int, lap: int, *, buckets: int, slots: int) -> int:
    """A slot of the bucket: another one in each lap around the circle, and the same for all buckets of a lap."""
    first, behind = -(-bucket * slots // buckets), -(-(bucket + 1) * slots // buckets)
    return first + (behind - first) * _inverse(lap) // _PARTS


@lru_cache(maxsize=64)
def _places(buckets: int) -> tuple[int, ...]:
    """The order in which equal buckets are filled: wherever it stops, they are from all over the circle."""
    return tuple(_inverse(bucket) for bucket in range(buckets))


def _inverse(number: int) -> int:
    """The bits of the number mirrored at the point, in parts of 65,536: 0, 1/2, 1/4, 3/4, 1/8 and so on."""
    return int(f"{number % _PARTS:016b}"[::-1], 2)
