"""Runs that could have started long ago: the beginning of each shard of the index of runs that may start."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.adapters.aws.client.items import Item, key_of
from paceline.adapters.aws.client.numbers import last_generation
from paceline.adapters.aws.client.tables import READY_INDEX, RUNS
from paceline.adapters.aws.monitors.alerting.health import health_records
from paceline.adapters.aws.monitors.claims import facts_of
from paceline.adapters.aws.monitors.keys import all_queues, check_queues, handle_of, to_monitor
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.adapters.aws.monitors.reoffer import owners
from paceline.core.monitors.alerting.found import LatePage, LateRun
from paceline.core.monitors.alerting.record import NO_RECORD
from paceline.core.monitors.leases import TERMINAL
from paceline.core.monitors.wait_reasons import OpenTimes, could_start_ms

SHARDS_AT_ONCE = 8
SHARD_ROWS_MAX = 10_000


def late_runs(store: MonitorParts, *, before_ms: int, after: int, limit: int) -> LatePage:
    """Read shards from the given one on until there are enough runs; each shard whole, up to a bound."""
    db = store.db
    shards = [*check_queues(last_generation(db)), *(shard for row in owners(db) for shard in all_queues(row))]

    def read(shard: str) -> list[Item]:
        return db.page(RUNS, shard, limit=SHARD_ROWS_MAX, index=READY_INDEX, before=before_ms)

    rows: list[Item] = []
    at = after
    while at < len(shards) and len(rows) < limit:
        some = shards[at : at + SHARDS_AT_ONCE]
        rows += [row for page in db.threads.fan_out(read, some) for row in page]
        at += len(some)
    return LatePage(_late(store, rows, before_ms=before_ms), at if at < len(shards) else None)


def _late(store: MonitorParts, rows: Sequence[Item], *, before_ms: int) -> list[LateRun]:
    """Read the runs themselves, their definitions and records: the index may be out of date."""
    db = store.db
    runs = [
        run for run in db.get_many(RUNS, map(key_of, rows)).values() if "at" in run and run["state"] not in TERMINAL
    ]
    facts = facts_of(db, runs) if runs else {}
    records = health_records(store, [run["generation"] for run in runs]) if runs else {}
    found: list[LateRun] = []
    for run in sorted(runs, key=lambda run: int(run["at"])):
        monitor, user = facts[run["generation"]]
        if monitor is None or user is None:
            continue
        times = OpenTimes(run["state"], run["due_ms"], run["at"])
        since_ms = could_start_ms(times, disabled=user["disabled"])
        if since_ms is not None and since_ms < before_ms:
            record = records.get(run["generation"], NO_RECORD)
            handle = handle_of(run["generation"], run["counter"])
            found.append(LateRun(to_monitor(user["id"], monitor), handle, run["counter"], since_ms, record))
    return found
