"""Which runs must not start where they stand, and what becomes of them."""

from __future__ import annotations

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.unwanted import GONE, GONE_LOST, MISSED, DayFacts, End, RunFacts, judge_run

T0_MS = 1_790_000_000_000
DAY = DayFacts("daily", 1, "2026-11-15", T0_MS, T0_MS + 96_000, paused=False, skips=True)
HERE, THERE = 4, 5


def run(
    state: Literal["waiting", "out", "retry"] = "waiting",
    *,
    at_ms: int = T0_MS,
    attempt: int = 0,
    lost: int = 0,
    named: int | None = HERE,
) -> RunFacts:
    return RunFacts(state, T0_MS, at_ms, attempt, lost, HERE, named)


def test_run_of_an_active_record_and_batch_starts() -> None:
    assert judge_run(run(), DAY, now_ms=T0_MS + 1_000) is None


def test_a_run_whose_record_is_gone_ends() -> None:
    assert judge_run(run(named=None), DAY, now_ms=T0_MS) == End("skipped", GONE)
    assert judge_run(run("retry", lost=1, named=None), DAY, now_ms=T0_MS) == End("unknown", GONE_LOST)
    assert judge_run(run("out", named=None), DAY, now_ms=T0_MS) == End("unknown", GONE_LOST), "its lease is over"


def test_a_run_of_a_paused_batch_is_set_aside_wherever_its_record_points() -> None:
    paused = DAY._replace(paused=True)
    assert judge_run(run(), paused, now_ms=T0_MS) == "set_aside"
    assert judge_run(run(named=THERE), paused, now_ms=T0_MS) == "set_aside"
    assert judge_run(run(named=None), paused, now_ms=T0_MS) == End("skipped", GONE)


def test_a_run_moves_with_its_record_unless_it_may_have_arrived() -> None:
    assert judge_run(run(named=THERE), DAY, now_ms=T0_MS) == "move"
    assert judge_run(run("retry", attempt=1, named=THERE), DAY, now_ms=T0_MS) == "move"
    assert judge_run(run("retry", attempt=1, lost=1, named=THERE), DAY, now_ms=T0_MS) is None
    assert judge_run(run("out", attempt=1, named=THERE), DAY, now_ms=T0_MS) is None


def test_a_run_that_missed_its_time_is_skipped_where_its_batch_says_so() -> None:
    late_ms = T0_MS + 1_001
    assert judge_run(run(), DAY, now_ms=late_ms) == End("skipped", MISSED)
    assert judge_run(run("retry", attempt=1), DAY, now_ms=late_ms) is None, "it was tried in time"
    assert judge_run(run(), DAY._replace(skips=False), now_ms=late_ms) is None


@given(
    facts=st.builds(
        run,
        st.sampled_from(["waiting", "out", "retry"]),
        at_ms=st.integers(T0_MS + 1, T0_MS + 10**9),
        attempt=st.integers(0, 3),
        lost=st.integers(0, 1),
        named=st.sampled_from([None, HERE, THERE]),
    ),
    paused=st.booleans(),
)
def test_run_before_its_time_is_not_judged(facts: RunFacts, *, paused: bool) -> None:
    assert judge_run(facts, DAY._replace(paused=paused), now_ms=T0_MS) is None
