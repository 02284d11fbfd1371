"""A monitor's life in a few words, through the steps alone."""

from __future__ import annotations

import json
from typing import Any

from paceline.core.ids import run_id
from paceline.core.monitors.definition import SpecLimits
from paceline.core.monitors.dispatch import RetryPolicy
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.schedule import Entry
from paceline.core.monitors.values import CheckOrder, Finished, PutResult, Run
from paceline.ports import Store
from paceline.steps.monitors.define import get_monitor, parse_put, put_monitor
from paceline.steps.monitors.send import CheckSettleReport, claim_orders, settle
from paceline.steps.monitors.tick import TickReport, tick

T0_MS = 1_790_000_000_000
SECOND_MS, MINUTE_MS, HOUR_MS, DAY_MS = 1_000, 60_000, 3_600_000, 86_400_000
LEASE_MS = 180_000
LIMITS = SpecLimits()
POLICY = RetryPolicy(attempts_max=3, base_ms=1_000, cap_ms=60_000)
HTTP: dict[str, Any] = {"kind": "http", "url": "http://example.org/"}
POST: dict[str, Any] = HTTP | {"method": "POST", "body": "order"}
OUTGOING: dict[str, Any] = {"kind": "outgoing", "task": "look"}


def document(**fields: Any) -> dict[str, Any]:
    """A monitor every minute whose runs queue, unless something else is said; None drops a field."""
    whole = {"check": HTTP, "every": "60s", "overlap": "queue"} | fields
    return {name: value for name, value in whole.items() if value is not None}


def put(
    store: Store, name: str, *, now_ms: int, owner: str = "ann", expected_revision: int | None = None, **fields: Any
) -> PutResult:
    body = json.dumps(document(**fields)).encode()
    item = parse_put(owner, name, body, LIMITS, expected_revision=expected_revision)
    return put_monitor(store, item, monitors_max=100, now_ms=now_ms)


def entry(store: Store, name: str, *, now_ms: int, owner: str = "ann") -> Entry:
    generation = get_monitor(store, owner, name).generation
    return store.entries([generation], now_ms=now_ms)[generation]


def run_tick(store: Store, *, now_ms: int, catch_up: CatchUp | None = None) -> TickReport:
    return tick(store, now_ms=now_ms, catch_up=catch_up or CatchUp())


def take(store: Store, *, now_ms: int) -> list[CheckOrder]:
    return claim_orders(store, now_ms=now_ms, runs_max=100, lease_ms=LEASE_MS, policy=POLICY)


def finish(order: CheckOrder, *, now_ms: int, ok: bool = True) -> Finished:
    return Finished(
        order.handle, order.attempt, Done(ok=ok), started_ms=now_ms, ended_ms=now_ms, attempts=order.attempts
    )


def send_all(store: Store, *, now_ms: int) -> list[str]:
    """Claims and settles until no run may start. Returns the ids of the sent runs, in order."""
    sent: list[str] = []
    while orders := take(store, now_ms=now_ms):
        sent += [order.run_id for order in orders]
        report: CheckSettleReport = settle(store, [finish(order, now_ms=now_ms) for order in orders])
        assert report.stale == 0
    return sent


def runs(store: Store, name: str, *, now_ms: int, owner: str = "ann") -> list[Run]:
    """Returns the runs, oldest first."""
    monitor = get_monitor(store, owner, name)
    return list(reversed(store.monitor_runs(monitor, before=None, limit=1_000, now_ms=now_ms)))


def id_of(run: Run) -> str:
    return run_id(run.owner, run.monitor, generation=run.generation, counter=run.counter)


RECORDS = {f"r{number:02}": "abc"[number % 3] for number in range(40)}
"""What the fixture ``batch`` holds: forty records at three providers."""
