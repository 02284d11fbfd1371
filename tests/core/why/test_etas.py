"""When waiting runs of batches and monitors start, where each figure can be computed by hand."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.pace import Pace
from paceline.core.batches.provider import ProviderSpec, policy_of
from paceline.core.monitors.checks import Check, HttpCheck, OutgoingCheck
from paceline.core.monitors.outcome import RunState
from paceline.core.monitors.schedule import Cadence, Entry
from paceline.core.monitors.values import Run
from paceline.core.why.call_eta import ProviderRules, call_eta
from paceline.core.why.check_eta import HANDLED_MS, firing_eta, run_eta
from paceline.core.why.queued import ProviderQueue, QueuedCall

NOW_MS = 1_800_000_000_000
TIMEOUT_MS = 2_000


def queued(run: int, state: Any = "waiting", *, due: int = 0, at: int | None = None, sure: bool = True) -> QueuedCall:
    at_ms = NOW_MS + (due if at is None else at)
    return QueuedCall(run, state, NOW_MS + due, at_ms, NOW_MS + 10**7, TIMEOUT_MS, sure)


def call(*calls: QueuedCall, pace: Pace | None = None, **spec: Any) -> tuple[int, int] | None:
    """From and to of the run with the number 1, counted from now."""
    rules = ProviderRules(policy_of(ProviderSpec("http://example.org", timeout="2s", **spec)), 0.0)
    eta = call_eta(ProviderQueue(pace or Pace(), list(calls), more=False), 1, rules, now_ms=NOW_MS)
    return None if eta is None else (eta.from_ms - NOW_MS, eta.to_ms - NOW_MS)


def test_call_with_nothing_before_it_starts_exactly_when_it_is_due_or_its_provider_opens() -> None:
    assert call(queued(1, due=500)) == (500, 500)
    assert call(queued(1), pace=Pace(closed_until_ms=NOW_MS + 700)) == (700, 700)
    assert call(queued(1), pace=Pace(rate_us=(NOW_MS + 900) * 1_000), rate="1/1s") == (900, 900)


def test_call_behind_another_starts_between_at_once_and_after_its_time_out() -> None:
    gap_ms = 100
    assert call(queued(2, due=100), queued(1, due=200)) == (200, 100 + TIMEOUT_MS + gap_ms)
    assert call(queued(2, due=100), queued(1, due=200), max_in_flight=2) == (200, 200)


def test_call_behind_one_that_is_out_may_wait_for_its_lease_and_its_next_attempt() -> None:
    gap_ms = 500
    assert call(queued(2, "out", due=-1_000, at=1_500), queued(1, due=-500)) == (0, 1_500 + TIMEOUT_MS + gap_ms)


def test_call_behind_one_that_may_end_without_a_call_starts_with_or_without_it() -> None:
    gap_ms = 100
    assert call(queued(2, due=100, sure=False), queued(1, due=200)) == (200, 100 + TIMEOUT_MS + gap_ms)


def test_call_in_back_off_may_lose_a_turn_of_the_rate_to_one_behind_it() -> None:
    mine = queued(1, "retry", due=-5_000, at=3_000)
    assert call(mine, queued(2, due=100), rate="1/1s") == (3_000, 3_000)
    assert call(mine, queued(2, due=100, sure=False), rate="1/1s") == (3_000, 4_000)


def test_call_that_does_not_start_by_itself_or_was_not_read_has_no_eta() -> None:
    assert call(queued(1), paused=True) is None
    assert call(queued(2)) is None
    assert call(queued(2, sure=False)) is None


@given(late_s=st.integers(60, 3_600), behind=st.integers(1, 30))
def test_call_of_a_provider_that_catches_up_waits_for_those_before_it_at_a_bounded_pace(
    late_s: int, behind: int
) -> None:
    before = [queued(number, due=1_000 * (number - 100 - late_s)) for number in range(2, 2 + behind)]
    eta = call(*before, queued(1, due=-1_000 * late_s))
    assert eta is not None
    assert 0 <= eta[0] <= eta[1]
    assert eta[1] >= behind * TIMEOUT_MS
    assert call(queued(1, due=-1_000 * late_s), *(queued(2 + one, due=one - 1_000) for one in range(behind))) == (0, 0)


MINUTELY = Cadence(every_ms=60_000, overlap="queue")
CHECK = HttpCheck(url="http://example.org/", timeout="10s")


def run(state: RunState, *, due: int = 0, until: int | None = None, started: int | None = None) -> Run:
    until_ms = None if until is None else NOW_MS + until
    started_ms = None if started is None else NOW_MS + started
    return Run(1, "ada", "web", 7, 3, NOW_MS + due, state, 1, "", until_ms, started_ms)


def check_run(*runs: Run, check: Check = CHECK, cadence: Cadence | None = MINUTELY) -> tuple[int, int] | None:
    eta = run_eta(runs, check, cadence, now_ms=NOW_MS)
    return None if eta is None else (eta.from_ms - NOW_MS, eta.to_ms - NOW_MS)


def test_run_of_a_check_starts_when_its_pause_is_over() -> None:
    assert check_run(run("retry", due=-500, until=700)) == (700, 700)
    assert check_run(run("waiting", due=-500)) == (0, 0)


def test_run_behind_one_that_is_out_starts_when_that_ends_at_the_latest_with_its_lease() -> None:
    out = run("out", due=-60_000, until=5_000, started=-100)
    assert check_run(out, run("parked"), cadence=None) == (0, 5_000)
    assert check_run(out, run("parked")) == (0, 29_900)
    expired = run("out", due=-60_000, until=-5, started=-9_000)
    assert check_run(expired, run("parked"), cadence=None) == (0, 10_000)


def test_run_for_a_checker_of_its_owner_has_no_eta() -> None:
    assert check_run(run("parked"), check=OutgoingCheck(document={"kind": "outgoing"})) is None


def firing(
    due: int | None, *runs: Run, overlap: Any = "queue", missed: Any = "skip", check: Check = CHECK
) -> tuple[int, int] | None:
    due_ms = None if due is None else NOW_MS + due
    cadence = Cadence(every_ms=60_000, overlap=overlap, missed=missed)
    entry = Entry(7, 4, 1, due_ms, cadence, outgoing=False)
    eta = firing_eta(entry, runs, check, now_ms=NOW_MS)
    return None if eta is None else (eta.from_ms - NOW_MS, eta.to_ms - NOW_MS)


def test_next_firing_starts_when_it_is_due_if_no_run_is_open_by_then() -> None:
    assert firing(5_000) == (5_000, 5_000)
    assert firing(-5_000) == (0, 0)
    assert firing(20_000, run("out", until=15_000)) == (20_000, 20_000)


@pytest.mark.parametrize("overlap", ["queue", "skip"])
def test_next_firing_behind_an_open_run_starts_after_it_or_at_a_later_time_of_its_grid(overlap: str) -> None:
    eta = firing(5_000, run("out", until=90_000, started=0), overlap=overlap)
    assert eta == (5_000, 125_000 if overlap == "skip" else 90_000)


@pytest.mark.parametrize("missed", ["skip", "once"])
def test_firing_that_may_be_missed_starts_at_the_next_time_of_its_grid_at_the_latest(missed: str) -> None:
    assert firing(-HANDLED_MS - 1, missed=missed) == (0, 60_000 - HANDLED_MS - 1)
    assert firing(-61_000, missed=missed) == (0, 59_000)
    assert firing(-61_000, run("out", until=90_000, started=0), overlap="skip", missed=missed) == (0, 119_000)


@pytest.mark.parametrize("due", [None, -HANDLED_MS - 1, -60_000])
def test_firing_that_rests_or_is_one_of_all_that_were_missed_has_no_eta(due: int | None) -> None:
    assert firing(due, missed="all") is None


def test_firing_for_a_checker_of_its_owner_has_no_eta() -> None:
    assert firing(5_000, run("parked"), check=OutgoingCheck(document={"kind": "outgoing"})) is None
