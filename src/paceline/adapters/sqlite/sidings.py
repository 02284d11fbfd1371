"""Runs that are not to start where they stand: ended, set aside with their batch, or moved to another provider."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any

from paceline.adapters.sqlite.batches import wake
from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.entries import integers
from paceline.adapters.sqlite.free_keys import free_keys
from paceline.adapters.sqlite.fronts import Days, Run
from paceline.adapters.sqlite.keys import EPOCH_MS
from paceline.adapters.sqlite.run_keys import RECORD_BITS, TIME_BITS, TIME_MASK
from paceline.adapters.sqlite.tallies import add
from paceline.core.calls import is_missed

ROWS_AT_ONCE = 25
"""To insert so many with one statement costs two thirds of inserting each with its own."""
GONE = "its record was deleted or is not active any more"
GONE_LOST = "it was cut short and may have arrived, and its record was deleted or is not active any more"
MISSED = "missed: its time had passed, and its batch skips what it missed"


class Sidings:
    """Decides for each run at the front, and writes what it took out of the way."""

    def __init__(self, days: Days, *, now_ms: int) -> None:
        self._days = days
        self._now_ms = now_ms
        self._ended: list[tuple[Any, ...]] = []
        self._aside: list[tuple[int, int, int, int, int]] = []
        self._moved: list[Run] = []

    def takes(self, run: Run) -> bool:
        """Whether the run is not to start here, though it could."""
        k, number, state, at_ms, _, lost, _, record_provider, active, _, _ = run
        due_ms = (k & TIME_MASK) + EPOCH_MS
        if (due_ms if state == "waiting" else at_ms) > self._now_ms:
            return False
        day = self._days[number >> RECORD_BITS]
        if not active or day.paused:
            return True
        if record_provider != k >> TIME_BITS:
            return not (lost or state == "out")  # what may have arrived stays with whom it was sent to
        return day.skips and run.attempt == 0 and is_missed(due_ms, day.start_ms, day.end_ms, now_ms=self._now_ms)

    def take(self, run: Run) -> None:
        lost = 1 if run.lost or run.state == "out" else 0
        day = self._days[run.run >> RECORD_BITS]
        if not run.active:
            state, reason = ("unknown", GONE_LOST) if lost else ("skipped", GONE)
            self._ended.append(self._result(run, state, reason))
        elif day.paused:
            self._aside.append((run.k, run.run, day.batch_number, run.attempt, lost))
        elif run.record_provider != run.k >> TIME_BITS:
            self._moved.append(run)
        else:
            self._ended.append(self._result(run, "skipped", MISSED))

    def write(self, db: Connection) -> None:
        if self._ended:
            end(db, self._ended)
            self._ended = []
        if self._aside:
            _forget(db, [row[0] for row in self._aside])
            db.executemany("INSERT INTO aside (k, run, batch, attempt, lost) VALUES (?, ?, ?, ?, ?)", self._aside)
            add(db, "calls_aside", len(self._aside))
            self._aside = []
        if self._moved:
            self._move(db)
            self._moved = []

    def _move(self, db: Connection) -> None:
        """Each to its record's provider, with its due time and its attempts."""
        _forget(db, [run.k for run in self._moved])
        wanted = sorted((run.record_provider << TIME_BITS | run.k & TIME_MASK, run) for run in self._moved)
        keys = free_keys(db, [key for key, _ in wanted])
        db.executemany(
            "INSERT INTO queue (k, run, attempt) VALUES (?, ?, ?)",
            [(key, run.run, run.attempt) for key, (_, run) in zip(keys, wanted, strict=True)],
        )
        add(db, "calls_waiting", len(keys))
        db.executemany(
            "UPDATE planned SET k = ? WHERE run = ?",
            [(key, run.run) for key, (_, run) in zip(keys, wanted, strict=True)],
        )
        wake(db, keys)

    def _result(self, run: Run, state: str, reason: str) -> tuple[Any, ...]:
        dead = 1 if state == "unknown" else 0
        return (run.k, run.run, state, run.attempt, None, self._now_ms, None, None, reason, None, dead)


def end(db: Connection, rows: list[tuple[Any, ...]]) -> None:
    """Ends runs for good: rows of ``result``, which leave the queue."""
    if not rows:
        return
    rows.sort(key=itemgetter(0))  # neighbours in the table one after the other
    _forget(db, [row[0] for row in rows])
    whole = len(rows) - len(rows) % ROWS_AT_ONCE
    if whole:
        pages = [list(chain.from_iterable(rows[at : at + ROWS_AT_ONCE])) for at in range(0, whole, ROWS_AT_ONCE)]
        db.executemany(_insert_results(ROWS_AT_ONCE), pages)
    db.executemany(_insert_results(1), rows[whole:])
    add(db, "dead_letters", sum(row[-1] for row in rows))


@cache
def _insert_results(rows: int) -> str:
    values = ", ".join(["(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"] * rows)
    return f"""INSERT INTO result (k, run, state, attempt, started_ms, ended_ms, latency_ms, code, reason, payload,
                   dead) VALUES {values}"""  # noqa: S608  a fixed text


def _forget(db: Connection, keys: Sequence[int]) -> None:
    db.execute("DELETE FROM queue WHERE k IN carray(?)", (integers(keys),))
    add(db, "calls_waiting", -db.changes())
