"""A process with loops reads the change counter once a second and misses no change."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pytest

from paceline.adapters.aws.cache.change_counter import BUMP_S, READ_S, UNSETTLED_S, ChangeCounter
from paceline.adapters.aws.cache.index_cache import LASTING_S
from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.monitors import entries
from paceline.adapters.aws.monitors.due import REMEMBERED_S, NextDue
from paceline.adapters.aws.store import AwsStore
from paceline.core.batches.values import DeadChoice
from paceline.core.monitors.outcome import Retry
from paceline.core.monitors.schedule import Arm
from paceline.core.monitors.values import Reacted
from paceline.core.users import UserEdit
from tests.aws.support.monitor_stage import counted
from tests.contract.support.batch_stage import plan, put_batch, put_provider, put_records
from tests.contract.support.stage import (
    EVERY_MINUTE,
    LEASE_MS,
    MINUTE_MS,
    T0_MS,
    armed,
    claim,
    due_of,
    make_runs,
    put,
    settle,
    step,
)

pytestmark = [pytest.mark.aws, pytest.mark.usefixtures("silent_bell")]


@pytest.fixture
def other(store: AwsStore, clients: Clients, prefix: str) -> Iterator[AwsStore]:
    """Another process."""
    del store
    with closing(AwsStore(prefix, clients=clients)) as opened:
        opened.alarms.sends = False
        yield opened


@dataclass
class Watch:
    """The due entries as a process with cached indexes sees them, on its own clock."""

    now_s: float = 1_000.0

    def of(self, database: DynamoDatabase) -> NextDue:
        counter = ChangeCounter(database, clock_s=lambda: self.now_s)
        counter.caches_indexes = True
        return NextDue(database, counter, clock_s=lambda: self.now_s)


def test_entry_armed_by_another_process_is_seen_within_a_second_at_one_request_a_second(
    store: AwsStore, database: DynamoDatabase, clients: Clients
) -> None:
    watch = Watch()
    mine = watch.of(database)
    assert mine.first_ms() is None
    watch.now_s += UNSETTLED_S
    assert mine.first_ms() is None
    watch.now_s += READ_S
    with counted(clients) as quiet:
        for _ in range(10):
            assert mine.first_ms() is None
            assert mine.awake(T0_MS) == []
            watch.now_s += READ_S
    assert quiet == {"GetItem": 10}
    armed(store, "a")
    watch.now_s += READ_S
    assert mine.first_ms() == T0_MS
    with counted(clients) as unsettled:  # an index may lag behind the change counter
        watch.now_s += READ_S
        mine.first_ms()
    assert unsettled == {"GetItem": 2, "Query": 1}


def test_lost_bump_of_the_change_counter_costs_only_lateness(store: AwsStore, database: DynamoDatabase) -> None:
    watch = Watch()
    mine = watch.of(database)
    mine.first_ms()
    watch.now_s += LASTING_S
    assert mine.first_ms() is None
    put(store, "a")
    (change,) = store.changes(limit=1, now_ms=T0_MS)
    arm = Reacted(change, Arm(T0_MS, EVERY_MINUTE, outgoing=False))
    assert entries.write_reactions(store, [arm], now_ms=T0_MS) == [True]  # and there it died
    watch.now_s += LASTING_S - READ_S
    assert mine.first_ms() is None
    watch.now_s += READ_S
    assert mine.first_ms() == T0_MS


@pytest.mark.parametrize("patient", [False, True])
def test_promise_10_an_entry_that_this_process_moved_and_another_after_it_is_still_seen(
    store: AwsStore, database: DynamoDatabase, *, patient: bool
) -> None:
    """Otherwise the entry would never fire again after the other process has died."""
    watch = Watch()
    mine = watch.of(database) if patient else NextDue(database, store.change_counter, clock_s=lambda: watch.now_s)
    monitor = armed(store, "a")
    mine.moved(monitor.generation, from_ms=T0_MS - MINUTE_MS, to_ms=T0_MS)
    assert mine.first_ms() == T0_MS
    assert store.commit([step(due_of(store, monitor))], now_ms=T0_MS) == [True]
    watch.now_s += REMEMBERED_S
    mine.awake(T0_MS)
    assert mine.first_ms() == T0_MS + MINUTE_MS


def test_entry_moved_by_this_process_counts_before_the_index_shows_it(
    store: AwsStore, database: DynamoDatabase
) -> None:
    watch = Watch()
    mine = watch.of(database)
    monitor = armed(store, "a")
    assert mine.first_ms() == T0_MS
    mine.moved(monitor.generation, from_ms=T0_MS, to_ms=T0_MS + MINUTE_MS)
    assert mine.first_ms() == T0_MS + MINUTE_MS, "the index has it where it was"
    mine.moved(monitor.generation, from_ms=T0_MS + MINUTE_MS, to_ms=T0_MS - MINUTE_MS)
    assert mine.first_ms() == T0_MS - MINUTE_MS, "and not yet where it is"


ACTS: dict[str, Callable[[AwsStore], object]] = {
    "a monitor is armed": lambda store: armed(store, "m"),
    "a user is disabled": lambda store: store.edit_user("ann", UserEdit(disabled=True)),
    "a user is removed": lambda store: store.remove_user("bob"),
    "a provider is put": lambda store: put_provider(store, "late"),
    "a batch is put": lambda store: put_batch(store, "late"),
    "records are put": lambda store: put_records(store, {"r": "shop"}),
    "a day is planned": lambda store: plan(store, put_records(store, {"r": "shop"})),
    "dead letters are redriven": lambda store: store.redrive(DeadChoice(), gap_ms=1, now_ms=T0_MS, limit=1),
    "checks are given back": lambda store: store.release([], now_ms=T0_MS),
    "calls are given back": lambda store: store.release_calls([], now_ms=T0_MS),
}


def test_every_write_that_schedules_something_earlier_bumps_the_change_counter(
    store: AwsStore, other: AwsStore
) -> None:
    put_provider(store, "shop")
    for act, do in ACTS.items():
        before = other.version()
        do(store)
        assert other.version() != before, act
    before = other.version()
    (due, *_) = store.due(now_ms=T0_MS, limit=1)
    assert store.commit([step(due)], now_ms=T0_MS) == [True]
    assert other.version() == before, "an entry that fired is due again when other processes expect it"


def test_process_bumps_the_change_counter_once_a_second_and_ignores_its_own_bump(
    database: DynamoDatabase, clients: Clients
) -> None:
    now_s = 1_000.0
    counter = ChangeCounter(database, clock_s=lambda: now_s)
    counter.caches_indexes = True
    counter.bump()
    now_s += BUMP_S
    counter.version()
    now_s += UNSETTLED_S
    quiet = counter.version()
    with counted(clients) as rung:
        for _ in range(9):
            counter.bump()
    assert rung == {"UpdateItem": 1}
    now_s += READ_S
    assert counter.version() == quiet
    counter.bump(also_self=True)
    now_s += READ_S
    assert counter.version() != quiet


def test_claim_with_cached_indexes_queries_only_the_shards_with_due_runs(store: AwsStore, clients: Clients) -> None:
    store.change_counter.caches_indexes = True
    assert store.next_run_ms() is None
    make_runs(store, armed(store, "a"))
    assert store.next_run_ms() == T0_MS
    with counted(clients) as claimed:
        out = claim(store, lease_ms=LEASE_MS)
    assert (len(out), claimed["Query"]) == (1, 1)
    assert store.next_run_ms() == T0_MS + LEASE_MS
    assert settle(store, out, Retry(reason="again", not_before_ms=T0_MS + 5)) == [True]
    assert store.next_run_ms() == T0_MS + 5
    again = claim(store, now_ms=T0_MS + 5, lease_ms=LEASE_MS)
    assert settle(store, again, now_ms=T0_MS + 6) == [True]
    assert store.next_run_ms() is None
    with counted(clients) as idle:
        assert claim(store, now_ms=T0_MS + 7) == []
    assert idle["Query"] == 0
