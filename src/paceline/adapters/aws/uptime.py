"""Roll-ups of monitors: one item for each, with the counter of the last run that it includes.

Finding monitors with runs to fold would take a scan. So a monitor is folded when it settles a run whose counter comes
round, which is three requests for FOLD_EVERY runs, and before its runs are purged. A write wins only if the item's
counter is still the one that was read: each run is folded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import ABSENT, Item, item_at, padded, put
from paceline.adapters.aws.client.tables import RUNS
from paceline.adapters.aws.monitors.keys import COUNTER_MASK, runs_of, uptime_key
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.leases import TERMINAL
from paceline.core.monitors.uptime.rollup import EndedRun, Rollup, decode_rollup, encode_rollup, fold, settled_first
from paceline.core.monitors.values import FoldReport

FOLD_EVERY = 1_024
RUNS_MAX = 5_000
"""Runs that are read at once: a few megabytes."""
ROUNDS_MAX = 10
_READ = "#counter, #due_ms, #state, #ended_ms, #latency_ms, #reason"


def fold_runs(store: MonitorParts, *, limit: int) -> FoldReport:
    """Do nothing: monitors are folded when runs are settled or purged."""
    del store, limit
    return FoldReport(0, 0)


def fold_settled(store: MonitorParts, settled: Iterable[tuple[int, int]]) -> None:
    """Fold monitors whose turn it is, given the (generation, counter) of settled runs."""
    turns = [generation for generation, counter in settled if counter and (counter + generation) % FOLD_EVERY == 0]
    store.db.threads.fan_out(partial(fold_monitor, store.db), turns)


def fold_monitor(db: DynamoDatabase, generation: int) -> int:
    """Fold the ended runs of a monitor. Return the counter up to which it is folded now."""
    for _ in range(ROUNDS_MAX):
        item = db.get(RUNS, uptime_key(generation))
        rollup = _stored(item)
        folded = _until_now(db, generation, rollup)
        if folded.counter == rollup.counter or _write(db, generation, folded, seen=item):
            return folded.counter
    return -1  # others fold it; a purge comes again


def uptimes(store: MonitorParts, monitors: Sequence[Monitor], *, now_ms: int) -> list[Rollup]:
    del now_ms
    db = store.db
    items = db.get_many(RUNS, [uptime_key(monitor.generation) for monitor in monitors])
    stored = [(one.generation, _stored(items.get(uptime_key(one.generation)))) for one in monitors]
    return db.threads.fan_out(lambda one: _until_now(db, *one), stored)


def put_rollups(store: MonitorParts, rollups: Sequence[tuple[int, Rollup]]) -> int:
    return sum(store.db.threads.fan_out(lambda one: _write(store.db, *one, seen=None), rollups))


def _stored(item: Item | None) -> Rollup:
    return decode_rollup(item["rollup"]) if item else Rollup()


def _until_now(db: DynamoDatabase, generation: int, rollup: Rollup) -> Rollup:
    first, last = padded(rollup.counter + 1), padded(COUNTER_MASK)
    runs = db.page(RUNS, runs_of(generation), limit=RUNS_MAX, only=_READ, first=first, last=last)
    return fold(rollup, settled_first(_ended(run) for run in runs))


def _ended(run: Item) -> EndedRun | None:
    if run["state"] not in TERMINAL:
        return None
    latency_ms, reason = run.get("latency_ms"), run.get("reason", "")
    return EndedRun(run["counter"], run["due_ms"], run["state"], run["ended_ms"], latency_ms, reason)


def _write(db: DynamoDatabase, generation: int, rollup: Rollup, *, seen: Item | None) -> bool:
    item = item_at(uptime_key(generation), counter=rollup.counter, rollup=encode_rollup(rollup))
    if seen is None:
        return db.write(put(RUNS, item, when=ABSENT)).won
    return db.write(put(RUNS, item, when="#counter = :seen", seen=seen["counter"])).won
