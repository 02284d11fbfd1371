"""Begins tries by turns of users: reads what is due, remembers what has to wait for a place, and begins the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Generic, NamedTuple, Protocol, TypeVar

from paceline.core.try_turns import DuePosition, DueTries, TryPlaces, TryQueue, TryTurn

PAGES_MAX = 4
"""Pages of what is due that one pass reads."""
ROUNDS_MAX = 8
"""Rounds of turns in one pass. A further one follows if a round began less than it might, as others were faster."""


FREE = TryPlaces()
"""All places of a process."""


class OfUser(Protocol):
    @property
    def user(self) -> str: ...


K = TypeVar("K", str, int)
T = TypeVar("T", bound=OfUser)


class Waiting(NamedTuple, Generic[K]):
    """Records with tries that wait for places. ``early``: records were added to the list before what has been read."""

    records: list[DueTries[K]]
    early: bool = False


class TriesBegun(NamedTuple, Generic[K, T]):
    """Tries that are written and have to be made, and records that still have tries to begin."""

    tries: list[T]
    left: list[DueTries[K]]


class TriesToMake(NamedTuple, Generic[T]):
    """Result of a pass. ``more``: another pass may find more to do at once. ``waiting``: some tries wait for places."""

    tries: list[T]
    more: bool
    waiting: bool


class TryRecords(Protocol[K, T]):
    """Reads and writes records of one kind in one pass."""

    def due(self, after: DuePosition[K] | None) -> list[DuePosition[K]]:
        """Return the next PAGE positions of the list of what is due."""

    def look(self, positions: Sequence[DuePosition[K]]) -> Waiting[K]:
        """Read these records. Write at once those that need no try, and return those whose tries need places."""

    def begin(self, turns: Sequence[TryTurn[K]]) -> TriesBegun[K, T]:
        """Write tries of these records; what another process took first is left out."""


def begin_by_turns(records: TryRecords[K, T], queue: TryQueue[K], places: TryPlaces, *, now_ms: int) -> TriesToMake[T]:
    """Begin tries for the free places, by turns of users. ``queue`` is what earlier passes of this process remember."""
    try:
        return _begin_by_turns(records, queue, places, now_ms=now_ms)
    except BaseException:
        queue.forget()  # the records that it gave away are found in the store again
        raise


def _begin_by_turns(records: TryRecords[K, T], queue: TryQueue[K], places: TryPlaces, *, now_ms: int) -> TriesToMake[T]:
    more = _read_due(records, queue, now_ms=now_ms)
    tries: list[T] = []
    held = Counter(places.held)
    for _ in range(ROUNDS_MAX):
        turns = queue.choose(places._replace(room=places.room - len(tries), held=held))
        if not turns:
            break
        begun = records.begin(turns)
        queue.add(begun.left)
        tries += begun.tries
        held.update(one.user for one in begun.tries)
    else:
        more = True
    if queue.is_short:
        queue.read_all_again()
        more = True
    return TriesToMake(tries, more, bool(queue))


def _read_due(records: TryRecords[K, T], queue: TryQueue[K], *, now_ms: int) -> bool:
    """Read what has come into the list since the last pass. Return True if there may be more."""
    queue.begin_pass(now_ms=now_ms)
    cursor, early = queue.cursor, False
    if cursor.go_back(now_ms=now_ms):
        page = records.due(cursor.again)
        cursor.note_again(page)
        early |= _look(records, queue, page)
    for _ in range(PAGES_MAX):
        page = records.due(cursor.after)
        more = cursor.note(page, now_ms=now_ms)
        early |= _look(records, queue, page)
        if not more:
            break
    if early:
        queue.read_all_again()
    return more or early


def _look(records: TryRecords[K, T], queue: TryQueue[K], page: Sequence[DuePosition[K]]) -> bool:
    new = [position for position in page if position.id not in queue]
    if not new:
        return False
    found = records.look(new)
    queue.add(found.records)
    return found.early
