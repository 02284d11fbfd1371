"""Levels the buckets of a circle: monitors that would overfill one cross its border, the nearest ones first."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

FEW = 10
"""A host is taken to have so many monitors more than it has: it may get them later, and then distances count more."""


class Wanted(NamedTuple):
    """Where a monitor belongs, by its number. ``weight``: how many its host has, so how much a slot aside matters."""

    slot: int
    number: int
    weight: int
    moved: int = 0
    """How many slots it was moved from where it belongs."""


def level(counts: Sequence[int], wanted: Sequence[Wanted], *, most: int, slots: int) -> list[int]:
    """Returns a slot for each monitor, by number. None comes into a bucket that has ``most``.

    A bucket that would have more hands one on towards the nearest bucket that has room, from neighbour to neighbour,
    and each hands on whichever monitor is moved least by that, measured in the ideal gaps of its host.
    """
    buckets = len(counts)
    edges = [-(-bucket * slots // buckets) for bucket in range(buckets + 1)]
    members: list[list[Wanted]] = [[] for _ in counts]
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
    """How many buckets on, or back if it is negative, there is room."""
    buckets = len(load)
    for distance in range(1, buckets // 2 + 1):
        if load[(bucket + distance) % buckets] < most:
            return distance
        if load[(bucket - distance) % buckets] < most:
            return -distance
    raise AssertionError("most is more than the average")


def _hand_on(members: list[list[Wanted]], edges: Sequence[int], bucket: int, to: int) -> None:
    """One of the bucket's monitors crosses its border, and so on; each lands beside the border that it crossed."""
    buckets, on = len(members), 1 if to > 0 else -1
    for step in range(abs(to)):
        here, there = (bucket + on * step) % buckets, (bucket + on * (step + 1)) % buckets
        border = edges[here + 1] if on > 0 else edges[here] - 1
        chosen = min(members[here], key=lambda one: abs(one.moved + border - one.slot) * one.weight)
        members[here].remove(chosen)
        slot = edges[there] if on > 0 else edges[there + 1] - 1
        members[there].append(chosen._replace(slot=slot, moved=chosen.moved + border - chosen.slot))
