"""The due index: which entries are due, in order, over all its shards; and when the next one is, as cheaply as can be.

An index lags behind its table, so what it says is a hint: the entries themselves are read before they are handed out,
and the conditional write of ``commit`` is the judge.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import Item
from paceline.adapters.aws.monitors_keys import DUE_SHARDS, GENERATION_MASK, due_ms_of, due_of, due_shard, due_shards
from paceline.adapters.aws.tables import DUE_INDEX, SCHEDULERS

REMEMBERED_S = 1.0
FIRST_ROWS = 4
PLACES_MAX = 10_000
END = 1 << 100


class _Shard(NamedTuple):
    """What was read of a shard, in order, and whether there may be more behind it."""

    name: str
    rows: list[Item]
    full: bool


def between(db: Database, names: Sequence[str], *, first: int, last: int, limit: int) -> list[Item]:
    """Index rows with ``first <= due <= last``, in order over these shards, as many as the limit at most."""
    page = min(limit, 2 * limit // DUE_SHARDS + 8)

    def read(name: str, begin: int) -> _Shard:
        where = "#shard = :shard AND #due BETWEEN :first AND :last"
        rows = (
            db.query(SCHEDULERS, where, index=DUE_INDEX, limit=page, shard=name, first=begin, last=last)
            if begin <= last
            else []
        )
        return _Shard(name, rows, len(rows) == page)

    shards = {shard.name: shard for shard in db.threads.fan_out(lambda name: read(name, first), names)}
    while True:
        full = [shard for shard in shards.values() if shard.full]
        # Up to here nothing can be missing: the shard that was read least far ends here.
        frontier = min((shard.rows[-1]["due"] for shard in full), default=END)
        ready = sorted(
            (row for shard in shards.values() for row in shard.rows if row["due"] <= frontier),
            key=lambda row: int(row["due"]),
        )
        if len(ready) >= limit or not full:
            return ready[:limit]
        for shard in db.threads.fan_out(
            lambda shard: read(shard.name, shard.rows[-1]["due"] + 1),
            [shard for shard in full if shard.rows[-1]["due"] == frontier],
        ):
            shards[shard.name] = _Shard(shard.name, shards[shard.name].rows + shard.rows, shard.full)


def pages(db: Database, shard: str, *, first: int, last: int, page: int) -> Iterator[list[Item]]:
    """One shard's rows with ``first <= due <= last``, page by page."""
    where = "#shard = :shard AND #due BETWEEN :first AND :last"
    while first <= last:
        rows = db.query(SCHEDULERS, where, index=DUE_INDEX, limit=page, shard=shard, first=first, last=last)
        if rows:
            yield rows
        if len(rows) < page:
            return
        first = rows[-1]["due"] + 1


class NextDue:
    """When the next entry is due, remembered for a moment: else each look of each process would ask every shard.

    What this process writes is known at once. What another one arms earlier than all that is known is seen after
    REMEMBERED_S, and after the index has caught up, which takes less than a second as a rule: so an answer is too late
    by that much at most, and only for an entry that another process has just armed. An answer that is too early costs
    a look at ``due`` that finds nothing.
    """

    def __init__(self, db: Database, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, int]] = {}
        self._moves = 0
        self._places: dict[int, int] = {}

    def first_ms(self) -> int | None:
        """One query of few rows for each shard of which nothing is known."""
        now_s = self._clock_s()
        with self._lock:
            known = {name: due for name, (until_s, due) in self._known.items() if now_s < until_s}
            moves = self._moves
        missing = [name for name in due_shards() if name not in known]
        found = dict(zip(missing, self._db.threads.fan_out(self._first, missing), strict=True))
        with self._lock:
            if moves == self._moves:  # else what was read may be older than what was moved
                self._known |= {name: (now_s + REMEMBERED_S, due) for name, due in found.items()}
        first = min([*known.values(), *found.values()])
        return None if first == END else due_ms_of(first)

    def awake(self, now_ms: int) -> list[str]:
        """The shards that may have something due: all but those of which it is known that they have not."""
        now_s, last = self._clock_s(), due_of(now_ms, GENERATION_MASK)
        with self._lock:
            asleep = {name for name, (until_s, due) in self._known.items() if now_s < until_s and due > last}
        return [name for name in due_shards() if name not in asleep]

    def moved(self, generation: int, *, from_ms: int | None, to_ms: int | None) -> None:
        """Tells that this process has moved an entry; None: it was, or is, not armed."""
        name = due_shard(generation)
        with self._lock:
            self._moves += 1
            if len(self._places) >= PLACES_MAX:
                self._places.clear()
            self._places[generation] = END if to_ms is None else due_of(to_ms, generation)
            if name not in self._known:
                return
            until_s, due = self._known[name]
            if from_ms is not None and due >= due_of(from_ms, generation):
                del self._known[name]  # it was the first; which one is now must be asked
            elif to_ms is not None:
                self._known[name] = (until_s, min(due, due_of(to_ms, generation)))

    def _first(self, name: str) -> int:
        rows = self._db.query(SCHEDULERS, "#shard = :shard", index=DUE_INDEX, limit=FIRST_ROWS, shard=name)
        for row in rows:
            due = int(row["due"])
            # The index may still have an entry where this process took it away: that would be a look for nothing.
            if self._places.get(due & GENERATION_MASK, due) == due:
                return due
        return int(rows[-1]["due"]) if len(rows) == FIRST_ROWS else END


def generations_of(rows: Sequence[Item]) -> list[int]:
    return [int(row["pk"]) for row in rows]
