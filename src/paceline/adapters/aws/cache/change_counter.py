"""A change counter that all processes share: one item, which a writer bumps when it schedules something earlier.

A process with loops reads it once a second instead of querying every shard of every index. A bump is a hint, like an
index: a lost one, or one not made because its process died, costs at most ``index_cache.LASTING_S`` of lateness. A row
that only moves to a later time, such as an entry that fired, bumps nothing: others expect it at its old place, and find
nothing there.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import DynamoKey, update
from paceline.adapters.aws.client.tables import LEDGER
from paceline.errors import StoreUnavailable

READ_S = 1.0
"""Age that the version may have in a process that caches indexes."""
UNSETTLED_S = 4.0
"""Time after a bump during which the version keeps changing: an index lags, and a process bumps once for all that it
writes within BUMP_S."""
BUMP_S = 1.0
_KEY = DynamoKey("changes", "-")


class ChangeCounter:
    """The counter as one process reads and bumps it. Thread-safe.

    ``caches_indexes`` is set in processes with loops; without it every read and every bump is a request.
    """

    def __init__(self, db: DynamoDatabase, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.caches_indexes = False
        self._db = db
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._count = -1
        self._version = 0
        self._read_s = -READ_S
        self._bumped_s = -BUMP_S
        self._unsettled_s = 0.0

    def bump(self, *, also_self: bool = False) -> None:
        """Tell other processes that something was scheduled earlier. Call it after the write; it does not raise.

        ``also_self``: this process drops its cache as well; otherwise it is expected to know what it wrote.
        """
        now_s = self._clock_s()
        with self._lock:
            if self.caches_indexes and now_s - self._bumped_s < BUMP_S and not also_self:
                return
            self._bumped_s = now_s
        try:
            written = self._db.write(update(LEDGER, _KEY, "ADD #count :one", when="", one=1))
        except StoreUnavailable:
            return
        assert written.item is not None
        with self._lock:
            if not also_self and int(written.item["count"]) == self._count + 1:
                self._count += 1  # no other process has bumped it in between

    def version(self) -> int:
        """Return another number than before if a process has bumped the counter since, and for a while afterwards."""
        now_s = self._clock_s()
        with self._lock:
            if self.caches_indexes and now_s - self._read_s < READ_S:
                return self._version
            self._read_s = now_s  # the other threads need not read it in the meantime
        item = self._db.glance(LEDGER, _KEY) if self.caches_indexes else self._db.get(LEDGER, _KEY)
        count = int(item["count"]) if item else 0
        with self._lock:
            if count != self._count:
                self._count, self._unsettled_s = count, now_s + UNSETTLED_S
            if not self.caches_indexes:
                return count
            if now_s < self._unsettled_s:
                self._version += 1
            return self._version
