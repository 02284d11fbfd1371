"""Levelling of a circle's buckets: monitors that would overfill a bucket cross its border, the nearest ones first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FEW = 10
"""Number of monitors that a host is assumed to get later, when distances count more."""


class WantedSlot(NamedTuple):
    """Place where a monitor belongs, by its number.

    ``weight``: the size of its host, which makes a slot aside matter more.
    """

    slot: int
    number: int
    weight: int
    moved: int = 0
    """Distance from where it belongs, in slots."""


def level(counts: Sequence[int], wanted: Sequence[WantedSlot], *, most: int, slots: int) -> list[int]:
    """Return a slot for each monitor, by number. No monitor comes into a bucket that has ``most``.

    A bucket that would have more passes one monitor on towards the nearest bucket that has room, from neighbour to
    neighbour; each passes on the monitor that is moved least by that, measured in the ideal gaps of its host.
    """
    buckets = len(counts)
    edges = [-(-bucket * slots // buckets) for bucket in range(buckets + 1)]
    members: list[list[WantedSlot]] = [[] for _ in counts]
    load = list(counts)
    for one in wanted:
        bucket = one.slot * buckets // slots
        members[bucket].append(one)
        load[bucket] += 1
    for bucket in range(buckets):
        while load[bucket] > most and members[bucket]:
            to = _nearest_room(load, bucket, most)
            _hand_on(members, edges, bucket, to)
            load[bucket] -= 1
            load[(bucket + to) % buckets] += 1
    found = [0] * len(wanted)
    for mine in members:
        for one in mine:
            found[one.number] = one.slot
    return found


def _nearest_room(load: Sequence[int], bucket: int, most: int) -> int:
    """Return the distance to the nearest bucket with room, negative if it lies before this one."""
    buckets = len(load)
    for distance in range(1, buckets // 2 + 1):
        if load[(bucket + distance) % buckets] < most:
            return distance
        if load[(bucket - distance) % buckets] < most:
            return -distance
    raise AssertionError("most is more than the average")


def _hand_on(members: list[list[WantedSlot]], edges: Sequence[int], bucket: int, to: int) -> None:
    """Move one monitor over each border on the way to a bucket with room; it lands beside the border."""
    buckets, on = len(members), 1 if to > 0 else -1
    for step in range(abs(to)):
        here, there = (bucket + on * step) % buckets, (bucket + on * (step + 1)) % buckets
        border = edges[here + 1] if on > 0 else edges[here] - 1
        chosen = min(members[here], key=lambda one: abs(one.moved + border - one.slot) * one.weight)
        members[here].remove(chosen)
        slot = edges[there] if on > 0 else edges[there + 1] - 1
        members[there].append(chosen._replace(slot=slot, moved=chosen.moved + border - chosen.slot))
