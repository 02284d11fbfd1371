"""Writes the verdicts of core.batches.unwanted: runs end, are set aside with their batch, or change provider."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain
from operator import itemgetter
from typing import Any

from paceline.adapters.sqlite.batches.claim_reads import Days, OpenCallRun
from paceline.adapters.sqlite.batches.definitions import wake
from paceline.adapters.sqlite.batches.free_keys import free_keys
from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.kept_counts import add
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.batches.run_keys import RECORD_BITS, TIME_BITS, queue_key
from paceline.core.batches.settle import DEAD_STATES
from paceline.core.batches.unwanted import Defer, End, Unwanted, may_have_arrived

ROWS_AT_ONCE = 25
"""Rows inserted by one statement, which costs two thirds of one statement for each row."""


class UnwantedRuns:
    """Unwanted runs, collected in one pass of a claim and written together."""

    def __init__(self, days: Days, *, now_ms: int) -> None:
        self._days = days
        self._now_ms = now_ms
        self._ended: list[tuple[Any, ...]] = []
        self._aside: list[tuple[int, int, int, int, int]] = []
        self._moved: list[tuple[int, OpenCallRun, str]] = []

    def add(self, run: OpenCallRun, verdict: Unwanted) -> None:
        if isinstance(verdict, End):
            dead = 1 if verdict.state in DEAD_STATES else 0
            texts = (None, self._now_ms, None, None, verdict.reason, None)
            self._ended.append((run.k, run.run, verdict.state, run.attempt, *texts, dead))
        elif isinstance(verdict, Defer):
            self._moved.append((queue_key(run.k >> TIME_BITS, verdict.due_ms), run, verdict.reason))
        elif verdict == "move":
            self._moved.append((queue_key(run.record_provider, run.due_ms), run, ""))
        else:
            lost = 1 if may_have_arrived(run.state, run.lost) else 0
            batch = self._days[run.run >> RECORD_BITS].batch_number
            self._aside.append((run.k, run.run, batch, run.attempt, lost))

    def write(self, db: Connection) -> None:
        if self._ended:
            end(db, self._ended)
            self._ended = []
        if self._aside:
            _forget(db, [k for k, *_ in self._aside])
            db.executemany("INSERT INTO aside (k, run, batch, attempt, lost) VALUES (?, ?, ?, ?, ?)", self._aside)
            add(db, "calls_aside", len(self._aside))
            self._aside = []
        if self._moved:
            self._move(db)
            self._moved = []

    def _move(self, db: Connection) -> None:
        """Move each run to its new provider or time; its attempts are kept."""
        _forget(db, [run.k for _, run, _ in self._moved])
        wanted = sorted(self._moved)
        keys = free_keys(db, [key for key, _, _ in wanted])
        db.executemany(
            "INSERT INTO queue (k, run, attempt, reason) VALUES (?, ?, ?, ?)",
            [(key, run.run, run.attempt, reason) for key, (_, run, reason) in zip(keys, wanted, strict=True)],
        )
        add(db, "calls_waiting", len(keys))
        db.executemany(
            "UPDATE planned SET k = ? WHERE run = ?",
            [(key, run.run) for key, (_, run, _) in zip(keys, wanted, strict=True)],
        )
        wake(db, keys)


def end(db: Connection, rows: list[tuple[Any, ...]]) -> None:
    """End runs for good: insert rows of ``result`` and delete the runs from the queue."""
    if not rows:
        return
    rows.sort(key=itemgetter(0))  # rows that are neighbours in the table follow each other
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
