from __future__ import annotations

from msgspec.structs import replace

from paceline.core.monitors.due import Advance, Due
from paceline.core.monitors.schedule import Cadence, Rest
from paceline.core.monitors.values import CHECKS
from paceline.ports import Store
from tests.contract.support.stage import (
    DAY_MS,
    EVERY_MINUTE,
    HOUR_MS,
    LEASE_MS,
    MINUTE_MS,
    OUTGOING,
    T0_MS,
    arm_all,
    armed,
    claim,
    due_of,
    make_runs,
    names,
    outgoing_of,
    put,
    react_with,
    spec,
    step,
)


def test_due_entries_come_earliest_first_and_bounded(store: Store, other: Store) -> None:
    for name, due_ms in (("c", T0_MS + 100), ("a", T0_MS), ("d", T0_MS + 150), ("b", T0_MS + 50)):
        armed(store, name, due_ms=due_ms)
    found = other.due(now_ms=T0_MS + 100, limit=10)
    assert [due.due_ms for due in found] == [T0_MS, T0_MS + 50, T0_MS + 100]
    assert [due.due_ms for due in other.due(now_ms=T0_MS + 500, limit=2)] == [T0_MS, T0_MS + 50]
    assert other.due(now_ms=T0_MS - 1, limit=10) == []
    assert store.next_due_ms() == T0_MS


def test_due_entry_has_generation_counter_revision_due_time_and_cadence(store: Store) -> None:
    monitor = armed(store, "a")
    assert store.due(now_ms=T0_MS, limit=1) == [Due(monitor.generation, 0, 1, T0_MS, EVERY_MINUTE)]


def test_a_store_without_entries_has_nothing_due(store: Store) -> None:
    assert store.next_due_ms() is None
    assert store.due(now_ms=T0_MS, limit=1) == []
    assert store.commit([], now_ms=T0_MS) == []
    assert store.react([], now_ms=T0_MS) == []
    assert store.settle([]) == []
    assert store.release([], now_ms=T0_MS) == []
    assert store.entries([], now_ms=T0_MS) == {}
    assert store.glances([], now_ms=T0_MS) == {}
    assert claim(store) == []


def test_a_commit_makes_the_runs_and_moves_the_entry_in_one_act(store: Store, other: Store) -> None:
    monitor = armed(store, "a")
    assert store.commit([step(due_of(store, monitor), runs=2)], now_ms=T0_MS) == [True]
    entry = other.entries([monitor.generation], now_ms=T0_MS)[monitor.generation]
    assert (entry.counter, entry.due_ms, entry.revision) == (2, T0_MS + 2 * MINUTE_MS, 1)
    assert entry.last_due_ms == T0_MS + MINUTE_MS
    runs = other.monitor_runs(monitor, before=None, limit=10, now_ms=T0_MS)
    assert [(run.counter, run.due_ms, run.state) for run in runs] == [
        (1, T0_MS + MINUTE_MS, "parked"),
        (0, T0_MS, "waiting"),
    ]
    assert names(claim(other)) == [("a", 0)]


def test_advance_without_firings_moves_the_entry_and_makes_no_run(store: Store) -> None:
    monitor = armed(store, "a")
    assert store.commit([step(due_of(store, monitor), runs=0)], now_ms=T0_MS) == [True]
    assert due_of(store, monitor) == Due(monitor.generation, 0, 1, T0_MS + MINUTE_MS, EVERY_MINUTE)
    assert claim(store) == []


def test_an_advance_may_move_an_entry_back(store: Store) -> None:
    monitor = armed(store, "a", due_ms=T0_MS + DAY_MS)
    due = due_of(store, monitor)
    assert store.commit([Advance(due, T0_MS + MINUTE_MS, ())], now_ms=T0_MS) == [True]
    assert due_of(store, monitor).due_ms == T0_MS + MINUTE_MS
    assert store.next_due_ms() == T0_MS + MINUTE_MS


def test_promise_4_advance_succeeds_only_if_the_entry_is_unchanged(store: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor, 2)
    (true,) = store.due(now_ms=T0_MS + HOUR_MS, limit=9)
    lies = [
        replace(true, generation=true.generation + 1),
        replace(true, counter=true.counter - 1),
        replace(true, counter=true.counter + 1),
        replace(true, revision=true.revision + 1),
        replace(true, due_ms=true.due_ms - MINUTE_MS),
        replace(true, due_ms=true.due_ms + 50),
    ]
    assert store.commit([step(lie) for lie in lies], now_ms=T0_MS) == [False] * len(lies)
    assert due_of(store, monitor) == true
    assert store.commit([step(lies[0]), step(true), step(lies[1])], now_ms=T0_MS) == [False, True, False]


def test_promise_1_exactly_one_of_two_advances_of_an_entry_wins(store: Store, other: Store) -> None:
    monitor = armed(store, "a")
    (seen_here,), (seen_there,) = store.due(now_ms=T0_MS, limit=9), other.due(now_ms=T0_MS, limit=9)
    assert store.commit([step(seen_here)], now_ms=T0_MS) == [True]
    assert other.commit([step(seen_there)], now_ms=T0_MS) == [False]
    assert store.commit([step(seen_here), step(seen_here)], now_ms=T0_MS) == [False, False]
    assert len(store.monitor_runs(monitor, before=None, limit=10, now_ms=T0_MS)) == 1
    assert store.status().entries == 1


def test_exactly_one_of_two_equal_advances_in_one_batch_wins(store: Store) -> None:
    monitor = armed(store, "a")
    (due,) = store.due(now_ms=T0_MS, limit=9)
    assert sorted(store.commit([step(due), step(due)], now_ms=T0_MS)) == [False, True]
    assert [run.counter for run in store.monitor_runs(monitor, before=None, limit=10, now_ms=T0_MS)] == [0]


def test_stale_advance_in_a_batch_does_not_affect_the_others(store: Store, other: Store) -> None:
    monitors = [armed(store, name) for name in "abc"]
    dues = store.due(now_ms=T0_MS, limit=9)
    make_runs(other, monitors[1])
    assert store.commit([step(due) for due in dues], now_ms=T0_MS) == [True, False, True]
    assert sorted(names(claim(store))) == [("a", 0), ("b", 0), ("c", 0)]


def test_promise_5_a_run_is_made_once(store: Store, other: Store) -> None:
    monitor = armed(store, "a")
    advances = []
    for handle in (store, other, store):
        (due,) = handle.due(now_ms=T0_MS + HOUR_MS, limit=9)
        advances.append(step(due))
        assert handle.commit([step(due)], now_ms=T0_MS) == [True]
    for handle in (store, other):
        assert handle.commit(advances, now_ms=T0_MS) == [False] * 3
    runs = store.monitor_runs(monitor, before=None, limit=10, now_ms=T0_MS)
    assert [run.counter for run in runs] == [2, 1, 0]


def test_runs_go_to_the_queue_that_the_entry_was_armed_for(store: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor)
    put(store, "a", spec(OUTGOING))
    arm_all(store, T0_MS + MINUTE_MS, outgoing=True)
    make_runs(store, monitor)
    (first,) = claim(store, CHECKS)
    assert first.counter == 0
    assert claim(store, outgoing_of("ann")) == []  # behind the first
    store.release([(first.handle, first.attempt)], now_ms=T0_MS)
    entry = store.entries([monitor.generation], now_ms=T0_MS)[monitor.generation]
    assert entry.outgoing


def test_entries_are_found_in_every_state(store: Store, other: Store) -> None:
    """Due soon, overdue, far ahead, at rest, and with a clock that was set back."""
    cron = Cadence(cron="*/5 * * * *", timezone="Europe/Berlin")
    hourly = Cadence(every_ms=HOUR_MS)
    generations = {}
    for name, cadence, due_ms in (
        ("soon", EVERY_MINUTE, T0_MS + 50),
        ("overdue", EVERY_MINUTE, T0_MS - 5 * HOUR_MS),
        ("far", EVERY_MINUTE, T0_MS + 90 * DAY_MS),
        ("cron", cron, T0_MS + 10_000 * MINUTE_MS),
        ("cron-overdue", cron, T0_MS - 700 * MINUTE_MS),
        ("hourly", hourly, T0_MS + 30 * MINUTE_MS),
    ):
        created = put(store, name).monitor
        assert created is not None
        generations[name] = created.generation
        arm_all(store, due_ms, cadence=cadence)
    resting = put(store, "resting").monitor
    assert resting is not None
    react_with(store, Rest(cadence=EVERY_MINUTE, outgoing=False))
    expected = {
        generations["soon"]: T0_MS + 50,
        generations["overdue"]: T0_MS - 5 * HOUR_MS,
        generations["far"]: T0_MS + 90 * DAY_MS,
        generations["cron"]: T0_MS + 10_000 * MINUTE_MS,
        generations["cron-overdue"]: T0_MS - 700 * MINUTE_MS,
        generations["hourly"]: T0_MS + 30 * MINUTE_MS,
        resting.generation: None,
    }
    for now_ms in (T0_MS, T0_MS - 40 * DAY_MS, T0_MS + 40 * DAY_MS, T0_MS + 100 * DAY_MS):
        found = other.entries([*expected, 999_999], now_ms=now_ms)
        assert {generation: entry.due_ms for generation, entry in found.items()} == expected


def test_an_entry_is_found_after_it_was_advanced_late_or_pulled_back(store: Store) -> None:
    monitor = armed(store, "a", every="60s")
    due = due_of(store, monitor)
    ahead_ms = T0_MS + 1_000 * MINUTE_MS
    assert store.commit([Advance(due, ahead_ms, ())], now_ms=ahead_ms - 1) == [True]
    for now_ms in (T0_MS, ahead_ms - 1, ahead_ms + DAY_MS):
        assert due_of(store, monitor, now_ms=now_ms).due_ms == ahead_ms


def test_schedulers_page_through_all_entries_with_their_names(store: Store) -> None:
    monitors = [armed(store, name, owner=owner) for owner, name in (("ann", "a"), ("bob", "a"), ("ann", "b"))]
    rows = store.schedulers(after_generation=0, limit=2, now_ms=T0_MS)
    rows += store.schedulers(after_generation=rows[-1].entry.generation, limit=2, now_ms=T0_MS)
    assert [(row.owner, row.monitor, row.entry.generation) for row in rows] == [
        (monitor.owner, monitor.id, monitor.generation) for monitor in monitors
    ]
    assert store.schedulers(after_generation=rows[-1].entry.generation, limit=2, now_ms=T0_MS) == []


def test_armed_entries_are_paged_in_due_order_from_an_instant_on(store: Store) -> None:
    due_times = [T0_MS + offset_ms for offset_ms in (0, 50, 50, 100, 200)]
    for number, due_ms in enumerate(due_times):
        armed(store, f"m{number}", due_ms=due_ms)
    put(store, "resting")
    react_with(store, Rest(cadence=EVERY_MINUTE, outgoing=False))
    found: list[Due] = []
    while page := store.armed_after(found[-1] if found else None, from_ms=T0_MS + 50, limit=2):
        found += page
    assert [due.due_ms for due in found] == due_times[1:]
    assert len({due.generation for due in found}) == 4


def test_writes_of_one_connection_are_visible_to_another_at_once(store: Store, other: Store) -> None:
    before = other.version()
    monitor = armed(store, "a")
    make_runs(store, monitor)
    if other is not store:
        assert other.version() != before
    (item,) = claim(other, lease_ms=LEASE_MS)
    assert claim(store) == []
    assert item.generation == monitor.generation
