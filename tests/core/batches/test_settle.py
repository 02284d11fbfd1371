"""What becomes of a run that is out, and when its provider is looked at again."""

from __future__ import annotations

from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.pace import Pace
from paceline.core.batches.provider import ProviderSpec, policy_of
from paceline.core.batches.run_keys import NEVER_MS
from paceline.core.batches.settle import (
    Held,
    counts,
    first_ready_ms,
    is_old,
    is_plain,
    look_ms,
    pulled_back,
    released,
)

T0_MS = 1_790_000_000_000
OUT = Held(run=9, state="out", at_ms=T0_MS + 100, attempt=2, lost=1, started_ms=T0_MS)
ONE, MANY = (policy_of(ProviderSpec("https://a.test", max_in_flight=places)) for places in (1, 3))


def settlement(
    state: Literal["done", "failed", "retry"] = "done",
    *,
    attempt: int = 2,
    ended_ms: int = T0_MS,
    not_before_ms: int = 0,
) -> CallSettlement:
    return CallSettlement(1, attempt, state, T0_MS, ended_ms, verdict="good", not_before_ms=not_before_ms)


def test_a_settlement_counts_only_for_the_run_that_is_out_at_its_attempt_within_its_lease() -> None:
    assert counts(OUT, settlement(ended_ms=T0_MS + 100))
    assert not counts(OUT, settlement(ended_ms=T0_MS + 101)), "the lease was over"
    assert not counts(OUT, settlement(attempt=1))
    assert not counts(OUT._replace(state="retry"), settlement())
    assert not counts(None, settlement())


def test_only_a_good_call_that_ends_its_run_and_closes_nothing_is_plain() -> None:
    assert is_plain(settlement())
    assert not is_plain(settlement("failed"))
    assert not is_plain(settlement("retry"))


def test_a_provider_with_one_place_is_looked_at_when_its_retry_is_due() -> None:
    pace = Pace(closed_until_ms=T0_MS + 70)
    retry = settlement("retry", not_before_ms=T0_MS + 50)
    assert look_ms(retry, ONE, pace, ready_ms=T0_MS + 500) == T0_MS + 70
    assert look_ms(retry, ONE, Pace(), ready_ms=T0_MS + 500) == T0_MS + 50
    assert look_ms(settlement("failed"), ONE, pace, ready_ms=0) is None


def test_provider_with_many_places_is_looked_at_right_after_a_settlement() -> None:
    assert look_ms(settlement("retry", not_before_ms=T0_MS + 50), MANY, Pace(), ready_ms=T0_MS + 500) == T0_MS
    assert look_ms(settlement("failed"), MANY, Pace(), ready_ms=T0_MS - 5) == T0_MS - 5


@given(st.integers(-50, 50), st.lists(st.integers(-50, 50)), st.integers(-50, 50))
def test_next_look_is_never_later_than_the_first_run_that_may_start(first: int, held: list[int], closed: int) -> None:
    ready = first_ready_ms(first, held, closed_until_ms=closed, now_ms=0)
    assert ready >= closed
    earliest = max(min([first, *held]), closed)
    assert ready == earliest if first > 0 else ready <= max(closed, 0)


def test_provider_without_runs_has_no_next_look() -> None:
    assert first_ready_ms(NEVER_MS, [], closed_until_ms=0, now_ms=T0_MS) == NEVER_MS


def test_an_attempt_that_never_began_does_not_count() -> None:
    assert released(OUT, now_ms=T0_MS) == Held(9, "retry", T0_MS, 1, 1, None)
    assert released(OUT._replace(attempt=1), now_ms=T0_MS) is None


@given(st.integers(-(10**6), 10**6), st.integers(0, 10**6), st.sampled_from(["out", "retry"]), st.integers(0, 10**5))
def test_run_is_held_no_longer_than_planned_after_a_clock_set_back(
    started: int, lasts: int, state: Literal["out", "retry"], wait_ms_max: int
) -> None:
    held = Held(9, state, T0_MS + started + lasts, 1, 0, T0_MS + started if state == "out" else None)
    back = pulled_back(held, now_ms=T0_MS, wait_ms_max=wait_ms_max)
    if state == "out":
        assert back.at_ms - (back.started_ms or 0) == lasts, "a lease keeps its length"
        assert back.at_ms <= max(T0_MS + lasts, held.at_ms if started <= 0 else 0)
    else:
        assert back.at_ms == min(held.at_ms, T0_MS + wait_ms_max)
    assert (back.run, back.state, back.attempt, back.lost) == (9, state, 1, 0)


def test_retry_waits_no_longer_than_any_retry_after_a_clock_set_back() -> None:
    retry = Held(9, "retry", T0_MS + 501, 1, 0, None)
    assert pulled_back(retry, now_ms=T0_MS, wait_ms_max=500).at_ms == T0_MS + 500
    assert pulled_back(retry, now_ms=T0_MS, wait_ms_max=501) == retry


def test_a_dead_letter_is_kept_for_a_time_of_its_own() -> None:
    assert is_old(4, dead=False, ended_before_ms=5, dead_before_ms=3)
    assert not is_old(4, dead=True, ended_before_ms=5, dead_before_ms=3)
    assert not is_old(5, dead=False, ended_before_ms=5, dead_before_ms=3)
    assert not is_old(None, dead=False, ended_before_ms=5, dead_before_ms=3)
