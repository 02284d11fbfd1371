"""Recount of phases: the counts that allotment keeps (``steps.monitors.phases``), from the entries themselves.

Counts follow entries, and on a store that writes one after the other a process that dies in between leaves a count
wrong. A recount goes through all entries once a day, a page at a time, and corrects wrong counts. Its progress is
stored, so any process continues it. ``core.monitors.phases.recount`` says how it stays exact while monitors come and
go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from operator import add, sub
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from paceline.core.durations import format_duration
from paceline.core.findings import PHASES_MISCOUNTED
from paceline.core.monitors.phases import recount
from paceline.core.monitors.phases.circle import Circle, bucket_count
from paceline.core.monitors.schedule import Entry
from paceline.ports import Store
from paceline.ports.items import GETS_MAX, WRITES_MAX
from paceline.steps.collection import Collection, FoundItem, write
from paceline.steps.monitors.phases import CIRCLES

EVERY_MS = 86_400_000
PAUSE_MS = 900
"""Pause between two pages, whichever processes make them."""
ENTRIES_MAX = 1_000
CIRCLES_MAX = (WRITES_MAX - 1) // 2
"""Maximum number of circles that are recounted together: each page writes them and their new counts at once.

More circles take another walk.
"""
CHANGES_MAX = 5_000
TRIES_MAX = 3
PAGES_MAX = 1_000_000


class RecountWalk(msgspec.Struct, frozen=True):
    """Progress of the recount."""

    number: int = 0
    began_ms: int = 0
    """Time at which the round over all circles began."""
    paged_ms: int = 0
    circle: str = ""
    """Key of the last circle of this walk, and of the round so far."""
    intervals: list[int] = []
    after: int | None = None
    """Generation after which the next page begins. None: no walk is in progress."""
    is_first: bool = False
    """True for the first walk of the round, which also looks for intervals that have no circle."""
    rests: bool = True
    """True if the round is over."""


class RecountReport(NamedTuple):
    entries: int = 0
    """Number of entries that were counted in this pass."""
    wrong: int = 0
    """Sum of the errors that were corrected."""
    more: bool = False
    """True if the round is not over: the next pass has something to do."""


class _Member(NamedTuple):
    """A circle of the walk with its new counts, both as they were read."""

    every_ms: int
    circle: FoundItem[Circle]
    counts: FoundItem[recount.NewCounts]


WALKS = Collection("phase-walk", RecountWalk)
COUNTS = Collection("phase-counts", recount.NewCounts)
ALL = "all"


def recount_phases(
    store: Store, *, now_ms: int, every_ms: int = EVERY_MS, pause_ms: int = PAUSE_MS, limit: int = ENTRIES_MAX
) -> RecountReport:
    """Make one bounded pass, a page, if a round is in progress or due and no process has just made one."""
    for _ in range(TRIES_MAX):
        found = WALKS.find(store, ALL)
        walk = found.value or RecountWalk()
        if walk.rests and 0 <= now_ms - walk.began_ms < every_ms:
            return RecountReport()
        if not walk.rests and 0 <= now_ms - walk.paged_ms < pause_ms:
            return RecountReport(more=True)
        step = _begin(store, found, now_ms=now_ms) if walk.after is None else _page(store, found, now_ms, limit)
        if step is not None:
            return step
    return RecountReport(more=True)  # others write all the time: the next pass tries again


def phase_problems(store: Store, *, now_ms: int) -> list[str]:
    """Return which intervals are miscounted, in plain words. Goes through all entries, twice if one looks wrong.

    Concurrent moves are no miscount: an interval is named only if its circle did not change and was wrong by the same
    amount at two looks.
    """
    first = set(_miscounted(store, now_ms=now_ms))
    wrong = first & set(_miscounted(store, now_ms=now_ms)) if first else first
    return [PHASES_MISCOUNTED.format(format_duration(every_ms)) for every_ms, _ in sorted(wrong)]


def _begin(store: Store, found: FoundItem[RecountWalk], *, now_ms: int) -> RecountReport | None:
    """Begin a walk over the next circles, or end the round. None: something was written meanwhile."""
    walk = found.value or RecountWalk()
    is_first = walk.rests
    if is_first:
        walk = replace(walk, began_ms=now_ms, circle="", rests=False)
    circles = CIRCLES.page(store, after=walk.circle, limit=CIRCLES_MAX)
    if not circles and not is_first:
        ended = replace(walk, intervals=[], rests=True, paged_ms=now_ms)
        return RecountReport() if write(store, [WALKS.change(found, ended)]) else None
    keys = [one.key for one in circles]
    begun = {"number": walk.number + 1, "intervals": [int(key) for key in keys], "circle": max(keys, default="")}
    walk = replace(walk, **begun, is_first=is_first, after=0, paged_ms=now_ms)
    writes = [WALKS.change(found, walk)]
    for circle, counts in zip(circles, COUNTS.find_many(store, keys), strict=True):
        assert circle.value is not None
        zeros = recount.NewCounts([0] * bucket_count(int(circle.key)))
        writes += [
            CIRCLES.change(circle, recount.begin_recount(circle.value, walk=walk.number)),
            COUNTS.change(counts, zeros),
        ]
    return RecountReport(more=True) if write(store, writes) else None


def _page(store: Store, found: FoundItem[RecountWalk], now_ms: int, limit: int) -> RecountReport | None:
    """Count a page of entries; the walk ends with an empty one. None: something was written meanwhile."""
    walk = found.value
    assert walk is not None
    assert walk.after is not None
    members = _members(store, walk)  # read before the entries, so that the write notices moves since then
    page = [one.entry for one in store.schedulers(after_generation=walk.after, limit=limit, now_ms=now_ms)]
    until = page[-1].generation if page else None
    buckets = recount.buckets_by_interval([*page, *_removed(store, page, after=walk.after, until=until, now_ms=now_ms)])
    if walk.is_first:
        _add_missing(store, walk, buckets)
    writes, wrong = [WALKS.change(found, replace(walk, after=until, paged_ms=now_ms))], 0
    for member in members:
        circle, counts, off = _count(member, buckets.get(member.every_ms, ()), until=until)
        wrong += off
        writes += [CIRCLES.change(member.circle, circle), COUNTS.change(member.counts, counts)]
    return RecountReport(len(page), wrong, more=True) if write(store, writes) else None


def _members(store: Store, walk: RecountWalk) -> list[_Member]:
    """Return the circles that still take part; one that was removed and made again counts from its start."""
    keys = [str(every_ms) for every_ms in walk.intervals]
    circles, counts = CIRCLES.find_many(store, keys), COUNTS.find_many(store, keys)
    return [
        _Member(int(circle.key), circle, new)
        for circle, new in zip(circles, counts, strict=True)
        if circle.value and circle.value.walked and circle.value.walked.walk == walk.number and new.value
    ]


def _count(
    member: _Member, buckets: Sequence[int], *, until: int | None
) -> tuple[Circle | None, recount.NewCounts | None, int]:
    """Return the circle and its new counts after the page, and the error of the circle, which is known at the end."""
    circle, counts = member.circle.value, member.counts.value
    assert circle is not None
    assert counts is not None
    page = recount.recount_page(circle, counts, buckets, until=until or 0)
    if until is not None:
        return page.circle, page.found, 0
    end = recount.end_recount(circle, page.found)
    return end.circle, None, end.wrong


def _removed(store: Store, page: Sequence[Entry], *, after: int, until: int | None, now_ms: int) -> Iterator[Entry]:
    """Yield entries of removed monitors whose removal is not reacted to yet: they count until then."""
    there = {entry.generation for entry in page}
    for change in store.changes(limit=CHANGES_MAX, now_ms=now_ms):
        is_here = change.generation > after and (until is None or change.generation <= until)
        if change.monitor is None and change.entry is not None and is_here and change.generation not in there:
            yield change.entry


def _add_missing(store: Store, walk: RecountWalk, buckets: Mapping[int, Sequence[int]]) -> None:
    """Make circles for intervals that have none, with these entries alone: the next round counts the others."""
    others = sorted(buckets.keys() - set(walk.intervals))[:GETS_MAX]
    for found in CIRCLES.find_many(store, [str(every_ms) for every_ms in others]):
        if found.value is None:
            counts = recount.counts_of(buckets[int(found.key)], int(found.key))
            CIRCLES.add(store, found.key, Circle(counts, made=sum(counts)))


def _miscounted(store: Store, *, now_ms: int) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield intervals whose circle did not change during a look at all entries, and the error of each bucket."""
    before = {int(one.key): one.value.counts for one in CIRCLES.walk(store) if one.value}
    counted: dict[int, list[int]] = {}
    for entries in _pages(store, now_ms=now_ms):
        for every_ms, buckets in recount.buckets_by_interval(entries).items():
            here = recount.counts_of(buckets, every_ms)
            counted[every_ms] = list(map(add, counted.get(every_ms, [0] * len(here)), here))
    after = {int(one.key): one.value.counts for one in CIRCLES.walk(store) if one.value}
    for every_ms in before.keys() | after.keys() | counted.keys():
        zeros = [0] * bucket_count(every_ms)
        kept, true = after.get(every_ms, zeros), counted.get(every_ms, zeros)
        if before.get(every_ms, zeros) == kept != true:
            yield every_ms, tuple(map(sub, kept, true))


def _pages(store: Store, *, now_ms: int) -> Iterator[list[Entry]]:
    after = 0
    for _ in range(PAGES_MAX):
        page = [one.entry for one in store.schedulers(after_generation=after, limit=ENTRIES_MAX, now_ms=now_ms)]
        until = page[-1].generation if page else None
        yield [*page, *_removed(store, page, after=after, until=until, now_ms=now_ms)]
        if until is None:
            return
        after = until
