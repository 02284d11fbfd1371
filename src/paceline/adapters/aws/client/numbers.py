"""Unique numbers for the whole store, taken from a counter item in blocks."""

from __future__ import annotations

import threading

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import DynamoKey, joined, update
from paceline.adapters.aws.client.tables import LEDGER

NUMBER_MAX = 2**62
GENERATION = "generation"


class Numbers:
    """Gives numbers. Thread-safe. A process that ends leaves a gap; a number is never given twice."""

    def __init__(self, database: DynamoDatabase) -> None:
        self._database = database
        self._left: dict[str, range] = {}
        self._lock = threading.Lock()

    def take(self, name: str, count: int, *, block: int = 100) -> list[int]:
        """Return ``count`` new numbers of this name, from 1 on, rising within one process.

        A block of them costs one request, and each process has its own blocks. If the order among all processes
        matters, use ``block=1``.
        """
        with self._lock:
            left = self._left.get(name, range(0))
            taken = list(left[:count])
            self._left[name] = left[count:]
            if missing := count - len(taken):
                fresh = self._reserve(name, max(missing, block))
                taken += fresh[:missing]
                self._left[name] = fresh[missing:]
        return taken

    def take_job(self, definitions: int) -> tuple[int, int]:
        """Return a job's number, and the first of ``definitions`` numbers for its definitions, counted from 0."""
        change = "ADD #last :one, #definitions :count"
        written = self._database.write(update(LEDGER, _key("job"), change, when="", one=1, count=definitions))
        assert written.item is not None
        return int(written.item["last"]), int(written.item["definitions"]) - definitions

    def _reserve(self, name: str, count: int) -> range:
        # No condition, so that it can be repeated after a lost reply, which only leaves a gap.
        change = "ADD #last :count"
        written = self._database.write(update(LEDGER, _key(name), change, when="", count=count))
        assert written.item is not None
        last = int(written.item["last"])
        assert last < NUMBER_MAX
        return range(last - count + 1, last + 1)


def last_generation(database: DynamoDatabase) -> int:
    """Return the highest reserved generation: no monitor has a higher one."""
    item = database.get(LEDGER, _key(GENERATION))
    return int(item["last"]) if item else 0


def _key(name: str) -> DynamoKey:
    return DynamoKey(joined("number", name), "-")
