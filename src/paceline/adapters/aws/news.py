"""Whether another process has written what may be due sooner than this one knows: one item counts such writes.

Whoever lets something be due rings: one write of that item. Whoever runs loops reads it once a second, and need not ask
every shard of every index once a second. A ring is a hint like an index: one that is lost, or not made because its
process died, costs lateness, at most LASTING_S, and nothing else. What only moves on, such as an entry that fired,
rings nobody: it is due where others already expect it, or later.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import Key, update
from paceline.adapters.aws.tables import LEDGER
from paceline.errors import StoreUnavailable

READ_S = 1.0
"""How old the answer of a patient process may be."""
UNSETTLED_S = 4.0
"""So long after a ring there may be more to see: an index lags, and a process rings once for all that it writes within
RING_S."""
RING_S = 1.0
LASTING_S = 30.0
"""So long a patient process relies on what it has read of an index, if nobody rings."""
_KEY = Key("news", "-")


class News:
    """Thread-safe. ``patient`` is set where loops run; without it every question is asked, and every ring is made."""

    def __init__(self, db: Database, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self.patient = False
        self.unrung = 0
        """Rings that may not have been made, since the start."""
        self._db = db
        self._clock_s = clock_s
        self._lock = threading.Lock()
        self._rings = -1
        self._version = 0
        self._read_s = -READ_S
        self._rung_s = -RING_S
        self._unsettled_s = 0.0

    def ring(self, *, heard: bool = False) -> None:
        """To be called behind a write. It does not raise: the write has happened.

        ``heard``: this process is to look as well; else it knows what it wrote.
        """
        now_s = self._clock_s()
        with self._lock:
            if self.patient and now_s - self._rung_s < RING_S and not heard:
                return
            self._rung_s = now_s
        try:
            written = self._db.write(update(LEDGER, _KEY, "ADD #rings :one", when="", one=1))
        except StoreUnavailable:
            self.unrung += 1
            return
        assert written.item is not None
        with self._lock:
            if not heard and int(written.item["rings"]) == self._rings + 1:
                self._rings += 1  # nobody else has rung in between

    def version(self) -> int:
        """Another number than before if somebody has rung since, this process too; and for a while after."""
        now_s = self._clock_s()
        with self._lock:
            if self.patient and now_s - self._read_s < READ_S:
                return self._version
            self._read_s = now_s  # the others need not ask meanwhile
        item = self._db.glance(LEDGER, _KEY) if self.patient else self._db.get(LEDGER, _KEY)
        rings = int(item["rings"]) if item else 0
        with self._lock:
            if rings != self._rings:
                self._rings, self._unsettled_s = rings, now_s + UNSETTLED_S
            if not self.patient:
                return rings
            if now_s < self._unsettled_s:
                self._version += 1
            return self._version
