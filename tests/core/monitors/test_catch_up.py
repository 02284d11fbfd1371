"""Missed runs of all monitors together start at a bounded pace, in order, and not too far ahead."""

from __future__ import annotations

import zlib
from array import array
from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.monitors.catch_up import HORIZON_S, KEPT_SECONDS, OWNERS_MAX, Calendar, MissedRuns, book, owners_of
from paceline.core.monitors.due import CatchUp, Due, advance_all, at_times, missed_runs
from paceline.core.monitors.schedule import Cadence

T0_MS = 1_790_000_000_000
HOUR_MS = 3_600_000


@given(
    batches=st.lists(
        st.lists(st.lists(st.integers(0, 30_000), min_size=1, max_size=8).map(sorted), min_size=1, max_size=6),
        max_size=5,
    ),
    per_second=st.integers(1, 5),
    steps_ms=st.integers(0, 5_000),
    owners=st.integers(1, 4),
)
def test_catch_up_never_exceeds_its_pace_per_second(
    batches: list[list[list[int]]], per_second: int, steps_ms: int, owners: int
) -> None:
    calendar, now_ms, starts = Calendar(), T0_MS, Counter[int]()
    for batch in batches:
        wanted = [MissedRuns(0, [now_ms + ms for ms in times]) for times in batch]
        names = [str(index % owners) for index in range(len(wanted))]
        placed, calendar = book(calendar, wanted, names, per_second=per_second, now_ms=now_ms)
        for (_, times, _), got in zip(wanted, placed, strict=True):
            assert len(got) == len(times)
            assert all(given_ms >= wish_ms for given_ms, wish_ms in zip(got, times, strict=True))
            gaps = zip(pairwise(got), pairwise(times), strict=True)
            assert all(later - sooner >= far - near for (sooner, later), (near, far) in gaps)
            starts.update(ms // 1_000 for ms in got)
        now_ms += steps_ms
    assert max(starts.values(), default=0) <= per_second


def test_hours_of_missed_runs_are_made_up_for_at_the_stated_pace() -> None:
    cadence = Cadence(every_ms=1_000, missed="all")
    dues = [Due(generation, 5, 1, T0_MS, cadence) for generation in range(1, 105)]
    now_ms = T0_MS + 6 * HOUR_MS
    advances = advance_all(dues, now_ms=now_ms, catch_up=CatchUp())
    wanted = [missed_runs(one) for one in advances]
    owners = [f"user{one.due.generation % 52}" for one in advances]
    placed, _ = book(Calendar(), wanted, owners, per_second=20, now_ms=now_ms)
    made = [at_times(one, times, now_ms=now_ms) for one, times in zip(advances, placed, strict=True)]
    starts = Counter(max(firing.after_ms, now_ms) // 1_000 for one in made for firing in one.firings)
    assert starts.total() == 10_400
    assert max(starts.values()) == 20
    assert max(starts) - now_ms // 1_000 < 10_400 // 20 + 2


def test_catch_up_runs_beyond_the_horizon_are_not_made_and_the_newest_are_kept() -> None:
    full = [MissedRuns(0, [T0_MS])] * (HORIZON_S - 3)
    _, calendar = book(Calendar(), full, list(map(str, range(len(full)))), per_second=1, now_ms=T0_MS)
    due = Due(7, 4, 1, T0_MS - 10_000, Cadence(every_ms=1_000, missed="all"))
    (late,) = advance_all([due], now_ms=T0_MS, catch_up=CatchUp(grace_ms=0))
    placed, _ = book(calendar, [missed_runs(late)], ["ann"], per_second=1, now_ms=T0_MS)
    made = at_times(late, placed[0], now_ms=T0_MS)
    assert len(late.firings) == 11
    assert [(firing.counter, firing.due_ms) for firing in made.firings] == [
        (4, T0_MS - 2_000),
        (5, T0_MS - 1_000),
        (6, T0_MS),
    ]


def test_single_catch_up_run_is_dropped_if_the_next_firing_comes_sooner() -> None:
    due = Due(7, 4, 1, T0_MS, Cadence(every_ms=60_000, missed="once"))
    now_ms = T0_MS + HOUR_MS + 40_000
    (late,) = advance_all([due], now_ms=now_ms, catch_up=CatchUp())
    wanted = missed_runs(late)
    ((start_ms,),), calendar = book(Calendar(), [wanted], ["ann"], per_second=1, now_ms=now_ms)
    assert at_times(late, [start_ms], now_ms=now_ms).firings == late.firings
    others = [MissedRuns(9, [now_ms])] * 100
    _, full = book(calendar, others, list(map(str, range(100))), per_second=1, now_ms=now_ms)
    ((),), after = book(full, [wanted], ["ann"], per_second=1, now_ms=now_ms)
    assert after == full, "a run that is not made takes no place"
    assert at_times(late, [], now_ms=now_ms).firings == ()


def test_late_firing_after_an_outage_starts_at_once_if_no_other_is_late() -> None:
    now_ms = T0_MS + HOUR_MS + 5_000
    (late,) = advance_all([Due(7, 4, 1, T0_MS, Cadence(every_ms=60_000))], now_ms=now_ms, catch_up=CatchUp())
    assert [firing.after_ms for firing in late.firings] == [now_ms]
    (times,), _ = book(Calendar(), [missed_runs(late)], ["ann"], per_second=1, now_ms=now_ms)
    assert [firing.after_ms for firing in at_times(late, times, now_ms=now_ms).firings] == [0]


def test_catch_up_calendar_from_before_a_clock_set_back_is_ignored() -> None:
    _, calendar = book(Calendar(), [MissedRuns(1, [T0_MS])] * 50, ["ann"] * 50, per_second=1, now_ms=T0_MS)
    early_ms = T0_MS - 24 * HOUR_MS
    placed, _ = book(calendar, [MissedRuns(1, [early_ms])], ["ann"], per_second=1, now_ms=early_ms)
    assert placed == [[early_ms]]


def test_promise_13_owner_with_few_missed_runs_starts_soon_beside_one_with_more_than_the_calendar_holds() -> None:
    calendar = Calendar()
    much = [MissedRuns(entry, [T0_MS + 1_000 * index for index in range(100)]) for entry in range(2_000)]
    for _ in range(3):  # passes of a tick
        placed, calendar = book(calendar, much, ["ann"] * len(much), per_second=20, now_ms=T0_MS)
    assert min(map(len, placed)) == 0, "the calendar has no more room for ann"
    few = [MissedRuns(9_001, [T0_MS]), MissedRuns(9_002, [T0_MS])]
    placed, _ = book(calendar, few, ["bob", "cat"], per_second=20, now_ms=T0_MS)
    (every, worth_s), _ = KEPT_SECONDS
    assert all(got and got[0] < T0_MS + 1_000 * (worth_s + every) for got in placed)


def test_owner_alone_uses_all_seconds_but_those_kept_for_owners_with_few_runs() -> None:
    per_second = 2
    much = [MissedRuns(entry, [T0_MS]) for entry in range(per_second * HORIZON_S)]
    placed, _ = book(Calendar(), much, ["ann"] * len(much), per_second=per_second, now_ms=T0_MS)
    starts = Counter(ms // 1_000 for got in placed for ms in got)
    (rare, short_s), (often, long_s) = KEPT_SECONDS
    assert max(starts.values()) == per_second
    assert all(starts[T0_MS // 1_000 + second] == per_second for second in range(short_s))
    kept = [second for second in starts if second > T0_MS // 1_000 + 2 * long_s and second % often == 0]
    assert kept == []
    assert len(starts) >= HORIZON_S * (often - 1) // often
    assert not [second for second in starts if second > T0_MS // 1_000 + short_s and second % rare == 0]


def test_promise_13_owners_of_one_pass_take_turns_with_their_entries() -> None:
    wanted = [MissedRuns(entry, [T0_MS]) for entry in range(10)]
    placed, _ = book(Calendar(), wanted, ["ann"] * 9 + ["bob"], per_second=1, now_ms=T0_MS)
    assert placed[9] == [T0_MS + 1_000]


def test_calendar_remembers_the_owners_with_most_runs_ahead_and_forgets_those_whose_runs_have_started() -> None:
    many = [MissedRuns(entry, [T0_MS]) for entry in range(OWNERS_MAX + 50)]
    owners = ["ann"] * 40 + [f"user{entry}" for entry in range(OWNERS_MAX + 10)]
    _, calendar = book(Calendar(), many, owners, per_second=4, now_ms=T0_MS)
    soon_ms = T0_MS + 1_000
    _, calendar = book(calendar, [MissedRuns(1, [soon_ms])], ["ann"], per_second=4, now_ms=soon_ms)
    kept_s = T0_MS // 1_000 - T0_MS // 1_000 % KEPT_SECONDS[0][0] + 200 * KEPT_SECONDS[0][0]
    for now_ms, free in ((soon_ms, False), (T0_MS + 2 * HOUR_MS, True)):
        wish_ms = max(kept_s * 1_000, now_ms - now_ms % 25_000 + 25_000)
        placed, _ = book(calendar, [MissedRuns(1, [wish_ms])], ["ann"], per_second=4, now_ms=now_ms)
        assert (placed == [[wish_ms]]) is free


def test_calendar_of_an_older_version_is_read() -> None:
    counts = array("H", [1] * HORIZON_S)
    older = Calendar(T0_MS // 1_000, zlib.compress(counts.tobytes(), 1))
    placed, calendar = book(older, [MissedRuns(1, [T0_MS])] * 2, ["ann"] * 2, per_second=2, now_ms=T0_MS)
    assert [ms // 1_000 - T0_MS // 1_000 for (ms,) in placed] == [0, 1]
    assert len(zlib.decompress(calendar.counts)) % counts.itemsize == 0, "an older version reads it, too"


def test_entry_of_a_removed_monitor_counts_as_an_owner_by_itself() -> None:
    assert owners_of([MissedRuns(1, []), MissedRuns(2, []), MissedRuns(3, [])], {1: 7, 3: 7}) == ["7", "#2", "7"]


def test_firing_that_is_on_time_after_an_outage_is_not_paced() -> None:
    now_ms = T0_MS + HOUR_MS
    (first,) = advance_all([Due(7, 4, 1, T0_MS, Cadence(every_ms=60_000))], now_ms=now_ms, catch_up=CatchUp())
    assert [(firing.due_ms, firing.after_ms) for firing in first.firings] == [(now_ms, 0)]
