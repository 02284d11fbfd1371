"""Caches the first row of each shard of an index. Without it each look of each process would query every shard.

The first row of a shard is valid for LASTING_S, unless the change counter moves before, or this process itself writes
to the shard. If another process schedules a row earlier, it bumps the counter. If it only moves a row to a later time,
the next look here makes one query that finds nothing.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import NamedTuple

from paceline.adapters.aws.cache.change_counter import ChangeCounter
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Item, ReadOptions

END = 1 << 100
"""A sort value behind that of every row: the shard is empty."""
FIRST_ROWS = 4
LASTING_S = 30.0
"""Time for which a process with loops relies on its reads of an index, if no other process bumps the counter."""
OWN_S = 3.0
"""Time after a write of this process during which an index may show a row at its old place, or not at all."""


class CachedIndex(NamedTuple):
    """An index of DynamoDB: ``sort`` orders the rows of a shard, and ``pk`` names a row."""

    table: str
    name: str
    sort: str
    shards: Callable[[], Sequence[str]]
    """Return the shards in use. This may cost a request; a shard in use stays in use."""


class _Start(NamedTuple):
    """Sort value of a shard's first row. It is valid until a time and at one version of the change counter."""

    until_s: float
    version: int
    place: int


class _Mark(NamedTuple):
    """The state before a read. The result is cached only if nothing was written to the shard since."""

    now_s: float
    version: int
    writes: Counter[str]


class ShardCache:
    """Caches the first row of single shards. Thread-safe."""

    def __init__(
        self,
        counter: ChangeCounter,
        ask: Callable[[str], int],
        *,
        least_s: float = 0.0,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create the cache.

        ``ask`` reads a shard's first sort value; ``least_s``: how long it is valid in a process without loops.
        """
        self._counter = counter
        self._ask_default = ask
        self._least_s = least_s
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._starts: dict[str, _Start] = {}
        self._writes: Counter[str] = Counter()
        self._touched_s: dict[str, float] = {}

    @property
    def caches_indexes(self) -> bool:
        return self._counter.caches_indexes

    def first_of(self, shard: str, *, ask: Callable[[str], int] | None = None) -> int:
        """Return the sort value of the shard's first row, END if it has none. Reads it only if it is not cached."""
        ask = ask or self._ask_default
        if not self._lasting_s:
            return ask(shard)
        mark = self._mark()
        known = self._known(shard, mark)
        if known is None:
            known = ask(shard)
            self._remember(shard, known, mark)
        return known

    def touch(self, *shards: str) -> None:
        """Note that this process has written to these shards and does not know which row is the first now."""
        now_s = self._clock_s()
        with self._lock:
            for shard in shards:
                self._writes[shard] += 1
                self._touched_s[shard] = now_s
                self._starts.pop(shard, None)

    def forget(self, *shards: str) -> None:
        """Drop the cached values of these shards, because they are about to be read."""
        with self._lock:
            for shard in shards:
                self._starts.pop(shard, None)

    @property
    def _lasting_s(self) -> float:
        return LASTING_S if self.caches_indexes else self._least_s

    def _mark(self) -> _Mark:
        version = self._counter.version() if self.caches_indexes else 0
        with self._lock:
            return _Mark(self._clock_s(), version, self._writes.copy())

    def _known(self, shard: str, mark: _Mark) -> int | None:
        start = self._starts.get(shard)
        return start.place if start and mark.now_s < start.until_s and start.version == mark.version else None

    def _remember(self, shard: str, place: int, mark: _Mark) -> None:
        with self._lock:
            if mark.writes[shard] != self._writes[shard]:
                return  # the read may be older than a write of this process
            touched_s = self._touched_s.get(shard)
            if touched_s is None or mark.now_s - touched_s >= OWN_S:  # else the index may not show that write yet
                self._starts[shard] = _Start(mark.now_s + self._lasting_s, mark.version, place)


class _InUse(NamedTuple):
    until_s: float
    version: int
    shards: Sequence[str]


class _Own(NamedTuple):
    """The place where this process put a row, and the places where the index may still show it."""

    noted_s: float
    place: int
    was: frozenset[int]


class IndexCache(ShardCache):
    """Caches the first rows of all shards of an index, and corrects them by the writes of this process. Thread-safe."""

    def __init__(
        self,
        db: DynamoDatabase,
        counter: ChangeCounter,
        index: CachedIndex,
        *,
        least_s: float = 0.0,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(counter, self._ask, least_s=least_s, clock_s=clock_s)
        self._db = db
        self._index = index
        self._in_use = _InUse(0.0, -1, ())
        self._own: defaultdict[str, dict[str, _Own]] = defaultdict(dict)

    def first(self) -> int:
        """Return the sort value of the very first row, END if there is none.

        Makes one query for each shard not cached.
        """
        mark = self._mark()
        shards = self._shards(mark.version)
        known = {shard: place for shard in shards if (place := self._known(shard, mark)) is not None}
        missing = [shard for shard in shards if shard not in known]
        found = dict(zip(missing, self._db.threads.fan_out(self._ask, missing), strict=True))
        for shard, place in found.items():
            self._remember(shard, place, mark)
        return min([*known.values(), *found.values()], default=END)

    def awake(self, last: int) -> list[str]:
        """Return the shards that may have rows up to that sort value: all except those known to have none.

        They are about to be read and written, so their cached values are dropped.
        """
        mark = self._mark()
        # Without caching, only a shard's first row is relied on: a shard may just have come into use.
        shards = self._shards(mark.version) if self.caches_indexes else self._index.shards()
        awake = [shard for shard in shards if (place := self._known(shard, mark)) is None or place <= last]
        self.forget(*awake)
        return awake

    def upto(self, last: int, *, limit: int) -> list[Item]:
        """Return the first rows of each shard up to that sort value: a hint.

        If a shard has none, its next row is cached.
        """
        index, mark = self._index, self._mark()
        shards = self.awake(last)
        # The upper bound keeps a page small; without it, a page of few rows also tells which row comes next.
        asked: ReadOptions = {"index": index.name} if self.caches_indexes else {"index": index.name, "last": last}

        def read(shard: str) -> list[Item]:
            return self._db.page(index.table, shard, limit=limit, **asked)

        pages = dict(zip(shards, self._db.threads.fan_out(read, shards), strict=True))
        for shard, rows in pages.items():
            if self.caches_indexes and not (rows and rows[0][index.sort] <= last):
                self._remember(shard, self._least(shard, rows, full=len(rows) == limit), mark)
        return [row for rows in pages.values() for row in rows if row[index.sort] <= last]

    def moved(self, shard: str, pk: str, place: int | None, *, was: int | None = None) -> None:
        """Note where this process has put a row; None if it left the index. ``was``: its place before."""
        if not self._lasting_s:
            return
        now_s, to = self._clock_s(), END if place is None else place
        with self._lock:
            self._writes[shard] += 1
            if shard not in self._in_use.shards:
                self._in_use = self._in_use._replace(version=-1)
            before = self._own[shard].get(pk)
            stale = frozenset() if was is None else frozenset((was,))
            if before is not None and now_s - before.noted_s < OWN_S:
                stale |= before.was | {before.place}
            self._own[shard][pk] = _Own(now_s, to, stale - {to})
            start = self._starts.get(shard)
            if start is None:
                return
            if to <= start.place:
                self._starts[shard] = start._replace(place=to)
            elif start.place in stale:
                del self._starts[shard]  # it was the first row; the next query finds the new one

    def _shards(self, version: int) -> Sequence[str]:
        now_s, one = self._clock_s(), self._in_use
        if now_s < one.until_s and one.version == version:
            return one.shards
        shards = self._index.shards()
        with self._lock:
            if one is self._in_use:  # else a row was put into another shard since
                self._in_use = _InUse(now_s + self._lasting_s, version, shards)
        return shards

    def _ask(self, shard: str) -> int:
        index = self._index
        rows = self._db.page(index.table, shard, limit=FIRST_ROWS, index=index.name)
        return self._least(shard, rows, full=len(rows) == FIRST_ROWS)

    def _least(self, shard: str, rows: Sequence[Item], *, full: bool) -> int:
        """Return the first sort value that the index shows, corrected by the writes of this process."""
        sort, now_s = self._index.sort, self._clock_s()
        with self._lock:
            own = {pk: one for pk, one in self._own[shard].items() if now_s - one.noted_s < OWN_S}
            self._own[shard] = own
            shown = []
            for row in rows:
                mine, place = own.get(row["pk"]), int(row[sort])
                if mine is not None and place in mine.was:
                    continue  # the index still shows it where this process removed it
                shown.append(place)
                if mine is not None and place != mine.place:
                    del own[row["pk"]]  # another process has moved it since
            places = [*shown, *(one.place for one in own.values())]
        if full:
            places.append(int(rows[-1][sort]))  # there may be more right behind it
        return min(places, default=END)
