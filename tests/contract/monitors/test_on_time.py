"""Advancing entries on time in one transaction does exactly what reading, deciding and committing would do."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.definition import SpecLimits
from paceline.core.monitors.due import CatchUp, OnTime
from paceline.core.users import User
from paceline.ports import Store
from paceline.steps.monitors.define import parse_put, put_monitors
from paceline.steps.monitors.tick import advance_due, tick

pytestmark = pytest.mark.sqlite  # the act of sets of rows is that engine's own

T0_MS = 1_800_000_000_000
OWNERS = ("ann", "bob")

cadences = st.one_of(
    st.integers(1, 120).map(lambda seconds: f'"every": "{seconds}s"'),
    st.sampled_from(['"cron": "* * * * *"', '"cron": "*/5 * * * *", "timezone": "Asia/Kathmandu"']),
)
monitors = st.lists(
    st.tuples(
        st.sampled_from(OWNERS),
        cadences,
        st.integers(0, 90_000),
        st.sampled_from(["skip", "once", "all"]),
        st.sampled_from(['{"kind": "outgoing"}', '{"kind": "tcp", "host": "example.org", "port": 1}']),
    ),
    min_size=1,
    max_size=12,
)


def filled(specs: list[tuple[str, str, int, str, str]]) -> Store:
    store = SqliteStore(":memory:")
    for owner in OWNERS:
        store.add_user(User(owner, "user", 0, disabled=False, created_ms=T0_MS))
    puts = [
        parse_put(
            owner,
            f"m{index}",
            f'{{"check": {check}, {cadence}, "initial_delay": "{delay}ms", "missed": "{missed}"}}'.encode(),
            SpecLimits(),
        )
        for index, (owner, cadence, delay, missed, check) in enumerate(specs)
    ]
    put_monitors(store, puts, monitors_max=100, now_ms=T0_MS)
    return store


def tick_one_by_one(store: Store, *, now_ms: int, catch_up: CatchUp) -> None:
    while dues := store.due(now_ms=now_ms, limit=100):
        assert len(advance_due(store, dues, now_ms=now_ms, catch_up=catch_up)) == len(dues)


def tick_as_daemons_do(store: Store, *, now_ms: int, catch_up: CatchUp) -> None:
    while tick(store, now_ms=now_ms, catch_up=catch_up, limit=5).more:
        pass


def history(store: Store, *, now_ms: int) -> object:
    """Returns everything visible in a store: entries, and runs by monitor, without an order between monitors."""
    every = [monitor for owner in OWNERS for monitor in store.monitors(owner, after="", limit=100)]
    entries = store.entries([monitor.generation for monitor in every], now_ms=now_ms)
    runs = [
        [
            (run.counter, run.due_ms, run.state, run.until_ms)
            for run in store.monitor_runs(monitor, before=None, limit=1_000, now_ms=now_ms)
        ]
        for monitor in every
    ]
    return entries, runs


@given(monitors, st.lists(st.integers(1, 200_000), min_size=1, max_size=5), st.sampled_from([1_000, 30_000]))
def test_advancing_entries_together_or_one_by_one_gives_the_same_history(
    specs: list[tuple[str, str, int, str, str]], pauses_ms: list[int], grace_ms: int
) -> None:
    catch_up = CatchUp(grace_ms=grace_ms, per_second=60_000)  # so that none is put off for another
    histories = []
    ways: list[Callable[..., None]] = [tick_one_by_one, tick_as_daemons_do]
    for way in ways:
        store, now_ms = filled(specs), T0_MS
        seen = []
        for pause_ms in pauses_ms:
            now_ms += pause_ms
            way(store, now_ms=now_ms, catch_up=catch_up)
            seen.append(history(store, now_ms=now_ms))
        assert store.verify() == []
        histories.append(seen)
        store.close()
    assert histories[0] == histories[1]


def test_advance_on_time_keeps_to_its_limit_and_counts_runs_by_due_time() -> None:
    store = filled([("ann", '"every": "60s"', 1_000 * index, "skip", '{"kind": "outgoing"}') for index in range(5)])
    rule = OnTime(T0_MS + 10_000, grace_ms=30_000)
    first = store.advance_on_time(rule, limit=3)
    assert first.made == {T0_MS: 1, T0_MS + 1_000: 1, T0_MS + 2_000: 1}
    assert store.advance_on_time(rule, limit=3).entries == 2
    assert store.advance_on_time(rule, limit=3).entries == 0
    store.close()
