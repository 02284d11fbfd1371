"""How far a day is, and when it ends."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from paceline.core.batches.pace import SPEED_MAX
from paceline.core.batches.progress import DayProgress, day_progress

HOUR_MS = 3_600_000


def test_day_on_plan_ends_with_its_window() -> None:
    at_noon = day_progress(runs=2_400, left=1_200, start_ms=0, end_ms=24 * HOUR_MS, now_ms=12 * HOUR_MS)
    assert at_noon == DayProgress(1_200, 0, (24 * HOUR_MS, 24 * HOUR_MS))


def test_day_that_is_behind_ends_between_the_fastest_and_the_usual_pace() -> None:
    late = day_progress(runs=2_400, left=2_400, start_ms=0, end_ms=24 * HOUR_MS, now_ms=12 * HOUR_MS)
    assert late == DayProgress(1_200, 1_200, (24 * HOUR_MS, 36 * HOUR_MS))
    over = day_progress(runs=2_400, left=400, start_ms=0, end_ms=24 * HOUR_MS, now_ms=30 * HOUR_MS)
    assert over == DayProgress(2_400, 400, (31 * HOUR_MS, 34 * HOUR_MS))


def test_day_whose_runs_have_all_ended_has_no_end_to_come() -> None:
    assert day_progress(runs=5, left=0, start_ms=0, end_ms=HOUR_MS, now_ms=10) == DayProgress(0, 0, None)
    assert day_progress(runs=0, left=0, start_ms=0, end_ms=HOUR_MS, now_ms=2 * HOUR_MS) == DayProgress(0, 0, None)


@given(runs=some.integers(1, 10**6), share=some.floats(0, 1), now_ms=some.integers(-HOUR_MS, 48 * HOUR_MS))
def test_range_of_the_end_lies_ahead_and_is_in_order(runs: int, share: float, now_ms: int) -> None:
    left = round(runs * share)
    found = day_progress(runs=runs, left=left, start_ms=0, end_ms=24 * HOUR_MS, now_ms=now_ms)
    assert 0 <= found.behind <= left
    assert 0 <= found.planned <= runs
    if found.ends_ms is None:
        assert left == 0
    else:
        soonest, latest = found.ends_ms
        assert now_ms <= soonest <= latest
        assert not found.behind or soonest - now_ms >= left * 24 * HOUR_MS // runs // SPEED_MAX
