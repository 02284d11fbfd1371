"""Batches' runs from claim to result: order, concurrency, leases, rate, breaker, pace."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import pytest

from paceline.core.batches.batch import RecordSpec
from paceline.core.batches.provider import BreakerSpec
from paceline.core.batches.records.options import RecordOptions
from paceline.ports import Store
from tests.contract.conftest import Opener
from tests.contract.support.call_stage import (
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
    settlement,
)
from tests.contract.support.stage import DAY_MS, HOUR_MS, MINUTE_MS, T0_MS


def test_claimed_call_has_everything_needed_to_make_it(store: Store) -> None:
    number = provide(store, "a")
    plan(store, make_batch(store), {"r": T0_MS})
    assert store.next_call_ms() == T0_MS
    (call,) = claim(store, T0_MS + 3)
    assert (call.batch, call.record, call.date, call.endpoint, call.body) == ("daily", "r", "2026-09-21", "/r", None)
    assert (call.provider, call.provider_revision, call.attempt, call.lost) == (number, 1, 1, False)
    assert (call.due_ms, call.lease_until_ms) == (T0_MS, T0_MS + 3 + TIMEOUT_MS + LEASE_MS)
    assert store.next_call_ms() == call.lease_until_ms
    run = run_of(store, "r")
    assert (run.state, run.attempt, run.until_ms, run.started_ms) == ("out", 1, call.lease_until_ms, T0_MS + 3)
    assert settle(store, call, now_ms=T0_MS + 90, latency_ms=1.5, code=200, payload="{}")
    run = run_of(store, "r")
    assert (run.state, run.attempt, run.code, run.latency_ms, run.payload) == ("done", 1, 200, 1.5, "{}")
    assert (run.started_ms, run.ended_ms, run.dead) == (T0_MS + 90, T0_MS + 90, False)
    assert store.next_call_ms() is None


def test_promise_6_calls_of_a_provider_start_one_at_a_time_and_in_due_order(store: Store, other: Store) -> None:
    provide(store, "a")
    plan(store, make_batch(store), every(10, 5))
    seen: list[str] = []
    for turn in range(5):
        claimer, rival = (store, other) if turn % 2 else (other, store)
        now_ms = T0_MS + 100 + turn
        (call,) = claim(claimer, now_ms)
        assert claim(rival, now_ms) == []
        seen += names([call])
        assert settle(rival, call, now_ms=now_ms)
    assert seen == ["r0", "r1", "r2", "r3", "r4"]


def test_promise_6_calls_in_flight_never_exceed_max_in_flight_and_first_starts_are_in_order(store: Store) -> None:
    provide(store, "a", max_in_flight=3)
    plan(store, make_batch(store), every(10, 6))
    first = claim(store, T0_MS + 100)
    assert names(first) == ["r0", "r1", "r2"]
    assert claim(store, T0_MS + 100) == []
    assert settle(store, first[1], now_ms=T0_MS + 110)
    assert names(claim(store, T0_MS + 110)) == ["r3"]
    assert settle(store, first[0], "retry", now_ms=T0_MS + 120, not_before_ms=T0_MS + 900)
    assert claim(store, T0_MS + 120) == []  # in back-off it keeps its place


def test_a_claim_is_bounded_and_providers_do_not_wait_for_each_other(store: Store) -> None:
    batch = make_batch(store)
    for name in ("a", "b", "c"):
        provide(store, name)
        store.put_records(batch, [RecordSpec(f"{name}0", name, "/")], now_ms=T0_MS)
    plan(store, batch, {"x0": T0_MS, "x1": T0_MS + 1})
    provide(store, "wide", max_in_flight=10)
    plan(store, make_batch(store, "more"), every(1, 10, first_ms=T0_MS + 5), provider="wide")
    assert names(claim(store, T0_MS + 20, runs_max=1)) == ["x0"]
    assert names(claim(store, T0_MS + 20, runs_max=4)) == ["r0", "r1", "r2", "r3"]
    assert names(claim(store, T0_MS + 20)) == ["r4", "r5", "r6", "r7", "r8", "r9"]


@pytest.mark.parametrize("turns", [("a", "b"), ("b", "a")], ids="-".join)
def test_promise_13_claim_is_shared_evenly_by_wide_providers_and_unused_places_go_to_others(
    store: Store, turns: tuple[str, str]
) -> None:
    """Holds for any order of the two providers: by name, by number or by time."""
    first, second = turns
    numbers = {name: provide(store, name, max_in_flight=20) for name in turns}
    batch = make_batch(store)
    plan(store, batch, {f"{first}{n}": T0_MS + n for n in range(8)}, provider=first)
    late = make_batch(store, "late")
    plan(store, late, {f"{second}{n}": T0_MS + 5 + n for n in range(8)}, provider=second)
    now_ms = T0_MS + SECOND_MS
    half = Counter(call.provider for call in claim(store, now_ms, runs_max=6))
    assert half == {numbers[first]: 3, numbers[second]: 3}
    rest = Counter(call.provider for call in claim(store, now_ms, runs_max=8))
    assert sum(rest.values()) == 8
    assert half + rest == {numbers[first]: 7, numbers[second]: 7}


@pytest.mark.parametrize("few", ["a", "b"])
def test_promise_13_claim_room_unused_by_a_provider_with_few_runs_goes_to_another(store: Store, few: str) -> None:
    many = "b" if few == "a" else "a"
    numbers = {name: provide(store, name, max_in_flight=20) for name in ("a", "b")}
    plan(store, make_batch(store), {f"{few}0": T0_MS}, provider=few)
    plan(store, make_batch(store, "late"), {f"{many}{n}": T0_MS + n for n in range(8)}, provider=many)
    found = Counter(call.provider for call in claim(store, T0_MS + SECOND_MS, runs_max=6))
    assert found == {numbers[few]: 1, numbers[many]: 5}


def test_promise_6_a_retry_keeps_its_place_and_counts_its_attempts(store: Store) -> None:
    provide(store, "a")
    plan(store, make_batch(store), every(10, 3))
    (call,) = claim(store)
    assert settle(store, call, "retry", now_ms=T0_MS + 50, not_before_ms=T0_MS + 900)
    run = run_of(store, "r0")
    assert (run.state, run.until_ms, run.attempt, run.reason) == ("retry", T0_MS + 900, 1, "it is retry")
    assert store.next_call_ms() == T0_MS + 900
    assert claim(store, T0_MS + 899) == []
    (again,) = claim(store, T0_MS + 900)
    assert (again.record, again.attempt, again.lost) == ("r0", 2, False)


def test_later_runs_of_a_provider_go_on_in_order_after_a_dead_letter(store: Store) -> None:
    provide(store, "a")
    plan(store, make_batch(store), every(10, 3))
    (call,) = claim(store)
    assert settle(store, call, "failed", code=404)
    run = run_of(store, "r0")
    assert (run.state, run.dead, run.code, run.reason) == ("failed", True, 404, "it is failed")
    assert names(claim(store, T0_MS + 30)) == ["r1"]


def test_promise_10_a_worker_that_vanished_gives_its_run_back_as_lost(store: Store, other: Store) -> None:
    provide(store, "a")
    plan(store, make_batch(store), every(10, 2))
    (call,) = claim(store)
    assert claim(other, call.lease_until_ms - 1) == []
    (again,) = claim(other, call.lease_until_ms)
    assert (again.record, again.attempt, again.lost) == ("r0", 2, True)
    assert other.release_calls([(again.handle, again.attempt)], now_ms=call.lease_until_ms) == [True]
    (third,) = claim(store, call.lease_until_ms)
    assert (third.record, third.attempt, third.lost) == ("r0", 2, True)


def test_promise_10_a_frozen_worker_settles_nothing_after_its_lease(store: Store, other: Store) -> None:
    provide(store, "a")
    plan(store, make_batch(store), every(10, 1))
    (call,) = claim(store)
    assert not settle(store, call, now_ms=call.lease_until_ms + 1)
    (again,) = claim(other, call.lease_until_ms + 1)
    assert not settle(store, call, "failed", now_ms=T0_MS + 10)
    assert run_of(store, "r0").state == "out"
    assert settle(other, again, now_ms=call.lease_until_ms + 2)
    assert not settle(other, again, now_ms=call.lease_until_ms + 2)
    assert run_of(store, "r0").state == "done"


def test_promise_10_a_frozen_worker_settles_nothing_after_another_has_given_its_run_back(
    store: Store, other: Store
) -> None:
    provide(store, "a")
    plan(store, make_batch(store), every(10, 1))
    (call,) = claim(store)
    late_ms = call.lease_until_ms + 1
    assert not settle(store, call, now_ms=late_ms)
    (again,) = claim(other, late_ms)
    assert other.release_calls([(again.handle, again.attempt)], now_ms=late_ms) == [True]
    assert not settle(store, call, "failed", now_ms=T0_MS + 10)
    assert run_of(store, "r0").state == "retry"


def test_promise_5_the_same_settlement_twice_in_one_act_counts_once(store: Store) -> None:
    provide(store, "a")
    plan(store, make_batch(store), every(10, 1))
    (call,) = claim(store)
    assert store.settle_calls([settlement(call), settlement(call, "failed")]) == [True, False]
    assert run_of(store, "r0").state == "done"


def test_settle_and_claim_in_one_transaction_starts_the_next_run(store: Store) -> None:
    provide(store, "a")
    plan(store, make_batch(store), every(10, 3))
    calls = claim(store, T0_MS + 20)
    for record in ("r1", "r2"):
        done = [settlement(call, now_ms=T0_MS + 30) for call in calls]
        won, calls = store.settle_and_claim_calls(done, now_ms=T0_MS + 30, runs_max=10, lease_ms=LEASE_MS)
        assert won == [True]
        assert names(calls) == [record]


def test_a_run_given_back_has_lost_neither_its_place_nor_an_attempt(store: Store) -> None:
    provide(store, "a")
    plan(store, make_batch(store), every(10, 2))
    (call,) = claim(store)
    assert store.release_calls([(call.handle, call.attempt), (call.handle, 9)], now_ms=T0_MS + 5) == [True, False]
    assert run_of(store, "r0").state == "waiting"
    (again,) = claim(store, T0_MS + 20)
    assert (again.record, again.attempt, again.lost) == ("r0", 1, False)
    assert settle(store, again, "retry", not_before_ms=T0_MS + 50, lost=True)
    (third,) = claim(store, T0_MS + 60)
    assert store.release_calls([(third.handle, 2)], now_ms=T0_MS + 61) == [True]
    (fourth,) = claim(store, T0_MS + 62)
    assert (fourth.attempt, fourth.lost) == (2, True)


def test_paused_provider_starts_nothing_and_settles_calls_in_flight(store: Store) -> None:
    provide(store, "a")
    plan(store, make_batch(store), every(10, 2))
    (call,) = claim(store)
    provide(store, "a", paused=True)
    assert settle(store, call, now_ms=T0_MS + 5)
    assert claim(store, T0_MS + HOUR_MS) == []
    assert store.next_call_ms() is None
    assert run_of(store, "r1").state == "waiting"


def test_promise_7_a_resumed_provider_catches_up_at_a_pace_and_not_in_a_burst(
    store: Store, *, by_request: bool
) -> None:
    provide(store, "a", max_in_flight=10)
    count = 24 if by_request else 120
    apart_ms = 2 * HOUR_MS // count
    plan(store, make_batch(store), every(apart_ms, count), end_ms=T0_MS + 2 * HOUR_MS)
    provide(store, "a", max_in_flight=10, paused=True)
    assert claim(store, T0_MS + 10) == []
    provide(store, "a", max_in_flight=10)
    starts = drain(store, from_ms=T0_MS + HOUR_MS, to_ms=T0_MS + 2 * HOUR_MS)
    assert len(starts) == count
    gaps = [later - earlier for earlier, later in pairwise(starts)]
    assert max(gaps) <= apart_ms
    assert sum(gap < apart_ms // 4 for gap in gaps) <= 1


def drain(store: Store, *, from_ms: int, to_ms: int) -> list[int]:
    """When runs started, on a clock that goes from look to look."""
    starts: list[int] = []
    now_ms = from_ms
    while now_ms <= to_ms:
        for call in claim(store, now_ms):
            starts.append(now_ms)
            assert settle(store, call, now_ms=now_ms)
        ready_ms = store.next_call_ms()
        if ready_ms is None:
            break
        now_ms = max(now_ms + 1, ready_ms)
    return starts


def test_retry_after_closes_the_provider_and_not_only_the_run(store: Store) -> None:
    provide(store, "a", max_in_flight=5)
    plan(store, make_batch(store), every(10, 5))
    first, second, *_ = claim(store, T0_MS + 20)
    closed_ms = T0_MS + 60_000
    assert settle(store, first, "retry", now_ms=T0_MS + 30, not_before_ms=closed_ms, closed_until_ms=closed_ms)
    assert settle(store, second, now_ms=T0_MS + 40)
    assert claim(store, closed_ms - 1) == []
    assert names(claim(store, closed_ms))[0] == "r0"


def test_breaker_opens_after_bad_calls_and_closes_after_a_single_probe(store: Store) -> None:
    provide(store, "a", max_in_flight=5, breaker=BreakerSpec(failures=2, open_for="10s"))
    plan(store, make_batch(store), every(1, 20))
    calls = claim(store, T0_MS + 30)
    assert len(calls) == 5
    for call in calls[:3]:
        assert settle(store, call, "retry", now_ms=T0_MS + 100, not_before_ms=T0_MS + 101)
    for call in calls[3:]:
        assert settle(store, call, "failed", now_ms=T0_MS + 100)
    assert claim(store, T0_MS + 10_099) == []
    (probe,) = claim(store, T0_MS + 10_100)
    assert (probe.record, probe.attempt) == ("r0", 2)
    assert claim(store, T0_MS + 10_200) == []
    assert settle(store, probe, now_ms=T0_MS + 10_300)
    # The others are behind their time by now, so they come back one after the other, and without waiting for an end.
    assert len([call for later_ms in range(10) for call in claim(store, T0_MS + 10_300 + later_ms)]) == 5


def test_idle_time_of_a_provider_counts_from_the_end_of_its_last_call(store: Store) -> None:
    number = provide(store, "a")
    plan(store, make_batch(store), {"r": T0_MS, "s": T0_MS + DAY_MS // 2})
    (call,) = claim(store, T0_MS)
    assert settle(store, call, now_ms=T0_MS + 700)
    standing = store.provider_standing(number, now_ms=T0_MS + 700)
    assert (standing.pace.paced_ms, standing.ready_ms) == (T0_MS + 700, T0_MS + DAY_MS // 2)


def test_the_rate_holds_across_claims_and_survives_reopening(store_factory: Opener) -> None:
    store = store_factory()
    provide(store, "a", max_in_flight=10, rate="2/1s")
    plan(store, make_batch(store), every(1, 10))
    starts: list[int] = []
    for now_ms in range(T0_MS + 20, T0_MS + 2_600, 20):
        calls = claim(store_factory(), now_ms) if now_ms % 500 == 0 else claim(store, now_ms)
        starts += [now_ms] * len(calls)
    assert 5 <= len(starts) <= 7
    assert min(later - earlier for earlier, later in pairwise(starts)) >= 400


def test_calls_do_not_wait_for_the_old_time_after_the_clock_was_set_back(store: Store) -> None:
    provide(store, "a", rate="1/1s")
    provide(store, "b")
    batch = make_batch(store)
    plan(store, batch, every(SECOND_MS, 3))
    plan(store, make_batch(store, "second"), {"s0": T0_MS}, provider="b")
    ahead_ms = T0_MS + HOUR_MS
    while not (calls := claim(store, ahead_ms)):
        ahead_ms += 100  # late, so staggered
    for call in calls:
        if call.record == "r0":
            retry_ms = ahead_ms + HOUR_MS
            assert settle(store, call, "retry", now_ms=ahead_ms, not_before_ms=retry_ms, closed_until_ms=retry_ms)
    moved = store.pull_back_calls(lambda: T0_MS + 5_000, wait_ms_max=MINUTE_MS)
    assert moved >= 1
    ready_ms = store.next_call_ms()
    assert ready_ms is not None
    assert ready_ms <= T0_MS + 5_000
    found = names(claim(store, T0_MS + 5_000 + MINUTE_MS))
    assert "r0" in found


def test_retry_starts_before_its_due_time_comes_again_after_the_clock_was_set_back(store: Store) -> None:
    """Holds behind an ended run, too: a retry is looked at when it may be tried again."""
    provide(store, "a", max_in_flight=2)
    plan(store, make_batch(store), every(10, 2))
    first, second = claim(store, T0_MS + 10)
    for call in (first, second):
        assert settle(store, call, "retry", now_ms=T0_MS + 10, not_before_ms=T0_MS + SECOND_MS)
    back_ms = T0_MS - HOUR_MS
    store.pull_back_calls(lambda: back_ms, wait_ms_max=MINUTE_MS)
    (first,) = claim(store, back_ms + MINUTE_MS, runs_max=1)
    assert settle(store, first, now_ms=back_ms + MINUTE_MS)
    assert names(claim(store, back_ms + MINUTE_MS + 1)) == ["r1"]


def test_a_claim_costs_the_same_however_much_waits_at_a_stuck_provider(store: Store, *, by_request: bool) -> None:
    provide(store, "a")
    provide(store, "b")
    plan(store, make_batch(store), every(1, 300 if by_request else 3_000))
    plan(store, make_batch(store, "second"), every(10, 20), provider="b")
    assert len(claim(store, T0_MS + 100)) == 2
    before = store.next_call_ms()
    assert claim(store, T0_MS + 101) == []
    assert store.next_call_ms() == before


def test_claims_of_two_processes_on_one_file_never_share_a_run(store: Store, other: Store, *, by_request: bool) -> None:
    count = 15 if by_request else 30
    for number in range(count):
        provide(store, f"p{number}")
    batch = make_batch(store)
    records = [RecordSpec(f"r{number}", f"p{number}", "/") for number in range(count)]
    store.put_records(batch, records, now_ms=T0_MS)
    for number in range(count):
        plan(store, make_batch(store, f"b{number}"), {f"x{number}": T0_MS}, provider=f"p{number}")
    seen: list[int] = []
    while found := [*claim(store, runs_max=4), *claim(other, runs_max=7)]:
        seen += [call.handle for call in found]
    assert len(seen) == len(set(seen)) == count


def test_lease_lasts_for_the_record_s_own_time_out(store: Store) -> None:
    provide(store, "a", max_in_flight=3)
    batch = make_batch(store)
    plan(store, batch, every(0, 3))
    slow, quick = (RecordOptions(timeout=timeout) for timeout in ("9s", "200ms"))
    store.put_records(batch, [RecordSpec("r0", "a", options=slow), RecordSpec("r1", "a", options=quick)], now_ms=T0_MS)
    now_ms = T0_MS + 5
    leases = {call.record: call.lease_until_ms - now_ms - LEASE_MS for call in claim(store, now_ms)}
    assert leases == {"r0": 9_000, "r1": 200, "r2": TIMEOUT_MS}
    assert store.next_call_ms() == now_ms + 200 + LEASE_MS  # the first of the leases
    again = claim(store, now_ms + 200 + LEASE_MS)
    assert [(call.record, call.attempt, call.lost) for call in again] == [("r1", 2, True)]
