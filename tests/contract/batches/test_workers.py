"""Runs of providers of kind ``outgoing``: claimed by workers alone, by the same rules as calls."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from paceline.core.batches.provider import BreakerSpec
from paceline.core.batches.values import ClaimedCall, DeadChoice
from paceline.errors import NotFound
from paceline.ports import Store
from paceline.steps.batches.outgoing import RecordedCall, claim_for_worker, settle_reports
from paceline.steps.monitors.outgoing import OutcomeReport
from paceline.steps.move.stream import obstacles
from tests.contract.support.call_stage import (
    DATE,
    LEASE_MS,
    SECOND_MS,
    TIMEOUT_MS,
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


def work_at(store: Store, name: str = "a", **changes: Any) -> int:
    """A provider of kind outgoing; its number."""
    return provide(store, name, base_url="", kind="outgoing", **changes)


def take(
    store: Store, provider: int, now_ms: int = T0_MS, *, runs_max: int = 100, run: int | None = None
) -> list[ClaimedCall]:
    return store.claim_for_worker(provider, now_ms=now_ms, runs_max=runs_max, lease_ms=LEASE_MS, run=run)


def test_worker_gets_the_whole_run_with_a_lease_of_the_requested_length(store: Store) -> None:
    number = work_at(store)
    plan(store, make_batch(store), {"r": T0_MS})
    assert store.next_for_worker_ms(number) == T0_MS
    (call,) = take(store, number, T0_MS + 3)
    assert (call.batch, call.record, call.date, call.endpoint, call.body) == ("daily", "r", DATE, "/r", None)
    assert (call.provider, call.attempt, call.due_ms, call.lost) == (number, 1, T0_MS, False)
    assert call.lease_until_ms == T0_MS + 3 + LEASE_MS
    assert store.next_for_worker_ms(number) == call.lease_until_ms
    (out,) = store.out_calls([call.handle, call.handle + 1]).values()
    assert (out.handle, out.attempt, out.provider) == (call.handle, 1, number)
    assert (out.batch, out.record, out.date, out.started_ms) == ("daily", "r", DATE, T0_MS + 3)
    assert settle(store, call, now_ms=T0_MS + 90)
    assert store.out_calls([call.handle]) == {}
    assert run_of(store, "r").state == "done"
    assert store.next_for_worker_ms(number) is None


def test_callers_never_see_an_outgoing_provider_and_workers_never_an_http_one(store: Store) -> None:
    theirs, ours = work_at(store, "a"), provide(store, "b")
    plan(store, make_batch(store), every(10, 2))
    plan(store, make_batch(store, "second"), {"s": T0_MS + 50}, provider="b")
    assert store.next_call_ms() == T0_MS + 50
    assert take(store, ours, T0_MS + HOUR_MS) == []
    assert store.next_for_worker_ms(ours) is None
    assert names(claim(store, T0_MS + 60)) == ["s"]
    assert names(take(store, theirs, T0_MS + 60)) == ["r0"]


def test_promise_6_runs_of_an_outgoing_provider_are_claimed_one_at_a_time_and_in_due_order(
    store: Store, other: Store
) -> None:
    number = work_at(store)
    plan(store, make_batch(store), every(10, 4))
    seen: list[str] = []
    for turn in range(4):
        worker, rival = (store, other) if turn % 2 else (other, store)
        now_ms = T0_MS + 100 + turn
        (call,) = take(worker, number, now_ms)
        assert take(rival, number, now_ms) == []
        seen += names([call])
        assert settle(rival, call, now_ms=now_ms)
    assert seen == ["r0", "r1", "r2", "r3"]


def test_promise_6_workers_have_no_more_than_max_in_flight_and_a_retry_keeps_its_place(store: Store) -> None:
    number = work_at(store, max_in_flight=3)
    plan(store, make_batch(store), every(10, 6))
    first = take(store, number, T0_MS + 100)
    assert names(first) == ["r0", "r1", "r2"]
    assert take(store, number, T0_MS + 100) == []
    assert settle(store, first[1], now_ms=T0_MS + 110)
    assert names(take(store, number, T0_MS + 110, runs_max=1)) == ["r3"]
    assert settle(store, first[0], "retry", now_ms=T0_MS + 120, not_before_ms=T0_MS + 900)
    assert take(store, number, T0_MS + 120) == []
    assert store.next_for_worker_ms(number) == T0_MS + 900
    (again,) = take(store, number, T0_MS + 900)
    assert (again.record, again.attempt, again.lost) == ("r0", 2, False)


def test_workers_keep_to_the_rate_of_their_provider(store: Store) -> None:
    number = work_at(store, max_in_flight=10, rate="2/1s")
    plan(store, make_batch(store), every(1, 10))
    starts = [now_ms for now_ms in range(T0_MS + 20, T0_MS + 2_600, 20) for _ in take(store, number, now_ms)]
    assert 5 <= len(starts) <= 7
    assert min(later - earlier for earlier, later in pairwise(starts)) >= 400


def test_breaker_of_an_outgoing_provider_opens_and_a_single_run_closes_it(store: Store) -> None:
    number = work_at(store, max_in_flight=2, breaker=BreakerSpec(failures=2, open_for="10s"))
    plan(store, make_batch(store), every(1, 6))
    for call in take(store, number, T0_MS + 30):
        assert settle(store, call, "retry", now_ms=T0_MS + 100, not_before_ms=T0_MS + 101)
    assert take(store, number, T0_MS + 10_099) == []
    (probe,) = take(store, number, T0_MS + 10_100)
    assert settle(store, probe, now_ms=T0_MS + 10_300)
    found = [call for later_ms in range(10) for call in take(store, number, T0_MS + 10_300 + later_ms)]
    assert names(found) == ["r1", "r2"]


def test_promise_10_a_worker_that_vanished_gives_its_run_back_and_settles_nothing_any_more(
    store: Store, other: Store
) -> None:
    number = work_at(store)
    plan(store, make_batch(store), every(10, 2))
    (call,) = take(store, number)
    assert take(other, number, call.lease_until_ms - 1) == []
    (again,) = take(other, number, call.lease_until_ms)
    assert (again.record, again.attempt, again.lost) == ("r0", 2, True)
    assert not settle(store, call, now_ms=T0_MS + 10)
    assert not store.extend_call(call.handle, call.attempt, until_ms=T0_MS + HOUR_MS, now_ms=T0_MS + 10)
    assert settle(other, again, now_ms=call.lease_until_ms + 1)
    assert not settle(other, again, now_ms=call.lease_until_ms + 1)


@pytest.mark.parametrize("by_ms", [LEASE_MS // 2, 10 * LEASE_MS], ids=["sooner", "later"])
def test_extended_lease_of_a_worker_ends_at_its_new_time(store: Store, by_ms: int) -> None:
    number = work_at(store)
    plan(store, make_batch(store), every(10, 1))
    (call,) = take(store, number)
    until_ms = T0_MS + by_ms
    assert store.extend_call(call.handle, call.attempt, until_ms=until_ms, now_ms=T0_MS + 5)
    assert run_of(store, "r0").until_ms == until_ms
    assert take(store, number, until_ms - 1) == []
    (again,) = take(store, number, until_ms)
    assert again.attempt == 2
    assert not store.extend_call(call.handle, call.attempt, until_ms=until_ms + MINUTE_MS, now_ms=until_ms)


def test_a_dead_letter_of_a_worker_is_redriven_to_workers(store: Store) -> None:
    number = work_at(store)
    plan(store, make_batch(store), every(10, 2))
    (call,) = take(store, number)
    assert settle(store, call, "failed")
    assert run_of(store, "r0").dead
    (behind,) = take(store, number, T0_MS + 30)
    assert behind.record == "r1"
    assert settle(store, behind, now_ms=T0_MS + 40)
    assert store.redrive(DeadChoice(provider="a"), gap_ms=0, now_ms=T0_MS + 50, limit=10) == 1
    assert claim(store, T0_MS + 100) == []
    (again,) = take(store, number, T0_MS + 100)
    assert (again.record, again.attempt, again.lost) == ("r0", 1, False)


def test_paused_outgoing_provider_hands_out_nothing_and_settles_claimed_runs(store: Store) -> None:
    number = work_at(store)
    plan(store, make_batch(store), every(10, 2))
    (call,) = take(store, number)
    work_at(store, paused=True)
    assert settle(store, call, now_ms=T0_MS + 5)
    assert take(store, number, T0_MS + HOUR_MS) == []
    assert store.next_for_worker_ms(number) is None
    work_at(store)
    assert store.next_for_worker_ms(number) is not None


def test_promise_7_a_resumed_outgoing_provider_catches_up_at_a_pace(store: Store, *, by_request: bool) -> None:
    number = work_at(store, max_in_flight=10)
    count = 24 if by_request else 120
    apart_ms = 2 * HOUR_MS // count
    plan(store, make_batch(store), every(apart_ms, count), end_ms=T0_MS + 2 * HOUR_MS)
    starts: list[int] = []
    now_ms = T0_MS + HOUR_MS
    while (ready_ms := store.next_for_worker_ms(number)) is not None:
        now_ms = max(now_ms + 1, ready_ms)
        for call in take(store, number, now_ms):
            starts.append(now_ms)
            assert settle(store, call, now_ms=now_ms)
    assert len(starts) == count
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert max(gaps) <= apart_ms
    assert sum(gap < apart_ms // 4 for gap in gaps) <= 1


def test_waiting_runs_are_claimed_by_workers_once_their_provider_became_outgoing(store: Store, other: Store) -> None:
    number = provide(store, "a")
    plan(store, make_batch(store), every(10, 3))
    (call,) = claim(store, T0_MS + 100)
    assert claim(other, T0_MS + 101) == []
    work_at(store)
    # A run in flight stays with its claimer and keeps its place.
    assert take(store, number, T0_MS + 110) == []
    assert claim(store, T0_MS + 110) == claim(other, T0_MS + 110) == []
    assert settle(store, call, now_ms=T0_MS + 120)
    assert claim(store, T0_MS + 130) == claim(other, T0_MS + 130) == []
    (work,) = take(other, number, T0_MS + 130)
    assert work.record == "r1"
    provide(store, "a")
    assert take(store, number, T0_MS + 140) == []
    assert settle(other, work, now_ms=T0_MS + 150)
    assert names(claim(store, T0_MS + 160)) == ["r2"]


def test_run_in_flight_while_its_provider_became_outgoing_goes_to_a_worker_as_lost(store: Store) -> None:
    number = provide(store, "a")
    plan(store, make_batch(store), every(10, 1))
    (call,) = claim(store)
    work_at(store)
    assert take(store, number, T0_MS + TIMEOUT_MS + LEASE_MS - 1) == []
    (again,) = take(store, number, T0_MS + TIMEOUT_MS + LEASE_MS)
    assert (again.record, again.attempt, again.lost) == ("r0", 2, True)
    assert not settle(store, call, now_ms=T0_MS + 5)


def test_a_run_is_claimed_by_its_name_only_when_it_is_the_next(store: Store) -> None:
    number = work_at(store, max_in_flight=2)
    plan(store, make_batch(store), every(10, 3))
    now_ms = T0_MS + 100
    second = run_of(store, "r1").handle
    assert take(store, number, now_ms, run=second) == []
    assert names(take(store, number, now_ms, run=run_of(store, "r0").handle)) == ["r0"]
    assert take(store, number, now_ms, run=run_of(store, "r2").handle) == []
    assert names(take(store, number, now_ms, run=second)) == ["r1"]
    assert take(store, number, now_ms, run=second) == []
    assert run_of(store, "r2").attempt == 0


def test_a_run_refused_by_its_name_uses_up_nothing_of_the_rate(store: Store) -> None:
    number = work_at(store, max_in_flight=5, rate="1/1m")
    plan(store, make_batch(store), every(10, 3))
    for _ in range(3):
        assert take(store, number, T0_MS + 100, run=run_of(store, "r2").handle) == []
    assert names(take(store, number, T0_MS + 100)) == ["r0"]


def test_workers_of_one_provider_do_not_wait_for_the_backlog_of_another(store: Store, *, by_request: bool) -> None:
    full, free = work_at(store, "a"), work_at(store, "b")
    plan(store, make_batch(store), every(1, 200 if by_request else 2_000))
    plan(store, make_batch(store, "second"), every(SECOND_MS, 2), provider="b")
    assert len(take(store, full, T0_MS + 100)) == 1
    assert names(take(store, free, T0_MS + 100)) == ["r0"]
    assert take(store, full, T0_MS + 100) == take(store, free, T0_MS + 100) == []


def test_a_run_of_a_paused_batch_is_not_handed_out(store: Store) -> None:
    number = work_at(store)
    batch = make_batch(store)
    plan(store, batch, every(10, 2), end_ms=T0_MS + DAY_MS)
    make_batch(store, paused=True)
    assert take(store, number, T0_MS + 100) == []
    assert run_of(store, "r0").state == "aside"
    make_batch(store)
    assert names(take(store, number, T0_MS + 200)) == ["r0"]


def test_due_runs_of_outgoing_providers_are_counted_while_they_wait_for_a_worker(store: Store) -> None:
    number = work_at(store, max_in_flight=2)
    provide(store, "b")
    plan(store, make_batch(store), every(SECOND_MS, 4))
    plan(store, make_batch(store, "second"), every(10, 2), provider="b")
    now_ms = T0_MS + 2 * SECOND_MS
    assert store.calls_for_workers(now_ms=T0_MS - 1) == 0
    assert store.calls_for_workers(now_ms=now_ms) == 3
    assert store.status().worker_start_ms == T0_MS
    assert len(take(store, number, now_ms, runs_max=1)) == 1
    assert store.calls_for_workers(now_ms=now_ms) == 2
    work_at(store, paused=True)
    assert take(store, number, now_ms) == []
    assert store.calls_for_workers(now_ms=now_ms) == 0


def test_run_whose_worker_died_keeps_its_store_from_being_moved_until_its_lease_ends(store: Store) -> None:
    number = work_at(store)
    assert store.close_day(plan(store, make_batch(store), {"r": T0_MS}))
    (call,) = take(store, number)
    assert obstacles(store, now_ms=call.lease_until_ms - 1) == [f"1 runs of day {DATE} of batch 'daily' are out"]
    assert obstacles(store, now_ms=call.lease_until_ms) == []


def test_run_that_is_to_be_held_keeps_its_store_from_being_moved_until_a_worker_claims(store: Store) -> None:
    number = work_at(store, unknown="hold")
    assert store.close_day(plan(store, make_batch(store), {"r": T0_MS}))
    (call,) = take(store, number)
    over_ms = call.lease_until_ms
    advice = "let a worker claim from provider 'a' once: that makes them dead letters"
    assert obstacles(store, now_ms=over_ms) == [
        f"1 runs of day {DATE} of batch 'daily' are out, and their leases have ended ({advice})"
    ]
    assert claim_for_worker(store, "a", now_ms=over_ms, runs_max=1, lease_ms=LEASE_MS).items == []
    assert obstacles(store, now_ms=over_ms) == []
    assert run_of(store, "r").dead


def test_call_of_paceline_itself_keeps_its_store_from_being_moved_until_it_is_settled(store: Store) -> None:
    provide(store, "a")
    assert store.close_day(plan(store, make_batch(store), {"r": T0_MS}))
    (call,) = claim(store, T0_MS)
    assert len(obstacles(store, now_ms=call.lease_until_ms + HOUR_MS)) == 1
    assert settle(store, call, now_ms=T0_MS + 1)
    assert obstacles(store, now_ms=call.lease_until_ms + HOUR_MS) == []


def test_promise_12_report_of_a_user_without_the_provider_s_scope_settles_no_run_of_a_batch(store: Store) -> None:
    work_at(store, "shop", max_in_flight=2)
    plan(store, make_batch(store), {"r": T0_MS, "s": T0_MS + 1}, provider="shop")
    now_ms = T0_MS + SECOND_MS
    first, second = claim_for_worker(store, "shop", now_ms=now_ms, runs_max=2, lease_ms=LEASE_MS).items
    stranger = OutcomeReport(first.run, first.lease, "failed", {}, "ann", 0.5)
    (refused,) = settle_reports(store, [stranger], now_ms=now_ms)
    assert isinstance(refused, NotFound)
    assert run_of(store, "r").state == "out"
    worker = OutcomeReport(first.run, first.lease, "ok", {}, "ann", 0.5, provider="shop")
    admin = OutcomeReport(second.run, second.lease, "ok", {}, None, 0.5)
    done = settle_reports(store, [worker, admin], now_ms=now_ms)
    assert done == [RecordedCall(first.run, "done"), RecordedCall(second.run, "done")]
