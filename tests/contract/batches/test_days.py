from __future__ import annotations

import pytest

from paceline.core.batches.batch import Batch, Day, RecordSpec
from paceline.ports import Store
from tests.contract.support.batch_stage import (
    DATE,
    day_of,
    due_runs,
    placements,
    plan,
    put_batch,
    put_provider,
    put_records,
)
from tests.contract.support.stage import DAY_MS, HOUR_MS, MINUTE_MS, T0_MS

NONE = placements()


@pytest.fixture
def batch(store: Store) -> Batch:
    for name in ("a", "b"):
        put_provider(store, name)
    return put_records(store, {f"r{number}": "ab"[number % 2] for number in range(8)})


def opened(store: Store, batch: Batch, date: str = "2026-09-22") -> Day:
    return store.open_day(batch, date, start_ms=T0_MS, end_ms=T0_MS + DAY_MS)


def numbers(store: Store, batch: Batch) -> dict[str, int]:
    order = store.plan_order(batch, None)
    return {name: number for number, name in store.record_names(order.records).items()}


def test_a_day_is_opened_once_and_keeps_its_window(store: Store, other: Store, batch: Batch) -> None:
    day = opened(store, batch)
    assert (day.state, day.cursor, day.enqueued, day.skipped) == ("planning", None, 0, 0)
    again = other.open_day(batch, "2026-09-22", start_ms=T0_MS + 5, end_ms=T0_MS + 6)
    assert again == day == store.day(batch, "2026-09-22")
    assert store.day(batch, "2026-09-23") is None


def test_days_are_listed_newest_first(store: Store, batch: Batch) -> None:
    for date in ("2026-09-22", "2026-09-24", "2026-09-23"):
        opened(store, batch, date)
    assert [day.date for day in store.days(batch, before=None, limit=2)] == ["2026-09-24", "2026-09-23"]
    assert [day.date for day in store.days(batch, before="2026-09-23", limit=2)] == ["2026-09-22"]
    assert store.days(put_batch(store, "another"), before=None, limit=2) == []


def test_the_order_of_a_plan_has_the_active_records_by_provider_and_place(store: Store, batch: Batch) -> None:
    store.remove_record(batch, "r0")
    store.put_records(batch, [RecordSpec("r1", "b", active=False), RecordSpec("r2", "b")], now_ms=T0_MS)
    order = store.plan_order(batch, None)
    names = store.record_names(order.records)
    a, b = (store.provider(name) for name in "ab")
    assert a is not None
    assert b is not None
    assert order.providers == [(a.number, 2), (b.number, 4)]
    assert {names[number] for number in order.records[:2]} == {"r4", "r6"}
    assert {names[number] for number in order.records[2:]} == {"r2", "r3", "r5", "r7"}
    assert sorted(order.turns) == list(range(6))
    assert order.begin == 0


def test_plan_order_continues_at_its_cursor_even_if_the_record_there_was_removed(store: Store, batch: Batch) -> None:
    order = store.plan_order(batch, None)
    third = order.turns[2]
    provider = order.providers[0][0] if third < order.providers[0][1] else order.providers[1][0]
    cursor = (provider, order.records[third])
    assert store.plan_order(batch, cursor).begin == 3
    store.remove_record(batch, store.record_names([order.records[third]])[order.records[third]])
    assert store.plan_order(batch, cursor).begin == 2, "those after it are the same"


def test_page_of_records_is_enqueued_once_however_often_it_is_sent(store: Store, other: Store, batch: Batch) -> None:
    day = opened(store, batch)
    page = placements((1, 1, T0_MS + 1), (2, 2, T0_MS + 2))
    first = store.plan_page(day, page, cursor=(1, 1), skipped=NONE, now_ms=T0_MS)
    assert (first.won, first.enqueued, first.already) == (True, 2, 0)
    assert other.plan_page(day, page, cursor=(1, 1), skipped=NONE, now_ms=T0_MS).won is False
    moved = day_of(store, batch)
    assert (moved.cursor, moved.enqueued) == ((1, 1), 2)
    more = placements((2, 2, T0_MS + 9), (3, 1, T0_MS + 3))
    second = other.plan_page(moved, more, cursor=(2, 3), skipped=NONE, now_ms=T0_MS)
    assert (second.won, second.enqueued, second.already) == (True, 1, 1)
    assert [due_ms for due_ms, _ in due_runs(store)] == [T0_MS + 1, T0_MS + 2, T0_MS + 3], "the first time stays"


def test_page_planned_from_a_stale_cursor_changes_nothing(store: Store, batch: Batch) -> None:
    day = opened(store, batch)
    assert store.plan_page(day, placements((1, 1, T0_MS)), cursor=(1, 1), skipped=NONE, now_ms=T0_MS).won
    late = placements((2, 2, T0_MS))
    assert store.plan_page(day, late, cursor=(2, 2), skipped=late, now_ms=T0_MS) == (False, 0, 0, 0)
    assert len(due_runs(store)) == 1


def test_skipped_run_is_settled_immediately_and_only_once(store: Store, batch: Batch) -> None:
    day = opened(store, batch)
    page, missed = placements((1, 1, T0_MS + HOUR_MS)), placements((2, 2, T0_MS + 1), (4, 2, T0_MS + 2))
    made = store.plan_page(day, page, cursor=(1, 1), skipped=missed, now_ms=T0_MS + MINUTE_MS)
    assert (made.enqueued, made.skipped, made.already) == (1, 2, 0)
    runs, _ = store.day_runs(day, state="skipped", provider=None, after=0, limit=10)
    assert [(run.due_ms, run.ended_ms, run.dead) for run in runs] == [
        (T0_MS + 1, T0_MS + MINUTE_MS, False),
        (T0_MS + 2, T0_MS + MINUTE_MS, False),
    ]
    again = store.plan_page(day_of(store, batch), missed, cursor=(2, 2), skipped=NONE, now_ms=T0_MS)
    assert (again.enqueued, again.already) == (0, 2)
    there = day_of(store, batch)
    assert (there.enqueued, there.skipped) == (1, 2)


def test_two_runs_of_a_provider_never_share_a_millisecond(store: Store, batch: Batch) -> None:
    day = opened(store, batch)
    page = placements(*((number, 1, T0_MS + 5) for number in range(1, 5)))
    assert store.plan_page(day, page, cursor=(1, 4), skipped=NONE, now_ms=T0_MS).enqueued == 4
    other_day = opened(store, batch, "2026-09-23")
    page = placements((1, 1, T0_MS + 4), (2, 1, T0_MS + 4), (3, 1, T0_MS + 8), (4, 2, T0_MS + 5))
    assert store.plan_page(other_day, page, cursor=(1, 4), skipped=NONE, now_ms=T0_MS).enqueued == 4
    assert store.taken(1, from_ms=T0_MS, to_ms=T0_MS + DAY_MS, limit=10) == [T0_MS + at for at in range(4, 11)]
    assert store.taken(2, from_ms=T0_MS, to_ms=T0_MS + DAY_MS, limit=10) == [T0_MS + 5]


def test_run_is_not_planned_into_the_millisecond_of_an_ended_run(store: Store, batch: Batch) -> None:
    day = opened(store, batch)
    missed = placements((1, 1, T0_MS + 5))
    store.plan_page(day, NONE, cursor=(1, 1), skipped=missed, now_ms=T0_MS + 9)
    page = placements((3, 1, T0_MS + 5))
    store.plan_page(day_of(store, batch), page, cursor=(1, 3), skipped=NONE, now_ms=T0_MS)
    assert store.taken(1, from_ms=T0_MS, to_ms=T0_MS + DAY_MS, limit=10) == [T0_MS + 6]


def test_hundreds_of_runs_due_in_one_millisecond_move_to_the_next_free_ones(store: Store) -> None:
    put_provider(store, "a")
    batch = put_records(store, {f"r{number:03}": "a" for number in range(700)})
    for date in ("2026-09-22", "2026-09-23"):
        day = opened(store, batch, date)
        page = placements(*((number, 1, T0_MS) for number in range(1, 701)))
        assert store.plan_page(day, page, cursor=(1, 700), skipped=NONE, now_ms=T0_MS).enqueued == 700
    assert store.taken(1, from_ms=T0_MS, to_ms=T0_MS + DAY_MS, limit=2_000) == list(range(T0_MS, T0_MS + 1_400))


def test_planning_wakes_the_provider_at_its_first_run(store: Store, batch: Batch) -> None:
    assert store.next_call_ms() is None
    day = opened(store, batch)
    page = placements((1, 1, T0_MS + HOUR_MS), (3, 1, T0_MS + 2 * HOUR_MS))
    store.plan_page(day, page, cursor=(1, 3), skipped=NONE, now_ms=T0_MS)
    assert store.next_call_ms() == T0_MS + HOUR_MS
    store.plan_late_records(day_of(store, batch), placements((5, 1, T0_MS + MINUTE_MS)))
    assert store.next_call_ms() == T0_MS + MINUTE_MS
    store.plan_late_records(day_of(store, batch), placements((7, 1, T0_MS + 9 * HOUR_MS)))
    assert store.next_call_ms() == T0_MS + MINUTE_MS, "what comes later does not put it off"


def test_day_is_closed_only_by_a_planner_that_has_seen_its_last_page(store: Store, other: Store, batch: Batch) -> None:
    day = opened(store, batch)
    store.plan_page(day, placements((1, 1, T0_MS)), cursor=(1, 1), skipped=NONE, now_ms=T0_MS)
    assert other.close_day(day) is False
    there = day_of(store, batch)
    assert store.close_day(there) is True
    assert other.close_day(there) is False
    assert day_of(store, batch).state == "planned"
    page = placements((2, 2, T0_MS))
    assert store.plan_page(there, page, cursor=(2, 2), skipped=NONE, now_ms=T0_MS).won is False, "no page after that"


def test_late_additions_count_and_are_made_once(store: Store, batch: Batch) -> None:
    plan(store, batch)
    store.put_records(batch, [RecordSpec("late", "a")], now_ms=T0_MS)
    (newcomer,) = store.late_records(batch, limit=10)
    day = day_of(store, batch)
    assert store.unplanned(day, [newcomer.record, numbers(store, batch)["r1"]]) == {newcomer.record}
    page = placements((newcomer.record, newcomer.provider, day.start_ms + 1))
    assert store.plan_late_records(day, page).enqueued == 1
    assert store.plan_late_records(day, page) == (True, 0, 1, 0)
    assert day_of(store, batch).enqueued == 9
    assert store.unplanned(day, [newcomer.record]) == set()


def test_taken_times_are_those_of_the_day_in_order_over_all_providers(store: Store, batch: Batch) -> None:
    day, other_day = opened(store, batch), opened(store, batch, "2026-09-23")
    page = placements((1, 1, T0_MS + 30), (2, 2, T0_MS + 10), (3, 1, T0_MS + 20), (4, 2, T0_MS + 50))
    store.plan_page(day, page, cursor=(2, 4), skipped=NONE, now_ms=T0_MS)
    store.plan_page(other_day, placements((1, 1, T0_MS + 15)), cursor=(1, 1), skipped=NONE, now_ms=T0_MS)
    found = store.taken(day, from_ms=T0_MS + 10, to_ms=T0_MS + 50, limit=10)
    assert found == [T0_MS + 10, T0_MS + 20, T0_MS + 30]
    assert store.taken(day, from_ms=T0_MS, to_ms=T0_MS + DAY_MS, limit=2) == [T0_MS + 10, T0_MS + 20]


def test_a_plan_has_each_record_once(store: Store, other: Store, batch: Batch) -> None:
    assert plan(store, batch).enqueued == 8
    assert sorted(record for _, record in due_runs(other)) == [f"r{number}" for number in range(8)]
    start_ms = day_of(store, batch).start_ms
    assert [due_ms for due_ms, _ in due_runs(store)] == [start_ms + turn * DAY_MS // 8 for turn in range(8)]
    assert DATE.isoformat() == day_of(store, batch).date


@pytest.mark.parametrize("missed", ["skip", "once"])
def test_day_before_2026_is_planned_with_its_own_ids(store: Store, missed: str) -> None:
    put_provider(store, "provA")
    put_provider(store, "provB")
    batch = put_batch(store, missed=missed)
    put_records(store, {"id1": "provA", "id2": "provA", "id3": "provB"})
    day = DATE.replace(year=2025, month=8, day=14)
    report = plan(store, batch, day=day)
    assert report.enqueued + report.skipped == 3
    assert report.skipped == (3 if missed == "skip" else 0)
    assert plan(store, batch, day=day).already == 3
    assert {record for _, record in due_runs(store, day=day)} == {"id1", "id2", "id3"}
    assert store.verify() == []
