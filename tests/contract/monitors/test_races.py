"""Threads that race on one store, each through a handle of its own: nothing is doubled or lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from paceline.core.monitors.due import CatchUp, advance_all
from paceline.core.monitors.values import CHECKS, PutMonitor
from paceline.ports import Store
from tests.contract.conftest import Opener
from tests.contract.support.stage import (
    ALL_OUTGOING,
    MINUTE_MS,
    MONITORS_MAX,
    OUTGOING,
    T0_MS,
    arm_all,
    armed,
    armed_all,
    claim,
    make_runs,
    settle,
    spec,
)

RACERS = 4
T = TypeVar("T")


def race(act: Callable[[Store], T], store_factory: Opener) -> list[T]:
    """The same act at the same moment, once per racer."""
    line = threading.Barrier(RACERS)
    handles = [store_factory() for _ in range(RACERS)]

    def run(handle: Store) -> T:
        line.wait()
        return act(handle)

    with ThreadPoolExecutor(RACERS) as pool:
        return list(pool.map(run, handles))


def test_promise_5_concurrent_ticks_make_each_run_once(
    store: Store, store_factory: Opener, *, by_request: bool
) -> None:
    """Every thread races for every entry in each minute."""
    count, minutes, limit = (12, 4, 3) if by_request else (40, 10, 7)
    monitors = armed_all(store, (f"m{number}" for number in range(count)), overlap="queue")

    def tick(handle: Store) -> int:
        made = 0
        for minute in range(minutes):
            now_ms = T0_MS + minute * MINUTE_MS
            while dues := handle.due(now_ms=now_ms, limit=limit):
                advances = advance_all(dues, now_ms=now_ms, catch_up=CatchUp())
                made += sum(handle.commit(advances, now_ms=now_ms))
        return made

    assert sum(race(tick, store_factory)) == len(monitors) * minutes
    for monitor in monitors:
        runs = store.monitor_runs(monitor, before=None, limit=100, now_ms=T0_MS)
        assert [(run.counter, run.due_ms) for run in reversed(runs)] == [
            (minute, T0_MS + minute * MINUTE_MS) for minute in range(minutes)
        ]


def test_promise_6_concurrent_claims_hand_out_each_run_once_and_in_order(
    store: Store, store_factory: Opener, *, by_request: bool
) -> None:
    monitors = [armed(store, f"m{number}", check=OUTGOING if number % 2 else spec().check) for number in range(10)]
    for monitor in monitors:
        make_runs(store, monitor, 5)
    order: list[tuple[str, int]] = []
    noted = threading.Lock()

    def work(handle: Store) -> int:
        settled = idle = 0
        while idle < (3 if by_request else 20):  # a thread that settles looks again, so one thread sees the last run
            out = [item for queue in (CHECKS, ALL_OUTGOING) for item in claim(handle, queue, runs_max=3)]
            with noted:
                order.extend((item.monitor, item.counter) for item in out)
            settled += sum(settle(handle, out))
            idle = 0 if out else idle + 1
        return settled

    assert sum(race(work, store_factory)) == 50
    assert max(Counter(order).values()) == 1
    for monitor in monitors:
        assert [counter for name, counter in order if name == monitor.id] == [0, 1, 2, 3, 4]


def test_exactly_one_of_many_puts_with_the_same_revision_wins(store: Store, store_factory: Opener) -> None:
    armed(store, "a")
    numbers = iter(range(100))

    def edit(handle: Store) -> list[str]:
        won: list[str] = []
        for revision in range(1, 11):
            put = PutMonitor("ann", "a", spec(every=f"{next(numbers) + 2}s"), expected_revision=revision)
            won += [handle.put_monitors([put], monitors_max=MONITORS_MAX, now_ms=T0_MS)[0].disposition]
        return won

    dispositions: Counter[str] = Counter(name for won in race(edit, store_factory) for name in won)
    found = store.monitor("ann", "a")
    assert found is not None
    assert dispositions["replaced"] == found.revision - 1
    assert set(dispositions) <= {"replaced", "revision_mismatch"}
    arm_all(store, T0_MS)


def test_simultaneous_creations_never_exceed_the_monitor_limit(store: Store, store_factory: Opener) -> None:
    names = iter(f"m{number}" for number in range(1_000))

    def create(handle: Store) -> Sequence[str]:
        puts = [PutMonitor("ann", next(names), spec()) for _ in range(10)]
        results = handle.put_monitors(puts, monitors_max=15, now_ms=T0_MS)
        return [result.disposition for result in results]

    dispositions = Counter(name for group in race(create, store_factory) for name in group)
    assert dispositions == {"created": 15, "limit_reached": 25}
    assert len(store.monitors("ann", after="", limit=100)) == 15
    generations = {found.generation for found in store.monitors("ann", after="", limit=100)}
    assert len(generations) == 15
