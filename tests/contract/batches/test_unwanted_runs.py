"""Runs that must not start as planned, because their record or batch has changed since."""

from __future__ import annotations

import pytest

from paceline.core.batches.batch import RecordSpec
from paceline.ports import Store
from tests.contract.support.call_stage import (
    SECOND_MS,
    claim,
    every,
    make_batch,
    names,
    plan,
    provide,
    run_of,
    settle,
)
from tests.contract.support.stage import DAY_MS, HOUR_MS, MINUTE_MS, T0_MS


@pytest.mark.parametrize("change", ["deleted", "inactive"])
def test_runs_of_a_deleted_or_inactive_record_are_skipped_on_the_same_day(store: Store, change: str) -> None:
    provide(store, "a")
    batch = make_batch(store)
    plan(store, batch, every(10, 3))
    for name in ("r0", "r1"):
        if change == "deleted":
            assert store.remove_record(batch, name)
        else:
            store.put_records(batch, [RecordSpec(name, "a", "/", active=False)], now_ms=T0_MS)
    assert names(claim(store, T0_MS + 50)) == ["r2"]
    run = run_of(store, "r1")
    assert (run.state, run.dead) == ("skipped", False)
    assert run.reason


def test_removing_unwanted_runs_does_not_cost_a_provider_its_turn(store: Store) -> None:
    provide(store, "a")
    provide(store, "b")
    batch = make_batch(store)
    plan(store, batch, {"gone": T0_MS, "first": T0_MS + 1})
    plan(store, make_batch(store, "other"), {"second": T0_MS}, provider="b")
    assert store.remove_record(batch, "gone")
    assert names(claim(store, T0_MS + 1)) == ["first", "second"]


def test_a_retry_of_a_deleted_record_is_skipped_also_before_its_due_time_on_a_clock_that_was_set_back(
    store: Store,
) -> None:
    provide(store, "a")
    batch = make_batch(store)
    plan(store, batch, every(10, 1))
    (call,) = claim(store)
    assert settle(store, call, "retry", not_before_ms=T0_MS + SECOND_MS)
    back_ms = T0_MS - HOUR_MS
    store.pull_back_calls(lambda: back_ms, wait_ms_max=MINUTE_MS)
    assert store.remove_record(batch, "r0")
    assert claim(store, back_ms + MINUTE_MS) == []
    assert run_of(store, "r0").state == "skipped"


def test_promise_9_a_lost_run_of_a_deleted_record_is_unknown(store: Store) -> None:
    provide(store, "a")
    batch = make_batch(store)
    plan(store, batch, every(10, 1))
    (call,) = claim(store)
    assert store.remove_record(batch, "r0")
    assert claim(store, call.lease_until_ms) == []
    run = run_of(store, "r0")
    assert (run.state, run.dead) == ("unknown", True)


def test_run_of_a_moved_record_goes_to_the_new_provider_at_its_time(store: Store) -> None:
    provide(store, "a")
    other_number = provide(store, "b")
    batch = make_batch(store)
    plan(store, batch, every(10, 3))
    store.put_records(batch, [RecordSpec("r0", "b", "/moved")], now_ms=T0_MS)
    calls = claim(store, T0_MS + 5)
    assert [(call.record, call.provider, call.endpoint) for call in calls] == [("r0", other_number, "/moved")]
    assert run_of(store, "r0").provider == "b"
    assert names(claim(store, T0_MS + 10)) == ["r1"]


def test_promise_9_a_lost_run_stays_with_the_provider_it_was_sent_to(store: Store) -> None:
    number = provide(store, "a")
    provide(store, "b")
    batch = make_batch(store)
    plan(store, batch, every(10, 1))
    (call,) = claim(store)
    store.put_records(batch, [RecordSpec("r0", "b", "/moved")], now_ms=T0_MS)
    (again,) = claim(store, call.lease_until_ms)
    assert (again.provider, again.lost) == (number, True)


def test_the_newest_definition_of_a_record_is_called(store: Store) -> None:
    provide(store, "a")
    batch = make_batch(store)
    plan(store, batch, every(10, 1))
    store.put_records(batch, [RecordSpec("r0", "a", "/new", '{"n": 2}')], now_ms=T0_MS)
    (call,) = claim(store)
    assert (call.endpoint, call.body) == ("/new", '{"n": 2}')


def test_runs_of_a_paused_batch_let_others_pass_and_return_to_their_place(store: Store) -> None:
    provide(store, "a")
    batch = make_batch(store)
    plan(store, batch, every(10, 3))
    plan(store, make_batch(store, "second"), {"s0": T0_MS + 15})
    make_batch(store, paused=True)
    assert names(calls := claim(store, T0_MS + 25)) == ["s0"]
    run = run_of(store, "r0")
    assert (run.state, bool(run.reason)) == ("aside", True)
    make_batch(store)
    # The returned run is due before the run in flight, and still waits for it.
    assert claim(store, T0_MS + 30) == []
    assert settle(store, calls[0], now_ms=T0_MS + 40)
    seen = []
    for now_ms in range(T0_MS + 50, T0_MS + 200, 50):
        (call,) = claim(store, now_ms)
        assert settle(store, call, now_ms=now_ms)
        seen.append(call.record)
    assert seen == ["r0", "r1", "r2"]


def test_promise_9_a_lost_run_is_still_lost_after_its_batch_was_paused(store: Store) -> None:
    provide(store, "a")
    make_batch(store)
    plan(store, make_batch(store), every(10, 1))
    (call,) = claim(store)
    make_batch(store, paused=True)
    assert claim(store, call.lease_until_ms) == []
    assert run_of(store, "r0").state == "aside"
    make_batch(store)
    for now_ms in range(call.lease_until_ms + 1, call.lease_until_ms + HOUR_MS, SECOND_MS):
        if again := claim(store, now_ms):
            break
    assert (again[0].attempt, again[0].lost) == (2, True)


def test_batch_with_missed_skip_ends_missed_runs_as_skipped(store: Store) -> None:
    provide(store, "a")
    plan(store, make_batch(store, missed="skip"), every(MINUTE_MS, 120), end_ms=T0_MS + DAY_MS)
    now_ms = T0_MS + 100 * MINUTE_MS + 1
    while not (calls := claim(store, now_ms)):
        ready_ms = store.next_call_ms()
        assert ready_ms is not None
        now_ms = max(now_ms + 1, ready_ms)
    assert now_ms - calls[0].due_ms <= DAY_MS // 96
    assert now_ms <= T0_MS + 105 * MINUTE_MS
    run = run_of(store, "r0")
    assert (run.state, run.reason.partition(":")[0]) == ("skipped", "missed")
