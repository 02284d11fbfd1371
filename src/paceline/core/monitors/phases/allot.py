"""Phases of interval monitors: when each fires on the circle of its interval, so that monitors share it evenly.

The circle of an interval is cut into buckets of one second, or wider ones if the interval is long. A monitor that comes
alone only ever comes into one of the emptiest buckets, monitors that come together only into buckets that have no more
than the average and one, and nobody is moved. So the fullest bucket has at most one more than the largest average there
ever was, whatever was added and removed in whichever order.

Monitors belong where their host has the widest gap (``core.monitors.phases.hosts``), and are moved aside from there as
little as the buckets require (``core.monitors.phases.level``). If hosts that are all new would then have neighbours
that are two ideal gaps apart, slots are dealt to them as those of a day are dealt to providers
(``core.batches.spread``), whose gaps are always smaller.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache
from heapq import heapify, heapreplace
from itertools import pairwise

from paceline.core.batches.spread import assign_slots
from paceline.core.monitors.phases.circle import Circle, CirclePosition, bucket_count, bucket_of
from paceline.core.monitors.phases.hosts import PARTS, HostNote, Notes, base_of, inverse, point_of
from paceline.core.monitors.phases.level import FEW, WantedSlot, level
from paceline.core.monitors.schedule import SLOT_MS, SOON_MS, Phase, on_raster

COMBS_MAX = 16
FIRST_CHECKS_MS = 3_600_000
"""Time within which first checks of monitors that come together are due; the others begin on their grids."""
_SECOND_MS = 1_000


def allot_one(circle: Circle | None, note: HostNote | None, every_ms: int, *, now_ms: int) -> Phase:
    """Return the phase of a monitor that is put by itself; its first check is due at once. ``note``: of its host.

    Of the emptiest buckets it gets the one nearest to where its host has the widest gap. The first monitor of a host is
    aimed at now, so that its first check is on its grid already.
    """
    now_ms = on_raster(now_ms)
    slots = every_ms // SLOT_MS
    aim = now_ms // SLOT_MS % slots if note is None else point_of(note, 0) * slots // PARTS
    if circle is None:
        return Phase(aim * SLOT_MS, now_ms)
    buckets, wanted = len(circle.counts), aim * len(circle.counts) // slots
    bucket = _nearest(circle.counts, wanted)
    if bucket != wanted:
        aim = _slot_in(bucket, circle.made // buckets, buckets=buckets, slots=slots)
    return Phase(aim * SLOT_MS, now_ms)


def allot_together(
    circle: Circle | None, notes: Notes, every_ms: int, hosts: Sequence[str], *, now_ms: int
) -> list[Phase]:
    """Return the phases of monitors that come together, in the order of their hosts.

    Seconds of the circle in which no monitor fires are used for first checks, one each, from now on. When none are
    left, monitors begin on their grids.
    """
    circle = circle or Circle([0] * bucket_count(every_ms))
    members: dict[str, list[int]] = {}
    for index, host in enumerate(hosts):
        members.setdefault(host, []).append(index)
    slots = every_ms // SLOT_MS
    found = _by_sequence(circle, first_notes(circle, notes, members), members, slots=slots)
    if notes.keys().isdisjoint(members) and _is_any_apart(found, members, slots=slots):
        found = _by_parts(circle, every_ms, members)
    return _with_first_checks(circle, every_ms, [Phase(slot * SLOT_MS) for slot in found], now_ms=now_ms)


def first_notes(circle: Circle | None, notes: Notes, hosts: Iterable[str]) -> dict[str, HostNote]:
    """Return the notes of these hosts, each named once; those that have none get one, in their order."""
    known, new = circle.hosts_made if circle else 0, 0
    found: dict[str, HostNote] = {}
    for host in hosts:
        note = notes.get(host)
        if note is None:
            note, new = HostNote(base_of(known + new)), new + 1
        found[host] = note
    return found


def notes_after(
    circle: Circle | None, notes: Notes, every_ms: int, come: Sequence[CirclePosition]
) -> dict[str, HostNote]:
    """Return the notes of the hosts whose monitors have come.

    The base of a new host with a single monitor is that monitor's phase.
    """
    counts = Counter(place.host for place in come)
    first = first_notes(circle, notes, counts)
    for place in come:
        if place.host not in notes and counts[place.host] == 1:
            first[place.host] = HostNote(-(-place.phase_ms * PARTS // every_ms) % PARTS)
    return {host: HostNote(note.base, note.made + counts[host]) for host, note in first.items()}


def _by_sequence(circle: Circle, notes: Notes, members: dict[str, list[int]], *, slots: int) -> list[int]:
    """Return a slot for each monitor, near where its host has the widest gap."""
    wanted: list[WantedSlot] = []
    for host, mine in members.items():
        note, weight = notes[host], notes[host].made + len(mine) + FEW
        wanted += [
            WantedSlot(point_of(note, position) * slots // PARTS, index, weight) for position, index in enumerate(mine)
        ]
    most = (sum(circle.counts) + len(wanted)) // len(circle.counts) + 1
    return level(circle.counts, wanted, most=most, slots=slots)


def _is_any_apart(found: Sequence[int], members: dict[str, list[int]], *, slots: int) -> bool:
    """Return whether two neighbours of a host are at least two of its ideal gaps and a slot apart."""
    for mine in members.values():
        rising = sorted(found[index] for index in mine)
        gap = max(later - sooner for sooner, later in pairwise([*rising, rising[0] + slots]))
        if (gap - 1) * len(mine) >= 2 * slots:
            return True
    return False


def _by_parts(circle: Circle, every_ms: int, members: dict[str, list[int]]) -> list[int]:
    """Return a slot for each monitor, exactly even or in the emptiest buckets, dealt to the hosts by parts."""
    count = sum(map(len, members.values()))
    positions = _comb(circle, every_ms, count) or _fill(circle, every_ms, count)
    found = [0] * count
    for mine, slots in zip(members.values(), assign_slots([len(one) for one in members.values()]), strict=True):
        for index, slot in zip(mine, slots, strict=True):
            found[index] = positions[slot]
    return found


def _with_first_checks(circle: Circle, every_ms: int, phases: Sequence[Phase], *, now_ms: int) -> list[Phase]:
    """Give free seconds to first checks, to the monitors whose grid is furthest away first."""
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
    """Return the second after the latest first check, or now if that is not within the next hour."""
    ahead = now_ms <= circle.first_ms <= now_ms + FIRST_CHECKS_MS
    return on_raster(circle.first_ms + _SECOND_MS if ahead else now_ms)


def _comb(circle: Circle, every_ms: int, count: int) -> list[int] | None:
    """Return exactly even, rising slots that leave no bucket more than one above the average; None: no shift does."""
    counts, slots = circle.counts, every_ms // SLOT_MS
    buckets = len(counts)
    most = (sum(counts) + count) // buckets + 1
    for turn in range(COMBS_MAX):
        shift = inverse(circle.made // count + turn)
        positions = [(index * PARTS + shift) * slots // (count * PARTS) for index in range(count)]
        after = list(counts)
        for position in positions:
            after[position * buckets // slots] += 1
        if max(after) <= most:
            return positions
    return None


def _fill(circle: Circle, every_ms: int, count: int) -> list[int]:
    """Return rising slots, each in one of the then emptiest buckets; equal buckets take turns all over the circle."""
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
    """Return the emptiest bucket that is nearest to the wanted one on the circle."""
    least, buckets = min(counts), len(counts)
    for distance in range(buckets // 2 + 1):
        for bucket in ((wanted + distance) % buckets, (wanted - distance) % buckets):
            if counts[bucket] == least:
                return bucket
    raise AssertionError("one of them is the least")


def _slot_in(bucket: int, lap: int, *, buckets: int, slots: int) -> int:
    """Return a slot of the bucket: another one in each lap around the circle, and the same for all buckets of a lap."""
    first, behind = -(-bucket * slots // buckets), -(-(bucket + 1) * slots // buckets)
    return first + (behind - first) * inverse(lap) // PARTS


@lru_cache(maxsize=64)
def _places(buckets: int) -> tuple[int, ...]:
    """Return the order in which equal buckets are filled: wherever it stops, they are spread all over the circle."""
    return tuple(inverse(bucket) for bucket in range(buckets))
