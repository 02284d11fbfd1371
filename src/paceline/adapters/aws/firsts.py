"""The first row of each shard of an index, remembered: else each look of each process would ask every shard.

What this process writes is known at once, also while the index does not show it yet. What another one lets be due
sooner than all that is known is seen when it has rung (``news``); what it moves on costs a look that finds nothing.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import Item
from paceline.adapters.aws.news import LASTING_S, News

END = 1 << 100
"""Behind every row."""
FIRST_ROWS = 4
OWN_S = 3.0
"""So long an index may not show what this process wrote, or show it where it was before."""


class Index(NamedTuple):
    """``sort`` is the attribute by which a shard is in order. A row is known by its ``pk``: one of each is in there."""

    table: str
    name: str
    sort: str
    shards: Callable[[], Sequence[str]]
    """Those in use. It may cost a request; there are only ever more of them."""


class Known(NamedTuple):
    """What was read of a shard, until when, and at which news."""

    until_s: float
    version: int
    first: int

    def holds(self, version: int, now_s: float) -> bool:
        return now_s < self.until_s and self.version == version


class _InUse(NamedTuple):
    until_s: float
    version: int
    shards: Sequence[str]


class _Own(NamedTuple):
    """Where this process put a row, and where the index may still show it."""

    noted_s: float
    place: int
    was: frozenset[int]


class Firsts:
    """Thread-safe. Without patience what was read counts for ``least_s``, whoever rings; with none, every time anew."""

    def __init__(
        self,
        db: Database,
        news: News,
        index: Index,
        *,
        least_s: float = 0.0,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._db = db
        self._news = news
        self._index = index
        self._least_s = least_s
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._in_use = _InUse(0.0, -1, ())
        self._known: dict[str, Known] = {}
        self._own: defaultdict[str, dict[str, _Own]] = defaultdict(dict)
        self._moves: Counter[str] = Counter()

    def first(self) -> int:
        """The least there is, END if there is none: one query of few rows for each shard of which nothing is known."""
        version = self._version()
        shards = self._shards(version)
        now_s, lasting_s = self._clock_s(), self._lasting_s
        with self._lock:
            known = {shard: one.first for shard in shards if (one := self._valid(shard, version, now_s))}
            moves = self._moves.copy()
        missing = [shard for shard in shards if shard not in known]
        found = dict(zip(missing, self._db.threads.fan_out(self._ask, missing), strict=True))
        for shard, first in found.items():
            self._remember(shard, first, moves=moves[shard], until_s=now_s + lasting_s, version=version)
        return min([*known.values(), *found.values()], default=END)

    def awake(self, last: int) -> list[str]:
        """The shards that may have something up to there: all but those of which it is known that they have not.

        They are about to be read and written, so what was known of them is forgotten.
        """
        version = self._version()
        # Without patience nothing but a shard's first row is relied on: one may be in use that was not a moment ago.
        shards, now_s = self._shards(version) if self._news.patient else self._index.shards(), self._clock_s()
        with self._lock:
            awake = [
                shard for shard in shards if (one := self._valid(shard, version, now_s)) is None or one.first <= last
            ]
            for shard in awake:
                self._known.pop(shard, None)
        return awake

    def upto(self, last: int, *, limit: int) -> list[Item]:
        """The first rows of each shard up to there, a hint. Where there are none, it is remembered what comes next."""
        index, version, now_s = self._index, self._version(), self._clock_s()
        shards = self.awake(last)
        with self._lock:
            moves = self._moves.copy()
        # The upper bound is what keeps a page small; without it, a page of few rows tells what comes next as well.
        where = "#shard = :shard" if self._news.patient else f"#shard = :shard AND #{index.sort} <= :last"
        bound: dict[str, Any] = {} if self._news.patient else {"last": last}

        def read(shard: str) -> list[Item]:
            return self._db.query(index.table, where, index=index.name, limit=limit, shard=shard, **bound)

        pages = dict(zip(shards, self._db.threads.fan_out(read, shards), strict=True))
        for shard, rows in pages.items():
            if self._news.patient and not (rows and rows[0][index.sort] <= last):
                first = self._least(shard, rows, full=len(rows) == limit)
                self._remember(shard, first, moves=moves[shard], until_s=now_s + LASTING_S, version=version)
        return [row for rows in pages.values() for row in rows if row[index.sort] <= last]

    def moved(self, shard: str, pk: str, place: int | None, *, was: int | None = None) -> None:
        """Tells that this process has put a row there; None: it is in the index no more. ``was``: where it stood."""
        if not self._lasting_s:
            return
        now_s, to = self._clock_s(), END if place is None else place
        with self._lock:
            self._moves[shard] += 1
            if shard not in self._in_use.shards:
                self._in_use = self._in_use._replace(version=-1)
            before = self._own[shard].get(pk)
            stale = frozenset() if was is None else frozenset((was,))
            if before is not None and now_s - before.noted_s < OWN_S:
                stale |= before.was | {before.place}
            self._own[shard][pk] = _Own(now_s, to, stale - {to})
            known = self._known.get(shard)
            if known is None:
                return
            if to <= known.first:
                self._known[shard] = known._replace(first=to)
            elif known.first in stale:
                del self._known[shard]  # it was the first; which one is now must be asked

    @property
    def _lasting_s(self) -> float:
        return LASTING_S if self._news.patient else self._least_s

    def _version(self) -> int:
        return self._news.version() if self._news.patient else 0

    def _shards(self, version: int) -> Sequence[str]:
        now_s, one = self._clock_s(), self._in_use
        if now_s < one.until_s and one.version == version:
            return one.shards
        shards = self._index.shards()
        with self._lock:
            if one is self._in_use:  # else a row was put into another one since
                self._in_use = _InUse(now_s + self._lasting_s, version, shards)
        return shards

    def _valid(self, shard: str, version: int, now_s: float) -> Known | None:
        one = self._known.get(shard)
        return one if one is not None and one.holds(version, now_s) else None

    def _ask(self, shard: str) -> int:
        index = self._index
        rows = self._db.query(index.table, "#shard = :shard", index=index.name, limit=FIRST_ROWS, shard=shard)
        return self._least(shard, rows, full=len(rows) == FIRST_ROWS)

    def _remember(self, shard: str, first: int, *, moves: int, until_s: float, version: int) -> None:
        with self._lock:
            if moves == self._moves[shard]:  # else what was read may be older than what was moved
                self._known[shard] = Known(until_s, version, first)

    def _least(self, shard: str, rows: Sequence[Item], *, full: bool) -> int:
        """Of what the index shows, and of what this process knows better."""
        sort, now_s = self._index.sort, self._clock_s()
        with self._lock:
            own = {pk: one for pk, one in self._own[shard].items() if now_s - one.noted_s < OWN_S}
            self._own[shard] = own
            shown = []
            for row in rows:
                mine, place = own.get(row["pk"]), int(row[sort])
                if mine is not None and place in mine.was:
                    continue  # the index still has it where this process took it away
                shown.append(place)
                if mine is not None and place != mine.place:
                    del own[row["pk"]]  # another has moved it since
            places = [*shown, *(one.place for one in own.values())]
        if full:
            places.append(int(rows[-1][sort]))  # there may be more right behind it
        return min(places, default=END)
