"""Phases on a real store: new monitors are spread, existing ones are not moved, and circles follow their entries."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.definition import Monitor, MonitorSpec
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.schedule import Entry
from paceline.core.monitors.values import PutMonitor, RemoveMonitor
from paceline.core.users import UserEdit
from paceline.ports import Store
from paceline.steps import access
from paceline.steps.monitors import define
from paceline.steps.monitors.phases import CIRCLES, host_of
from paceline.steps.monitors.tick import tick
from tests.contract.support.stage import MINUTE_MS, MONITORS_MAX, T0_MS

SECOND_MS = 1_000


def a_put(name: str, *, host: str = "example.org", every: str = "60s", owner: str = "ann") -> PutMonitor:
    return PutMonitor(owner, name, MonitorSpec(check=HttpCheck(url=f"http://{host}/"), every=every))


def put_all(store: Store, puts: list[PutMonitor], *, now_ms: int = T0_MS) -> list[str]:
    results = define.put_monitors(store, puts, monitors_max=MONITORS_MAX, now_ms=now_ms)
    return [result.disposition for result in results]


def monitor(store: Store, name: str, owner: str = "ann") -> Monitor:
    return define.get_monitor(store, owner, name)


def entry(store: Store, name: str, *, now_ms: int = T0_MS) -> Entry:
    generation = monitor(store, name).generation
    return store.entries([generation], now_ms=now_ms)[generation]


def counted(store: Store, every_ms: int) -> int:
    circle = CIRCLES.get(store, str(every_ms))
    return sum(circle.counts) if circle else 0


def test_promise_7_bulk_put_fills_no_second_above_the_ideal_and_one(store: Store, other: Store) -> None:
    names = [f"m{number:03}" for number in range(150)]
    assert set(put_all(store, [a_put(name, host=f"h{name[-1]}.example") for name in names])) == {"created"}
    found = other.monitors("ann", after="", limit=1_000)
    entries = other.entries([one.generation for one in found], now_ms=T0_MS)
    dues = [one.due_ms or 0 for one in entries.values()]
    assert max(Counter(due_ms // SECOND_MS for due_ms in dues).values()) <= 150 / 60 + 1
    assert all(T0_MS <= due_ms <= T0_MS + MINUTE_MS for due_ms in dues)
    assert counted(other, MINUTE_MS) == 150


def test_promise_7_hosts_are_spaced_over_all_requests_of_one_import(store: Store) -> None:
    for page in range(4):
        put_all(store, [a_put(f"m{page}-{number:02}", host=f"h{number % 5}.example") for number in range(25)])
    phases: dict[str, list[int]] = {}
    for one in store.monitors("ann", after="", limit=1_000):
        assert one.spec.phase is not None
        phases.setdefault(host_of(one.spec.check), []).append(one.spec.phase.ms)
    for mine in phases.values():
        rising = sorted(mine)
        gap_ms = max(later - sooner for sooner, later in pairwise([*rising, rising[0] + MINUTE_MS]))
        assert len(rising) == 20
        assert gap_ms < 2 * MINUTE_MS / 20 + 2 * SECOND_MS


def test_phases_of_a_host_start_over_after_all_its_monitors_were_removed(store: Store) -> None:
    put_all(store, [a_put(name) for name in "abc"])
    define.remove_monitors(store, [RemoveMonitor("ann", name) for name in "abc"], now_ms=T0_MS)
    put_all(store, [a_put(name) for name in "wxyz"])
    phases = sorted(one.spec.phase.ms for one in store.monitors("ann", after="", limit=9) if one.spec.phase)
    assert {later - sooner for sooner, later in pairwise(phases)} == {15_000}


def test_single_put_is_due_at_once_and_joins_its_grid(store: Store, other: Store) -> None:
    for name in ("a", "b"):
        put_all(store, [a_put(name)])
    assert entry(store, "a").lead_ms == 0
    beside = entry(other, "b")
    assert (beside.due_ms, beside.lead_ms) == (T0_MS, 30_000)
    while tick(store, now_ms=T0_MS, catch_up=CatchUp()).more:
        pass
    after = entry(other, "b", now_ms=T0_MS)
    assert (after.counter, after.due_ms, after.lead_ms) == (1, T0_MS + 30_000, 0)
    assert entry(other, "a").due_ms == T0_MS + MINUTE_MS
    tick(store, now_ms=T0_MS + 30_000, catch_up=CatchUp())
    assert entry(other, "b", now_ms=T0_MS + 30_000).due_ms == T0_MS + 30_000 + MINUTE_MS


def test_firing_beside_the_grid_that_is_late_joins_the_grid_too(store: Store) -> None:
    for name in ("a", "b"):
        put_all(store, [a_put(name)])
    now_ms = T0_MS + 95_000
    while tick(store, now_ms=now_ms, catch_up=CatchUp()).more:
        pass
    after = entry(store, "b", now_ms=now_ms)
    assert (after.due_ms, after.lead_ms) == (T0_MS + 150_000, 0)


def test_edit_moves_no_other_monitor_and_keeps_its_phase_while_the_interval_stays(store: Store) -> None:
    put_all(store, [a_put(name) for name in "abcd"])
    before = {name: entry(store, name) for name in "abcd"}
    phase = monitor(store, "b").spec.phase
    assert phase is not None
    assert put_all(store, [a_put("b", host="elsewhere.example")]) == ["replaced"]
    assert put_all(store, [a_put("b", host="elsewhere.example")]) == ["unchanged"]
    assert monitor(store, "b").spec.phase == phase
    assert entry(store, "b").due_ms == before["b"].due_ms
    assert put_all(store, [a_put("b", every="5m")]) == ["replaced"]
    assert monitor(store, "b").spec.phase != phase
    define.remove_monitors(store, [RemoveMonitor("ann", "c")], now_ms=T0_MS)
    put_all(store, [a_put("e")])
    assert {name: entry(store, name).due_ms for name in "ad"} == {name: before[name].due_ms for name in "ad"}


def test_circles_count_armed_monitors_with_a_phase(store: Store, other: Store) -> None:
    put_all(store, [a_put(name) for name in "abc"] + [a_put("x", every="5m")])
    fixed = MonitorSpec(check=HttpCheck(url="http://example.org/"), every="60s", initial_delay="0s")
    put_all(store, [PutMonitor("ann", "fixed", fixed)])
    assert (counted(other, MINUTE_MS), counted(other, 5 * MINUTE_MS)) == (3, 1)
    put_all(store, [a_put("a", every="5m")])
    assert (counted(other, MINUTE_MS), counted(other, 5 * MINUTE_MS)) == (2, 2)
    define.remove_monitors(store, [RemoveMonitor("ann", "b")], now_ms=T0_MS)
    assert counted(other, MINUTE_MS) == 1
    access.edit_user(store, "ann", UserEdit(disabled=True), now_ms=T0_MS)
    assert (counted(other, MINUTE_MS), counted(other, 5 * MINUTE_MS)) == (0, 0)
    access.edit_user(store, "ann", UserEdit(disabled=False), now_ms=T0_MS)
    assert (counted(other, MINUTE_MS), counted(other, 5 * MINUTE_MS)) == (1, 2)
    access.remove_user(store, "ann", now_ms=T0_MS)
    assert (counted(other, MINUTE_MS), counted(other, 5 * MINUTE_MS)) == (0, 0)


@pytest.mark.parametrize("paused", [True, False])
def test_phase_is_kept_through_a_pause(store: Store, *, paused: bool) -> None:
    put_all(store, [a_put(name) for name in "ab"])
    phase = monitor(store, "b").spec.phase
    define.edit_monitor(
        store,
        "ann",
        "b",
        lambda spec: define.set_paused(spec, paused=paused),
        expected_revision=None,
        monitors_max=MONITORS_MAX,
        now_ms=T0_MS,
    )
    assert monitor(store, "b").spec.phase == phase
    assert counted(store, MINUTE_MS) == (1 if paused else 2)


def test_cron_and_explicit_delays_have_no_phase(store: Store) -> None:
    check = HttpCheck(url="http://example.org/")
    put_all(store, [PutMonitor("ann", "cron", MonitorSpec(check=check, cron="* * * * *"))])
    put_all(store, [PutMonitor("ann", "delayed", MonitorSpec(check=check, every="60s", initial_delay="7s"))])
    assert monitor(store, "cron").spec.phase is None
    assert monitor(store, "delayed").spec.phase is None
    assert entry(store, "delayed").due_ms == T0_MS + 7_000
    assert counted(store, MINUTE_MS) == 0


def test_put_that_asks_for_a_phase_writes_nothing_until_it_has_one(store: Store) -> None:
    puts = [a_put("a"), a_put("b")]
    results = define.put_known_monitors(store, puts, monitors_max=MONITORS_MAX, now_ms=T0_MS)
    assert [result.disposition for result in results] == ["unplaced", "unplaced"]
    assert store.monitors("ann", after="", limit=9) == []
    done = define.put_many_monitors(store, puts, page=1, monitors_max=MONITORS_MAX, now_ms=T0_MS)
    assert [result.disposition for result in done] == ["created", "created"]
    again = define.put_known_monitors(store, puts, monitors_max=MONITORS_MAX, now_ms=T0_MS)
    assert [result.disposition for result in again] == ["unchanged", "unchanged"]
