"""A day's runs as a store reports them: counted, in due order, in pages, one by one."""

from __future__ import annotations

from array import array
from collections import Counter

import pytest

from paceline.core.batches.batch import Batch, BatchSpec, Day, RecordSpec
from paceline.core.batches.calls import CallSettlement, CallState
from paceline.core.batches.provider import ProviderSpec
from paceline.core.batches.values import CallRun, Placements, PutProvider
from paceline.core.monitors.due import OnTime
from paceline.ports import Store
from tests.contract.support.stage import DAY_MS, LEASE_MS, MINUTE_MS, T0_MS, armed

DATE = "2026-09-21"
RECORDS = 12


@pytest.fixture
def batch(store: Store) -> Batch:
    """Records r00 to r11, taking turns at the providers a and b, with places for all at once."""
    for name in ("a", "b"):
        spec = ProviderSpec(base_url="http://example.org", max_in_flight=100)
        assert store.put_provider(PutProvider(name, spec), now_ms=T0_MS).disposition == "created"
    made = store.put_batch("daily", BatchSpec(), expected_revision=0, now_ms=T0_MS).batch
    assert made is not None
    records = [RecordSpec(f"r{i:02}", "ab"[i % 2], f"/{i}") for i in range(RECORDS)]
    assert store.put_records(made, records, now_ms=T0_MS) == ["created"] * RECORDS
    return made


def planned(store: Store, batch: Batch, *, date: str = DATE, start_ms: int = T0_MS) -> Day:
    """Each record a minute after the one before it in the plan's order."""
    day = store.open_day(batch, date, start_ms=start_ms, end_ms=start_ms + DAY_MS)
    order = store.plan_order(batch, day.cursor)
    providers = array("q", [number for number, count in order.providers for _ in range(count)])
    dues_ms = array("q", [start_ms + index * MINUTE_MS for index in range(len(order.records))])
    page = Placements(order.records, providers, dues_ms)
    none = Placements(array("q"), array("q"), array("q"))
    cursor = (providers[-1], order.records[-1])
    assert store.plan_page(day, page, cursor=cursor, skipped=none, now_ms=start_ms).won
    there = store.day(batch, date)
    assert there is not None
    assert store.close_day(there)
    closed = store.day(batch, date)
    assert closed is not None
    return closed


def end(store: Store, states: list[CallState], *, start_ms: int = T0_MS) -> None:
    """Ends the first runs of the day with these states, one after the other in due order; retry stays open."""
    for index, state in enumerate(states):
        now_ms = start_ms + index * MINUTE_MS
        (call,) = store.claim_calls(now_ms=now_ms, runs_max=100, lease_ms=LEASE_MS)
        assert state in ("done", "failed", "unknown", "retry", "skipped")
        settlement = CallSettlement(
            handle=call.handle,
            attempt=call.attempt,
            state=state,
            started_ms=now_ms,
            ended_ms=now_ms + 7,
            reason=f"it is {state}",
            latency_ms=7.5,
            code=200 if state == "done" else 500,
            payload='{"n": 1}',
            not_before_ms=start_ms + 100 * DAY_MS,
        )
        assert store.settle_calls([settlement]) == [True]


def all_runs(store: Store, day: Day, *, limit: int, state: CallState | None = None) -> list[CallRun]:
    runs: list[CallRun] = []
    after: int | None = 0
    while after is not None:
        page, after = store.day_runs(day, state=state, provider=None, after=after, limit=limit)
        assert len(page) <= limit
        runs += page
    return runs


def test_a_day_is_counted_by_provider_and_state(store: Store, batch: Batch) -> None:
    day = planned(store, batch)
    end(store, ["done", "done", "failed", "unknown", "retry"])
    counted = {(count.provider, count.state): count.runs for count in store.day_counts(day)}
    assert counted == {
        ("a", "done"): 2,
        ("a", "failed"): 1,
        ("a", "unknown"): 1,
        ("a", "retry"): 1,
        ("a", "waiting"): 1,
        ("b", "waiting"): 6,
    }


def test_counts_of_a_day_equal_the_states_of_its_runs(store: Store, batch: Batch) -> None:
    day = planned(store, batch)
    end(store, ["done", "skipped", "unknown"])
    (call,) = store.claim_calls(now_ms=T0_MS + 3 * MINUTE_MS, runs_max=1, lease_ms=LEASE_MS)
    runs = all_runs(store, day, limit=100)
    told = Counter({(count.provider, count.state): count.runs for count in store.day_counts(day)})
    assert told == Counter((run.provider, run.state) for run in runs)
    assert {run.state for run in runs} == {"done", "skipped", "unknown", "out", "waiting"}
    assert store.release_calls([(call.handle, call.attempt)], now_ms=T0_MS + 3 * MINUTE_MS) == [True]


def test_counts_of_a_day_leave_out_other_days(store: Store, batch: Batch) -> None:
    first = planned(store, batch)
    end(store, ["done"])
    second = planned(store, batch, date="2026-09-22", start_ms=T0_MS + DAY_MS)
    assert sum(count.runs for count in store.day_counts(first)) == RECORDS
    assert {count.state for count in store.day_counts(second)} == {"waiting"}
    assert {run.date for run in all_runs(store, second, limit=100)} == {"2026-09-22"}


def test_due_times_come_in_order_with_their_providers_ended_or_not(store: Store, batch: Batch) -> None:
    day = planned(store, batch)
    end(store, ["done", "failed"])
    dues_ms, numbers = store.day_dues(day)
    assert list(dues_ms) == [T0_MS + index * MINUTE_MS for index in range(RECORDS)]
    names = [provider.id for number in numbers if (provider := store.provider(number))]
    assert names == ["a"] * 6 + ["b"] * 6


@pytest.mark.parametrize("limit", [1, 3, RECORDS, 100])
def test_pages_of_a_day_hold_each_run_once(store: Store, batch: Batch, limit: int) -> None:
    day = planned(store, batch)
    runs = all_runs(store, day, limit=limit)
    assert [run.record for run in runs] == [f"r{i:02}" for i in range(RECORDS)]
    assert {(run.batch, run.date) for run in runs} == {("daily", DATE)}


def test_full_last_page_of_runs_has_no_following_page(store: Store, batch: Batch) -> None:
    day = planned(store, batch)
    page, following = store.day_runs(day, state=None, provider=None, after=0, limit=RECORDS)
    assert (len(page), following) == (RECORDS, None)
    page, following = store.day_runs(day, state=None, provider="b", after=0, limit=RECORDS // 2)
    assert (len(page), following) == (RECORDS // 2, None)


def test_runs_of_a_day_are_filtered_by_state_and_provider(store: Store, batch: Batch) -> None:
    day = planned(store, batch)
    end(store, ["done", "failed", "done"])
    assert [run.state for run in all_runs(store, day, limit=1, state="done")] == ["done", "done"]
    both, _ = store.day_runs(day, state="waiting", provider="a", after=0, limit=100)
    assert {(run.state, run.provider) for run in both} == {("waiting", "a")}
    assert len(both) == 3
    assert store.day_runs(day, state=None, provider="nobody", after=0, limit=100) == ([], None)


def test_run_shows_its_outcome_times_and_payload(store: Store, batch: Batch) -> None:
    day = planned(store, batch)
    end(store, ["failed", "retry"])
    (failed,) = all_runs(store, day, limit=100, state="failed")
    found = store.find_call_run("daily", failed.record, DATE)
    assert found == failed
    assert (found.attempt, found.code, found.latency_ms, found.reason) == (1, 500, 7.5, "it is failed")
    assert (found.started_ms, found.ended_ms, found.due_ms) == (T0_MS, T0_MS + 7, T0_MS)
    assert (found.payload, found.dead) == ('{"n": 1}', True)
    (retry,) = all_runs(store, day, limit=100, state="retry")
    assert (retry.until_ms, retry.reason, retry.dead) == (T0_MS + 100 * DAY_MS, "it is retry", False)


def test_run_in_flight_shows_the_end_of_its_lease(store: Store, batch: Batch) -> None:
    day = planned(store, batch)
    (call,) = store.claim_calls(now_ms=T0_MS, runs_max=1, lease_ms=LEASE_MS)
    run = store.find_call_run("daily", call.record, day.date)
    assert run is not None
    assert (run.state, run.attempt, run.until_ms) == ("out", 1, call.lease_until_ms)


def test_run_of_a_paused_batch_is_set_aside_with_a_reason(store: Store, batch: Batch) -> None:
    day = planned(store, batch)
    store.put_batch("daily", BatchSpec(paused=True), expected_revision=None, now_ms=T0_MS)
    assert store.claim_calls(now_ms=T0_MS, runs_max=100, lease_ms=LEASE_MS) == []
    (aside,) = all_runs(store, day, limit=100, state="aside")
    assert (aside.due_ms, aside.reason) == (T0_MS, "its batch is paused")


def test_a_run_of_a_deleted_record_is_still_found(store: Store, batch: Batch) -> None:
    planned(store, batch)
    assert store.remove_record(batch, "r00")
    assert store.find_call_run("daily", "r00", DATE) is not None


@pytest.mark.parametrize("name", [("daily", "r99", DATE), ("nightly", "r00", DATE), ("daily", "r00", "2026-09-22")])
def test_run_that_was_never_planned_is_not_found(store: Store, batch: Batch, name: tuple[str, str, str]) -> None:
    planned(store, batch)
    assert store.find_call_run(*name) is None


def test_a_tick_of_monitors_leaves_batches_alone(store: Store, batch: Batch) -> None:
    """Both share one store, and one connection that writes."""
    armed(store, "home")
    rule = OnTime(now_ms=T0_MS, grace_ms=MINUTE_MS)
    store.advance_on_time(rule, limit=100)
    planned(store, batch)
    (call,) = store.claim_calls(now_ms=T0_MS, runs_max=1, lease_ms=LEASE_MS)
    assert (call.batch, call.date) == ("daily", DATE)
    assert store.put_batch("daily", BatchSpec(jitter="1s"), expected_revision=None, now_ms=T0_MS).batch
