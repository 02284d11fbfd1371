"""Counts of monitors by cadence, kept as entries move, for monitors that no circle of phases counts.

A count is one named item for each cadence. It is written in the commit in which the entry is armed, moved or removed,
or after it if a commit cannot hold as much: then a process that dies in between leaves the count wrong by what it
moved.

Stores that had monitors before they had counts are counted once, page by page, by the keeper (``count_page``). Until
then ``CountWalk`` says which generations are counted: those up to ``until``, and those from ``begin`` on.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from paceline.core.ahead.cadences import CadenceCount, Counted, CountMove, counted_entry, move_of, recount
from paceline.core.monitors.schedule import Entry
from paceline.core.monitors.values import Reacted
from paceline.ports import Store
from paceline.ports.items import WRITES_MAX, ItemStore, ItemWrite
from paceline.ports.monitors import Beside
from paceline.steps.collection import Collection, FoundItem, write

CADENCES = Collection("cadences", CadenceCount)
TRIES_MAX = 10
"""Maximum number of attempts to write a count while others write it, too."""
PAGE = 1_000
WALK = "walk"

Changes = dict[str, list[tuple[int, int]]]
"""Changes by key of the cadence: (bucket, difference)."""


class CountWalk(msgspec.Struct, frozen=True):
    """Generations that are counted. ``begin`` None: no new monitor was counted yet."""

    until: int = 0
    begin: int | None = None
    done: bool = False
    skipped: int = 0
    """Number of times that moves of uncounted monitors were left to the walk; an older page is then not written."""


WALKS = Collection("cadences_walk", CountWalk)


class CountReport(NamedTuple):
    counted: int
    more: bool


def count_cadences(reacted: Sequence[Reacted]) -> Beside | None:
    """Return a writer that counts these reactions, once it is known which of them won; None: nothing to do."""
    moves = {
        position: move
        for position, item in enumerate(reacted)
        if (move := move_of(item.reaction, item.change.entry, generation=item.change.generation)) is not None
    }
    if not moves:
        return None

    def count(items: ItemStore, won: Sequence[bool]) -> None:
        count_moves(items, [move for position, move in moves.items() if won[position]])

    return count


def beside_all(*writers: Beside | None) -> Beside | None:
    """Return a writer that calls all of these; None: there are none."""
    found = [one for one in writers if one is not None]
    if len(found) < 2:
        return found[0] if found else None

    def call_all(items: ItemStore, won: Sequence[bool]) -> None:
        for one in found:
            one(items, won)

    return call_all


def count_moves(items: ItemStore, moves: Sequence[CountMove]) -> bool:
    """Count the moves. Return False if a part was given up because others wrote all the time."""
    if not moves:
        return True
    for _ in range(TRIES_MAX):
        before = WALKS.find(items, WALK)
        walk, changes = _split(before.value or CountWalk(), moves)
        if walk == before.value or write(items, [WALKS.change(before, walk)]):
            return _add(items, changes)
    return False


def count_page(store: Store, *, now_ms: int, limit: int = PAGE) -> CountReport:
    """Count a page of monitors that were there before counts were, in one write.

    Once all are counted, it is one read.
    """
    before = WALKS.find(store, WALK)
    walk = before.value or CountWalk()
    if walk.done:
        return CountReport(0, more=False)
    page = store.schedulers(after_generation=walk.until, limit=limit, now_ms=now_ms)
    entries = [row.entry for row in page if walk.begin is None or row.entry.generation < walk.begin]
    mine, places = _cut(entries)
    done = len(mine) == len(entries) and (not page or len(entries) < len(page))
    until = mine[-1].generation if mine else walk.until
    begin = walk.begin if walk.begin is not None or not done else until + 1
    changes = _changes(come=places)
    writes = [WALKS.change(before, CountWalk(until, begin, done))]
    for one in CADENCES.find_many(store, sorted(changes)):
        writes += [added] if (added := _write(one, changes[one.key])) is not None else []
    won = write(store, writes)  # lost: something has moved since the page was read
    return CountReport(len(places) if won else 0, more=not (won and done))


def is_counted(items: ItemStore) -> bool:
    """Return whether the counts hold all monitors."""
    walk = WALKS.get(items, WALK)
    return walk is not None and walk.done


def _cut(entries: Sequence[Entry]) -> tuple[list[Entry], list[Counted]]:
    """Return the first entries that have few enough cadences for one write, and where they are counted."""
    mine, places, keys = list[Entry](), list[Counted](), set[str]()
    for entry in entries:
        place = counted_entry(entry)
        if place is not None:
            keys.add(place.key)
            if len(keys) >= WRITES_MAX:
                break
            places.append(place)
        mine.append(entry)
    return mine, places


def _split(walk: CountWalk, moves: Sequence[CountMove]) -> tuple[CountWalk, Changes]:
    """Return the walk after these moves, and the changes of the counts by monitors that are counted already."""
    new = [move.generation for move in moves if move.is_new]
    if walk.begin is None and new and not walk.done:
        walk = CountWalk(walk.until, min(new), done=min(new) <= walk.until + 1)
    known = [move for move in moves if _is_known(walk, move.generation)]
    if len(known) < len(moves):
        walk = msgspec.structs.replace(walk, skipped=walk.skipped + 1)
    gone = [move.gone for move in known if move.gone is not None]
    return walk, _changes(come=[move.come for move in known if move.come is not None], gone=gone)


def _is_known(walk: CountWalk, generation: int) -> bool:
    return walk.done or generation <= walk.until or (walk.begin is not None and generation >= walk.begin)


def _changes(come: Sequence[Counted], gone: Sequence[Counted] = ()) -> Changes:
    found: Changes = {}
    for places, by in ((gone, -1), (come, 1)):
        for place in places:
            found.setdefault(place.key, []).append((place.bucket, by))
    return found


def _add(items: ItemStore, changes: Changes) -> bool:
    keys = sorted(changes)
    pages = [keys[start : start + WRITES_MAX] for start in range(0, len(keys), WRITES_MAX)]
    return sum(_add_page(items, page, changes) for page in pages) == len(pages)


def _add_page(items: ItemStore, keys: Sequence[str], changes: Changes) -> bool:
    for _ in range(TRIES_MAX):
        found = CADENCES.find_many(items, keys)
        writes = [one for before in found if (one := _write(before, changes[before.key])) is not None]
        if not writes or write(items, writes):
            return True
    return False


def _write(before: FoundItem[CadenceCount], changes: Sequence[tuple[int, int]]) -> ItemWrite | None:
    counts = before.value.counts if before.value else {}
    after = recount(counts, changes)
    return None if after == counts else CADENCES.change(before, CadenceCount.of(after) if after else None)
