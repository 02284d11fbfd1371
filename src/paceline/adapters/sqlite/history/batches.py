"""Days, providers and their runs as facts, for `paceline verify`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import Any

from paceline.adapters.sqlite.database import Connection
from paceline.core.batches.provider import parse_stored_provider, policy_of
from paceline.core.batches.run_keys import RECORD_BITS, RECORD_MASK, due_ms_of, provider_of
from paceline.core.verify.facts import CallFact, DayFact, Fact, ProviderFact

_DAYS = """
SELECT day.id, batch.name, date, start_ms, end_ms, state = 'planned', enqueued + skipped, deleting_ms IS NOT NULL
FROM day JOIN batch ON batch.id = day.batch ORDER BY day.id"""
# Each in order of k. The last columns: whether the ledger has the run at this key; whether it has a predecessor.
_FOLLOWS = f"(SELECT after IS NOT NULL FROM record WHERE id = run & {RECORD_MASK})"  # noqa: S608  a number
_QUEUE = f"""
SELECT k, run, state, attempt, started_ms, NULL, at_ms, 0, reason,
       k IS (SELECT k FROM planned WHERE planned.run = queue.run), {_FOLLOWS} FROM queue ORDER BY k"""  # noqa: S608
_ASIDE = f"""
SELECT k, run, 'aside', attempt, NULL, NULL, NULL, 0, '',
       k IS (SELECT k FROM planned WHERE planned.run = aside.run), {_FOLLOWS} FROM aside ORDER BY k"""  # noqa: S608
_RESULT = f"""
SELECT k, run, state, attempt, started_ms, ended_ms, NULL, dead, reason,
       k IS (SELECT k FROM planned WHERE planned.run = result.run), {_FOLLOWS} FROM result ORDER BY k"""  # noqa: S608
_NOWHERE = """
SELECT k, run, '', 0, NULL, NULL, NULL, 0, '', 1, 0 FROM planned
WHERE NOT EXISTS (SELECT 1 FROM queue WHERE k = planned.k AND run = planned.run)
  AND NOT EXISTS (SELECT 1 FROM aside WHERE k = planned.k AND run = planned.run)
  AND NOT EXISTS (SELECT 1 FROM result WHERE k = planned.k AND run = planned.run) ORDER BY k"""
Row = tuple[Any, ...]


def read_facts(db: Connection) -> Iterator[Fact]:
    """Yield the days, then each provider with its runs, from all tables."""
    for number, batch, date, start_ms, end_ms, planned, runs, deleting in db.execute(_DAYS):
        yield DayFact(number, batch, date, start_ms, end_ms, bool(planned), runs, bool(deleting))
    providers = dict(_providers(db))
    parts: list[Iterable[Row]] = [db.execute(text) for text in (_QUEUE, _ASIDE, _RESULT, _NOWHERE)]
    rows = merge(*parts, key=itemgetter(0))
    for number, group in groupby(rows, key=lambda row: provider_of(row[0])):
        yield providers.get(number, ProviderFact(number))
        yield from map(_call, group)


def _providers(db: Connection) -> Iterator[tuple[int, ProviderFact]]:
    for number, name, deleted, spec, updated_ms in db.execute(
        "SELECT id, name, deleted, spec, updated_ms FROM provider"
    ).fetchall():
        policy = policy_of(parse_stored_provider(spec))
        places, gap_us = (0, 0) if deleted else (policy.max_in_flight, policy.rate_gap_us)
        yield number, ProviderFact(number, name, places, updated_ms, gap_us)


def _call(row: Row) -> CallFact:
    k, run, state, attempt, started_ms, ended_ms, at_ms, dead, reason, in_ledger, follows = row
    return CallFact(
        *(provider_of(k), due_ms_of(k), run >> RECORD_BITS, run & RECORD_MASK, state, bool(in_ledger), attempt),
        *(started_ms, ended_ms, at_ms if state == "out" else None, bool(follows), bool(dead), reason),
    )
