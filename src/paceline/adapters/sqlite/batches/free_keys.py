"""Free keys for runs, found by the rule of core.batches.free_keys."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.batches.free_keys import CHUNK_KEYS, FreeKeys, UsedKeys, used_keys
from paceline.core.batches.run_keys import provider_bounds, provider_of


def free_keys(db: Connection, wanted: Sequence[int]) -> Sequence[int]:
    """Return for each key, in rising order, itself or the next one that no waiting, set-aside or ended run has."""
    used = _used(db, wanted)
    if not used and len(set(wanted)) == len(wanted):
        return wanted
    keys: list[int] = []
    free = FreeKeys(partial(_used_from, db))
    last = -1
    for key in wanted:
        # A key that was moved up has to be looked up at its new place.
        last = free.next_free(max(key, last + 1)) if key <= last or key in used else key
        keys.append(last)
    return keys


def are_unused(db: Connection, wanted: Sequence[int]) -> bool:
    """Return True if no result and no run set aside is near these keys, given in rising order.

    The queue need not be asked: its own key refuses a duplicate.
    """
    return not any(_is_used(db, *span) for span in _spans(wanted))


def _spans(wanted: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield the first and the last key of each provider."""
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


def _used_from(db: Connection, key: int) -> UsedKeys:
    rows = db.execute(
        """SELECT k FROM (SELECT k FROM queue WHERE k >= ?1 ORDER BY k LIMIT ?2)
           UNION ALL SELECT k FROM (SELECT k FROM result WHERE k >= ?1 ORDER BY k LIMIT ?2)
           UNION ALL SELECT k FROM (SELECT k FROM aside WHERE k >= ?1 ORDER BY k LIMIT ?2)""",
        (key, CHUNK_KEYS),
    )
    return used_keys(sorted(k for (k,) in rows)[:CHUNK_KEYS])  # complete up to the first of the three limits
