from __future__ import annotations

from functools import partial

import pytest

from paceline.core.monitors.due import CatchUp
from paceline.ports import Store
from paceline.steps.monitors.tick import CLOCK_TOLERANCE_MS, pull_back, tick
from tests.steps.support.scene import (
    DAY_MS,
    HOUR_MS,
    MINUTE_MS,
    SECOND_MS,
    T0_MS,
    entry,
    put,
    run_tick,
    runs,
    send_all,
    take,
)


def test_promise_1_two_daemons_tick_one_file_and_each_run_is_made_once(store: Store, second: Store) -> None:
    for number in range(20):
        put(store, f"m{number}", now_ms=T0_MS, initial_delay="0s")
    made = 0
    for minute in range(5):
        now_ms = T0_MS + minute * MINUTE_MS
        for daemon in (store, second, store):
            made += tick(daemon, now_ms=now_ms, catch_up=CatchUp(), limit=7).runs
            made += run_tick(daemon, now_ms=now_ms).runs
    assert made == 100
    for number in range(20):
        assert [run.counter for run in runs(store, f"m{number}", now_ms=T0_MS)] == [0, 1, 2, 3, 4]


def test_promise_4_a_daemon_that_froze_between_reading_and_writing_loses(store: Store, second: Store) -> None:
    put(store, "a", now_ms=T0_MS, every=None, cron="* * * * *")
    now_ms = T0_MS + MINUTE_MS

    class Frozen:
        """A store whose reader falls asleep after it has read what is due, while the other daemon goes on."""

        def __getattr__(self, name: str) -> object:
            return getattr(second, name)

        def due(self, *, now_ms: int, limit: int) -> object:
            dues = second.due(now_ms=now_ms, limit=limit)
            assert run_tick(store, now_ms=now_ms).runs == 1
            return dues

    report = run_tick(Frozen(), now_ms=now_ms)  # type: ignore[arg-type]  # all but one method are the store's
    assert (report.entries, report.runs, report.lost) == (0, 0, 1)
    assert [run.counter for run in runs(store, "a", now_ms=T0_MS)] == [0]


def test_a_tick_is_bounded_and_says_that_there_is_more(store: Store) -> None:
    for number in range(5):
        put(store, f"m{number}", now_ms=T0_MS, overlap="skip")
    first = tick(store, now_ms=T0_MS, catch_up=CatchUp(), limit=3)
    second = tick(store, now_ms=T0_MS, catch_up=CatchUp(), limit=3)
    assert (first.runs, first.more) == (3, True)
    assert (second.runs, second.more) == (2, False)
    assert tick(store, now_ms=T0_MS, catch_up=CatchUp()).entries == 0


def test_late_and_cron_entries_are_handled_beside_any_number_of_entries_on_time(store: Store) -> None:
    for number in range(10):
        put(store, f"m{number}", now_ms=T0_MS, every="1s", initial_delay="1m")
    put(store, "late", now_ms=T0_MS, every="20s")
    put(store, "cron", now_ms=T0_MS, every=None, cron="* * * * *")
    for second in range(60, 120):
        tick(store, now_ms=T0_MS + second * SECOND_MS, catch_up=CatchUp(), limit=5)
    counters = {name: len(runs(store, name, now_ms=T0_MS)) for name in ("late", "cron", *(f"m{n}" for n in range(10)))}
    assert min(counters.values()) > 0, counters


def test_lateness_is_reported_per_run(store: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    assert run_tick(store, now_ms=T0_MS + 730).late_ms == [730]


@pytest.mark.parametrize(("missed", "counters"), [("skip", []), ("once", [0]), ("all", [0, 1, 2, 3, 4, 5])])
def test_runs_after_six_hours_down_follow_the_policy_for_missed_runs(
    store: Store, missed: str, counters: list[int]
) -> None:
    put(store, "a", now_ms=T0_MS, every="1h", missed=missed)
    now_ms = T0_MS + 6 * HOUR_MS - SECOND_MS
    assert run_tick(store, now_ms=now_ms).runs == len(counters)
    assert run_tick(store, now_ms=now_ms).entries == 0
    assert entry(store, "a", now_ms=now_ms).due_ms == T0_MS + 6 * HOUR_MS
    assert [run.counter for run in runs(store, "a", now_ms=now_ms)] == counters


def test_missed_runs_are_caught_up_spread_and_in_order(store: Store) -> None:
    for number in range(50):
        put(store, f"m{number}", now_ms=T0_MS, every="1h", missed="all", initial_delay="0s")
    now_ms = T0_MS + 6 * HOUR_MS - SECOND_MS
    run_tick(store, now_ms=now_ms)
    per_minute = []
    sent: list[str] = []
    for minute in range(11):
        ids = [
            run for second in range(60) for run in send_all(store, now_ms=now_ms + minute * MINUTE_MS + second * 1_000)
        ]
        per_minute.append(len(ids))
        sent += ids
    assert len(sent) == len(set(sent)) == 300
    assert max(per_minute) <= 45
    for number in range(50):
        mine = [run for run in sent if run.startswith(f"ann/m{number}#")]
        assert [run.rsplit("@")[1] for run in mine] == ["0", "1", "2", "3", "4", "5"]


def test_promise_2_late_ticks_do_not_make_the_schedule_drift(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, every="7s")
    now_ms = T0_MS
    while now_ms < T0_MS + HOUR_MS:
        run_tick(store, now_ms=now_ms)
        now_ms += 6_870
    assert all((run.due_ms - T0_MS) % 7_000 == 0 for run in runs(store, "a", now_ms=now_ms))


def test_a_clock_set_back_by_hours_does_not_silence_a_monitor(store: Store, second: Store) -> None:
    put(store, "a", now_ms=T0_MS)
    put(store, "daily", now_ms=T0_MS, every=None, cron="0 0 * * *")
    put(store, "later", now_ms=T0_MS, initial_delay="9d")
    run_tick(store, now_ms=T0_MS)
    now_ms = T0_MS - 5 * HOUR_MS
    assert run_tick(second, now_ms=now_ms + MINUTE_MS).runs == 0
    report = pull_back(second, read_ms=lambda: now_ms, wait_ms_max=3_600_000, limit=1)
    assert (report.scanned, report.moved) == (3, 1)
    assert entry(store, "a", now_ms=now_ms).due_ms == now_ms + MINUTE_MS
    assert run_tick(second, now_ms=now_ms + MINUTE_MS).runs == 1
    assert pull_back(store, read_ms=lambda: now_ms + MINUTE_MS, wait_ms_max=3_600_000).moved == 0
    assert [run.counter for run in runs(store, "a", now_ms=now_ms)] == [0, 1]


def test_promise_5_entry_armed_by_another_process_during_a_pull_back_does_not_fire_twice(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, every="1s")
    run_tick(store, now_ms=T0_MS)
    looks = 0

    def now() -> int:
        """Held up right after its first look at the clock, while another process goes on."""
        nonlocal looks
        looks += 1
        if looks > 1:
            return T0_MS + 5_100
        for second in range(1, 6):
            run_tick(store, now_ms=T0_MS + second * SECOND_MS)
        return T0_MS + 100

    assert pull_back(store, read_ms=now, wait_ms_max=3_600_000).moved == 0
    run_tick(store, now_ms=T0_MS + 5_200)
    dues = [run.due_ms for run in runs(store, "a", now_ms=T0_MS + 6_000)]
    assert len(dues) == len(set(dues)) == 6


def test_a_clock_put_right_by_a_little_does_not_fire_a_cron_twice(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, every=None, cron="0 * * * *")
    due_ms = entry(store, "a", now_ms=T0_MS).due_ms
    assert due_ms is not None
    assert run_tick(store, now_ms=due_ms).runs == 1
    for back_ms in (SECOND_MS, CLOCK_TOLERANCE_MS):
        at_ms = due_ms - back_ms
        assert pull_back(store, read_ms=partial(int, at_ms), wait_ms_max=3_600_000).moved == 0
    assert run_tick(store, now_ms=due_ms + 1).runs == 0


def test_monitor_fires_on_after_the_clock_jumped_a_day_ahead_and_back(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, missed="once")
    run_tick(store, now_ms=T0_MS)
    run_tick(store, now_ms=T0_MS + DAY_MS)
    now_ms = T0_MS + 2 * MINUTE_MS
    assert pull_back(store, read_ms=lambda: now_ms, wait_ms_max=3_600_000).moved == 1
    counters = len(runs(store, "a", now_ms=now_ms))
    for minute in range(1, 4):
        run_tick(store, now_ms=now_ms + minute * MINUTE_MS)
    assert len(runs(store, "a", now_ms=now_ms)) == counters + 3


def test_promise_6_the_runs_of_one_monitor_are_sent_one_at_a_time(store: Store) -> None:
    put(store, "a", now_ms=T0_MS, every="1s")
    for second in range(5):
        run_tick(store, now_ms=T0_MS + second * SECOND_MS)
    assert len(take(store, now_ms=T0_MS + 5 * SECOND_MS)) == 1
    assert take(store, now_ms=T0_MS + 5 * SECOND_MS) == []
