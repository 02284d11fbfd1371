from __future__ import annotations

import pytest

from paceline.core.monitors.dispatch import ATTEMPT_PAUSE_MS, RetryPolicy, after_attempt
from paceline.core.monitors.outcome import Done, Retry
from paceline.core.monitors.values import CheckOrder, Finished
from paceline.ports import Store
from paceline.steps.monitors.define import remove_monitor
from paceline.steps.monitors.send import claim_orders, settle
from paceline.steps.upkeep.purge import purge
from tests.steps.support.scene import (
    DAY_MS,
    HOUR_MS,
    HTTP,
    LEASE_MS,
    OUTGOING,
    POLICY,
    POST,
    SECOND_MS,
    T0_MS,
    finish,
    id_of,
    put,
    run_tick,
    runs,
    send_all,
    take,
)


def test_a_check_is_ordered_sent_and_settled_once(store: Store, second: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    (order,) = take(store, now_ms=T0_MS)
    assert order.run_id == id_of(runs(store, "a", now_ms=T0_MS)[0])
    assert take(second, now_ms=T0_MS) == []
    report = settle(store, [finish(order, now_ms=T0_MS + 30)])
    assert (len(report.settled), report.stale) == (1, 0)
    again = settle(second, [finish(order, now_ms=T0_MS + 31, ok=False)])
    assert (again.settled, again.stale) == ([], 1)
    assert runs(store, "a", now_ms=T0_MS)[0].state == "ok"
    assert settle(store, []).stale == 0


def failed(order: CheckOrder, *, now_ms: int) -> Finished:
    done = Done(ok=False, reason="status 503, expected 2xx", code=503)
    return Finished(order.handle, order.attempt, done, now_ms, now_ms, order.attempts)


def test_failed_check_is_tried_again_until_its_attempts_are_used_up(store: Store, second: Store) -> None:
    put(store, "a", now_ms=T0_MS, attempts=3)
    run_tick(store, now_ms=T0_MS)
    at_ms = T0_MS
    for attempt, side in ((1, store), (2, second)):
        (order,) = take(side, now_ms=at_ms)
        assert (order.attempt, order.attempts) == (attempt, 3)
        report = settle(side, [failed(order, now_ms=at_ms + 10)], policy=POLICY)
        assert (report.settled, report.stale, len(report.again)) == ([], 0, 1)
        (waiting,) = runs(store, "a", now_ms=at_ms)
        reason = f"attempt {attempt} of 3 failed: status 503, expected 2xx"
        assert (waiting.state, waiting.reason, waiting.until_ms) == ("retry", reason, at_ms + 10 + ATTEMPT_PAUSE_MS)
        assert take(second, now_ms=at_ms + 9 + ATTEMPT_PAUSE_MS) == []
        at_ms += 10 + ATTEMPT_PAUSE_MS
    (order,) = take(store, now_ms=at_ms)
    assert len(settle(store, [failed(order, now_ms=at_ms + 10)], policy=POLICY).settled) == 1
    (ended,) = runs(store, "a", now_ms=at_ms)
    words = "status 503, expected 2xx (attempt 3 of 3)"
    assert (ended.state, ended.reason, ended.attempt, ended.code) == ("failed", words, 3, 503)
    assert take(store, now_ms=at_ms + 100 * ATTEMPT_PAUSE_MS) == []


def test_later_attempt_that_succeeds_is_a_good_run(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, attempts=2)
    run_tick(store, now_ms=T0_MS)
    (order,) = take(store, now_ms=T0_MS)
    settle(store, [failed(order, now_ms=T0_MS)], policy=POLICY)
    (order,) = take(store, now_ms=T0_MS + ATTEMPT_PAUSE_MS)
    settle(store, [finish(order, now_ms=T0_MS + ATTEMPT_PAUSE_MS)], policy=POLICY)
    (ended,) = runs(store, "a", now_ms=T0_MS + ATTEMPT_PAUSE_MS)
    assert (ended.state, ended.reason, ended.attempt) == ("ok", "", 2)


def test_edit_to_one_attempt_ends_the_run_with_its_next_failure(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, attempts=5)
    run_tick(store, now_ms=T0_MS)
    (order,) = take(store, now_ms=T0_MS)
    settle(store, [failed(order, now_ms=T0_MS)], policy=POLICY)
    put(store, "a", now_ms=T0_MS + 1)
    (order,) = take(store, now_ms=T0_MS + ATTEMPT_PAUSE_MS)
    assert (order.attempt, order.attempts) == (2, 1)
    assert len(settle(store, [failed(order, now_ms=T0_MS + ATTEMPT_PAUSE_MS)], policy=POLICY).settled) == 1


def test_operator_s_limit_on_attempts_comes_before_the_monitor_s() -> None:
    done = Done(ok=False, reason="no")
    policy = RetryPolicy(attempts_max=2)
    again = after_attempt(done, attempt=1, attempts=5, ended_ms=0, policy=policy)
    assert again == Retry("attempt 1 of 2 failed: no", ATTEMPT_PAUSE_MS)
    last = after_attempt(done, attempt=2, attempts=5, ended_ms=0, policy=policy)
    assert last == Done(ok=False, reason="no (attempt 2 of 2)")


def test_promise_10_a_frozen_worker_that_wakes_after_its_lease_is_refused(store: Store, second: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    (frozen,) = take(store, now_ms=T0_MS)
    (heir,) = take(second, now_ms=T0_MS + LEASE_MS)
    assert heir.handle == frozen.handle
    assert heir.attempt > frozen.attempt
    assert settle(store, [finish(frozen, now_ms=T0_MS + LEASE_MS, ok=False)]).stale == 1
    assert settle(second, [finish(heir, now_ms=T0_MS + LEASE_MS)]).stale == 0
    assert settle(store, [finish(frozen, now_ms=T0_MS + LEASE_MS, ok=False)]).stale == 1
    assert runs(store, "a", now_ms=T0_MS)[0].state == "ok"


def test_promise_9_a_post_that_was_cut_short_is_unknown_and_not_sent_again(store: Store, second: Store) -> None:
    put(store, "a", now_ms=T0_MS, check=POST)
    run_tick(store, now_ms=T0_MS)
    assert len(take(store, now_ms=T0_MS)) == 1
    assert take(second, now_ms=T0_MS + LEASE_MS) == []
    run = runs(store, "a", now_ms=T0_MS)[0]
    assert run.state == "unknown"
    assert "not safe to repeat" in run.reason
    run_tick(store, now_ms=T0_MS + LEASE_MS)
    assert len(send_all(second, now_ms=T0_MS + LEASE_MS)) == 1  # the next firing is another run


def test_a_get_that_was_cut_short_is_sent_again_until_its_attempts_are_spent(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    attempts = []
    now_ms = T0_MS
    while orders := take(store, now_ms=now_ms):
        attempts += [order.attempt for order in orders]
        now_ms += LEASE_MS
    assert attempts == [1, 2, 3]
    run = runs(store, "a", now_ms=T0_MS)[0]
    assert (run.state, run.reason) == ("dead", "given up after 3 attempts")


def test_promise_6_a_poison_run_gives_way_and_the_order_is_kept(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, every="1s")
    for second in range(3):
        run_tick(store, now_ms=T0_MS + second * SECOND_MS)
    now_ms = T0_MS + 3 * SECOND_MS
    for _ in range(3):
        assert [order.run_id[-2:] for order in take(store, now_ms=now_ms)] == ["@0"]
        now_ms += LEASE_MS
    assert take(store, now_ms=now_ms) == []  # the poison run ends here
    assert [run[-2:] for run in send_all(store, now_ms=now_ms + SECOND_MS // 2)] == ["@1"]
    assert [run[-2:] for run in send_all(store, now_ms=now_ms + SECOND_MS)] == ["@2"]
    assert [run.state for run in runs(store, "a", now_ms=now_ms)] == ["dead", "ok", "ok"]


def test_promise_3_a_run_of_a_deleted_monitor_is_never_sent(store: Store, second: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    put(store, "b", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    remove_monitor(second, "ann", "a", now_ms=T0_MS + 1)
    put(second, "a", now_ms=T0_MS + 2, initial_delay="1h")
    assert [run.split("#")[0] for run in send_all(store, now_ms=T0_MS + 3)] == ["ann/b"]
    assert store.status().runs_waiting == 0


def test_promise_3_a_run_that_was_out_when_its_monitor_was_deleted_is_not_sent_again(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    (order,) = take(store, now_ms=T0_MS)
    remove_monitor(store, "ann", "a", now_ms=T0_MS + 1)
    assert take(store, now_ms=T0_MS + LEASE_MS) == []
    assert settle(store, [finish(order, now_ms=T0_MS + LEASE_MS)]).stale == 1
    assert store.status().runs_out == 0


def test_run_whose_check_became_outgoing_ends_without_being_sent(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    put(store, "a", now_ms=T0_MS + 1, check=OUTGOING)
    assert take(store, now_ms=T0_MS + 2) == []
    run = runs(store, "a", now_ms=T0_MS)[0]
    assert (run.state, run.reason) == ("dead", "the check became 'outgoing' before this run started")


@pytest.mark.parametrize("check", [HTTP, POST])
def test_promise_10_a_run_given_back_unstarted_is_sent_by_another(
    store: Store, second: Store, check: dict[str, str]
) -> None:
    put(store, "a", now_ms=T0_MS, check=check)
    run_tick(store, now_ms=T0_MS)
    (order,) = take(store, now_ms=T0_MS)
    assert store.release([(order.handle, order.attempt)], now_ms=T0_MS + 5) == [True]
    assert send_all(second, now_ms=T0_MS + 6) == [order.run_id]


def test_claim_returns_no_more_orders_than_requested(store: Store) -> None:
    for number in range(5):
        put(store, f"m{number}", now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS)
    orders = claim_orders(store, now_ms=T0_MS, runs_max=3, lease_ms=LEASE_MS, policy=RetryPolicy())
    assert len(orders) == 3


def test_old_runs_are_purged_and_unclaimed_ones_end(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, every="1h")
    put(store, "out", now_ms=T0_MS, every="1h", check=OUTGOING, initial_delay="0s")
    for hour in range(30):
        now_ms = T0_MS + hour * HOUR_MS
        run_tick(store, now_ms=now_ms)
        send_all(store, now_ms=now_ms)
    now_ms = T0_MS + 30 * HOUR_MS
    report = purge(store, keep_ms=10 * HOUR_MS, expire_ms=DAY_MS, now_ms=now_ms)
    assert (report.runs_deleted, report.runs_expired) == (20, 6)
    assert [run.counter for run in runs(store, "a", now_ms=now_ms)] == list(range(20, 30))
    states = [run.state for run in runs(store, "out", now_ms=now_ms)]
    assert states == ["dead"] * 6 + ["waiting"] + ["parked"] * 23
    assert not any(purge(store, keep_ms=10 * HOUR_MS, expire_ms=DAY_MS, now_ms=now_ms))
