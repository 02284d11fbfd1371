"""Where the index begins, remembered by a process that runs loops, so that it need not ask each second.

What this process puts there is asked for until an index shows it. What another one queues is heard of (``news``). What
another one lets wait, and dies before its time comes, is seen when the memory ends.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.firsts import END, OWN_S, Known
from paceline.adapters.aws.jobs_keys import hinted
from paceline.adapters.aws.news import LASTING_S, News


class Quiet:
    """Thread-safe."""

    def __init__(self, news: News, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._news = news
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._known: dict[str, Known] = {}
        self._touched_s: dict[str, float] = {}

    @property
    def patient(self) -> bool:
        return self._news.patient

    def touch(self, *shards: str) -> None:
        """To be called behind a write that put something into these shards of the index, or moved it there."""
        now_s = self._clock_s()
        with self._lock:
            for shard in shards:
                self._known.pop(shard, None)
                self._touched_s[shard] = now_s

    def forget(self, shard: str) -> None:
        """What was known of it turned out to be over."""
        with self._lock:
            self._known.pop(shard, None)

    def first(self, database: Database, shard: str, *, look: Callable[[Database, str], int] | None = None) -> int:
        """The first place that is taken, END if none is; ``look`` asks, where a place may be taken by nothing."""
        look = look or _first
        if not self.patient:
            return look(database, shard)
        version, now_s = self._news.version(), self._clock_s()
        with self._lock:
            known = self._known.get(shard)
            touched_s = self._touched_s.get(shard)
        if known is not None and known.holds(version, now_s):
            return known.first
        first = look(database, shard)
        with self._lock:
            settled = touched_s is None or now_s - touched_s >= OWN_S
            if settled and self._touched_s.get(shard) == touched_s:
                self._known[shard] = Known(now_s + LASTING_S, version, first)
        return first


def _first(database: Database, shard: str) -> int:
    hints = hinted(database, shard, limit=1)
    return int(hints[0]["at"]) if hints else END
