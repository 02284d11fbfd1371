from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest

from paceline.core.batches import day_plan
from paceline.core.batches.batch import Batch, BatchSpec, RecordSpec, window_of
from paceline.core.batches.spread import evenness
from paceline.core.batches.values import PagePlan
from paceline.ports import Store
from paceline.steps.batches import batches
from paceline.steps.batches.late_records import plan_late_records
from paceline.steps.batches.plan import plan_day, plan_due, plan_pages
from tests.contract.support.batch_stage import DATE, day_of, due_runs, put_batch, put_provider, put_records
from tests.contract.support.stage import DAY_MS, HOUR_MS, MINUTE_MS, T0_MS
from tests.steps.support.scene import RECORDS

START_MS = window_of(BatchSpec(), DATE).start_ms


class Cut(Exception):
    """The planner dies here."""


@pytest.fixture(autouse=True)
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Forty records make six pages."""
    monkeypatch.setattr(day_plan, "PAGE_RUNS", 7)


def cut_after(pages: int) -> Any:
    left = iter(range(pages - 1))

    def progress(_report: object) -> None:
        if next(left, None) is None:
            raise Cut

    return progress


def at(store: Store, day: date = DATE) -> dict[str, int]:
    return {record: due_ms for due_ms, record in due_runs(store, day=day)}


def test_a_day_is_planned_evenly_and_once(store: Store, batch: Batch) -> None:
    report = plan_day(store, batch, DATE, now_ms=T0_MS)
    assert (report.enqueued, report.already, report.skipped) == (40, 0, 0)
    again = plan_day(store, batch, DATE, now_ms=T0_MS + HOUR_MS)
    assert (again.enqueued, again.already, again.skipped) == (0, 40, 0)
    dues_ms = sorted(at(store).values())
    assert evenness(dues_ms, start_ms=START_MS, end_ms=START_MS + DAY_MS).ratio <= 1.05
    assert Counter(record for _, record in due_runs(store)) == Counter(list(RECORDS))


def test_a_record_keeps_its_time_from_day_to_day(store: Store, batch: Batch) -> None:
    plan_day(store, batch, DATE, now_ms=T0_MS)
    tomorrow = DATE + timedelta(days=1)
    plan_day(store, batch, tomorrow, now_ms=T0_MS)
    assert {record: due_ms + DAY_MS for record, due_ms in at(store).items()} == at(store, tomorrow)


@pytest.mark.parametrize("pages", range(1, 7))
def test_a_plan_that_dies_between_pages_goes_on_in_another_process(
    store: Store, second: Store, batch: Batch, pages: int
) -> None:
    with pytest.raises(Cut):
        plan_day(store, batch, DATE, now_ms=T0_MS, progress=cut_after(pages))
    made = day_of(store, batch).enqueued
    assert made == min(7 * pages, 40)
    rest = plan_day(second, batch, DATE, now_ms=T0_MS + HOUR_MS)
    assert (rest.enqueued, rest.already) == (40 - made, made)
    assert day_of(store, batch).state == "planned"
    assert Counter(record for _, record in due_runs(store)) == Counter(list(RECORDS))


@pytest.mark.parametrize("pages", range(1, 6))
def test_a_plan_cut_short_has_the_times_of_one_in_one_go(store: Store, batch: Batch, pages: int) -> None:
    plan_day(store, batch, DATE, now_ms=T0_MS)
    whole = at(store)
    tomorrow = DATE + timedelta(days=1)
    with pytest.raises(Cut):
        plan_day(store, batch, tomorrow, now_ms=T0_MS, progress=cut_after(pages))
    plan_day(store, batch, tomorrow, now_ms=T0_MS)
    assert {record: due_ms + DAY_MS for record, due_ms in whole.items()} == at(store, tomorrow)


def test_planner_that_dies_inside_a_page_leaves_no_run_of_that_page(
    store: Store, batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    from paceline.adapters.sqlite.batches import days

    def die(*_: object) -> None:
        raise Cut

    with monkeypatch.context() as patch:
        patch.setattr(days, "wake", die)
        with pytest.raises(Cut):
            plan_day(store, batch, DATE, now_ms=T0_MS)
    assert due_runs(store) == []
    assert plan_day(store, batch, DATE, now_ms=T0_MS).enqueued == 40


def test_two_interleaved_planners_enqueue_each_record_once_and_report_it_correctly(
    store: Store, second: Store, batch: Batch
) -> None:
    window = window_of(batch.spec, DATE)
    day = store.open_day(batch, DATE.isoformat(), start_ms=window.start_ms, end_ms=window.end_ms)
    planners = [plan_pages(handle, batch, day, now_ms=T0_MS) for handle in (store, second)]
    last = [next(planner) for planner in planners]
    running = [0, 1]
    while running:
        for index in list(running):
            found = next(planners[index], None)
            if found is None:
                running.remove(index)
            else:
                last[index] = found
    assert sum(report.enqueued for report in last) == 40
    assert all(report.enqueued for report in last), "both had a part in it"
    assert Counter(record for _, record in due_runs(store)) == Counter(list(RECORDS))


def test_concurrent_planners_enqueue_each_record_once_and_report_it_correctly(
    store: Store, second: Store, batch: Batch
) -> None:
    reports = []

    def work(handle: Store) -> None:
        reports.append(plan_day(handle, batch, DATE, now_ms=T0_MS))

    threads = [threading.Thread(target=work, args=(handle,)) for handle in (store, second, store, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(report.enqueued for report in reports) == 40
    assert all(report.enqueued + report.already == 40 for report in reports)
    assert len(due_runs(store)) == 40


class Meddling:
    """Records change between any two pages."""

    def __init__(self, store: Store, acts: Iterator[Any]) -> None:
        self._store = store
        self._acts = acts

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def plan_page(self, *args: Any, **more: Any) -> PagePlan:
        result = self._store.plan_page(*args, **more)
        act = next(self._acts, None)
        if act is not None:
            act()
        return result


def test_record_changes_between_pages_of_a_plan_lose_and_double_no_run(
    store: Store, second: Store, batch: Batch
) -> None:
    def put(*records: RecordSpec) -> None:
        second.put_records(batch, records, now_ms=T0_MS)

    acts = iter(
        [
            lambda: put(RecordSpec("new-1", "a"), RecordSpec("new-2", "c")),
            lambda: [second.remove_record(batch, name) for name in ("r00", "r39")],
            lambda: put(RecordSpec("r39", "a"), RecordSpec("r05", "a", active=False)),
            lambda: put(*(RecordSpec(name, "a", f"/{name}") for name in RECORDS if RECORDS[name] == "c")),
            lambda: put(RecordSpec("r05", "b")),
        ]
    )
    meddling: Any = Meddling(store, acts)
    report = plan_day(meddling, batch, DATE, now_ms=T0_MS)
    active = {record.id for record in store.find_records(batch, after="", limit=100)[0]}
    planned = Counter(record for _, record in due_runs(store))
    assert set(planned) >= active == {*RECORDS, "new-1", "new-2"} - {"r00"}
    assert max(planned.values()) == 1
    assert report.enqueued == planned.total()
    assert store.late_records(batch, limit=10) == []


@pytest.mark.parametrize("pages", [1, 3])
def test_record_changes_during_an_interrupted_plan_lose_and_double_no_run(
    store: Store, batch: Batch, pages: int
) -> None:
    with pytest.raises(Cut):
        plan_day(store, batch, DATE, now_ms=T0_MS, progress=cut_after(pages))
    first = [record for _, record in due_runs(store)]
    last_planned = store.record_names([day_of(store, batch).cursor[1]])  # type: ignore[index]
    store.remove_record(batch, next(iter(last_planned.values())))
    moved = [RecordSpec(name, "a", f"/{name}") for name in RECORDS if name not in first]
    store.put_records(batch, [*moved, RecordSpec("new", "a")], now_ms=T0_MS)
    plan_day(store, batch, DATE, now_ms=T0_MS)
    planned = Counter(record for _, record in due_runs(store))
    assert planned == Counter([*RECORDS, "new"])


def test_records_that_come_while_a_plan_is_cut_short_wait_for_its_end(store: Store, batch: Batch) -> None:
    with pytest.raises(Cut):
        plan_day(store, batch, DATE, now_ms=T0_MS, progress=cut_after(6))
    batches.put_records(store, batch, [RecordSpec("new", "a"), RecordSpec("r01", "a")], now_ms=T0_MS)
    assert len(store.late_records(batch, limit=10)) == 2
    assert plan_day(store, batch, DATE, now_ms=T0_MS).enqueued == 1
    assert Counter(record for _, record in due_runs(store)) == Counter([*RECORDS, "new"])
    assert store.late_records(batch, limit=10) == []


def test_record_removed_and_created_again_has_one_run_a_day(store: Store, batch: Batch) -> None:
    plan_day(store, batch, DATE, now_ms=T0_MS)
    before = at(store)
    store.remove_record(batch, "r07")
    batches.put_records(store, batch, [RecordSpec("r07", "b")], now_ms=T0_MS)
    assert plan_day(store, batch, DATE, now_ms=T0_MS).enqueued == 0
    assert at(store) == before


def test_late_additions_go_into_the_largest_gaps_of_the_rest(store: Store, batch: Batch) -> None:
    plan_day(store, batch, DATE, now_ms=T0_MS)
    before, now_ms = at(store), START_MS + 12 * HOUR_MS
    for number in range(60):
        batches.put_records(store, batch, [RecordSpec(f"new-{number}", "abc"[number % 3])], now_ms=now_ms)
    after = at(store)
    assert {name: after[name] for name in before} == before, "no planned run is moved"
    added = sorted(due_ms for name, due_ms in after.items() if name not in before)
    assert len(added) == 60
    assert now_ms < added[0] <= added[-1] < START_MS + DAY_MS
    rest = [due_ms for due_ms in sorted(after.values()) if due_ms >= now_ms]
    assert evenness(rest, start_ms=now_ms, end_ms=START_MS + DAY_MS).ratio <= 4


def test_many_lots_of_late_additions_stay_even_for_the_whole_and_each_provider(store: Store) -> None:
    names = [f"p{number}" for number in range(20)]
    for name in names:
        put_provider(store, name)
    batch = put_batch(store, window="24h")
    plan_day(store, batch, DATE, now_ms=T0_MS)
    for lot in range(25):
        now_ms = START_MS + lot * 1_000
        records = [RecordSpec(f"r{lot}-{number}", names[number % 20]) for number in range(80)]
        batches.put_records(store, batch, records, now_ms=now_ms)
    dues_ms, numbers = store.day_dues(day_of(store, batch))
    assert len(dues_ms) == 2_000
    window = {"start_ms": START_MS, "end_ms": START_MS + DAY_MS}
    assert evenness(dues_ms, **window).ratio <= 4
    by_provider: dict[int, list[int]] = {}
    for due_ms, number in zip(dues_ms, numbers, strict=True):
        by_provider.setdefault(number, []).append(due_ms)
    assert max(evenness(mine, **window).ratio for mine in by_provider.values()) <= 4


def test_late_additions_to_days_planned_ahead_run_on_each_of_them(store: Store, batch: Batch) -> None:
    tomorrow = DATE + timedelta(days=1)
    for day in (DATE, tomorrow):
        plan_day(store, batch, day, now_ms=T0_MS)
    batches.put_records(store, batch, [RecordSpec("new", "a")], now_ms=T0_MS)
    assert "new" in at(store)
    assert "new" in at(store, tomorrow)
    assert store.late_records(batch, limit=1) == []


@pytest.mark.parametrize(("day", "hours"), [(date(2027, 3, 28), 23), (date(2027, 10, 31), 25), (date(2027, 6, 1), 24)])
def test_a_local_day_is_as_long_as_the_clocks_make_it(store: Store, batch: Batch, day: date, hours: int) -> None:
    batch = put_batch(store, timezone="Europe/Berlin")
    plan_day(store, batch, day, now_ms=T0_MS)
    there = day_of(store, batch, day)
    assert there.end_ms - there.start_ms == hours * HOUR_MS
    assert evenness(sorted(at(store, day).values()), start_ms=there.start_ms, end_ms=there.end_ms).ratio <= 1.05


def test_jitter_stays_within_its_bounds_and_is_the_same_every_day(store: Store, batch: Batch) -> None:
    plan_day(store, batch, DATE, now_ms=T0_MS)
    plain = at(store)
    batch = put_batch(store, jitter="10m")
    days = [DATE + timedelta(days=back) for back in (1, 2)]
    for day in days:
        plan_day(store, batch, day, now_ms=T0_MS)
    shifts = [
        {name: due_ms - (plain[name] + n * DAY_MS) for name, due_ms in at(store, day).items()}
        for n, day in enumerate(days, 1)
    ]
    assert shifts[0] == shifts[1]
    assert all(0 <= shift < 10 * MINUTE_MS for shift in shifts[0].values())
    assert len(set(shifts[0].values())) > 30


@pytest.mark.parametrize("missed", ["once", "all"])
def test_late_plan_is_spread_over_the_rest_of_the_window(store: Store, batch: Batch, missed: str) -> None:
    batch = put_batch(store, missed=missed)
    now_ms = START_MS + 20 * HOUR_MS
    assert plan_day(store, batch, DATE, now_ms=now_ms).enqueued == 40
    there = day_of(store, batch)
    assert (there.start_ms, there.end_ms) == (now_ms, now_ms + 6 * HOUR_MS), "no faster than four times the usual pace"
    assert evenness(sorted(at(store).values()), start_ms=now_ms, end_ms=there.end_ms).ratio <= 1.05


@pytest.mark.parametrize("missed", ["skip", "once", "all"])
def test_a_plan_made_as_the_window_begins_gives_every_record_its_usual_time(
    store: Store, batch: Batch, missed: str
) -> None:
    """A planner is never punctual to the millisecond; records keep their times from day to day all the same."""
    batch = put_batch(store, missed=missed)
    tomorrow = DATE + timedelta(days=1)
    assert plan_day(store, batch, DATE, now_ms=START_MS + 700).enqueued == 40
    assert plan_day(store, batch, tomorrow, now_ms=START_MS + DAY_MS + 31_000).enqueued == 40
    assert {name: due_ms - DAY_MS for name, due_ms in at(store, tomorrow).items()} == at(store)


def test_late_plan_with_missed_skip_keeps_its_times_and_skips_past_runs(store: Store, batch: Batch) -> None:
    batch = put_batch(store, missed="skip")
    report = plan_day(store, batch, DATE, now_ms=START_MS + 12 * HOUR_MS)
    assert (report.enqueued, report.skipped, report.already) == (20, 20, 0)
    there = day_of(store, batch)
    assert (there.enqueued, there.skipped, there.start_ms) == (20, 20, START_MS)
    runs, _ = store.day_runs(there, state="skipped", provider=None, after=0, limit=100)
    assert all(run.due_ms < START_MS + 12 * HOUR_MS for run in runs)
    again = plan_day(store, batch, DATE, now_ms=START_MS + 13 * HOUR_MS)
    assert (again.enqueued, again.skipped, again.already) == (0, 0, 40)


@pytest.mark.usefixtures("batch")
def test_the_daemon_plans_each_window_that_begins_after_the_batch_was_made(store: Store) -> None:
    first = plan_due(store, now_ms=T0_MS)
    assert (first.days, first.next_ms) == ([], START_MS), "not the window that is running"
    assert plan_due(store, now_ms=START_MS - 1).days == []
    (planned,) = plan_due(store, now_ms=START_MS).days
    assert (planned.batch, planned.date, planned.report.enqueued) == ("daily", DATE.isoformat(), 40)
    later = plan_due(store, now_ms=START_MS + MINUTE_MS)
    assert (later.days, later.next_ms) == ([], START_MS + DAY_MS)


@pytest.mark.usefixtures("batch")
def test_the_daemon_leaves_paused_batches_alone_and_plans_late_when_they_are_resumed(store: Store) -> None:
    put_batch(store, paused=True)
    assert plan_due(store, now_ms=START_MS + HOUR_MS).days == []
    put_batch(store, paused=False, now_ms=START_MS + 2 * HOUR_MS)
    (planned,) = plan_due(store, now_ms=START_MS + 2 * HOUR_MS).days
    assert planned.report.enqueued == 40
    assert min(at(store).values()) >= START_MS + 2 * HOUR_MS


@pytest.mark.usefixtures("batch")
@pytest.mark.parametrize(("missed", "days"), [("skip", 1), ("once", 1), ("all", 8)])
def test_whole_days_that_were_missed_are_made_up_for_by_policy(store: Store, missed: str, days: int) -> None:
    put_batch(store, missed=missed)
    report = plan_due(store, now_ms=START_MS + 20 * DAY_MS)
    dates = [planned.date for planned in report.days]
    last = DATE + timedelta(days=20)
    assert dates == [(last - timedelta(days=back)).isoformat() for back in reversed(range(days))]
    assert plan_due(store, now_ms=START_MS + 20 * DAY_MS).days == []


def test_daemon_finishes_the_plan_of_a_dead_planner(store: Store, second: Store, batch: Batch) -> None:
    with pytest.raises(Cut):
        plan_day(store, batch, DATE, now_ms=START_MS, progress=cut_after(2))
    (planned,) = plan_due(second, now_ms=START_MS + 3 * DAY_MS).days[:1]
    assert (planned.date, planned.report.enqueued, planned.report.already) == (DATE.isoformat(), 26, 14)


def test_a_planner_that_is_asked_to_stop_stops_after_a_page_and_is_not_done(store: Store, batch: Batch) -> None:
    report = plan_day(store, batch, DATE, now_ms=T0_MS, keep_on=lambda: False)
    assert (report.enqueued, report.finished) == (7, False)
    assert plan_due(store, now_ms=START_MS).days[0].report.enqueued == 33


def test_the_daemon_plans_newcomers(store: Store, batch: Batch) -> None:
    plan_day(store, batch, DATE, now_ms=T0_MS)
    store.put_records(batch, [RecordSpec("new", "a")], now_ms=START_MS + HOUR_MS)
    assert plan_due(store, now_ms=START_MS + HOUR_MS).newcomers == 1
    assert at(store)["new"] > START_MS + HOUR_MS
    assert plan_late_records(store, batch, now_ms=START_MS + HOUR_MS) == {}


def test_a_batch_without_records_has_an_empty_day(store: Store) -> None:
    batch = put_batch(store)
    assert plan_day(store, batch, DATE, now_ms=T0_MS).enqueued == 0
    assert day_of(store, batch).state == "planned"


def test_more_records_than_milliseconds_run_on_after_the_window(store: Store) -> None:
    put_provider(store, "a")
    batch = put_batch(store, window="1s")
    put_records(store, {f"r{number:04}": "a" for number in range(1_500)})
    assert plan_day(store, batch, DATE, now_ms=T0_MS).enqueued == 1_500
    dues_ms = [due_ms for due_ms, _ in due_runs(store)]
    assert len(set(dues_ms)) == 1_500
    assert max(dues_ms) < START_MS + 2_000


def test_planned_date_of_these_tests_begins_after_their_first_instant() -> None:
    assert START_MS > T0_MS
    assert datetime.fromtimestamp(START_MS / 1_000, UTC).date() == DATE
