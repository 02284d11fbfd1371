"""Runs of a day for reports. The ledger has the key of each run, so no table is scanned beyond the day."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.batches.batch import Day
from paceline.core.batches.calls import CallState
from paceline.core.batches.run_keys import (
    EPOCH_MS,
    RECORD_BITS,
    RECORD_MASK,
    TIME_BITS,
    TIME_MASK,
    day_bounds,
    due_ms_of,
    provider_of,
    run_key,
)
from paceline.core.batches.unwanted import ASIDE
from paceline.core.batches.values import RUNS_READ_MAX, CallRun, DayCount, OutCall

# In order of k, so that neighbours in the ledger's day are neighbours in the joined tables.
_COUNTS = f"""SELECT provider.name, counted.state, counted.runs
             FROM (SELECT planned.k >> {TIME_BITS} AS number, COALESCE(queue.state, result.state, 'aside') AS state,
                          COUNT(*) AS runs
                   FROM (SELECT run, k FROM planned WHERE run >= ? AND run < ? ORDER BY k LIMIT -1) AS planned
                   LEFT JOIN result ON result.k = planned.k AND result.run = planned.run
                   LEFT JOIN queue ON queue.k = planned.k AND queue.run = planned.run
                   GROUP BY 1, 2) AS counted
             JOIN provider ON provider.id = counted.number ORDER BY 1, 2"""  # noqa: S608  fixed texts
_STATES = """SELECT planned.run, planned.k, COALESCE(queue.state, result.state, 'aside')
             FROM planned
             LEFT JOIN queue ON queue.k = planned.k AND queue.run = planned.run
             LEFT JOIN result ON result.k = planned.k AND result.run = planned.run
             WHERE planned.run >= ? AND planned.run < ? ORDER BY planned.run LIMIT ?"""
_RUNS = f"""SELECT planned.run, planned.k, batch.name, record.name, day.date, provider.name,
                 queue.state, queue.at_ms, queue.attempt, queue.started_ms, queue.reason,
                 result.state, result.attempt, result.started_ms, result.ended_ms, result.latency_ms, result.code,
                 result.reason, result.payload, result.dead
          FROM planned
          JOIN day ON day.id = planned.run >> {RECORD_BITS}
          JOIN batch ON batch.id = day.batch
          JOIN record ON record.id = planned.run & {RECORD_MASK}
          JOIN provider ON provider.id = planned.k >> {TIME_BITS}
          LEFT JOIN queue ON queue.k = planned.k AND queue.run = planned.run
          LEFT JOIN result ON result.k = planned.k AND result.run = planned.run
          WHERE planned.run IN carray(?) ORDER BY planned.run"""  # noqa: S608

_OUT = f"""SELECT queue.k, queue.attempt, queue.k >> {TIME_BITS}, batch.name, record.name, day.date, queue.started_ms
           FROM carray(?) AS asked
           JOIN queue ON queue.k = asked.value AND queue.state = 'out'
           JOIN day ON day.id = queue.run >> {RECORD_BITS}
           JOIN batch ON batch.id = day.batch
           JOIN record ON record.id = queue.run & {RECORD_MASK}"""  # noqa: S608


def day_counts(db: Connection, day: Day) -> list[DayCount]:
    return [DayCount(*row) for row in db.execute(_COUNTS, day_bounds(day.number))]


def day_dues(db: Connection, day: Day) -> tuple[array[int], array[int]]:
    dues, providers = array("q"), array("q")
    rows = db.execute(
        "SELECT k & ?3, k >> ?4 FROM planned WHERE run >= ?1 AND run < ?2 ORDER BY 1, 2",
        (*day_bounds(day.number), TIME_MASK, TIME_BITS),
    )
    for due, provider in rows:
        dues.append(due + EPOCH_MS)
        providers.append(provider)
    return dues, providers


def day_runs(
    db: Connection, day: Day, *, state: CallState | None, provider: str | None, after: int, limit: int
) -> tuple[list[CallRun], int | None]:
    number = _number(db, provider) if provider is not None else None
    looked_at_max = RUNS_READ_MAX if state or provider is not None else limit + 1
    first, end = run_key(day.number, after + 1), day_bounds(day.number)[1]
    rows = db.execute(_STATES, (first, end, looked_at_max)).fetchall()
    found: list[int] = []
    seen = after
    for run, k, state_now in rows:
        wanted = state in (None, state_now) and (provider is None or provider_of(k) == number)
        if wanted and len(found) == limit:
            return runs_by_key(db, found), seen
        if wanted:
            found.append(run)
        seen = run & RECORD_MASK
    more = len(rows) == looked_at_max
    return runs_by_key(db, found), seen if more else None


def find_run(db: Connection, batch_id: str, record_id: str, date: str) -> CallRun | None:
    row = db.execute(
        """SELECT day.id, record.id FROM batch JOIN day ON day.batch = batch.id AND day.date = ?3
           JOIN record ON record.batch = batch.id AND record.name = ?2 WHERE batch.name = ?1""",
        (batch_id, record_id, date),
    ).fetchone()
    found = runs_by_key(db, [run_key(*row)]) if row else []
    return found[0] if found else None


def out_calls(db: Connection, handles: Sequence[int]) -> dict[int, OutCall]:
    return {row[0]: OutCall(*row) for row in db.execute(_OUT, (integers(handles),))}


def runs_by_key(db: Connection, runs: Sequence[int]) -> list[CallRun]:
    """Return the runs with these numbers in the ledger, in order; the number is the run's handle."""
    return [_run(row) for row in db.execute(_RUNS, (integers(runs),))]


def _number(db: Connection, provider: str) -> int | None:
    row = db.execute("SELECT id FROM provider WHERE name = ?", (provider,)).fetchone()
    return int(row[0]) if row else None


def _run(row: tuple[Any, ...]) -> CallRun:
    run, k, batch, record, date, provider, *rest = row
    names = (run, batch, record, date, provider, due_ms_of(k))
    queued, ended = rest[:5], rest[5:]
    if queued[0] is not None:
        state, at_ms, attempt, started_ms, reason = queued
        until_ms = at_ms if state != "waiting" else None
        return CallRun(*names, state=state, attempt=attempt, reason=reason, until_ms=until_ms, started_ms=started_ms)
    if ended[0] is None:
        return CallRun(*names, state="aside", reason=ASIDE)
    state, attempt, started_ms, ended_ms, latency_ms, code, reason, payload, dead = ended
    return CallRun(
        *names,
        state=state,
        attempt=attempt,
        reason=reason,
        started_ms=started_ms,
        ended_ms=ended_ms,
        latency_ms=latency_ms,
        code=code,
        payload=payload,
        dead=bool(dead),
    )
