"""The due index: which entries are due, in order, over all its shards; and when the next one is due, at low cost.

An index lags behind its table, so it is a hint: the entries themselves are read before they are returned, and the
conditional write of ``commit`` decides.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from paceline.adapters.aws.cache.change_counter import ChangeCounter
from paceline.adapters.aws.cache.index_cache import END, CachedIndex, IndexCache
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Item
from paceline.adapters.aws.client.numbers import last_generation
from paceline.adapters.aws.client.tables import DUE_INDEX, SCHEDULERS
from paceline.adapters.aws.monitors import keys

REMEMBERED_S = 1.0


class _Shard(NamedTuple):
    """Rows that were read of a shard, in order, and whether there may be more behind them."""

    name: str
    rows: list[Item]
    full: bool


def between(db: DynamoDatabase, names: Sequence[str], *, first: int, last: int, limit: int) -> list[Item]:
    """Return index rows with ``first <= due <= last`` of these shards, in order, up to the limit."""
    page = min(limit, 2 * limit // max(len(names), 1) + 8)

    def read(name: str, begin: int) -> _Shard:
        rows = db.page(SCHEDULERS, name, limit=page, index=DUE_INDEX, first=begin, last=last)
        return _Shard(name, rows, len(rows) == page)

    shards = {shard.name: shard for shard in db.threads.fan_out(lambda name: read(name, first), names)}
    while True:
        full = [shard for shard in shards.values() if shard.full]
        # Up to here no row can be missing: the shard that was read least far ends here.
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


class NextDue:
    """The due time of the next entry, from the cached first places of the due index.

    In a process with loops it is late only for an entry that another process has just armed: by the second after which
    the change counter is read, and the moment until the index shows it. Elsewhere a read is valid for a second.
    """

    def __init__(
        self, db: DynamoDatabase, counter: ChangeCounter, *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        index = CachedIndex(SCHEDULERS, DUE_INDEX, "due", lambda: keys.due_shards(last_generation(db)))
        self._index = IndexCache(db, counter, index, least_s=REMEMBERED_S, clock_s=clock_s)

    def first_ms(self) -> int | None:
        first = self._index.first()
        return None if first == END else keys.due_ms_of(first)

    def awake(self, now_ms: int) -> list[str]:
        """Return the shards that may have due entries."""
        return self._index.awake(keys.due_of(now_ms, keys.GENERATION_MAX))

    def moved(self, generation: int, *, from_ms: int | None, to_ms: int | None) -> None:
        """Note that this process has moved an entry; None if it was not armed before, or is not now."""
        self._index.moved(
            keys.due_shard(generation),
            keys.entry_key(generation).pk,
            None if to_ms is None else keys.due_of(to_ms, generation),
            was=None if from_ms is None else keys.due_of(from_ms, generation),
        )


def generations_of(rows: Sequence[Item]) -> list[int]:
    return [int(row["pk"]) for row in rows]
