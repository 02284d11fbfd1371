"""Data spread over partitions, and writes larger than a transaction, behave like single ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from paceline.adapters.aws.cache.change_counter import READ_S, UNSETTLED_S, ChangeCounter
from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import put as put_item
from paceline.adapters.aws.client.tables import ITEMS
from paceline.adapters.aws.keys import user_key
from paceline.adapters.aws.monitors import entries as monitors_entries
from paceline.adapters.aws.monitors import keys as monitors_keys
from paceline.adapters.aws.monitors.due import REMEMBERED_S, NextDue
from paceline.adapters.aws.monitors.keys import (
    GENERATIONS_EACH,
    MONITORS_PER_QUEUE,
    QUEUES_MAX,
    SHARDS_MAX,
    check_queue,
    check_queues,
    due_shard,
    due_shards,
    kept_shard,
    kept_shards,
    owner_queue,
    owner_queues,
)
from paceline.adapters.aws.monitors.transactions import in_waves
from paceline.adapters.aws.monitors.users import fan_item
from paceline.adapters.aws.store import AwsStore
from paceline.core.monitors.due import Due
from paceline.core.monitors.schedule import Arm, Remove
from paceline.core.monitors.values import PutMonitor, Reacted
from tests.aws.support.monitor_stage import counted
from tests.contract.support.stage import (
    EVERY_MINUTE,
    LEASE_MS,
    MINUTE_MS,
    T0_MS,
    armed,
    claim,
    due_of,
    make_runs,
    names,
    put,
    react_with,
    settle,
    spec,
    step,
)

pytestmark = [pytest.mark.aws, pytest.mark.usefixtures("silent_bell")]


@pytest.fixture
def other(clients: Clients, prefix: str, store: AwsStore) -> Iterator[AwsStore]:
    del store
    with closing(AwsStore(prefix, clients=clients)) as opened:
        yield opened


@pytest.fixture
def few_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each page asks all of them, and an order over eight is as hard to keep as one over 128."""
    monkeypatch.setattr(monitors_keys, "SHARDS_MAX", 8)
    monkeypatch.setattr(monitors_keys, "GENERATIONS_EACH", 3)


def fill(store: AwsStore, count: int, *, owner: str = "ann", due_ms: int = T0_MS, apart_ms: int = 0) -> list[int]:
    """So many entries, by generation, each due a while after the one before."""
    puts = [PutMonitor(owner, f"m{number:04}", spec()) for number in range(count)]
    changes = [done.change for done in store.put_monitors(puts, monitors_max=10_000, now_ms=T0_MS)]
    reacted = [
        Reacted(change, Arm(due_ms + number * apart_ms, EVERY_MINUTE, outgoing=False))
        for number, change in enumerate(changes)
        if change is not None
    ]
    assert store.react(reacted, now_ms=T0_MS) == [True] * count
    return [item.change.generation for item in reacted]


@pytest.mark.parametrize(
    ("shard", "shards"), [(due_shard, due_shards), (check_queue, check_queues), (kept_shard, kept_shards)]
)
def test_number_of_shards_grows_with_the_highest_generation(
    shard: Callable[[int], str], shards: Callable[[int], list[str]]
) -> None:
    counts: Counter[str] = Counter()
    for last in range(1_000 * SHARDS_MAX):
        counts[shard(last)] += 1
        if last % 1_000 == 0 or last < 1_000:
            assert set(shards(last)) == set(counts), "exactly the used shards are queried"
            assert max(counts.values()) < max(GENERATIONS_EACH + 1, 1.3 * last / SHARDS_MAX), "one shard is crowded"
    assert len(shards(0)) == 1
    assert len(counts) == SHARDS_MAX
    assert min(counts.values()) > 800


def test_no_partition_is_hot_while_a_million_monitors_fire_every_minute() -> None:
    """By DynamoDB's limit for one partition key, with what a firing writes there; see the item shapes."""
    firings, writes_max = 1_000_000 / 60, 1_050  # a little over is borne by its bursts
    assert firings * 4 / SHARDS_MAX < writes_max
    assert writes_max > GENERATIONS_EACH * 4, "if all of a shard fire every second, and there are no more"
    assert firings * 4 / min(1 + 1_000_000 // MONITORS_PER_QUEUE, QUEUES_MAX) < writes_max
    assert writes_max > MONITORS_PER_QUEUE / 60 * 4


def test_owner_with_many_monitors_has_several_queues_and_claims_query_all() -> None:
    queues = min(1 + 20 * MONITORS_PER_QUEUE // MONITORS_PER_QUEUE, QUEUES_MAX)
    assert queues == 21
    used = {owner_queue(7, queues, generation) for generation in range(1_000)}
    assert used == set(owner_queues(7, queues))
    # What was armed when there were fewer is still among them.
    assert {owner_queue(7, 3, generation) for generation in range(1_000)} < used


@pytest.mark.parametrize("patient", [True, False])
def test_entry_armed_in_a_new_shard_is_due_for_all_processes(
    store: AwsStore, other: AwsStore, database: DynamoDatabase, *, patient: bool
) -> None:
    """Another process read the number of shards before this shard existed, and caches it for a while."""
    now_s = 0.0
    counter = ChangeCounter(database, clock_s=lambda: now_s)
    counter.caches_indexes = patient
    elsewhere = NextDue(database, counter, clock_s=lambda: now_s)
    assert (elsewhere.first_ms(), other.due(now_ms=T0_MS, limit=9), claim(other)) == (None, [], [])
    now_s = UNSETTLED_S
    assert elsewhere.first_ms() is None
    store._numbers.take("generation", GENERATIONS_EACH)
    monitor = armed(store, "a")
    now_s += max(READ_S, REMEMBERED_S)
    assert elsewhere.first_ms() == T0_MS
    for one in (store, other):
        assert [due.generation for due in one.due(now_ms=T0_MS, limit=9)] == [monitor.generation]
    store.commit([step(due_of(store, monitor))], now_ms=T0_MS)
    assert len(claim(other, lease_ms=LEASE_MS)) == 1


@pytest.mark.usefixtures("few_shards")
def test_due_entries_of_all_shards_come_in_one_order_and_page_by_page(store: AwsStore) -> None:
    generations = fill(store, 70, apart_ms=50)
    found = store.due(now_ms=T0_MS + 60 * 50, limit=45)
    assert [due.generation for due in found] == generations[:45]
    pages: list[Due] = []
    while page := store.armed_after(pages[-1] if pages else None, from_ms=T0_MS + 50, limit=9):
        pages += page
    assert [due.generation for due in pages] == generations[1:]


def test_listing_entries_skips_long_gaps_between_generations(
    store: AwsStore, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(monitors_entries, "WALKED_MAX", 200)
    generations = fill(store, 3)
    store._numbers.take("generation", 50_000)
    generations += fill(store, 2, owner="bob")
    with counted(clients) as asked:
        found = store.schedulers(after_generation=0, limit=9, now_ms=T0_MS)
    assert [one.entry.generation for one in found] == generations
    assert asked.total() < 20
    page = store.schedulers(after_generation=generations[2], limit=1, now_ms=T0_MS)
    assert [one.entry.generation for one in page] == generations[3:4]


@pytest.mark.usefixtures("few_shards")
def test_entries_that_are_due_at_the_same_moment_are_paged_without_loss(store: AwsStore) -> None:
    generations = fill(store, 60)
    pages: list[Due] = []
    while page := store.armed_after(pages[-1] if pages else None, from_ms=T0_MS, limit=7):
        pages += page
    assert [due.generation for due in pages] == generations


def test_next_due_time_reflects_writes_of_the_same_process_at_once(store: AwsStore) -> None:
    monitor = armed(store, "a", due_ms=T0_MS + MINUTE_MS)
    assert store.next_due_ms() == T0_MS + MINUTE_MS
    armed(store, "b")
    assert store.next_due_ms() == T0_MS
    (due,) = store.due(now_ms=T0_MS, limit=9)
    assert store.commit([step(due)], now_ms=T0_MS) == [True]
    assert store.next_due_ms() == T0_MS + MINUTE_MS
    make_runs(store, monitor)
    assert store.next_due_ms() == T0_MS + MINUTE_MS  # that of b


def test_next_due_time_reflects_writes_of_another_process_after_the_cache_expires(
    store: AwsStore, database: DynamoDatabase
) -> None:
    now_s = 0.0
    elsewhere = NextDue(database, store.change_counter, clock_s=lambda: now_s)
    armed(store, "a", due_ms=T0_MS + MINUTE_MS)
    assert elsewhere.first_ms() == T0_MS + MINUTE_MS
    armed(store, "b")
    assert elsewhere.first_ms() in (T0_MS, T0_MS + MINUTE_MS)
    now_s = REMEMBERED_S
    assert elsewhere.first_ms() == T0_MS


def test_polling_with_nothing_due_queries_no_shard_twice_in_a_second(store: AwsStore, clients: Clients) -> None:
    armed(store, "a", due_ms=T0_MS + MINUTE_MS)
    with counted(clients) as first:
        store.next_due_ms()
    assert first == {"GetItem": 1, "Query": 1}
    with counted(clients) as then:
        assert store.next_due_ms() == T0_MS + MINUTE_MS
        assert store.due(now_ms=T0_MS, limit=9) == []
    assert then == {"GetItem": 1}, "how many shards there are"


def test_advance_with_more_runs_than_a_transaction_holds_makes_each_run_once(store: AwsStore, other: AwsStore) -> None:
    monitor = armed(store, "a")
    due = due_of(store, monitor)
    assert store.commit([step(due, runs=230)], now_ms=T0_MS) == [True]
    assert other.commit([step(due, runs=230)], now_ms=T0_MS) == [False]
    runs = other.monitor_runs(monitor, before=None, limit=1_000, now_ms=T0_MS)
    assert [run.counter for run in runs] == list(reversed(range(230)))
    assert due_of(other, monitor).due_ms == T0_MS + 230 * MINUTE_MS
    assert names(claim(store)) == [("a", 0)]
    assert store.verify_monitors() == []


def test_removing_a_user_removes_more_monitors_than_a_transaction_holds(store: AwsStore, other: AwsStore) -> None:
    fill(store, 130)
    assert store.monitor_counts().entries == 130
    assert other.remove_user("ann")
    assert store.monitors("ann", after="", limit=9) == []
    assert all(react_with(store, Remove()))
    counts = store.monitor_counts()
    assert (counts.users, counts.monitors, counts.entries, counts.changes) == (1, 0, 0, 0)
    assert store.verify_monitors() == []


@pytest.mark.parametrize("act", ["removed", "disabled"])
def test_promise_10_changes_left_unrecorded_by_a_dead_process_are_recorded_by_the_next_reader(
    store: AwsStore, other: AwsStore, database: DynamoDatabase, act: str
) -> None:
    """It died behind the transaction: the user is edited or gone, and no change is recorded yet."""
    generations = fill(store, 3)
    user = database.get(ITEMS, user_key("ann"))
    assert user is not None
    fan = fan_item(store._numbers, user, "removed" if act == "removed" else "disabled")
    database.write_many([put_item(ITEMS, fan)])
    if act == "removed":
        database.write_many([put_item(ITEMS, user | {"number": user["number"] + 1_000, "monitors": 0})])
    changes = other.changes(limit=10, now_ms=T0_MS)
    assert [change.generation for change in changes] == generations
    assert [change.monitor is None for change in changes] == [act == "removed"] * 3
    assert len(other.changes(limit=10, now_ms=T0_MS)) == 3
    for change in changes:
        other.react(
            [Reacted(change, Remove() if act == "removed" else Arm(T0_MS, EVERY_MINUTE, outgoing=False))], now_ms=T0_MS
        )
    assert other.changes(limit=10, now_ms=T0_MS) == []


def test_two_settlements_of_one_monitor_share_a_batch(store: AwsStore) -> None:
    make_runs(store, armed(store, "a"), 3)
    first = claim(store)
    assert settle(store, first) == [True]
    second = claim(store)
    assert settle(store, first + second) == [False, True]
    third = claim(store)
    assert settle(store, third + second) == [True, False]
    assert store.verify_monitors() == []


def test_write_waves_keep_the_order_of_each_key_and_contain_no_key_twice() -> None:
    waves: list[list[int]] = []

    def write(some: list[tuple[int, str]]) -> list[str]:
        waves.append([position for position, _ in some])
        return [f"{name}{position}" for position, name in some]

    done = in_waves(list(enumerate("abacab")), lambda one: one[1], write)
    assert waves == [[0, 1, 3], [2, 5], [4]]
    assert done == ["a0", "b1", "a2", "c3", "a4", "b5"]
    assert in_waves([], lambda one: one, write) == []


def test_requests_to_aws_per_firing_are_bounded(store: AwsStore, clients: Clients) -> None:
    """Thirty firings, from the look to the outcome."""
    fill(store, 30)
    store.alarms.sends = True
    store.next_due_ms()
    store._queues.url("ticks")
    with counted(clients) as ticked:
        dues = store.due(now_ms=T0_MS, limit=1_000)
        assert store.commit([step(due) for due in dues], now_ms=T0_MS) == [True] * 30
    assert ticked["TransactWriteItems"] == 1
    assert ticked["BatchGetItem"] == 1
    assert ticked["SendMessageBatch"] == 3
    assert ticked["Query"] == 1
    with counted(clients) as claimed:
        out = claim(store, lease_ms=LEASE_MS)
    assert len(out) == 30
    assert claimed == {"GetItem": 1, "Query": 1, "BatchGetItem": 2, "TransactWriteItems": 1}
    with counted(clients) as settled:
        assert settle(store, out) == [True] * 30
    assert settled == {"TransactWriteItems": 1}


def test_requests_to_aws_per_put_are_bounded(store: AwsStore, clients: Clients) -> None:
    with counted(clients) as taken:
        put(store, "a")
    assert taken == {"GetItem": 1, "BatchGetItem": 1, "UpdateItem": 2, "TransactWriteItems": 1}
    with counted(clients) as edited:
        put(store, "a", spec(every="5s"))
    assert edited == {"GetItem": 1, "BatchGetItem": 1, "TransactWriteItems": 1}


def test_put_that_only_asks_for_a_phase_takes_no_generation(store: AwsStore, clients: Clients) -> None:
    """Shards are filled in the order of generations: each gap would be a place that no monitor ever has."""
    first = put(store, "a").monitor
    assert first is not None
    asks = PutMonitor("ann", "b", spec(every="5s"), asks_phase=True)
    with counted(clients) as taken:
        assert [done.disposition for done in store.put_monitors([asks], monitors_max=99, now_ms=T0_MS)] == ["unplaced"]
    assert taken == {"GetItem": 1, "BatchGetItem": 1}
    mixed = [asks, PutMonitor("ann", "c", spec()), PutMonitor("ann", "d", spec())]
    made = store.put_monitors(mixed, monitors_max=99, now_ms=T0_MS)
    assert [done.disposition for done in made] == ["unplaced", "created", "created"]
    created = [done.monitor.generation for done in made if done.monitor is not None]
    assert created == [first.generation + 1, first.generation + 2]


def test_monitors_with_different_creation_times_are_put_in_one_transaction(store: AwsStore, clients: Clients) -> None:
    puts = [PutMonitor("ann", f"m{n}", spec(), created_ms=T0_MS - n * MINUTE_MS) for n in range(40)]
    with counted(clients) as taken:
        made = store.put_monitors(puts, monitors_max=99, now_ms=T0_MS)
    assert [done.disposition for done in made] == ["created"] * 40
    assert taken["TransactWriteItems"] == 1
    assert taken.total() < 8


def test_purge_keeps_a_run_while_an_earlier_run_that_ended_later_is_kept(store: AwsStore) -> None:
    """The clock was set back in between."""
    monitor = armed(store, "a")
    make_runs(store, monitor, 3)
    for minute in (1, 60, 2):
        out = claim(store, now_ms=T0_MS + minute * MINUTE_MS, lease_ms=LEASE_MS)
        assert settle(store, out, now_ms=T0_MS + minute * MINUTE_MS) == [True]
    before_ms = T0_MS + 30 * MINUTE_MS
    purged = store.purge(settled_before_ms=before_ms, due_before_ms=0, now_ms=before_ms, limit=100)
    assert purged.runs_deleted == 1
    assert [run.counter for run in store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)] == [2, 1]
    assert store.glances([monitor.generation], now_ms=T0_MS)[monitor.generation].settled == "ok"
    assert store.entries([monitor.generation], now_ms=T0_MS)[monitor.generation].last_due_ms is not None
    assert store.verify_monitors() == []
