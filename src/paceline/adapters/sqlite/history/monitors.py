"""Monitors, entries and runs as facts, for `paceline verify`. Each table is read once, in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.keys import CHECKS_LANE, GENERATION_MASK, LANE_BITS, due_ms_of
from paceline.adapters.sqlite.monitors.outgoing_claims import SEQUENCE_MASK, check_of
from paceline.core.monitors.alerting.stored import decode_health
from paceline.core.monitors.checks import OutgoingCheck, repeatable
from paceline.core.monitors.uptime.rollup import decode_rollup
from paceline.core.verify.facts import EntryFact, Fact, MonitorFact, RunFact

_MONITORS = """
SELECT generation, 0, user.name, monitor.name, health.record, uptime.counter, uptime.rollup, monitor.updated_ms,
       monitor.spec
FROM monitor JOIN user ON user.id = monitor.owner
LEFT JOIN health USING (generation) LEFT JOIN uptime USING (generation)
ORDER BY generation"""
_CHANGES = "SELECT generation, 1 FROM change ORDER BY generation"
_ENTRIES = f"""
SELECT due.k & {GENERATION_MASK} AS number, 2, due.k, due.counter, every_ms, cron, timezone, jitter_ms, base_ms,
       entry.lead_ms, missed, overlap
FROM due LEFT JOIN cadence ON cadence.id = due.cadence LEFT JOIN entry ON entry.generation = number
ORDER BY number"""  # noqa: S608  numbers of our own
_RUNS = """
SELECT run.generation, 3, run.counter, run.due_ms, run.handle, outcome.state, outcome.attempt, outcome.started_ms,
       outcome.ended_ms, outcome.reason, open.state, open.attempt, open.started_ms, open.at_ms, open.reason,
       extra.handle IS NOT NULL, outcome.claimed_ms, outcome.lost
FROM run LEFT JOIN outcome USING (handle) LEFT JOIN open USING (handle) LEFT JOIN extra USING (handle)
ORDER BY run.generation, run.counter, run.handle"""
Row = tuple[Any, ...]


def read_facts(db: Connection) -> Iterator[Fact]:
    """Yield the facts of each generation, merged from four tables in order of generation."""
    positions: dict[int, int] = dict(db.execute("SELECT id, position FROM lane").fetchall())
    parts: list[Iterable[Row]] = [db.execute(text) for text in (_MONITORS, _CHANGES, _ENTRIES, _RUNS)]
    rows = merge(*parts, key=itemgetter(0, 1))
    for generation, group in groupby(rows, key=itemgetter(0)):
        yield from _generation(generation, group, positions)


def _generation(generation: int, rows: Iterator[Row], positions: dict[int, int]) -> Iterator[Fact]:
    """Yield the facts of one generation. Runs need not be kept: its own fact is complete before the first of them."""
    defined, changed, yielded = (), False, False
    for row in rows:
        kind = row[1]
        if kind == 0:
            defined = row[2:]
        elif kind == 1:
            changed = True
        else:
            if not yielded:
                yield _monitor(generation, defined, changed=changed)
                yielded = True
            yield _entry(generation, row) if kind == 2 else _run(row, positions)
    if not yielded:
        yield _monitor(generation, defined, changed=changed)


def _monitor(generation: int, columns: Row, *, changed: bool) -> MonitorFact:
    if not columns:
        return MonitorFact(generation, changed=changed)
    owner, name, health, folded, rollup, edited_ms, spec = columns
    failures = decode_health(health).failures if health else 0
    folded_ms = (decode_rollup(rollup).at_ms or 0) if rollup else 0
    check, target, _ = check_of(spec)
    return MonitorFact(
        *(generation, owner, name, True, changed, failures, -1 if folded is None else folded, folded_ms),
        *(edited_ms, target, isinstance(check, OutgoingCheck), repeatable(check)),
    )


def _entry(generation: int, row: Row) -> EntryFact:
    _, _, k, counter, every_ms, cron, timezone, jitter_ms, base_ms, lead_ms, missed, overlap = row
    due_ms = due_ms_of(k)
    base_ms = base_ms if due_ms is not None else None
    return EntryFact(
        *(generation, counter, due_ms, every_ms or 0, cron or "", timezone or "UTC", jitter_ms or 0, base_ms),
        *(lead_ms or 0, missed or "", overlap or ""),
    )


def _run(row: Row, positions: dict[int, int]) -> RunFact:
    generation, _, counter, due_ms, handle, state, attempt, started_ms, ended_ms, reason, *rest = row
    *rest, extra, claimed_ms, lost = rest
    made = handle if handle >> LANE_BITS == CHECKS_LANE else 0
    open_state, open_attempt, open_started_ms, at_ms, open_reason = rest
    if state is not None:
        open_too = open_state is not None
        return RunFact(
            generation,
            counter,
            due_ms,
            state,
            handle,
            attempt,
            started_ms,
            ended_ms,
            None,
            bool(extra),
            open_too,
            reason,
            claimed_ms,
            bool(lost),
            made,
        )
    if open_state is not None:
        return RunFact(
            *(generation, counter, due_ms, open_state, handle, open_attempt, open_started_ms, None),
            *(at_ms if open_state == "out" else None, bool(extra), False, open_reason, None, False, made),
        )
    waits = handle & SEQUENCE_MASK > positions.get(handle >> LANE_BITS, 0)
    return RunFact(generation, counter, due_ms, "waiting" if waits else "", handle, extra=bool(extra), made=made)
