"""Runs of one monitor that would overlap: skipped, or queued at a pace and up to a limit; and what its health sees."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from random import Random

import pytest

from paceline.core.monitors.catch_up import HORIZON_S, MissedRuns
from paceline.core.monitors.definition import MonitorSpec, cadence_of
from paceline.core.monitors.due import CatchUp, OnTime, advance
from paceline.core.monitors.health import Glance
from paceline.core.monitors.overlap import QUEUED, superseded_reason
from paceline.core.monitors.schedule import Cadence, Missed, Overlap
from paceline.core.monitors.values import Claimed, RemoveMonitor, Run, Take
from paceline.ports import Store
from paceline.steps.monitors.tick import tick
from tests.contract.support.stage import (
    GET,
    HOUR_MS,
    MINUTE_MS,
    OUTGOING,
    T0_MS,
    arm_all,
    armed,
    armed_all,
    claim,
    due_of,
    names,
    outgoing_of,
    put,
    settle,
)

CATCH_UP = CatchUp(waiting_max=3)


def tick_minutes(store: Store, first: int, last: int) -> int:
    """Ticks at each minute, both included; how many runs were made."""
    return sum(
        tick(store, now_ms=T0_MS + minute * MINUTE_MS, catch_up=CATCH_UP).runs for minute in range(first, last + 1)
    )


def runs_of(store: Store, monitor_id: str) -> list[Run]:
    """Oldest first."""
    monitor = store.monitor("ann", monitor_id)
    assert monitor is not None
    return list(reversed(store.monitor_runs(monitor, before=None, limit=100, now_ms=T0_MS)))


@pytest.mark.parametrize("state", ["waiting", "out"])
def test_monitor_with_overlap_skip_has_one_open_run_and_counts_skipped_firings(store: Store, state: str) -> None:
    monitor = armed(store, "a")
    assert tick_minutes(store, 0, 0) == 1
    claimed = claim(store, lease_ms=60 * MINUTE_MS) if state == "out" else []
    assert tick_minutes(store, 1, 5) == 0
    assert [(run.counter, run.due_ms, run.state) for run in runs_of(store, "a")] == [(0, T0_MS, state)]
    entry = store.entries([monitor.generation], now_ms=T0_MS)[monitor.generation]
    assert (entry.counter, entry.due_ms, entry.overlapped) == (1, T0_MS + 6 * MINUTE_MS, 5)
    claimed = claimed or claim(store, now_ms=T0_MS + 5 * MINUTE_MS)
    assert settle(store, claimed, now_ms=T0_MS + 5 * MINUTE_MS) == [True]
    assert tick_minutes(store, 6, 6) == 1
    assert [(run.counter, run.due_ms) for run in runs_of(store, "a")] == [(0, T0_MS), (1, T0_MS + 6 * MINUTE_MS)]
    assert store.entries([monitor.generation], now_ms=T0_MS)[monitor.generation].overlapped == 0


def test_a_tick_says_how_many_firings_it_skipped(store: Store) -> None:
    armed_all(store, ["a", "b"])
    tick_minutes(store, 0, 0)
    report = tick(store, now_ms=T0_MS + MINUTE_MS, catch_up=CATCH_UP)
    assert (report.entries, report.runs, report.skipped, report.more) == (2, 0, 2, False)


def test_outgoing_monitors_without_a_checker_do_not_grow_the_ledger(store: Store) -> None:
    armed_all(store, (f"m{number}" for number in range(5)), check=OUTGOING)
    tick_minutes(store, 0, 30)
    assert store.status().runs_waiting == 5
    assert [len(runs_of(store, f"m{number}")) for number in range(5)] == [1] * 5


@pytest.mark.parametrize("seed", range(4))
def test_fast_path_for_due_entries_applies_overlap_as_core_decides(store: Store, other: Store, seed: int) -> None:
    random = Random(seed)
    policies: list[Overlap] = ["skip", "queue"]
    for number in range(12):
        armed(store, f"m{number}", overlap=random.choice(policies), check=random.choice((OUTGOING, OUTGOING)))
    tick_minutes(store, 0, 0)
    claimed = claim(store, outgoing_of("ann"), runs_max=12)
    settle(store, random.sample(claimed, 6))
    now_ms = T0_MS + MINUTE_MS
    before = {due.generation: due for due in other.due(now_ms=now_ms, limit=100)}
    assert len(before) == 12
    moved = store.advance_on_time(OnTime(now_ms, 10_000), limit=100)
    after = {due.generation: due for due in other.armed_after(None, from_ms=0, limit=100)}
    gone = [due for due in before.values() if after[due.generation].token != due.token]
    assert len(gone) == moved.entries
    assert not [due for due in gone if due.busy and due.cadence.overlap == "queue"]
    for due in gone:
        wanted = advance(due, now_ms=now_ms, catch_up=CATCH_UP)
        made = due.generation, due.counter + len(wanted.firings), due.revision, wanted.next_due_ms
        assert after[due.generation].token == made
        assert after[due.generation].overlapped == wanted.overlapped
    assert moved.skipped == sum(due.busy for due in gone)


def test_promise_7_queued_runs_follow_one_another_at_no_more_than_twice_the_usual_pace(store: Store) -> None:
    armed(store, "a", overlap="queue")
    tick_minutes(store, 0, 0)
    hanging = claim(store, lease_ms=60 * MINUTE_MS)
    assert tick_minutes(store, 1, 3) == 3
    assert [(run.state, run.reason) for run in runs_of(store, "a")][1:] == [("parked", QUEUED)] * 3
    now_ms = T0_MS + 3 * MINUTE_MS + MINUTE_MS // 2
    settle(store, hanging, now_ms=now_ms)
    starts = []
    for _ in range(20):
        if claimed := claim(store, now_ms=now_ms):
            starts.append(now_ms)
            settle(store, claimed, now_ms=now_ms)
        now_ms += MINUTE_MS // 10
    assert len(starts) == 3
    assert min(later - sooner for sooner, later in pairwise(starts)) == MINUTE_MS // 2
    assert [run.state for run in runs_of(store, "a")] == ["ok"] * 4


@pytest.mark.parametrize("cron", [None, "* * * * *"], ids=["interval", "cron"])
def test_a_run_that_queued_behind_a_pause_follows_at_the_pace_of_its_cadence(store: Store, cron: str | None) -> None:
    written = MonitorSpec(check=GET, every=None if cron else "60s", cron=cron, overlap="queue")
    put(store, "a", written)
    arm_all(store, T0_MS, cadence=cadence_of(written))
    tick_minutes(store, 0, 0)
    hanging = claim(store, lease_ms=31 * HOUR_MS)
    asleep_ms = T0_MS + 29 * HOUR_MS
    assert tick(store, now_ms=asleep_ms, catch_up=CATCH_UP).runs == 1
    settle(store, hanging, now_ms=asleep_ms)
    assert [(run.state, run.until_ms) for run in runs_of(store, "a")][1:] == [("later", asleep_ms + MINUTE_MS // 2)]
    assert names(claim(store, now_ms=asleep_ms + MINUTE_MS // 2)) == [("a", 1)]


def test_queued_runs_of_a_removed_monitor_start_without_a_pause(store: Store) -> None:
    armed(store, "a", overlap="queue")
    tick_minutes(store, 0, 0)
    hanging = claim(store, lease_ms=60 * MINUTE_MS)
    assert tick_minutes(store, 1, 1) == 1
    now_ms = T0_MS + MINUTE_MS
    store.remove_monitors([RemoveMonitor("ann", "a")])
    settle(store, hanging, now_ms=now_ms)
    (gone,) = claim(store, now_ms=now_ms)
    assert (gone.counter, gone.check) == (1, None)


def test_newest_queued_runs_are_kept_and_older_runs_end_with_a_reason(store: Store) -> None:
    armed(store, "a", overlap="queue")
    tick_minutes(store, 0, 0)
    hanging = claim(store, lease_ms=60 * MINUTE_MS)
    tick_minutes(store, 1, 6)
    runs = runs_of(store, "a")
    assert [run.state for run in runs] == ["out", "dead", "dead", "dead", "parked", "parked", "parked"]
    assert {run.reason for run in runs[1:4]} == {superseded_reason(3)}
    assert claim(store, now_ms=T0_MS + 6 * MINUTE_MS) == []  # none overtakes the one that is out
    now_ms = T0_MS + 6 * MINUTE_MS
    settle(store, hanging, now_ms=now_ms)
    order = []
    for _ in range(10):
        order += names(claimed := claim(store, now_ms=now_ms))
        settle(store, claimed, now_ms=now_ms)
        now_ms += MINUTE_MS // 2
    assert order == [("a", 4), ("a", 5), ("a", 6)]


def test_promise_10_open_run_is_seen_behind_any_number_of_superseded_runs(
    store: Store,
) -> None:
    armed(store, "a", overlap="queue")
    tick_minutes(store, 0, 0)
    hanging = claim(store, lease_ms=60 * MINUTE_MS)
    tick_minutes(store, 1, 6)
    now_ms = T0_MS + 50 * MINUTE_MS
    store.purge(settled_before_ms=now_ms, due_before_ms=T0_MS, now_ms=now_ms, limit=100)
    oldest = runs_of(store, "a")[0]
    assert (oldest.handle, oldest.state) == (hanging[0].handle, "out")


def test_tick_reports_skipped_firings_by_the_rule_that_skipped_them(store: Store) -> None:
    armed(store, "skips")
    armed(store, "queues", overlap="queue")
    armed(store, "free")
    assert tick(store, now_ms=T0_MS, catch_up=CATCH_UP).skipped_by == {
        "overlap": 0,
        "waiting_runs_max": 0,
        "catch_up_per_second": 0,
    }
    settle(store, [item for item in claim(store, lease_ms=HOUR_MS) if item.monitor == "free"])
    seen: Counter[str] = Counter()
    for minute in range(1, 7):
        now_ms = T0_MS + minute * MINUTE_MS
        seen.update(tick(store, now_ms=now_ms, catch_up=CATCH_UP).skipped_by)
        settle(store, claim(store, now_ms=now_ms), now_ms=now_ms)
    assert seen == {"overlap": 6, "waiting_runs_max": 3, "catch_up_per_second": 0}
    assert store.superseded() == 3


def test_a_tick_says_how_many_missed_firings_had_no_room_in_the_pace_of_catching_up(store: Store) -> None:
    put(store, "a")
    arm_all(store, T0_MS, cadence=Cadence(every_ms=MINUTE_MS, missed="once"))
    now_ms = T0_MS + 10 * MINUTE_MS + CatchUp().grace_ms + 1
    others = [MissedRuns(1_000 + index, [now_ms]) for index in range(300)]  # they are made up for until then
    store.book_catch_up(others, per_second=1, now_ms=now_ms)
    report = tick(store, now_ms=now_ms, catch_up=CatchUp(per_second=1))
    assert (report.entries, report.runs) == (1, 0)
    assert report.skipped_by == {"overlap": 0, "waiting_runs_max": 0, "catch_up_per_second": 1}


def test_promise_4_an_advance_that_comes_twice_supersedes_once(store: Store) -> None:
    armed(store, "a", overlap="queue")
    tick_minutes(store, 0, 3)
    now_ms = T0_MS + 4 * MINUTE_MS
    (due,) = store.due(now_ms=now_ms, limit=9)
    step = advance(due, now_ms=now_ms, catch_up=CatchUp(waiting_max=1))
    won = [store.commit([step], now_ms=now_ms) for _ in range(4)]
    assert won == [[True], [False], [False], [False]]
    assert [run.state for run in runs_of(store, "a")].count("dead") == 2


def wait_for_made_up(store: Store) -> list[Claimed]:
    """A run that hangs; behind it five that are made up for, each at a moment of its own. The limit is three."""
    put(store, "a")
    arm_all(store, T0_MS, cadence=Cadence(every_ms=MINUTE_MS, missed="all", overlap="queue"))
    tick_minutes(store, 0, 0)
    hanging = claim(store, lease_ms=60 * MINUTE_MS)
    assert tick_minutes(store, 5, 5) == 5
    return hanging


def test_catch_up_runs_count_among_the_waiting_runs(store: Store) -> None:
    wait_for_made_up(store)
    assert [run.state for run in runs_of(store, "a")] == ["out", *["later"] * 5]
    for minute, dead in ((6, 2), (7, 4), (8, 5)):  # two at most by each firing
        tick_minutes(store, minute, minute)
        states = [run.state for run in runs_of(store, "a")]
        assert states[: 1 + dead] == ["out", *["dead"] * dead]
        assert "dead" not in states[1 + dead :]
    runs = runs_of(store, "a")
    assert [(run.state, run.reason) for run in runs[6:]] == [("parked", QUEUED)] * 3
    assert {run.reason for run in runs[1:6]} == {superseded_reason(3)}
    assert store.status().runs_waiting == 3


def test_promise_6_catch_up_run_overtakes_nothing_when_earlier_runs_are_superseded(store: Store) -> None:
    hanging = wait_for_made_up(store)
    tick_minutes(store, 6, 6)
    ahead = [run.until_ms for run in runs_of(store, "a") if run.state == "later"]
    assert len(ahead) == 3
    now_ms = max(until_ms for until_ms in ahead if until_ms is not None)
    assert claim(store, now_ms=now_ms) == []
    assert store.verify() == []
    settle(store, hanging, now_ms=now_ms)
    order = []
    for _ in range(6):
        order += names(claimed := claim(store, now_ms=now_ms))
        settle(store, claimed, now_ms=now_ms)
        now_ms += MINUTE_MS // 2
    assert order == [("a", 3), ("a", 4), ("a", 5), ("a", 6)]


def test_promise_7_catch_up_run_keeps_its_time_when_earlier_runs_are_superseded(store: Store) -> None:
    hanging = wait_for_made_up(store)
    before = {run.counter: run.until_ms for run in runs_of(store, "a")}
    tick_minutes(store, 6, 6)
    now_ms = T0_MS + 6 * MINUTE_MS
    settle(store, hanging, now_ms=now_ms)
    first = next(run for run in runs_of(store, "a") if run.counter == 3)
    assert (first.state, first.until_ms) == ("later", before[3])
    assert first.until_ms is not None
    if first.until_ms > now_ms:
        assert claim(store, now_ms=first.until_ms - 1) == []
    assert names(claim(store, now_ms=max(now_ms, first.until_ms))) == [("a", 3)]


def test_a_queued_run_cannot_be_taken_by_its_name_before_its_turn(store: Store) -> None:
    monitor = armed(store, "a", overlap="queue", check=OUTGOING)
    tick_minutes(store, 0, 5)
    now_ms = T0_MS + 5 * MINUTE_MS
    takes = [Take("ann", "a", monitor.generation, counter, lease_ms=MINUTE_MS) for counter in range(6)]
    taken = [counter for counter, item in enumerate(store.take(takes, now_ms=now_ms)) if item is not None]
    assert taken == [0]


def test_a_run_that_settles_between_reading_and_writing_does_not_block_its_follower(store: Store) -> None:
    armed(store, "a", overlap="queue")
    tick_minutes(store, 0, 0)
    now_ms = T0_MS + MINUTE_MS
    (due,) = store.due(now_ms=now_ms, limit=9)
    assert due.busy
    settle(store, claim(store))
    assert store.commit([advance(due, now_ms=now_ms, catch_up=CATCH_UP)], now_ms=now_ms) == [True]
    assert names(claim(store, now_ms=now_ms)) == [("a", 1)]


@pytest.mark.parametrize("overlap", ["skip", "queue"])
def test_glance_shows_the_oldest_open_run_however_many_follow(store: Store, overlap: Overlap) -> None:
    monitor = armed(store, "a", overlap=overlap)
    tick_minutes(store, 0, 0)
    settle(store, claim(store))
    tick_minutes(store, 1, 1)
    claim(store, now_ms=T0_MS + MINUTE_MS, lease_ms=60 * MINUTE_MS)
    tick_minutes(store, 2, 30)
    glances = store.glances([monitor.generation], now_ms=T0_MS + 30 * MINUTE_MS)
    assert glances == {monitor.generation: Glance(open_due_ms=T0_MS + MINUTE_MS, settled="ok")}
    assert due_of(store, monitor, now_ms=T0_MS + 30 * MINUTE_MS).due_ms == T0_MS + 31 * MINUTE_MS


def test_promise_7_all_monitors_together_catch_up_at_the_stated_pace(store: Store, other: Store) -> None:
    wanted = [MissedRuns(1_000 + entry, [T0_MS + 500 * index for index in range(5)]) for entry in range(6)]
    booked = store.book_catch_up(wanted, per_second=4, now_ms=T0_MS)
    booked += other.book_catch_up(wanted, per_second=4, now_ms=T0_MS + 1_000)  # another process goes on behind it
    seconds = Counter(ms // 1_000 for times in booked for ms in times)
    assert seconds.total() == 60
    assert max(seconds.values()) == 4
    assert max(seconds) - T0_MS // 1_000 <= 60 // 4 + 2


def test_promise_7_missed_runs_after_hours_asleep_start_no_faster_than_the_stated_pace(store: Store) -> None:
    cadence = Cadence(every_ms=MINUTE_MS, missed="all")
    for name in ("a", "b", "c"):
        put(store, name)
    arm_all(store, T0_MS, cadence=cadence)
    now_ms = T0_MS + 6 * 60 * MINUTE_MS
    report = tick(store, now_ms=now_ms, catch_up=CatchUp(runs_max=5, per_second=1, window_ms=2_000))
    assert report.runs == 15
    starts = sorted(
        run.until_ms for name in ("a", "b", "c") for run in runs_of(store, name) if run.until_ms is not None
    )
    assert len(starts) >= 14  # one of them may start at once
    assert max(Counter(ms // 1_000 for ms in starts).values()) == 1


@pytest.mark.parametrize("missed", ["once", "all"])
def test_promise_13_missed_runs_of_one_owner_do_not_displace_those_of_another(store: Store, missed: Missed) -> None:
    (much,) = armed_all(store, ["much"], due_ms=T0_MS + 24 * HOUR_MS)
    now_ms = T0_MS + 6 * HOUR_MS
    full = store.book_catch_up([MissedRuns(much.generation, [now_ms])] * HORIZON_S, per_second=1, now_ms=now_ms)
    assert sum(map(len, full)) >= HORIZON_S // 2, "free seconds are used"
    put(store, "few", owner="bob")
    arm_all(store, T0_MS, cadence=Cadence(every_ms=HOUR_MS, missed=missed))
    late_ms = now_ms + 2 * MINUTE_MS
    report = tick(store, now_ms=late_ms, catch_up=CatchUp(per_second=1, window_ms=MINUTE_MS))
    assert report.skipped_by["catch_up_per_second"] == 0
    few = store.monitor("bob", "few")
    assert few is not None
    starts = [run.until_ms for run in store.monitor_runs(few, before=None, limit=100, now_ms=late_ms)]
    assert len(starts) == {"once": 1, "all": 7}[missed]
    assert max(ms for ms in starts if ms is not None) <= late_ms + 5 * MINUTE_MS


def test_promise_7_monitors_with_short_intervals_do_not_all_start_at_once_after_an_outage(store: Store) -> None:
    for index in range(30):
        put(store, f"m{index}")
    arm_all(store, T0_MS, cadence=Cadence(every_ms=10_000))
    now_ms = T0_MS + HOUR_MS + 5_000
    report = tick(store, now_ms=now_ms, catch_up=CatchUp(per_second=2))
    assert report.entries == 30
    assert report.runs + report.skipped_by["catch_up_per_second"] == 30
    starts: Counter[int] = Counter()
    for second in range(6):
        starts[second] = len(claim(store, now_ms=now_ms + 1_000 * second + 999))
    assert starts.total() == report.runs > 5
    assert max(starts.values()) <= 2
