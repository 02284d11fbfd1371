"""Runs for reports. A monitor's runs are a chain from the newest back; each step is one lookup by key."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.keys import LANE_BITS, NEVER_MS, is_outgoing
from paceline.adapters.sqlite.monitors import check_claims, definitions
from paceline.adapters.sqlite.monitors.advances import OPEN_MAX
from paceline.adapters.sqlite.monitors.alerting.health import records
from paceline.adapters.sqlite.monitors.cadences import Cadences
from paceline.adapters.sqlite.monitors.entries import locate
from paceline.adapters.sqlite.monitors.outgoing_claims import OPEN_CLEAR
from paceline.core.monitors.alerting.record import NO_RECORD
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.health import Glance
from paceline.core.monitors.outcome import RunState
from paceline.core.monitors.values import Run
from paceline.core.monitors.wait_reasons import OpenRun, show_open

FIND_STEPS_MAX = 20_000

# The last column is true if an earlier run of its monitor has not ended.
_RUN = f"""SELECT run.handle, run.generation, run.counter, run.due_ms, run.previous,
                 open.state, open.at_ms, open.attempt, open.started_ms, open.reason,
                 outcome.state, outcome.attempt, outcome.started_ms, outcome.ended_ms,
                 outcome.latency_ms, outcome.code, outcome.reason, outcome.detail,
                 outcome.state IS NULL AND open.state IS NOT 'out' AND NOT {OPEN_CLEAR}
          FROM run LEFT JOIN open ON open.handle = run.handle LEFT JOIN outcome ON outcome.handle = run.handle
          WHERE run.handle = ?"""  # noqa: S608  fixed texts


def runs(db: Connection, handles: Sequence[int], *, now_ms: int) -> dict[int, Run]:
    found = {handle: _run_of(db, handle, now_ms) for handle in handles}
    return {handle: run for handle, run in found.items() if run is not None}


def _run_of(db: Connection, handle: int, now_ms: int) -> Run | None:
    row = db.execute(_RUN, (handle,)).fetchone()
    names = (
        row
        and db.execute(
            """SELECT user.name, monitor.name, user.disabled FROM monitor JOIN user ON user.id = monitor.owner
           WHERE monitor.generation = ?""",
            (row[1],),
        ).fetchone()
    )
    return _run(db, row, *names, now_ms=now_ms) if names else None


def monitor_runs(
    db: Connection, cadences: Cadences, monitor: Monitor, *, before: int | None, limit: int, now_ms: int
) -> list[Run]:
    if before is None:
        handle = _newest(db, cadences, [monitor.generation], now_ms=now_ms).get(monitor.generation, 0)
    else:
        row = db.execute(
            "SELECT previous FROM run WHERE handle = ? AND generation = ?", (before, monitor.generation)
        ).fetchone()
        handle = row[0] if row else 0
    disabled = _disabled(db, monitor)
    found: list[Run] = []
    while handle and len(found) < limit:
        row = db.execute(_RUN, (handle,)).fetchone()
        if row is None:
            break  # older ones are purged
        found.append(_run(db, row, monitor.owner, monitor.id, disabled, now_ms=now_ms))
        handle = row[4]
    return found


def find_run(
    db: Connection,
    cadences: Cadences,
    owner: str,
    monitor_id: str,
    *,
    generation: int,
    counter: int,
    now_ms: int,
) -> Run | None:
    """Find a run by walking back from the newest. The walk is bounded: a very old run is found by paging instead."""
    monitor = definitions.monitor(db, owner, monitor_id)
    if monitor is None or monitor.generation != generation:
        return None
    handle = _newest(db, cadences, [monitor.generation], now_ms=now_ms).get(monitor.generation, 0)
    for _ in range(FIND_STEPS_MAX):
        row = db.execute("SELECT counter, previous FROM run WHERE handle = ?", (handle,)).fetchone()
        if row is None or row[0] < counter:
            return None
        if row[0] == counter:
            run = db.execute(_RUN, (handle,)).fetchone()
            return _run(db, run, monitor.owner, monitor.id, _disabled(db, monitor), now_ms=now_ms)
        handle = row[1]
    return None


def glances(db: Connection, cadences: Cadences, generations: Sequence[int], *, now_ms: int) -> dict[int, Glance]:
    newest = _newest(db, cadences, generations, now_ms=now_ms)
    remembered = records(db, generations)
    return {
        generation: replace(
            _glance(db, _oldest_queued(db, generation) or handle), record=remembered.get(generation, NO_RECORD)
        )
        for generation, handle in newest.items()
    }


def _oldest_queued(db: Connection, generation: int) -> int | None:
    row = db.execute("SELECT handle FROM open WHERE generation = ? ORDER BY counter LIMIT 1", (generation,)).fetchone()
    return row[0] if row else None


def _newest(db: Connection, cadences: Cadences, generations: Sequence[int], *, now_ms: int) -> dict[int, int]:
    places = locate(db, cadences, generations, now_ms=now_ms)
    return {generation: place.last_run for generation, place in places.items()}


def _glance(db: Connection, handle: int) -> Glance:
    if not handle:
        return Glance()  # it has not fired yet
    open_due_ms: int | None = None
    for _ in range(OPEN_MAX):
        # A parked run names the run it is parked behind: those between the two ended without being sent.
        row = db.execute(
            """SELECT run.due_ms, coalesce(open.behind, run.previous), outcome.state
               FROM run LEFT JOIN outcome USING (handle) LEFT JOIN open USING (handle) WHERE run.handle = ?""",
            (handle,),
        ).fetchone()
        if row is None:
            break
        due_ms, handle, state = row
        if state is not None:
            return Glance(open_due_ms=open_due_ms, settled=state)
        open_due_ms = due_ms
    return Glance(open_due_ms=open_due_ms)


def _disabled(db: Connection, monitor: Monitor) -> int:
    row = db.execute("SELECT disabled FROM user WHERE name = ?", (monitor.owner,)).fetchone()
    return int(row[0]) if row else 0


def _run(db: Connection, row: tuple[Any, ...], owner: str, monitor: str, disabled: int, *, now_ms: int) -> Run:
    handle, generation, counter, due_ms, _, *rest, behind = row
    open_state, at_ms, attempt, started_ms, reason, *settled = rest
    run = Run(handle, owner, monitor, generation, counter, due_ms, state="waiting")
    if settled[0] is not None:
        return replace(run, **_settled(settled))
    found = OpenRun("waiting", bool(behind))
    if open_state is not None:
        # A parked run with a moment of its own is caught up at that moment.
        state: RunState = "later" if open_state == "parked" and at_ms < NEVER_MS else open_state
        found = OpenRun(state, bool(behind), at_ms if at_ms < NEVER_MS else None, started_ms, reason)
    return show_open(
        replace(run, attempt=attempt or 0),
        found,
        disabled=bool(disabled),
        outgoing=is_outgoing(handle >> LANE_BITS),
        place_reason=lambda: check_claims.wait_reason(db, generation),
        now_ms=now_ms,
    )


def _settled(columns: list[Any]) -> dict[str, Any]:
    names = ("state", "attempt", "started_ms", "ended_ms", "latency_ms", "code", "reason", "detail")
    values = dict(zip(names, columns, strict=True))
    return values | {"detail": msgspec.json.decode(values["detail"])}
