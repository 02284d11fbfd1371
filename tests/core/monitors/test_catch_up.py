"""Missed runs of all monitors together start at a bounded pace, in order, and not too far ahead."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.monitors.catch_up import HORIZON_S, Calendar, book
from paceline.core.monitors.due import CatchUp, Due, advance_all, at_times, missed_times
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
)
def test_catch_up_never_exceeds_its_pace_per_second(
    batches: list[list[list[int]]], per_second: int, steps_ms: int
) -> None:
    calendar, now_ms, starts = Calendar(), T0_MS, Counter[int]()
    for batch in batches:
        wanted = [[now_ms + ms for ms in times] for times in batch]
        placed, calendar = book(calendar, wanted, per_second=per_second, now_ms=now_ms)
        for times, got in zip(wanted, placed, strict=True):
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
    placed, _ = book(Calendar(), [missed_times(one) for one in advances], per_second=20, now_ms=now_ms)
    made = [at_times(one, times) for one, times in zip(advances, placed, strict=True)]
    starts = Counter(firing.after_ms // 1_000 for one in made for firing in one.firings)
    assert starts.total() == 10_400
    assert max(starts.values()) == 20
    assert max(starts) - now_ms // 1_000 < 10_400 // 20 + 2


def test_catch_up_runs_beyond_the_horizon_are_not_made_and_the_newest_are_kept() -> None:
    full = [[T0_MS] for _ in range(HORIZON_S - 3)]
    _, calendar = book(Calendar(), full, per_second=1, now_ms=T0_MS)
    due = Due(7, 4, 1, T0_MS - 10_000, Cadence(every_ms=1_000, missed="all"))
    (late,) = advance_all([due], now_ms=T0_MS, catch_up=CatchUp(grace_ms=0))
    placed, _ = book(calendar, [missed_times(late)], per_second=1, now_ms=T0_MS)
    made = at_times(late, placed[0])
    assert len(late.firings) == 11
    assert [(firing.counter, firing.due_ms) for firing in made.firings] == [
        (4, T0_MS - 2_000),
        (5, T0_MS - 1_000),
        (6, T0_MS),
    ]


def test_single_catch_up_run_is_dropped_if_the_next_firing_comes_sooner() -> None:
    due = Due(7, 4, 1, T0_MS, Cadence(every_ms=60_000, missed="once"))
    (late,) = advance_all([due], now_ms=T0_MS + HOUR_MS + 40_000, catch_up=CatchUp())
    (wanted,) = missed_times(late)
    assert at_times(late, [wanted]).firings == late.firings
    assert at_times(late, [max(wanted, late.next_due_ms) + 5_000]).firings == ()


def test_catch_up_calendar_from_before_a_clock_set_back_is_ignored() -> None:
    _, calendar = book(Calendar(), [[T0_MS]] * 50, per_second=1, now_ms=T0_MS)
    placed, _ = book(calendar, [[T0_MS - 24 * HOUR_MS]], per_second=1, now_ms=T0_MS - 24 * HOUR_MS)
    assert placed == [[T0_MS - 24 * HOUR_MS]]
