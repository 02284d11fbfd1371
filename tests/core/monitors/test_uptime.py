"""Good time, incidents and latencies, against a recomputation that knows all outcomes at once."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.monitors.uptime import latency
from paceline.core.monitors.uptime.figures import figures
from paceline.core.monitors.uptime.rollup import (
    DAY_MS,
    DAYS_MAX,
    INCIDENTS_MAX,
    EndedRun,
    Rollup,
    days_until,
    decode_rollup,
    encode_rollup,
    fold,
    settled_first,
    speaks_ms,
)
from tests.support.uptime_oracle import naive_days, naive_incidents

T0_MS = 1_790_000_000_000
MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS


def run(counter: int, at_ms: int, state: str = "ok", latency_ms: float | None = 20.0, reason: str = "") -> EndedRun:
    return EndedRun(counter, at_ms, state, at_ms, latency_ms, reason)  # type: ignore[arg-type]


class Step(NamedTuple):
    after_ms: int
    """Since the run before was due; below zero: the clock was set back."""
    took_ms: int
    state: str
    latency_ms: float | None


any_step = st.builds(
    Step,
    st.one_of(st.just(MINUTE_MS), st.just(6 * HOUR_MS), st.integers(1, 3 * DAY_MS), st.integers(-DAY_MS, 0)),
    st.one_of(st.integers(0, 90_000), st.integers(0, 900_000)),
    st.sampled_from(("ok", "ok", "failed", "dead", "unknown")),
    st.one_of(st.none(), st.floats(0.01, 5_000_000)),
)
# Most monitors fire at one distance and are good for a long time: such stretches, and what interrupts them.
stretches = st.lists(st.tuples(any_step, st.integers(1, 12)), max_size=10)
steps = stretches.map(lambda told: [step for step, times in told for _ in range(times)])


def history(told: list[Step]) -> list[EndedRun]:
    due_ms, runs = T0_MS, []
    for counter, step in enumerate(told):
        due_ms += step.after_ms
        reason = f"reason {counter}" if step.state == "failed" else ""
        runs.append(EndedRun(counter, due_ms, step.state, due_ms + step.took_ms, step.latency_ms, reason))  # type: ignore[arg-type]
    return runs


@given(told=steps, cuts=st.lists(st.integers(0, 120), max_size=5), later_ms=st.integers(0, 5 * DAY_MS))
def test_folded_days_and_incidents_equal_a_naive_recomputation_however_the_fold_is_cut(
    told: list[Step], cuts: list[int], later_ms: int
) -> None:
    runs = history(told)
    rollup = Rollup()
    for begin, end in pairwise(sorted({0, *(min(cut, len(runs)) for cut in cuts), len(runs)})):
        rollup = decode_rollup(encode_rollup(fold(rollup, runs[begin:end])))
    now_ms = max((one.ended_ms for one in runs), default=T0_MS) + later_ms
    found = {
        number: (day.good_ms, day.known_ms, day.ok, day.failed, day.incidents, Counter(day.latencies))
        for number, day in days_until(rollup, now_ms).items()
    }
    assert found == naive_days(runs, now_ms)
    assert [(one.began_ms, one.ended_ms, one.reason) for one in rollup.incidents] == naive_incidents(runs)


@given(told=steps)
def test_folding_runs_a_second_time_changes_nothing(told: list[Step]) -> None:
    runs = history(told)
    once = fold(Rollup(), runs)
    assert fold(once, runs) == once


def test_time_is_good_from_a_good_outcome_until_the_next_bad_one() -> None:
    states = ["ok", "ok", "failed", "failed", "ok", "ok"]
    runs = [run(index, T0_MS + index * MINUTE_MS, state, reason="HTTP 500") for index, state in enumerate(states)]
    told = figures(fold(Rollup(), runs), now_ms=T0_MS + 5 * MINUTE_MS)
    assert told.shares == (3 / 5,) * 4
    [incident] = told.incidents
    assert (incident.began_ms, incident.ended_ms) == (T0_MS + 2 * MINUTE_MS, T0_MS + 4 * MINUTE_MS)
    assert incident.reason == "HTTP 500"


def test_time_without_a_check_counts_as_unknown() -> None:
    runs = [run(index, T0_MS + index * MINUTE_MS) for index in range(5)]
    runs.append(run(5, T0_MS + 10 * 3_600_000, "failed"))
    days = days_until(fold(Rollup(), runs), now_ms=runs[-1].ended_ms)
    assert sum(day.known_ms for day in days.values()) == 4 * MINUTE_MS + speaks_ms((MINUTE_MS,))
    assert sum(day.good_ms for day in days.values()) == 4 * MINUTE_MS + 3 * MINUTE_MS


def test_good_outcome_in_a_long_row_speaks_no_longer_than_usual_if_the_next_one_ended_late() -> None:
    runs = [run(counter, T0_MS + counter * MINUTE_MS) for counter in range(8)]
    late = EndedRun(8, T0_MS + 8 * MINUTE_MS, "ok", T0_MS + 20 * MINUTE_MS, 20.0, "")
    days = days_until(fold(Rollup(), [*runs, late]), late.ended_ms)
    assert sum(day.known_ms for day in days.values()) == 7 * MINUTE_MS + speaks_ms((MINUTE_MS,))


def test_uptime_is_unknown_before_the_first_meaningful_outcome() -> None:
    told = figures(fold(Rollup(), [run(0, T0_MS, "dead"), run(1, T0_MS + 1, "unknown")]), now_ms=T0_MS + MINUTE_MS)
    assert told.shares == (None,) * 4
    assert told.latency == (None, None, None)
    assert not told.incidents
    assert not told.days


def test_window_has_its_whole_days_and_the_running_one() -> None:
    today = T0_MS // DAY_MS
    runs = [run(back, (today - 95 + back) * DAY_MS, "failed" if back == 5 else "ok") for back in range(96)]
    told = figures(fold(Rollup(), runs), now_ms=today * DAY_MS + 1_000)
    assert [day.number for day in told.days] == list(range(today - 90, today + 1))
    assert told.shares[:3] == (1.0, 1.0, 1.0)
    assert told.shares[3] == (89 * DAY_MS + 1_000) / (90 * DAY_MS + 1_000)


def test_days_and_incidents_are_bounded() -> None:
    runs = [run(at, T0_MS + at * DAY_MS, "failed" if at % 2 else "ok", reason="x" * 500) for at in range(400)]
    rollup = fold(Rollup(), runs)
    assert (len(rollup.days), len(rollup.incidents)) == (DAYS_MAX, INCIDENTS_MAX)
    assert len(encode_rollup(rollup)) < 20_000
    assert max(rollup.days) == runs[-1].ended_ms // DAY_MS


def test_run_that_has_not_ended_keeps_those_behind_it_out() -> None:
    first, third = run(0, T0_MS), run(2, T0_MS + 2)
    assert list(settled_first([first, None, third])) == [first]


@given(values=st.lists(st.floats(latency.LEAST_MS, 3_600_000), min_size=1, max_size=200))
def test_percentiles_are_at_most_two_and_a_half_percent_off(values: list[float]) -> None:
    told = latency.percentiles(Counter(map(latency.bucket_of, values)))
    ranked = sorted(values)
    for value, percent in zip(told, (50, 95, 99), strict=True):
        true = ranked[-(-len(ranked) * percent // 100) - 1]
        assert value == pytest.approx(true, rel=0.025, abs=0.001)


@pytest.mark.parametrize("value", [0.0, 0.05, 1e12])
def test_latencies_out_of_range_fall_into_the_outer_buckets(value: float) -> None:
    assert latency.bucket_of(value) in (0, latency.BUCKETS - 1)
