"""Reads of runs, glances and counts."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from paceline.core.monitors.health import Glance
from paceline.core.monitors.outcome import Done, Retry
from paceline.core.monitors.values import CHECKS, RemoveMonitor, Take
from paceline.core.users import UserEdit
from paceline.ports import Store
from tests.contract.support.stage import (
    ALL_OUTGOING,
    GET,
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
    outgoing_of,
    put,
    settle,
    step,
)


def test_runs_are_listed_newest_first_in_pages(store: Store, other: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, armed(store, "b"), 3)
    make_runs(store, monitor, 5)
    seen: list[int] = []
    before = None
    while page := other.monitor_runs(monitor, before=before, limit=2, now_ms=T0_MS):
        seen += [run.counter for run in page]
        before = page[-1].handle
    assert seen == [4, 3, 2, 1, 0]
    assert all(run.monitor == "a" for run in store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS))


def test_a_page_that_begins_at_another_monitor_s_run_is_empty(store: Store) -> None:
    mine, yours = armed(store, "a"), armed(store, "a", owner="bob")
    make_runs(store, mine, 2)
    make_runs(store, yours, 2)
    foreign = store.monitor_runs(yours, before=None, limit=1, now_ms=T0_MS)[0].handle
    assert store.monitor_runs(mine, before=foreign, limit=9, now_ms=T0_MS) == []
    assert store.monitor_runs(mine, before=12345, limit=9, now_ms=T0_MS) == []


def test_a_run_is_found_by_the_parts_of_its_id(store: Store, other: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor, 3)
    generation = monitor.generation

    def find(owner: str, name: str, *, generation: int, counter: int) -> int | None:
        run = other.find_run(owner, name, generation=generation, counter=counter, now_ms=T0_MS)
        return None if run is None else run.counter

    assert [find("ann", "a", generation=generation, counter=counter) for counter in (0, 1, 2)] == [0, 1, 2]
    assert find("ann", "a", generation=generation, counter=3) is None
    assert find("ann", "a", generation=generation + 1, counter=0) is None
    assert find("bob", "a", generation=generation, counter=0) is None
    assert find("ann", "b", generation=generation, counter=0) is None


def test_a_run_of_an_outgoing_monitor_is_listed_like_any_other(store: Store) -> None:
    monitor = armed(store, "a", check=OUTGOING)
    make_runs(store, monitor, 2)
    (item,) = claim(store, outgoing_of("ann"))
    found = store.find_run("ann", "a", generation=monitor.generation, counter=0, now_ms=T0_MS)
    assert found is not None
    assert (found.handle, found.state, found.owner) == (item.handle, "out", "ann")


def test_unknown_run_handle_finds_no_run(store: Store) -> None:
    assert store.runs([0], now_ms=T0_MS).get(0) is None
    assert store.runs([10**15], now_ms=T0_MS).get(10**15) is None


def test_glance_shows_the_oldest_open_and_the_newest_settled_run(store: Store) -> None:
    monitor = armed(store, "a")
    generation = monitor.generation

    def glance() -> Glance:
        return store.glances([generation], now_ms=T0_MS).get(generation, Glance())

    assert glance() == Glance()
    make_runs(store, monitor, 3)
    assert glance() == Glance(open_due_ms=T0_MS)
    settle(store, claim(store), Done(ok=False))
    seen = glance()
    assert (seen.open_due_ms, seen.settled, seen.record.failing) == (T0_MS + MINUTE_MS, "failed", True)
    settle(store, claim(store))
    settle(store, claim(store))
    seen = glance()
    assert (seen.open_due_ms, seen.settled, seen.record.failing) == (None, "ok", False)


def test_glances_of_many_monitors_are_read_at_once(store: Store) -> None:
    monitors = [armed(store, name) for name in "abc"]
    for monitor in monitors[:2]:
        make_runs(store, monitor)
    settle(store, claim(store, runs_max=1))
    found = store.glances([monitor.generation for monitor in monitors], now_ms=T0_MS)
    assert found[monitors[0].generation] == Glance(settled="ok")
    assert found[monitors[1].generation] == Glance(open_due_ms=T0_MS)
    assert found.get(monitors[2].generation, Glance()) == Glance()


def test_status_counts_users_monitors_entries_changes_and_runs(store: Store, other: Store) -> None:
    empty = store.status()
    assert (empty.users, empty.monitors, empty.entries, empty.changes) == (2, 0, 0, 0)
    assert (empty.runs_waiting, empty.runs_out, empty.next_due_ms, empty.oldest_waiting_due_ms) == (0, 0, None, None)
    one, two = armed(store, "a"), armed(store, "b", check=OUTGOING, owner="bob", due_ms=T0_MS + 50)
    make_runs(store, one, 3)
    make_runs(store, two, 1)
    make_runs(store, two, 2, after_ms=T0_MS + 9_000)
    put(store, "c")
    full = other.status()
    assert (full.users, full.monitors, full.entries, full.changes) == (2, 3, 2, 1)
    assert (full.runs_waiting, full.runs_out) == (6, 0)
    assert full.oldest_waiting_due_ms == T0_MS
    assert full.next_due_ms == T0_MS + 3 * MINUTE_MS
    out = claim(store) + claim(store, outgoing_of("bob"))
    claimed = store.status()
    assert (claimed.runs_waiting, claimed.runs_out) == (4, 2)
    settle(store, out)
    settled = other.status()
    assert (settled.runs_waiting, settled.runs_out) == (4, 0)
    assert settled.oldest_waiting_due_ms == T0_MS + 9_000, "a made-up run waits since its postponed time"
    store.remove_monitors([RemoveMonitor("ann", "c")])
    arm_all(store, T0_MS)
    assert store.status().changes == 0


def test_status_shows_the_age_of_a_run_that_waits_behind_a_leased_run(store: Store, other: Store) -> None:
    make_runs(store, armed(store, "a", overlap="queue"), 2)
    (item,) = claim(store)
    assert other.status().oldest_waiting_due_ms == T0_MS + MINUTE_MS
    settle(store, [item])
    assert other.status().oldest_waiting_due_ms == T0_MS + MINUTE_MS
    settle(store, claim(store, now_ms=T0_MS + MINUTE_MS), now_ms=T0_MS + MINUTE_MS)
    assert other.status().oldest_waiting_due_ms is None


def test_status_says_since_when_the_first_waiting_run_could_have_started(store: Store, other: Store) -> None:
    empty = store.status()
    assert (empty.check_start_ms, empty.outgoing_start_ms, empty.call_start_ms) == (None, None, None)
    first, second = armed(store, "a"), armed(store, "b", due_ms=T0_MS + 1_000)
    make_runs(store, first)
    make_runs(store, second)
    make_runs(store, armed(store, "c", check=OUTGOING, due_ms=T0_MS + 2_000))
    waiting = other.status()
    assert (waiting.check_start_ms, waiting.outgoing_start_ms) == (T0_MS, T0_MS + 2_000)
    (item,) = claim(store, runs_max=1)
    assert other.status().check_start_ms == T0_MS + 1_000
    settle(store, [item], Retry("again", T0_MS + 30_000))
    settle(store, claim(store))
    assert other.status().check_start_ms == T0_MS + 30_000
    settle(store, claim(store, now_ms=T0_MS + 30_000), now_ms=T0_MS + 30_000)
    assert other.status().check_start_ms is None


def test_status_shows_since_when_a_run_behind_a_leased_run_waits_and_when_it_can_start(
    store: Store, other: Store
) -> None:
    monitor = armed(store, "a", overlap="queue")
    make_runs(store, monitor)
    assert len(claim(store, lease_ms=HOUR_MS)) == 1
    make_runs(store, monitor)
    status = other.status()
    assert (status.oldest_waiting_due_ms, status.check_start_ms) == (T0_MS + MINUTE_MS, T0_MS + HOUR_MS)


@pytest.mark.parametrize("looked_at", [False, True], ids=["not looked at", "looked at"])
@pytest.mark.parametrize("gone", [False, True], ids=["there", "gone"])
def test_status_counts_the_wait_of_a_made_up_run_from_its_postponed_time(
    store: Store, other: Store, *, looked_at: bool, gone: bool
) -> None:
    """Holds whether or not a claim has read the run behind the leased one, and whether its monitor exists or not."""
    monitor = armed(store, "a")
    moment_ms = T0_MS + HOUR_MS
    make_runs(store, monitor, 2, after_ms=moment_ms)
    make_runs(store, monitor)
    status = other.status()
    assert (status.oldest_waiting_due_ms, status.check_start_ms) == (moment_ms, moment_ms)
    (first,) = claim(store, now_ms=moment_ms)
    if looked_at:
        assert claim(store, now_ms=moment_ms) == []
    if gone:
        store.remove_monitors([RemoveMonitor("ann", "a")])
        arm_all(store, T0_MS)
    status = other.status()
    assert (status.oldest_waiting_due_ms, status.check_start_ms) == (moment_ms, moment_ms + LEASE_MS)
    settle(store, [first], now_ms=moment_ms)
    status = other.status()
    assert (status.oldest_waiting_due_ms, status.check_start_ms) == (moment_ms, moment_ms)


def test_status_counts_the_wait_of_a_made_up_run_from_its_postponed_time_behind_superseded_runs(
    store: Store, other: Store
) -> None:
    monitor = armed(store, "a", overlap="queue")
    make_runs(store, monitor)
    (first,) = claim(store, lease_ms=HOUR_MS)
    make_runs(store, monitor)
    moment_ms = T0_MS + 20 * MINUTE_MS
    busy = replace(due_of(store, monitor), busy=True)
    assert store.commit([replace(step(busy, runs=2, after_ms=moment_ms), waiting_max=2)], now_ms=T0_MS) == [True]
    settle(store, [first], now_ms=T0_MS + 30 * MINUTE_MS)
    status = other.status()
    assert (status.oldest_waiting_due_ms, status.check_start_ms) == (moment_ms, moment_ms)


@pytest.mark.parametrize("outgoing", [False, True], ids=["check", "outgoing"])
def test_status_does_not_call_the_run_of_a_disabled_user_late(store: Store, other: Store, *, outgoing: bool) -> None:
    queue = ALL_OUTGOING if outgoing else CHECKS
    for owner, due_ms in (("ann", T0_MS), ("bob", T0_MS + MINUTE_MS)):
        make_runs(store, armed(store, "a", check=OUTGOING if outgoing else GET, owner=owner, due_ms=due_ms))
    store.edit_user("ann", UserEdit(disabled=True))

    def starts() -> int | None:
        status = other.status()
        return status.outgoing_start_ms if outgoing else status.check_start_ms

    assert starts() == T0_MS + MINUTE_MS
    settle(store, claim(store, queue))
    assert starts() is None
    store.edit_user("ann", UserEdit(disabled=False))
    arm_all(store, T0_MS + HOUR_MS, outgoing=outgoing)
    assert starts() == T0_MS


@pytest.mark.parametrize("outgoing", [False, True], ids=["check", "outgoing"])
def test_status_counts_the_run_of_a_disabled_user_s_removed_monitor_if_it_can_start(
    store: Store, other: Store, *, outgoing: bool
) -> None:
    """A check starts, to end at once; an outgoing run stays in its owner's queue."""
    make_runs(store, armed(store, "a", check=OUTGOING if outgoing else GET))
    store.edit_user("ann", UserEdit(disabled=True))
    store.remove_monitors([RemoveMonitor("ann", "a")])
    arm_all(store, T0_MS + HOUR_MS)
    status = other.status()
    assert (status.check_start_ms, status.outgoing_start_ms) == (None if outgoing else T0_MS, None)
    queues = [ALL_OUTGOING, outgoing_of("ann")] if outgoing else [CHECKS]
    assert [len(claim(store, queue)) for queue in queues] == ([0, 0] if outgoing else [1])


def test_status_counts_runs_that_were_claimed_out_of_turn(store: Store, other: Store) -> None:
    for name in "abc":
        make_runs(store, armed(store, name, check=OUTGOING))
    last = store.monitor("ann", "c")
    assert last is not None
    (taken,) = store.take([Take("ann", "c", last.generation, 0, lease_ms=LEASE_MS)], now_ms=T0_MS)
    assert taken is not None
    assert (other.status().runs_waiting, other.status().runs_out) == (2, 1)
    settle(store, [taken])
    assert (other.status().runs_waiting, other.status().runs_out) == (2, 0)
    again = claim(store, outgoing_of("ann"))
    assert claim(store, outgoing_of("ann"), now_ms=T0_MS + LEASE_MS + 1) != []
    assert (other.status().runs_waiting, other.status().runs_out) == (0, len(again))
