"""Counts of monitors that share a cadence and are on no circle of phases: cron, and intervals with a delay.

Monitors whose phase was allotted are counted on the circles (``core.monitors.phases.circle``). Both counts together say
what fires when, without reading a single monitor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from paceline.core.durations import format_duration
from paceline.core.monitors.phases.circle import bucket_of
from paceline.core.monitors.schedule import Arm, Cadence, Entry, Keep, Reaction, jitter_offset_ms

MINUTE_MS = 60_000


SPARSE_MAX = 1_000
"""Number of buckets above which a list of counts is shorter than a mapping from bucket to count."""


class CadenceCount(msgspec.Struct, frozen=True, omit_defaults=True):
    """Number of monitors in each bucket of the interval; for cron, in each minute of the jitter.

    ``sparse`` maps buckets to counts. With more than ``SPARSE_MAX`` buckets ``dense`` lists the counts in the order of
    the buckets instead, so the stored value stays below 30,000 bytes.
    """

    sparse: dict[int, int] = {}
    dense: list[int] = []

    @classmethod
    def of(cls, counts: Mapping[int, int]) -> CadenceCount:
        if len(counts) <= SPARSE_MAX:
            return cls(sparse=dict(counts))
        return cls(dense=[counts.get(bucket, 0) for bucket in range(max(counts) + 1)])

    @property
    def counts(self) -> dict[int, int]:
        return self.sparse or {bucket: count for bucket, count in enumerate(self.dense) if count}


class CadenceLoad(NamedTuple):
    """Monitors that share an interval, or a cron expression and its zone. ``counts``: how many are in each bucket."""

    every_ms: int
    cron: str
    timezone: str
    counts: Mapping[int, int]

    @property
    def monitors(self) -> int:
        return sum(self.counts.values())

    @property
    def name(self) -> str:
        return f"every {format_duration(self.every_ms)}" if self.every_ms else f"{self.cron} {self.timezone}"


class Counted(NamedTuple):
    """Place where a monitor is counted: the key of its cadence, and the bucket there."""

    key: str
    bucket: int


class CountMove(NamedTuple):
    """Change to the counts of cadences that follows from a reaction."""

    generation: int
    gone: Counted | None
    come: Counted | None
    is_new: bool
    """True if the monitor had no entry before."""


def cadence_key(cadence: Cadence) -> str:
    """Return the name under which monitors of a cadence are counted: the interval, or zone and cron expression."""
    return f"every {cadence.every_ms}" if cadence.every_ms else f"cron {cadence.timezone} {cadence.cron}"


def load_of_key(key: str, counts: Mapping[int, int]) -> CadenceLoad:
    kind, _, rest = key.partition(" ")
    if kind == "every":
        return CadenceLoad(int(rest), "", "UTC", counts)
    zone, _, cron = rest.partition(" ")
    return CadenceLoad(0, cron, zone, counts)


def counted(cadence: Cadence, *, generation: int, due_ms: int) -> Counted:
    """Return where an entry that fires at ``due_ms`` is counted."""
    if cadence.every_ms:
        return Counted(cadence_key(cadence), bucket_of(due_ms, cadence.every_ms))
    return Counted(cadence_key(cadence), jitter_offset_ms(cadence, generation) // MINUTE_MS)


def counted_entry(entry: Entry) -> Counted | None:
    """Return where the entry is counted; None: it is paused, or counted on a circle."""
    if entry.due_ms is None or entry.lead_ms is not None:
        return None
    return counted(entry.cadence, generation=entry.generation, due_ms=entry.due_ms)


def move_of(reaction: Reaction, entry: Entry | None, *, generation: int) -> CountMove | None:
    """Return the change that a reaction makes to the counts of cadences; None: none."""
    if isinstance(reaction, Keep):
        return None
    gone = None if entry is None else counted_entry(entry)
    come = None
    if isinstance(reaction, Arm) and reaction.lead_ms is None:
        come = counted(reaction.cadence, generation=generation, due_ms=reaction.due_ms)
    return None if gone == come else CountMove(generation, gone, come, entry is None)


def recount(before: Mapping[int, int], changes: Sequence[tuple[int, int]]) -> dict[int, int]:
    """Return the counts after these changes of (bucket, difference).

    No count goes below zero; empty buckets are left out.
    """
    after = dict(before)
    for bucket, change in changes:
        after[bucket] = max(0, after.get(bucket, 0) + change)
    return {bucket: count for bucket, count in sorted(after.items()) if count}
