"""Reruns of a day: a separate round of its ended runs, once, in the old order."""

from __future__ import annotations

from collections import Counter
from datetime import date

import pytest

from paceline.core.batches.batch import Batch, Window
from paceline.core.batches.records.request import values_of
from paceline.core.batches.reruns import Again, place_again, rerun_window
from paceline.core.batches.values import DeadChoice
from paceline.errors import InvalidInput, NotFound
from paceline.ports import Store
from paceline.steps.batches.plan import due_dates, plan_late_records
from paceline.steps.batches.rerun import Rerun, rerun
from paceline.steps.views.days import day_report, get_day, show_call_run
from tests.contract.support.batch_stage import put_records
from tests.contract.support.call_stage import DATE, claim, every, make_batch, names, plan, provide, settle
from tests.contract.support.stage import DAY_MS, HOUR_MS, MINUTE_MS, T0_MS

NOW_MS = T0_MS + HOUR_MS


@pytest.fixture
def batch(store: Store) -> Batch:
    """Of six runs four are done, one is a dead letter and one waits."""
    provide(store, "a", max_in_flight=9)
    batch = make_batch(store)
    plan(store, batch, every(10, 5) | {"late": T0_MS + DAY_MS - 1})
    store.close_day(get_day(store, batch, DATE))
    calls = claim(store, T0_MS + 50)
    for call in calls:
        assert settle(store, call, "failed" if call.record == "r4" else "done", now_ms=T0_MS + 50)
    return batch


def finish(store: Store, *, now_ms: int) -> list[str]:
    """Makes all calls that are due in a few hours. Returns the records in the order of their starts."""
    started: list[str] = []
    for _ in range(500):
        calls = claim(store, now_ms)
        for call in calls:
            assert settle(store, call, now_ms=now_ms)
        started += names(calls)
        now_ms += MINUTE_MS
    return started


def test_promise_5_rerun_pressed_twice_enqueues_nothing_while_the_first_is_open(store: Store, batch: Batch) -> None:
    assert rerun(store, batch, DATE, state="done", now_ms=NOW_MS) == Rerun(4, 1)
    assert rerun(store, batch, DATE, state="done", now_ms=NOW_MS + 1) == Rerun(0, 1)
    (call,) = claim(store, NOW_MS)
    assert settle(store, call, now_ms=NOW_MS)
    # One of its runs has ended, and it is still open.
    assert rerun(store, batch, DATE, state="done", now_ms=NOW_MS + 2).enqueued == 0
    assert sorted(finish(store, now_ms=NOW_MS + MINUTE_MS)) == ["r1", "r2", "r3"]
    assert rerun(store, batch, DATE, state="done", now_ms=NOW_MS + 12 * HOUR_MS) == Rerun(4, 2)
    assert store.verify() == []


def test_rerun_of_a_record_that_is_named_twice_makes_one_run(store: Store, batch: Batch) -> None:
    assert rerun(store, batch, DATE, records=["r1", "r2", "r1"], now_ms=NOW_MS) == Rerun(2, 1)
    with pytest.raises(InvalidInput) as caught:
        rerun(store, batch, DATE, records=["r1", "none", "none"], now_ms=NOW_MS)
    assert [error.pointer for error in caught.value.errors] == ["/records/1", "/records/2"]


def test_rerun_has_ids_and_a_day_of_its_own_and_leaves_the_day_as_it_was(store: Store, batch: Batch) -> None:
    before = day_report(store, get_day(store, batch, DATE))
    rerun(store, batch, DATE, records=["r1"], now_ms=NOW_MS)
    assert show_call_run(store, f"daily/r1@{DATE}", now_ms=NOW_MS).state == "done"
    again = show_call_run(store, f"daily/r1@{DATE}~1", now_ms=NOW_MS)
    assert (again.state, again.date, again.rerun) == ("waiting", DATE, 1)
    (call,) = claim(store, NOW_MS)
    assert values_of(call)[:3:2] == (DATE, f"daily/r1@{DATE}~1")
    settle(store, call, now_ms=NOW_MS)
    report = day_report(store, get_day(store, batch, f"{DATE}~1"))
    assert (report.date, report.rerun, report.runs, report.totals["done"]) == (DATE, 1, 1, 1)
    assert day_report(store, get_day(store, batch, DATE)) == before
    with pytest.raises(NotFound):
        get_day(store, batch, f"{DATE}~2")


def test_rerun_of_a_dead_letter_takes_its_place(store: Store, batch: Batch) -> None:
    assert rerun(store, batch, DATE, state="failed", now_ms=NOW_MS) == Rerun(1, 1)
    assert store.dead(DeadChoice(), after=0, limit=9) == ([], None)
    (call,) = claim(store, NOW_MS)
    assert settle(store, call, "failed", now_ms=NOW_MS)
    (dead,), _ = store.dead(DeadChoice(batch="daily", date=DATE), after=0, limit=9)
    assert (dead.record, dead.date) == ("r4", f"{DATE}~1")
    assert rerun(store, batch, DATE, state="failed", now_ms=NOW_MS + 1) == Rerun(1, 2)
    assert store.verify() == []


def test_rerun_with_wrong_input_is_refused_and_leaves_open_runs_alone(store: Store, batch: Batch) -> None:
    assert rerun(store, batch, DATE, records=["late"], now_ms=NOW_MS) == Rerun(0, 0)
    for wrong, pointer in (
        ({"records": ["r0", "nobody"]}, "/records/1"),
        ({"state": "waiting"}, "/state"),
        ({}, ""),
        ({"state": "done", "records": ["r0"]}, ""),
    ):
        with pytest.raises(InvalidInput) as refused:
            rerun(store, batch, DATE, now_ms=NOW_MS, **wrong)
        assert refused.value.errors[0].pointer == pointer
    with pytest.raises(NotFound):
        rerun(store, batch, "2026-01-01", state="done", now_ms=NOW_MS)


def test_rerun_that_was_cut_short_is_filled_by_the_next(store: Store, batch: Batch) -> None:
    store.open_day(batch, f"{DATE}~1", start_ms=NOW_MS, end_ms=NOW_MS + DAY_MS)  # and then its process was killed
    assert rerun(store, batch, DATE, records=["r2"], now_ms=NOW_MS) == Rerun(1, 1)
    assert rerun(store, batch, DATE, state="done", now_ms=NOW_MS) == Rerun(3, 1)
    assert Counter(finish(store, now_ms=NOW_MS + HOUR_MS)) == Counter(["r0", "r1", "r2", "r3"])


def test_rerun_is_not_a_day_for_planners_and_late_records(store: Store, batch: Batch) -> None:
    store.open_day(batch, f"{DATE}~1", start_ms=NOW_MS, end_ms=NOW_MS + 9 * DAY_MS)
    rerun(store, batch, DATE, state="done", now_ms=NOW_MS)
    assert date.fromisoformat(DATE) not in due_dates(store, batch, date.fromisoformat(DATE))
    put_records(store, {"new": "a"}, now_ms=NOW_MS)
    assert plan_late_records(store, batch, now_ms=NOW_MS) == {DATE: 1}


def test_runs_of_a_rerun_are_spread_in_their_old_order() -> None:
    dues = [(1, 9), (2, 5), (1, 3), (1, 6)]
    runs = [Again(provider, due_ms, record) for record, (provider, due_ms) in enumerate(dues)]
    window = rerun_window([3, 1], [1, 1], room_ms=DAY_MS, now_ms=T0_MS)
    assert window == Window(T0_MS, T0_MS + 3_000)
    placed = place_again(runs, window)
    ones = [record for record, provider in zip(placed.records, placed.providers, strict=True) if provider == 1]
    assert ones == [2, 3, 0]
    assert sorted(placed.dues_ms) == [T0_MS, T0_MS + 750, T0_MS + 1_500, T0_MS + 2_250]
    squeezed = rerun_window([1_000_000], [1], room_ms=DAY_MS // 4, now_ms=0)
    assert squeezed.end_ms == DAY_MS // 4
    assert rerun_window([100], [5_000], room_ms=DAY_MS // 4, now_ms=0).end_ms == 500_000
