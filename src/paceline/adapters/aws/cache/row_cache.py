"""A cache of measurements that this process has read or written, so that a write need not read them first.

A cached row is a guess. A write that relies on one states in its conditions what it believes, above all the version of
the row, so it is won only if the guess was right; if it is lost, everything is read and decided again. A guess is
used once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping

from paceline.adapters.aws.client.items import Item
from paceline.core.jobs.names import INDEX_BITS

ROWS_MAX = 2_000
BODY_MAX = 10_000
"""Larger rows are not cached, to bound the memory."""
TARGETS_MAX = 10_000


class RowCache:
    """The cache. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rows: OrderedDict[int, Item] = OrderedDict()
        self._jobs: OrderedDict[int, Item] = OrderedDict()
        self._line: Item | None = None
        self._gate: Item | None = None
        self._full: dict[str, bool] = {}
        self._sealed: dict[tuple[str, int], str] = {}

    # -- measurements, each with its job

    def note(self, row: Item, job: Item) -> None:
        """Cache a measurement and its job, as they were read or as a won write has left them."""
        with self._lock:
            _keep(self._jobs, job["number"], job)
            if len(row["body"]) <= BODY_MAX:
                _keep(self._rows, row["handle"], row)

    def note_all(self, pairs: Iterable[tuple[Item, Item]]) -> None:
        for row, job in pairs:
            self.note(row, job)

    def take(self, handle: int) -> tuple[Item, Item] | None:
        with self._lock:
            row, job = (self._rows.pop(handle, None), self._jobs.get(handle >> INDEX_BITS))
        return None if row is None or job is None else (row, job)

    def note_ends(self, number: int, count: int) -> None:
        """Lower the number of open measurements of a cached job."""
        with self._lock:
            job = self._jobs.get(number)
            if job is not None:
                self._jobs[number] = job | {"open": job["open"] - count}

    # -- sealed keys: they never change, and a send begins only if its key is still there

    def note_sealed(self, account: str, number: int, sealed: str) -> None:
        with self._lock:
            if len(self._sealed) > ROWS_MAX:
                self._sealed.clear()
            self._sealed[account, number] = sealed

    def take_sealed(self, account: str, number: int) -> str | None:
        with self._lock:
            return self._sealed.pop((account, number), None)

    # -- the queue of users: its count of turns only orders them; the write decides how many may send at once

    def note_line(self, line: Item | None) -> None:
        with self._lock:
            self._line = line or {}

    def next_turn(self, *, sending_max: int) -> int | None:
        """Return the number of the next turn; None if it is unknown, or if as many are being sent as allowed."""
        with self._lock:
            if self._line is None or self._line.get("sending", 0) >= sending_max:
                return None
            return int(self._line.get("turns", 0)) + 1

    def note_sending(self, change: int) -> None:
        """Count one more measurement that is being sent, which is a turn, or one fewer."""
        with self._lock:
            if self._line is not None:
                sending, turns = (self._line.get("sending", 0), self._line.get("turns", 0))
                self._line = {"sending": max(sending + change, 0), "turns": turns + max(change, 0)}

    # -- refusals in a row: if they are not cleared after one send, the next send clears them

    def note_gates(self, gate: Item | None, targets: Mapping[str, Item | None]) -> None:
        with self._lock:
            self._gate = gate or {}
            if len(self._full) > TARGETS_MAX:
                self._full.clear()
            self._full |= {name: item is not None for name, item in targets.items()}

    def forget_gates(self) -> None:
        with self._lock:
            self._gate = None
            self._full.clear()

    def is_unblamed(self, targets: Iterable[str]) -> bool:
        """Return True if, when last read, nothing was paused for everybody and none of the targets was full."""
        with self._lock:
            open_gate = self._gate is not None and not self._gate.get("refusals")
            return open_gate and not any(self._full.get(name, True) for name in targets)


def _keep(kept: OrderedDict[int, Item], name: int, item: Item) -> None:
    kept[name] = item
    kept.move_to_end(name)
    if len(kept) > ROWS_MAX:
        kept.popitem(last=False)
