from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from paceline.core.monitors.due import Advance
from paceline.core.monitors.outcome import Dead, Done, Outcome, Retry, RunState, Unknown
from paceline.core.monitors.values import RemoveMonitor, Settlement
from paceline.core.monitors.wait_reasons import wait_reason
from paceline.ports import Store
from tests.contract.support.stage import (
    GET,
    LEASE_MS,
    MINUTE_MS,
    POST,
    T0_MS,
    arm_all,
    armed,
    claim,
    due_of,
    make_runs,
    names,
    put,
    run_of,
    settle,
    settlement,
    spec,
)


def test_a_claim_leases_runs_earliest_first_and_bounded(store: Store, other: Store) -> None:
    for number in range(5):
        make_runs(store, armed(store, f"m{number}"))
    first = claim(store, runs_max=2)
    second = claim(other, runs_max=10)
    assert names(first) == [("m0", 0), ("m1", 0)]
    assert names(second) == [("m2", 0), ("m3", 0), ("m4", 0)]
    assert claim(store) == []
    for item in first:
        assert (item.owner, item.attempt, item.lost, item.check) == ("ann", 1, False, GET)
        assert (item.due_ms, item.lease_until_ms) == (T0_MS, T0_MS + LEASE_MS)
        run = run_of(store, item)
        assert (run.state, run.attempt, run.until_ms) == ("out", 1, T0_MS + LEASE_MS)


def test_promise_6_one_run_of_a_monitor_is_out_at_a_time_and_in_order(store: Store, other: Store) -> None:
    make_runs(store, armed(store, "a"), 3)
    make_runs(store, armed(store, "b"))
    seen = []
    for handle in (store, other, store):
        out = claim(handle)
        mine = [item for item in out if item.monitor == "a"]
        assert len(mine) == 1
        seen.append(mine[0].counter)
        assert [item for item in claim(store) if item.monitor == "a"] == []
        assert settle(handle, out) == [True] * len(out)
    assert seen == [0, 1, 2]
    assert claim(store) == []


def test_settle_and_claim_in_one_transaction_starts_the_next_run(store: Store) -> None:
    make_runs(store, armed(store, "a"), 2)
    (first,) = claim(store)
    terms: dict[str, Any] = {"now_ms": T0_MS, "runs_max": 10, "lease_ms": LEASE_MS, "places": None}
    won, claimed = store.settle_and_claim([settlement(first), settlement(first)], **terms)
    assert (won, names(claimed)) == ([True, False], [("a", 1)]), "the run behind it may start in the same act"
    assert run_of(store, first).state == "ok"
    assert store.settle_and_claim([settlement(first)], **terms) == ([False], [])
    assert store.settle_and_claim([], **terms) == ([], [])


def test_claimed_run_carries_the_attempts_of_its_monitor_as_it_is_now(store: Store, other: Store) -> None:
    put(store, "a", replace(spec(), attempts=3))
    arm_all(store, T0_MS)
    monitor = store.monitor("ann", "a")
    assert monitor is not None
    assert monitor.spec.attempts == 3
    make_runs(store, monitor)
    (first,) = claim(store)
    assert (first.attempt, first.attempts) == (1, 3)
    settle(store, [first], Retry("no", T0_MS + 10))
    (again,) = claim(other, now_ms=T0_MS + 10)
    assert (again.attempt, again.attempts) == (2, 3)
    settle(other, [again], Retry("no", T0_MS + 20), now_ms=T0_MS + 10)
    put(store, "a", replace(spec(), attempts=5))
    arm_all(store, T0_MS + 60_000)
    (last,) = claim(store, now_ms=T0_MS + 20)
    assert (last.attempt, last.attempts) == (3, 5)


def test_store_returns_when_the_next_check_may_be_claimed(store: Store) -> None:
    assert store.next_run_ms() is None
    make_runs(store, armed(store, "a"))
    soon_ms = store.next_run_ms()
    assert soon_ms is not None
    assert soon_ms <= T0_MS, "too early is allowed"
    (item,) = claim(store)
    assert store.next_run_ms() == item.lease_until_ms
    assert settle(store, [item], Retry(reason="again", not_before_ms=T0_MS + 5_000)) == [True]
    assert store.next_run_ms() == T0_MS + 5_000
    assert settle(store, claim(store, now_ms=T0_MS + 5_000), now_ms=T0_MS + 5_001) == [True]
    assert claim(store, now_ms=T0_MS + 5_000 + LEASE_MS) == [], "a look when the lease would have ended"
    assert store.next_run_ms() is None


def test_promise_10_a_run_behind_another_is_visibly_parked(store: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor, 2)
    (first,) = claim(store)
    newest, oldest = store.monitor_runs(monitor, before=None, limit=10, now_ms=T0_MS)
    assert (oldest.state, newest.state) == ("out", "parked")
    assert newest.reason
    settle(store, [first])
    newest, oldest = store.monitor_runs(monitor, before=None, limit=10, now_ms=T0_MS)
    assert (oldest.state, newest.state) == ("ok", "waiting")


def test_promise_6_runs_made_while_one_is_out_wait_for_it(store: Store, other: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor)
    (first,) = claim(store)
    for _ in range(3):
        make_runs(other, monitor)
        assert claim(other) == []
    settle(store, [first])
    counters = []
    while out := claim(store):
        counters += [item.counter for item in out]
        settle(store, out)
    assert counters == [1, 2, 3]


@pytest.mark.parametrize(
    ("outcome", "state"),
    [
        (Done(ok=True, reason="fine", latency_ms=12.5, code=200, detail={"a": [1, "b", None]}), "ok"),
        (Done(ok=False, reason="status 500", latency_ms=1.0, code=500), "failed"),
        (Dead("given up"), "dead"),
        (Unknown("cut short"), "unknown"),
    ],
)
def test_settled_run_shows_its_outcome_and_lets_the_next_run_start(
    store: Store, other: Store, outcome: Outcome, state: RunState
) -> None:
    make_runs(store, armed(store, "a"), 2)
    (item,) = claim(store)
    assert store.settle([Settlement(item.handle, 1, outcome, started_ms=T0_MS + 1, ended_ms=T0_MS + 9)]) == [True]
    run = run_of(other, item)
    assert (run.state, run.attempt, run.reason) == (state, 1, getattr(outcome, "reason", ""))
    assert (run.started_ms, run.ended_ms) == (T0_MS + 1, T0_MS + 9)
    if isinstance(outcome, Done):
        assert (run.latency_ms, run.code, run.detail) == (outcome.latency_ms, outcome.code, outcome.detail)
    assert [following.counter for following in claim(other)] == [1]


def test_promise_5_a_run_is_settled_once(store: Store, other: Store) -> None:
    make_runs(store, armed(store, "a"))
    (item,) = claim(store)
    assert settle(store, [item]) == [True]
    assert settle(other, [item], Done(ok=False)) == [False]
    assert settle(store, [item, item], Dead("x")) == [False, False]
    assert run_of(store, item).state == "ok"


def test_exactly_one_of_two_settlements_of_a_run_in_one_batch_wins(store: Store) -> None:
    make_runs(store, armed(store, "a"))
    (item,) = claim(store)
    assert store.settle([settlement(item, Done(ok=True)), settlement(item, Done(ok=False))]) == [True, False]
    assert run_of(store, item).state == "ok"


def test_a_stale_settlement_does_not_hide_the_rightful_one_in_the_same_batch(store: Store) -> None:
    make_runs(store, armed(store, "a"))
    (stale,) = claim(store)
    later_ms = T0_MS + LEASE_MS
    (rightful,) = claim(store, now_ms=later_ms)
    batch = [settlement(stale, Done(ok=False), now_ms=later_ms), settlement(rightful, now_ms=later_ms)]
    assert store.settle(batch) == [False, True]
    assert run_of(store, rightful).state == "ok"


def test_a_lease_that_ran_out_is_claimed_again_and_known_to_be_lost(store: Store, other: Store) -> None:
    make_runs(store, armed(store, "a", check=POST), 2)
    (first,) = claim(store)
    assert claim(other, now_ms=T0_MS + LEASE_MS - 1) == []
    (second,) = claim(other, now_ms=T0_MS + LEASE_MS)
    assert (second.handle, second.counter) == (first.handle, 0)
    assert second.attempt > first.attempt
    assert second.lost
    assert not first.lost
    (third,) = claim(store, now_ms=T0_MS + 3 * LEASE_MS)
    assert third.lost
    assert third.attempt > second.attempt


def test_fencing_a_worker_that_lost_its_lease_can_no_longer_settle_extend_or_release(
    store: Store, other: Store
) -> None:
    make_runs(store, armed(store, "a"))
    (frozen,) = claim(store)
    later_ms = T0_MS + LEASE_MS + 1
    (heir,) = claim(other, now_ms=later_ms)
    assert settle(store, [frozen], now_ms=later_ms) == [False]
    assert settle(store, [frozen], now_ms=T0_MS) == [False]
    assert settle(store, [frozen], Retry("x", later_ms), now_ms=later_ms) == [False]
    assert not store.extend(frozen.handle, frozen.attempt, until_ms=later_ms * 2, now_ms=later_ms)
    assert store.release([(frozen.handle, frozen.attempt)], now_ms=later_ms) == [False]
    assert run_of(store, heir).state == "out"
    assert settle(other, [heir], now_ms=later_ms) == [True]
    assert settle(store, [frozen], now_ms=later_ms) == [False]


def test_fencing_refuses_an_outcome_after_its_lease_even_if_no_other_claim_followed(store: Store) -> None:
    make_runs(store, armed(store, "a"))
    (item,) = claim(store)
    assert settle(store, [item], now_ms=T0_MS + LEASE_MS + 1) == [False]
    (again,) = claim(store, now_ms=T0_MS + LEASE_MS + 1)
    assert again.lost


def test_a_wrong_fence_settles_nothing(store: Store) -> None:
    make_runs(store, armed(store, "a"))
    (item,) = claim(store)
    for handle, attempt in ((item.handle, 2), (item.handle, 0), (item.handle + 1, 1), (0, 1)):
        assert store.settle([Settlement(handle, attempt, Done(ok=True), T0_MS, T0_MS)]) == [False]
        assert not store.extend(handle, attempt, until_ms=T0_MS * 2, now_ms=T0_MS)
        assert store.release([(handle, attempt)], now_ms=T0_MS) == [False]
    assert settle(store, [item]) == [True]


def test_a_run_that_was_never_claimed_cannot_be_settled(store: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor, 2)
    (item,) = claim(store)
    waiting = store.monitor_runs(monitor, before=None, limit=1, now_ms=T0_MS)[0]
    assert store.settle([Settlement(waiting.handle, waiting.attempt, Done(ok=True), T0_MS, T0_MS)]) == [False]
    assert settle(store, [item]) == [True]


def test_an_extended_lease_lasts_longer(store: Store, other: Store) -> None:
    make_runs(store, armed(store, "a"))
    (item,) = claim(store)
    assert store.extend(item.handle, item.attempt, until_ms=T0_MS + 5 * LEASE_MS, now_ms=T0_MS + LEASE_MS - 1)
    assert run_of(other, item).until_ms == T0_MS + 5 * LEASE_MS
    assert claim(other, now_ms=T0_MS + 2 * LEASE_MS) == []
    assert settle(store, [item], now_ms=T0_MS + 5 * LEASE_MS) == [True]


def test_a_lease_that_ran_out_is_not_extended(store: Store) -> None:
    make_runs(store, armed(store, "a"))
    (item,) = claim(store)
    late_ms = T0_MS + LEASE_MS + 1
    assert not store.extend(item.handle, item.attempt, until_ms=late_ms + LEASE_MS, now_ms=late_ms)
    assert len(claim(store, now_ms=late_ms)) == 1


def test_a_released_run_comes_back_at_once_and_is_not_lost(store: Store, other: Store) -> None:
    make_runs(store, armed(store, "a"), 2)
    (item,) = claim(store)
    assert store.release([(item.handle, item.attempt)], now_ms=T0_MS + 5) == [True]
    assert store.release([(item.handle, item.attempt)], now_ms=T0_MS + 5) == [False]
    assert settle(store, [item], now_ms=T0_MS + 5) == [False]
    (again,) = claim(other, now_ms=T0_MS + 5)
    assert (again.handle, again.counter, again.lost) == (item.handle, 0, False)
    assert settle(store, [item], now_ms=T0_MS + 5) == [False]
    assert settle(other, [again], now_ms=T0_MS + 5) == [True]


def test_promise_6_a_retry_keeps_its_place_and_waits_for_its_time(store: Store, other: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor, 2)
    (item,) = claim(store)
    assert settle(store, [item], Retry("try later", T0_MS + 5_000)) == [True]
    run = run_of(other, item)
    assert (run.state, run.reason, run.until_ms) == ("retry", "try later", T0_MS + 5_000)
    make_runs(store, monitor)
    assert claim(other, now_ms=T0_MS + 4_999) == []
    (again,) = claim(other, now_ms=T0_MS + 5_000)
    assert (again.counter, again.attempt, again.lost) == (0, 2, False)
    assert settle(store, [item], now_ms=T0_MS + 5_000) == [False]
    assert settle(other, [again], now_ms=T0_MS + 5_000) == [True]
    assert [following.counter for following in claim(store, now_ms=T0_MS + 5_000)] == [1]


def test_a_caught_up_run_waits_visibly_for_its_moment(store: Store, other: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor, 2, after_ms=T0_MS + 9_000)
    make_runs(store, monitor)
    states = [run.state for run in store.monitor_runs(monitor, before=None, limit=10, now_ms=T0_MS)]
    assert states == ["parked", "later", "later"]
    assert claim(other, now_ms=T0_MS + 8_999) == []
    counters = []
    while out := claim(other, now_ms=T0_MS + 9_000):
        counters += [item.counter for item in out]
        settle(other, out, now_ms=T0_MS + 9_000)
    assert counters == [0, 1, 2]


@pytest.mark.parametrize("looked_at", [False, True], ids=["not looked at", "looked at"])
def test_promise_10_state_of_a_made_up_run_depends_on_its_time_and_not_on_claims(
    store: Store, other: Store, *, looked_at: bool
) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor, 3, after_ms=T0_MS + 9_000)

    def shown(now_ms: int) -> list[tuple[str, int | None]]:
        runs = other.monitor_runs(monitor, before=None, limit=9, now_ms=now_ms)
        return [(run.state, run.until_ms) for run in reversed(runs)]

    assert shown(T0_MS + 8_999) == [("later", T0_MS + 9_000)] * 3
    assert shown(T0_MS + 9_000) == [("waiting", None), ("parked", None), ("parked", None)]
    (first,) = claim(store, now_ms=T0_MS + 9_000)
    out = ("out", T0_MS + 9_000 + LEASE_MS)
    if looked_at:
        assert claim(store, now_ms=T0_MS + 9_000) == []
    assert shown(T0_MS + 9_000) == [out, ("parked", None), ("parked", None)]
    settle(store, [first], now_ms=T0_MS + 9_000)
    assert shown(T0_MS + 9_000) == [("ok", None), ("waiting", None), ("parked", None)]


def test_retry_whose_time_has_come_is_shown_as_waiting_until_it_starts(store: Store, other: Store) -> None:
    make_runs(store, armed(store, "a"))
    (item,) = claim(store)
    settle(store, [item], Retry("again", T0_MS + 5_000))
    assert run_of(other, item, now_ms=T0_MS + 4_999).state == "retry"
    shown = run_of(other, item, now_ms=T0_MS + 5_000)
    assert (shown.state, shown.attempt, shown.until_ms) == ("waiting", 1, None)
    assert shown.reason == wait_reason("waiting", outgoing=False)


def test_a_run_to_be_caught_up_at_once_does_not_wait(store: Store) -> None:
    make_runs(store, armed(store, "a"), after_ms=T0_MS)
    assert names(claim(store)) == [("a", 0)]


def test_poison_run_blocks_only_its_own_monitor(store: Store) -> None:
    make_runs(store, armed(store, "a"), 2)
    make_runs(store, armed(store, "b"), 2)
    now_ms = T0_MS
    for attempt in range(1, 4):
        out = claim(store, now_ms=now_ms)
        assert [item.attempt for item in out if item.monitor == "a"] == [attempt]
        settle(store, [item for item in out if item.monitor == "b"], now_ms=now_ms)
        now_ms += LEASE_MS
    (poison,) = claim(store, now_ms=now_ms)
    assert settle(store, [poison], Dead("given up"), now_ms=now_ms) == [True]
    assert names(claim(store, now_ms=now_ms)) == [("a", 1)]


def test_claimed_run_has_the_check_of_the_current_definition(store: Store) -> None:
    make_runs(store, armed(store, "a"))
    put(store, "a", spec(POST))
    (item,) = claim(store)
    assert item.check == POST
    arm_all(store, T0_MS + MINUTE_MS)


def test_promise_3_a_run_of_a_deleted_monitor_comes_without_a_check(store: Store) -> None:
    make_runs(store, armed(store, "a"), 2)
    store.remove_monitors([RemoveMonitor("ann", "a")])
    arm_all(store, T0_MS)
    again = armed(store, "a", due_ms=T0_MS + MINUTE_MS)
    (old,) = claim(store)
    assert old.check is None
    assert old.generation != again.generation
    assert settle(store, [old], Dead("deleted")) == [True]
    (older,) = claim(store)
    assert older.check is None
    assert settle(store, [older], Dead("deleted")) == [True]
    make_runs(store, again)
    (new,) = claim(store)
    assert (new.generation, new.check) == (again.generation, GET)


def test_a_small_claim_looks_past_runs_that_must_wait(store: Store) -> None:
    busy = armed(store, "busy")
    make_runs(store, busy)
    assert names(claim(store, lease_ms=100 * LEASE_MS)) == [("busy", 0)]
    make_runs(store, busy, 40, after_ms=T0_MS + 1_000)
    make_runs(store, armed(store, "quiet"), after_ms=T0_MS + 2_000)
    assert names(claim(store, now_ms=T0_MS + 5_000, runs_max=1)) == [("quiet", 0)]


def test_many_runs_of_one_monitor_do_not_hide_the_others(store: Store) -> None:
    busy = armed(store, "busy")
    for _ in range(3):
        make_runs(store, busy, 100)
    make_runs(store, armed(store, "quiet"))
    found: list[tuple[str, int]] = []
    for _ in range(20):
        found += names(claim(store, runs_max=10))
    assert found == [("busy", 0), ("quiet", 0)]


def test_lease_ends_in_its_own_time_after_the_clock_was_set_back(store: Store) -> None:
    """A worker that died holds its run for the length of its lease, not for as long as the clock was wrong."""
    make_runs(store, armed(store, "a"), 1)
    day_ms = 86_400_000
    (item,) = claim(store, now_ms=T0_MS + day_ms, lease_ms=60_000)
    assert store.pull_back_runs(lambda: T0_MS, wait_ms_max=1) == 1
    assert claim(store, now_ms=T0_MS + 59_999) == []
    (again,) = claim(store, now_ms=T0_MS + 60_000)
    assert (again.handle, again.attempt, again.lost) == (item.handle, 2, True)
    assert store.pull_back_runs(lambda: T0_MS + 60_000, wait_ms_max=1) == 0


def test_run_behind_another_starts_as_soon_as_that_ends_after_the_clock_was_set_back(store: Store) -> None:
    """The run never had to wait for a time: by the clock at its creation it could have started at once."""
    monitor, day_ms = armed(store, "a"), 86_400_000
    make_runs(store, monitor, 2)
    assert store.commit([Advance(due_of(store, monitor), T0_MS + day_ms, ())], now_ms=T0_MS) == [True]
    make_runs(store, monitor, 2, now_ms=T0_MS + day_ms)
    store.pull_back_runs(lambda: T0_MS, wait_ms_max=3_600_000)
    for counter in range(4):
        (item,) = claim(store)
        assert (item.counter, settle(store, [item])) == (counter, [True])


@pytest.mark.parametrize("ended", [False, True], ids=["behind one that is out", "first"])
def test_made_up_run_waits_for_its_moment_again_after_the_clock_was_set_back(store: Store, *, ended: bool) -> None:
    monitor = armed(store, "a")
    moment_ms = T0_MS + 600_000
    make_runs(store, monitor, 2, after_ms=moment_ms)
    (first,) = claim(store, now_ms=moment_ms)
    assert claim(store, now_ms=moment_ms) == []
    if ended:
        settle(store, [first], now_ms=moment_ms)
    now_ms = moment_ms - 60_000
    store.pull_back_runs(lambda: now_ms, wait_ms_max=1, later_ms_max=3_600_000)
    newest, _ = store.monitor_runs(monitor, before=None, limit=9, now_ms=now_ms)
    assert (newest.state, newest.until_ms) == ("later", moment_ms)
    assert claim(store, now_ms=now_ms) == []
    if ended:
        assert names(claim(store, now_ms=moment_ms)) == [("a", 1)]
