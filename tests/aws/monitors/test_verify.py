"""``verify`` reports each kind of damage in its own words; network faults cause none."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import closing

import pytest

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import delete, update
from paceline.adapters.aws.client.tables import ITEMS, RUNS, SCHEDULERS
from paceline.adapters.aws.keys import user_key
from paceline.adapters.aws.monitors.keys import change_key, entry_key, lane_key, monitor_key, run_key
from paceline.adapters.aws.store import AwsStore
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.due import CatchUp, advance_all
from paceline.core.monitors.schedule import Arm, Cadence, Remove
from paceline.core.monitors.values import Reacted
from paceline.errors import StoreUnavailable
from tests.aws.support.fault_proxy import Faults, fault_proxy
from tests.aws.support.ministack import Emulator, guarded_clients
from tests.contract.support.stage import MINUTE_MS, T0_MS, armed, claim, make_runs, put, settle, spec

pytestmark = [pytest.mark.aws, pytest.mark.usefixtures("silent_bell")]
Damage = Callable[[DynamoDatabase, int], None]

EVERY_MINUTE_QUEUED = Cadence(every_ms=MINUTE_MS, overlap="queue")
"""What a shaken worker has not settled does not keep the next firing from making its run."""


def number_of(database: DynamoDatabase) -> int:
    user = database.get(ITEMS, user_key("ann"))
    assert user is not None
    return int(user["number"])


def lose_the_entry(database: DynamoDatabase, generation: int) -> None:
    database.write(delete(SCHEDULERS, entry_key(generation)))


def lose_the_monitor(database: DynamoDatabase, generation: int) -> None:
    del generation
    database.write(delete(ITEMS, monitor_key(number_of(database), "a")))
    user = update(ITEMS, user_key("ann"), "ADD #monitors :less", when="", less=-1)
    database.write(user)


def miscount(database: DynamoDatabase, generation: int) -> None:
    del generation
    database.write(update(ITEMS, user_key("ann"), "ADD #monitors :more", when="", more=1))


def leave_the_due_index(database: DynamoDatabase, generation: int) -> None:
    database.write(update(SCHEDULERS, entry_key(generation), "REMOVE #shard", when=""))


def turn_the_counter_back(database: DynamoDatabase, generation: int) -> None:
    database.write(update(SCHEDULERS, entry_key(generation), "SET #counter = :one", when="", one=1))
    database.write(delete(RUNS, run_key(generation, 2)))


def lose_the_lane(database: DynamoDatabase, generation: int) -> None:
    database.write(delete(RUNS, lane_key(generation)))


def lose_a_run(database: DynamoDatabase, generation: int) -> None:
    database.write(delete(RUNS, run_key(generation, 1)))


def settle_out_of_order(database: DynamoDatabase, generation: int) -> None:
    database.write(update(RUNS, run_key(generation, 1), "SET #state = :ok, #ended_ms = :now", when="", ok="ok", now=1))


def let_two_be_claimed(database: DynamoDatabase, generation: int) -> None:
    database.write(update(RUNS, run_key(generation, 1), "SET #shard = #queue, #at = #from_ms", when=""))


def hide_the_front(database: DynamoDatabase, generation: int) -> None:
    database.write(update(RUNS, run_key(generation, 0), "REMOVE #shard, #at", when=""))


def send_two_out(database: DynamoDatabase, generation: int) -> None:
    database.write(update(RUNS, run_key(generation, 1), "SET #state = :out", when="", out="out"))


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lose_the_entry, "promise 10: a monitor has no entry"),
        (lose_the_monitor, "promise 3: an entry has no monitor"),
        (miscount, "number of monitors is wrong"),
        (leave_the_due_index, "promise 1"),
        (turn_the_counter_back, "promise 10: a lane and its runs|promise 4"),
        (lose_the_lane, "promise 10: runs have no lane"),
        (lose_a_run, "promise 10: a lane and its runs"),
        (settle_out_of_order, "promise 6"),
        (let_two_be_claimed, "promise 6: not just the first"),
        (hide_the_front, "promise 6: not just the first"),
        (send_two_out, "promise 6: a run is out"),
    ],
)
def test_check_reports_each_kind_of_damage(
    store: AwsStore, database: DynamoDatabase, damage: Damage, words: str
) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor, 3)
    make_runs(store, armed(store, "b"))
    assert store.verify_monitors() == []
    damage(database, monitor.generation)
    (problem,) = store.verify_monitors()
    assert re.search(words, problem)


def test_definition_without_an_entry_is_damage_only_if_no_change_is_recorded(
    store: AwsStore, database: DynamoDatabase
) -> None:
    created = put(store, "a").monitor
    assert created is not None
    assert store.verify_monitors() == []
    database.write(delete(ITEMS, change_key(created.generation)))
    assert store.verify_monitors() != []


FAULTS = Faults(drop_before=0.03, drop_after=0.05, throttle=0.04, duplicate=0.05, reorder=0.02, partial=0.1, stale=0.1)


@pytest.mark.parametrize("seed", range(3))
def test_promise_5_dropped_doubled_and_throttled_requests_neither_lose_nor_double_a_run(
    aws: Emulator, prefix: str, store: AwsStore, seed: int
) -> None:
    with (
        fault_proxy(aws.url, seed=seed, faults=FAULTS) as proxy,
        guarded_clients(proxy.url) as shaken,
        closing(AwsStore(prefix, clients=shaken)) as worker,
    ):
        monitors = [_made(store, worker, f"m{number}") for number in range(6)]
        for minute in range(3):
            _round(store, worker, now_ms=T0_MS + minute * MINUTE_MS)
        assert proxy.hits
    for minute in range(3, 5):
        _round(store, store, now_ms=T0_MS + minute * MINUTE_MS)
    for monitor in monitors:
        runs = store.monitor_runs(monitor, before=None, limit=99, now_ms=T0_MS)
        assert [(run.counter, run.due_ms) for run in reversed(runs)] == [
            (minute, T0_MS + minute * MINUTE_MS) for minute in range(5)
        ]
    assert store.verify_monitors() == []


def _made(store: AwsStore, worker: AwsStore, name: str) -> Monitor:
    """Repeats the put through the faulty network until the monitor exists: a lost answer says nothing."""
    for _ in range(20):
        try:
            put(worker, name, spec())
            for change in worker.changes(limit=99, now_ms=T0_MS):
                reaction = Arm(T0_MS, EVERY_MINUTE_QUEUED, outgoing=False) if change.monitor else Remove()
                worker.react([Reacted(change, reaction)], now_ms=T0_MS)
        except StoreUnavailable:
            continue
        monitor = store.monitor("ann", name)
        if monitor is not None and monitor.generation in store.entries([monitor.generation], now_ms=T0_MS):
            return monitor
    raise AssertionError("the wire is too bad")


def _round(store: AwsStore, worker: AwsStore, *, now_ms: int) -> None:
    """Ticks until nothing is due, then claims and settles the runs."""
    for _ in range(20):
        if not store.due(now_ms=now_ms, limit=1):
            return
        try:
            dues = worker.due(now_ms=now_ms, limit=99)
            worker.commit(advance_all(dues, now_ms=now_ms, catch_up=CatchUp()), now_ms=now_ms)
            settle(worker, claim(worker, now_ms=now_ms), now_ms=now_ms)
        except StoreUnavailable:
            continue
