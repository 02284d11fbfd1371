"""Runs on request, beside the cadence."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from msgspec.structs import replace

from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.due import CatchUp, ExtraRun
from paceline.core.monitors.schedule import Entry, Rest
from paceline.ports import Store
from paceline.steps.monitors import define
from paceline.steps.monitors.run_now import run_now
from paceline.steps.monitors.tick import tick
from tests.contract.support.stage import (
    EVERY_MINUTE,
    HOUR_MS,
    MINUTE_MS,
    MONITORS_MAX,
    OUTGOING,
    T0_MS,
    armed,
    claim,
    make_runs,
    names,
    outgoing_of,
    put,
    react_with,
    settle,
    spec,
)

LATER_MS = T0_MS + 10_000


def entry_of(store: Store, monitor: Monitor, *, now_ms: int = LATER_MS) -> Entry:
    return store.entries([monitor.generation], now_ms=now_ms)[monitor.generation]


def fired(store: Store, name: str = "a", **options: object) -> Monitor:
    """A monitor whose first run has ended."""
    monitor = armed(store, name, **options)  # type: ignore[arg-type]
    make_runs(store, monitor)
    queue = outgoing_of("ann") if monitor.spec.check == OUTGOING else None
    items = claim(store, queue) if queue else claim(store)
    assert settle(store, items) == [True]
    return monitor


def test_extra_run_is_made_and_the_cadence_stays(store: Store, other: Store) -> None:
    monitor = fired(store)
    before = entry_of(store, monitor)
    assert store.make_extra_runs([ExtraRun(before, LATER_MS)], now_ms=LATER_MS) == [True]
    assert entry_of(other, monitor) == replace(before, counter=2)
    assert names(claim(other, now_ms=LATER_MS)) == [("a", 1)]
    (newest, _) = other.monitor_runs(monitor, before=None, limit=10, now_ms=LATER_MS)
    assert (newest.counter, newest.due_ms, newest.state) == (1, LATER_MS, "out")
    assert store.verify() == []


def test_promise_4_extra_run_is_made_only_if_the_entry_is_unchanged(store: Store) -> None:
    monitor = fired(store)
    entry = entry_of(store, monitor)
    stale = [
        replace(entry, counter=0),
        replace(entry, revision=2),
        replace(entry, due_ms=T0_MS),
        replace(entry, due_ms=None),
        replace(entry, generation=entry.generation + 1),
    ]
    assert store.make_extra_runs([ExtraRun(one, LATER_MS) for one in stale], now_ms=LATER_MS) == [False] * 5
    twice = [ExtraRun(entry, LATER_MS)] * 2
    assert store.make_extra_runs(twice, now_ms=LATER_MS) == [True, False]
    assert len(store.monitor_runs(monitor, before=None, limit=10, now_ms=LATER_MS)) == 2
    assert store.make_extra_runs([], now_ms=LATER_MS) == []


def test_extra_run_is_not_made_while_a_run_is_open(store: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor)
    entry = entry_of(store, monitor)
    assert store.make_extra_runs([ExtraRun(entry, LATER_MS)], now_ms=LATER_MS) == [False]
    assert entry_of(store, monitor) == entry


def test_paused_entry_gets_its_extra_run_and_stays_paused(store: Store) -> None:
    monitor = put(store, "a", spec(paused=True)).monitor
    assert monitor is not None
    assert react_with(store, Rest(EVERY_MINUTE, outgoing=False)) == [True]
    entry = entry_of(store, monitor)
    assert entry.due_ms is None
    assert store.make_extra_runs([ExtraRun(entry, LATER_MS)], now_ms=LATER_MS) == [True]
    assert entry_of(store, monitor) == replace(entry, counter=1)
    assert names(claim(store, now_ms=LATER_MS)) == [("a", 0)]
    assert store.verify() == []


def test_extra_run_of_an_outgoing_monitor_waits_in_its_queue(store: Store) -> None:
    monitor = fired(store, check=OUTGOING)
    assert store.make_extra_runs([ExtraRun(entry_of(store, monitor), LATER_MS)], now_ms=LATER_MS) == [True]
    assert claim(store, now_ms=LATER_MS) == []
    assert names(claim(store, outgoing_of("ann"), now_ms=LATER_MS)) == [("a", 1)]


def test_firing_after_an_extra_run_has_its_own_time_and_counter(store: Store) -> None:
    monitor = fired(store)
    store.make_extra_runs([ExtraRun(entry_of(store, monitor), LATER_MS)], now_ms=LATER_MS)
    settle(store, claim(store, now_ms=LATER_MS), now_ms=LATER_MS)
    report = tick(store, now_ms=T0_MS + MINUTE_MS, catch_up=CatchUp())
    assert report.runs == 1
    runs = store.monitor_runs(monitor, before=None, limit=10, now_ms=T0_MS + MINUTE_MS)
    assert [(run.counter, run.due_ms) for run in runs] == [(2, T0_MS + MINUTE_MS), (1, LATER_MS), (0, T0_MS)]
    entry = entry_of(store, monitor, now_ms=T0_MS + MINUTE_MS)
    assert (entry.due_ms, entry.last_due_ms) == (T0_MS + 2 * MINUTE_MS, T0_MS + MINUTE_MS)


def test_several_extra_runs_leave_the_time_of_the_newest_firing(store: Store) -> None:
    monitor = fired(store)
    for index in range(3):
        now_ms = LATER_MS + index
        assert store.make_extra_runs([ExtraRun(entry_of(store, monitor), now_ms)], now_ms=now_ms) == [True]
        settle(store, claim(store, now_ms=now_ms), now_ms=now_ms)
        assert entry_of(store, monitor).last_due_ms == T0_MS
    report = store.purge(
        settled_before_ms=T0_MS + 10 * HOUR_MS, due_before_ms=0, now_ms=T0_MS + 10 * HOUR_MS, limit=100
    )
    assert report.runs_deleted == 4
    assert entry_of(store, monitor).last_due_ms is None
    assert store.verify() == []


def test_promise_5_concurrent_requests_for_an_extra_run_make_one_run(store: Store, other: Store) -> None:
    monitor = fired(store)

    def ask(number: int) -> str:
        chosen = (store, other)[number % 2]
        return run_now(chosen, "ann", "a", now_ms=LATER_MS, catch_up=CatchUp()).run

    with ThreadPoolExecutor(4) as threads:
        answered = set(threads.map(ask, range(12)))
    assert answered == {f"ann/a#{monitor.generation}@1"}
    assert len(store.monitor_runs(monitor, before=None, limit=10, now_ms=LATER_MS)) == 2
    assert entry_of(store, monitor).counter == 2


def test_promise_2_resume_counts_from_the_newest_firing_and_not_from_an_extra_run(store: Store) -> None:
    monitor = fired(store)

    def set_paused(now_ms: int, *, paused: bool) -> None:
        define.edit_monitor(
            store,
            "ann",
            "a",
            lambda seen: define.set_paused(seen, paused=paused),
            expected_revision=None,
            monitors_max=MONITORS_MAX,
            now_ms=now_ms,
        )

    set_paused(T0_MS + 5_000, paused=True)
    assert run_now(store, "ann", "a", now_ms=LATER_MS, catch_up=CatchUp()).run.endswith("@1")
    settle(store, claim(store, now_ms=LATER_MS), now_ms=LATER_MS)
    set_paused(T0_MS + 20_000, paused=False)
    assert entry_of(store, monitor, now_ms=T0_MS + 20_000).due_ms == T0_MS + MINUTE_MS
