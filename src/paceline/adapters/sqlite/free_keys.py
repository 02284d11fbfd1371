"""Two runs of a provider never share a millisecond: the later one moves on to the next that is free."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.entries import integers
from paceline.adapters.sqlite.run_keys import provider_bounds, provider_of

CHUNK_KEYS = 256


def free_keys(db: Connection, wanted: Sequence[int]) -> Sequence[int]:
    """For each key, in rising order, itself or the next free one: neither waiting, nor aside, nor a result's."""
    used = _used(db, wanted)
    if not used and len(set(wanted)) == len(wanted):
        return wanted
    keys: list[int] = []
    used_after = _UsedAfter(db)
    last = -1
    for key in wanted:
        # A key that was pushed on has to be looked up where it came to.
        free = used_after.next_free(max(key, last + 1)) if key <= last or key in used else key
        keys.append(free)
        last = free
    return keys


def are_unused(db: Connection, wanted: Sequence[int]) -> bool:
    """Whether no result and nothing aside is near these keys, which are in rising order. The queue says so itself."""
    return not any(_is_used(db, *span) for span in _spans(wanted))


def _spans(wanted: Sequence[int]) -> Iterator[tuple[int, int]]:
    """The first and the last key of each provider."""
    begin = 0
    while begin < len(wanted):
        end = bisect_left(wanted, provider_bounds(provider_of(wanted[begin]))[1], begin)
        yield wanted[begin], wanted[end - 1]
        begin = end


def _is_used(db: Connection, first: int, last: int) -> bool:
    return bool(
        db.execute(
            """SELECT EXISTS (SELECT 1 FROM result WHERE k BETWEEN ?1 AND ?2)
                   OR EXISTS (SELECT 1 FROM aside WHERE k BETWEEN ?1 AND ?2)""",
            (first, last),
        ).get
    )


def _used(db: Connection, wanted: Sequence[int]) -> set[int]:
    rows = db.execute(
        """SELECT k FROM queue WHERE k IN carray(?1) UNION ALL SELECT k FROM result WHERE k IN carray(?1)
           UNION ALL SELECT k FROM aside WHERE k IN carray(?1)""",
        (integers(wanted),),
    )
    return {row[0] for row in rows}


class _UsedAfter:
    """Walks along the used keys, a chunk at a time; asked with rising keys."""

    def __init__(self, db: Connection) -> None:
        self._db = db
        self._used: set[int] = set()
        self._from = self._to = 0

    def next_free(self, key: int) -> int:
        while True:
            if not self._from <= key < self._to:
                self._look(key)
            while key < self._to and key in self._used:
                key += 1
            if key < self._to:
                return key

    def _look(self, key: int) -> None:
        rows = self._db.execute(
            """SELECT k FROM (SELECT k FROM queue WHERE k >= ?1 ORDER BY k LIMIT ?2)
               UNION ALL SELECT k FROM (SELECT k FROM result WHERE k >= ?1 ORDER BY k LIMIT ?2)
               UNION ALL SELECT k FROM (SELECT k FROM aside WHERE k >= ?1 ORDER BY k LIMIT ?2)""",
            (key, CHUNK_KEYS),
        ).fetchall()
        # Known up to where the first of the three was cut short.
        self._used = set(sorted(row[0] for row in rows)[:CHUNK_KEYS])
        self._from = key
        self._to = max(self._used) + 1 if len(rows) >= CHUNK_KEYS else (1 << 63) - 1
