"""Purge: runs settled long ago are deleted, runs that were not started in time are ended."""

from __future__ import annotations

import pytest

from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.outcome import Retry
from paceline.core.monitors.values import CHECKS, PurgeReport
from paceline.ports import Store
from paceline.steps.monitors.tick import tick
from tests.contract.support.stage import (
    ALL_OUTGOING,
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    OUTGOING,
    T0_MS,
    arm_all,
    armed,
    armed_all,
    claim,
    make_run_of_each,
    make_runs,
    names,
    outgoing_of,
    settle,
    step,
    user,
)

LONG_AGO_MS = 0


def purge(
    store: Store, *, settled_before_ms: int = LONG_AGO_MS, due_before_ms: int = LONG_AGO_MS, limit: int = 100
) -> PurgeReport:
    return store.purge(
        settled_before_ms=settled_before_ms, due_before_ms=due_before_ms, now_ms=T0_MS + DAY_MS, limit=limit
    )


def test_purge_deletes_runs_that_were_settled_before_and_no_others(store: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor, 4)
    for minute in range(3):
        settle(store, claim(store, now_ms=T0_MS + minute * MINUTE_MS), now_ms=T0_MS + minute * MINUTE_MS)
    done = purge(store, settled_before_ms=T0_MS + 2 * MINUTE_MS)
    assert (done.runs_deleted, done.runs_expired) == (2, 0)
    left = store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)
    assert [(run.counter, run.state) for run in left] == [(3, "waiting"), (2, "ok")]
    assert names(claim(store, now_ms=T0_MS + 9 * MINUTE_MS)) == [("a", 3)]


def test_purge_deletes_at_most_the_limit_and_goes_on_next_time(store: Store) -> None:
    for number in range(5):
        make_runs(store, armed(store, f"m{number}", check=OUTGOING, owner="ann" if number % 2 else "bob"))
    settle(store, claim(store, ALL_OUTGOING))
    deleted = []
    while report := purge(store, settled_before_ms=T0_MS + 1, limit=2).runs_deleted:
        deleted.append(report)
    assert deleted == [2, 2, 1]


def test_purge_passes_over_all_queues_until_none_has_more(store: Store, by_request: bool) -> None:  # noqa: FBT001
    """With small passes, too, later passes reach every queue, and the last one says that it is the last."""
    owners = ["ann", "bob", *(f"u{number}" for number in range(2 if by_request else 6))]
    for owner in owners:
        store.add_user(user(owner))
        make_runs(store, armed(store, "own", owner=owner))
        make_runs(store, armed(store, "out", check=OUTGOING, owner=owner))
        make_runs(store, armed(store, "left", check=OUTGOING, owner=owner))
    items = claim(store) + [item for item in claim(store, ALL_OUTGOING) if item.monitor == "out"]
    settle(store, items)
    purged = PurgeReport(0, 0, more=True)
    passes: list[PurgeReport] = []
    while purged.more:
        purged = purge(store, settled_before_ms=T0_MS + 1, due_before_ms=T0_MS + DAY_MS, limit=2)
        passes.append(purged)
        assert len(passes) < 100
    assert all(done.runs_deleted <= 2 and done.runs_expired <= 2 for done in passes)
    assert sum(done.runs_deleted for done in passes) == 2 * len(owners)
    assert sum(done.runs_expired for done in passes) == len(owners)
    assert store.status().runs_out == 0


def test_purge_reaches_expired_runs_behind_leased_runs(store: Store) -> None:
    """Runs at the head of a queue with leases that last do not hide the ones behind them, however few a pass takes."""
    for number in range(4):
        make_runs(store, armed(store, f"m{number}", check=OUTGOING))
    assert len(claim(store, outgoing_of("ann"), runs_max=3, lease_ms=2 * DAY_MS)) == 3
    (last,) = claim(store, outgoing_of("ann"), lease_ms=HOUR_MS)
    expired = [purge(store, due_before_ms=T0_MS + 2 * HOUR_MS, limit=2).runs_expired for _ in range(4)]
    assert sum(expired) == 1
    run = store.runs([last.handle], now_ms=T0_MS).get(last.handle)
    assert run is not None
    assert run.state == "dead"


def deleted_in_passes(store: Store, *, settled_before_ms: int, limit: int) -> int:
    """In all passes of one round."""
    deleted = 0
    for _ in range(1_000):
        done = purge(store, settled_before_ms=settled_before_ms, limit=limit)
        deleted += done.runs_deleted
        if not done.more:
            return deleted
    raise AssertionError("the round does not end")


@pytest.mark.parametrize("limit", [7, 1_000])
def test_superseded_runs_behind_an_open_run_do_not_block_the_purge_of_others(
    store: Store,
    by_request: bool,  # noqa: FBT001
    limit: int,
) -> None:
    """Superseded runs stay as long as the open run before them, however many there are."""
    superseded = 5 if by_request else 70
    catch_up = CatchUp(waiting_max=1)
    queued = armed(store, "queued", overlap="queue")
    tick(store, now_ms=T0_MS, catch_up=catch_up)
    (hanging,) = claim(store, lease_ms=DAY_MS)
    for minute in range(1, superseded + 2):
        tick(store, now_ms=T0_MS + minute * MINUTE_MS, catch_up=catch_up)
    now_ms = T0_MS + 2 * HOUR_MS
    make_runs(store, armed(store, "other", due_ms=now_ms), now_ms=now_ms)
    settle(store, claim(store, now_ms=now_ms), now_ms=now_ms)
    assert deleted_in_passes(store, settled_before_ms=now_ms + 1, limit=limit) == 1
    states = [run.state for run in store.monitor_runs(queued, before=None, limit=100, now_ms=now_ms)]
    assert states == ["parked", *["dead"] * superseded, "out"]
    settle(store, [hanging], now_ms=now_ms)
    assert deleted_in_passes(store, settled_before_ms=now_ms + 1, limit=limit) == superseded + 1
    assert store.verify() == []


@pytest.mark.parametrize("limit", [7, 1_000])
def test_runs_that_ended_late_keep_no_others_from_being_purged(
    store: Store,
    by_request: bool,  # noqa: FBT001
    limit: int,
) -> None:
    late = 5 if by_request else 150
    make_run_of_each(store, armed_all(store, [f"m{number}" for number in range(late)]))
    hanging = claim(store, lease_ms=2 * DAY_MS, runs_max=late)
    assert len(hanging) == late
    make_runs(store, armed(store, "other"), 1)
    settle(store, claim(store))
    settle(store, hanging, now_ms=T0_MS + DAY_MS)
    assert deleted_in_passes(store, settled_before_ms=T0_MS + HOUR_MS, limit=limit) == 1
    assert deleted_in_passes(store, settled_before_ms=T0_MS + 2 * DAY_MS, limit=limit) == late


def test_run_behind_a_claimed_run_does_not_block_the_expiry_of_others(store: Store) -> None:
    """No claim has read it yet: it is at the head of the queue when the others expire."""
    first, other = (armed(store, name, check=OUTGOING) for name in ("first", "other"))
    make_runs(store, first, 2)
    make_runs(store, other, 2)
    (out,) = claim(store, outgoing_of("ann"), runs_max=1, lease_ms=2 * DAY_MS)
    assert out.monitor == "first"
    expired = [purge(store, due_before_ms=T0_MS + HOUR_MS).runs_expired for _ in range(2)]
    assert sum(expired) == 2
    assert {run.state for run in store.monitor_runs(other, before=None, limit=9, now_ms=T0_MS)} == {"dead"}
    newest, oldest = store.monitor_runs(first, before=None, limit=9, now_ms=T0_MS)
    assert (newest.state in {"parked", "waiting"}, oldest.state) == (True, "out")
    assert store.verify() == []
    settle(store, [out], now_ms=T0_MS + HOUR_MS)
    assert names(claim(store, outgoing_of("ann"), now_ms=T0_MS + HOUR_MS)) == [("first", 1)]


def test_expired_run_keeps_the_attempt_of_its_last_claim(store: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor)
    (item,) = claim(store)
    assert store.release([(item.handle, item.attempt)], now_ms=T0_MS) == [True]
    assert purge(store, due_before_ms=T0_MS + 1).runs_expired == 1
    (run,) = store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)
    assert (run.state, run.attempt) == ("dead", 1)


def test_a_monitor_goes_on_when_all_its_runs_are_purged(store: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor, 2)
    while out := claim(store):
        settle(store, out)
    assert purge(store, settled_before_ms=T0_MS + 1).runs_deleted == 2
    assert store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS) == []
    entry = store.entries([monitor.generation], now_ms=T0_MS)[monitor.generation]
    assert (entry.counter, entry.last_due_ms) == (2, None)
    make_runs(store, monitor)
    assert names(claim(store)) == [("a", 2)]
    assert [run.counter for run in store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)] == [2]


@pytest.mark.parametrize("outgoing", [False, True])
def test_unclaimed_run_expires_with_a_reason(store: Store, *, outgoing: bool) -> None:
    monitor = armed(store, "a", check=OUTGOING) if outgoing else armed(store, "a")
    make_runs(store, monitor, 3)
    assert purge(store, due_before_ms=T0_MS + MINUTE_MS + 1).runs_expired == 2
    newest, *expired = store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)
    assert newest.state == "waiting"
    assert [run.state for run in expired] == ["dead", "dead"]
    assert all("nobody" in run.reason for run in expired)
    assert names(claim(store, outgoing_of("ann") if outgoing else CHECKS)) == [("a", 2)]


def test_waiting_runs_of_every_state_expire_and_a_leased_run_does_not(store: Store) -> None:
    out, parked, retried, later = (armed(store, name) for name in ("out", "parked", "retried", "later"))
    make_runs(store, out)
    make_runs(store, parked, 2)
    make_runs(store, retried)
    make_runs(store, later, after_ms=T0_MS + DAY_MS)
    claimed = claim(store)
    settle(store, [item for item in claimed if item.monitor == "retried"], Retry("x", T0_MS + DAY_MS))
    settle(store, [item for item in claimed if item.monitor == "parked"])
    assert purge(store, due_before_ms=T0_MS + HOUR_MS).runs_expired == 3
    states = {
        monitor.id: [run.state for run in store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)]
        for monitor in (out, parked, retried, later)
    }
    assert states == {"out": ["out"], "parked": ["dead", "ok"], "retried": ["dead"], "later": ["dead"]}


def test_run_that_was_put_off_expires_by_its_due_time_whether_its_moment_has_come_or_not(store: Store) -> None:
    """The purge is made a day after T0 and ends what was due in the first hour."""
    moments_ms = [T0_MS + HOUR_MS - 1, T0_MS + HOUR_MS, T0_MS + DAY_MS - 1, T0_MS + DAY_MS, T0_MS + 2 * DAY_MS]
    for number, moment_ms in enumerate(moments_ms):
        make_runs(store, armed(store, f"later-{number}"), after_ms=moment_ms)
        make_runs(store, armed(store, f"retried-{number}"))
    for number, item in enumerate(claim(store)):
        settle(store, [item], Retry("again", moments_ms[number]))
    assert purge(store, due_before_ms=T0_MS + HOUR_MS).runs_expired == 2 * len(moments_ms)


def test_purge_counts_a_superseded_run_behind_one_that_expires_only_once(store: Store) -> None:
    armed(store, "queued", overlap="queue")
    for minute in range(4):
        tick(store, now_ms=T0_MS + minute * MINUTE_MS, catch_up=CatchUp(waiting_max=1))
    assert purge(store, due_before_ms=T0_MS + HOUR_MS).runs_expired == 2, "two of four were superseded before"


def test_promise_10_run_abandoned_by_its_checker_expires_and_blocks_no_other_run_for_ever(store: Store) -> None:
    monitor, own = armed(store, "a", check=OUTGOING), armed(store, "own")
    make_runs(store, monitor, 3)
    make_runs(store, own)
    assert len(claim(store, outgoing_of("ann"), lease_ms=HOUR_MS)) == 1
    assert len(claim(store)) == 1
    until_ms = T0_MS + HOUR_MS
    assert purge(store, due_before_ms=until_ms).runs_expired == 0  # its lease ends just then
    expired = [purge(store, due_before_ms=until_ms + 1).runs_expired for _ in range(3)]
    assert sum(expired) == 3
    runs = store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)
    assert [run.state for run in runs] == ["dead"] * 3
    assert [run.state for run in store.monitor_runs(own, before=None, limit=9, now_ms=T0_MS)] == ["out"]


def test_a_caught_up_run_that_was_settled_early_is_not_expired_again(store: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor, after_ms=T0_MS + 1_000)
    out = claim(store, now_ms=T0_MS + 1_000, runs_max=1)
    assert names(out) == [("a", 0)]
    make_runs(store, armed(store, "b"))
    settle(store, out, now_ms=T0_MS + 1_000)
    assert purge(store, due_before_ms=T0_MS + HOUR_MS).runs_expired == 1
    assert [run.state for run in store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)] == ["ok"]
    status = store.status()
    assert (status.runs_waiting, status.runs_out) == (0, 0)


def test_purge_ends_at_most_the_limit(store: Store) -> None:
    for number in range(5):
        make_runs(store, armed(store, f"m{number}"))
    ended = []
    while report := purge(store, due_before_ms=T0_MS + 1, limit=2).runs_expired:
        ended.append(report)
    assert ended == [2, 2, 1]


@pytest.mark.parametrize("looked_at", [False, True])
def test_promise_6_expiry_of_a_waiting_run_does_not_let_the_next_run_overtake_the_claimed_one(
    store: Store, *, looked_at: bool
) -> None:
    make_runs(store, armed(store, "a"), 3)
    (first,) = claim(store, runs_max=1, lease_ms=2 * DAY_MS)
    if looked_at:
        assert claim(store) == []
    purge(store, due_before_ms=T0_MS + MINUTE_MS + 1)
    assert claim(store, now_ms=T0_MS + DAY_MS) == []
    assert settle(store, [first], now_ms=T0_MS + DAY_MS) == [True]
    following = claim(store, now_ms=T0_MS + DAY_MS)
    assert len(following) == 1


def test_a_removed_user_leaves_nothing_behind_for_ever(store: Store) -> None:
    make_runs(store, armed(store, "a", check=OUTGOING), 3)
    claim(store, outgoing_of("ann"), lease_ms=1)
    assert store.remove_user("ann")
    arm_all(store, T0_MS)
    for _ in range(4):
        for item in claim(store, ALL_OUTGOING, now_ms=T0_MS + DAY_MS):
            assert item.check is None
            settle(store, [item], now_ms=T0_MS + DAY_MS)
        purge(store, settled_before_ms=T0_MS + 2 * DAY_MS, due_before_ms=T0_MS + 2 * DAY_MS)
    status = store.status()
    assert (status.runs_waiting, status.runs_out, status.entries) == (0, 0, 0)


@pytest.mark.parametrize("reacted", [False, True])
def test_promise_4_an_advance_that_was_read_before_its_user_was_removed_and_purged_loses(
    store: Store, *, reacted: bool
) -> None:
    monitor = armed(store, "a", check=OUTGOING)
    (due,) = store.due(now_ms=T0_MS, limit=9)
    assert store.remove_user("ann")
    if reacted:
        arm_all(store, T0_MS)
    purge(store, settled_before_ms=T0_MS + DAY_MS, due_before_ms=T0_MS + DAY_MS)
    won = store.commit([step(due)], now_ms=T0_MS)
    assert not (reacted and won[0])
    arm_all(store, T0_MS)
    assert store.due(now_ms=T0_MS + DAY_MS, limit=9) == []
    assert store.entries([monitor.generation], now_ms=T0_MS) == {}
