"""A measurement's changes of state, and what an end adds to its job: the rules that every engine writes."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.cost import Cost
from paceline.core.jobs.measurement import MeasurementState
from paceline.core.jobs.meters import NEVER_MS, Short
from paceline.core.jobs.names import ATTEMPTS_MAX
from paceline.core.jobs.transitions import (
    ENDED,
    LIVE,
    OUT,
    RUNNING,
    WAITING,
    EndsUnsent,
    GoesBack,
    IsUnknown,
    Runs,
    account_actual,
    after_answer,
    cancel,
    count_definitions,
    is_given_up,
    is_usable,
    job_sums,
    may_answer,
    refuse_begin,
    settle,
    short_of_balance,
    spent_before,
    wanted_states,
    with_progress,
)
from paceline.core.jobs.values import AtlasMeasurement, Busy, NotSent, Rejected, Sent, Unsure

COST = Cost(credits=60, results=10, concurrent=2, daily_credits=60, daily_results=10)
amounts = st.integers(0, 1_000)


def test_every_state_is_waiting_out_running_or_ended() -> None:
    assert set(get_args(MeasurementState)) == WAITING | OUT | RUNNING | ENDED
    assert set(get_args(MeasurementState)) - ENDED == LIVE


def test_answer_decides_the_next_state() -> None:
    assert after_answer(Sent((7, 8)), lookups=0, stopping=False) == Runs((7, 8))
    assert after_answer(NotSent("full"), lookups=0, stopping=False) == GoesBack("queued", "full", None)
    assert after_answer(NotSent("full", 5), lookups=0, stopping=False) == GoesBack("parked", "full", 5)
    assert after_answer(Rejected("no"), lookups=0, stopping=False) == EndsUnsent("failed", "no")


def test_measurement_that_is_being_stopped_ends_instead_of_going_back() -> None:
    assert after_answer(NotSent("full", 5), lookups=0, stopping=True) == EndsUnsent("cancelled", "cancelled")
    assert after_answer(Rejected("no"), lookups=0, stopping=True) == EndsUnsent("failed", "no")
    assert after_answer(Sent((7,)), lookups=0, stopping=True) == Runs((7,))


@given(stored=st.integers(0, 20), told=st.integers(0, 20))
def test_lookups_never_go_down(stored: int, told: int) -> None:
    found = after_answer(Unsure("lost", 5, told), lookups=stored, stopping=False)
    assert found == IsUnknown("lost", 5, max(stored, told))


@pytest.mark.parametrize("state", get_args(MeasurementState))
def test_only_a_measurement_that_is_out_takes_an_answer_for_its_attempt(state: MeasurementState) -> None:
    assert may_answer(state, is_attempt=True) == (state in ("sending", "unknown"))
    assert not may_answer(state, is_attempt=False)


def test_send_is_not_begun_without_a_usable_account_a_free_place_or_attempts() -> None:
    good = {"attempt": 0, "reason": "", "sending": 0, "sending_max": 1, "usable": True}
    assert refuse_begin(**good) is None  # type: ignore[arg-type]
    assert refuse_begin(**good | {"usable": False, "sending": 1}) == "unusable"  # type: ignore[arg-type]
    assert refuse_begin(**good | {"sending": 1, "attempt": ATTEMPTS_MAX}) == Busy()  # type: ignore[arg-type]
    ended = refuse_begin(**good | {"attempt": ATTEMPTS_MAX, "reason": "full"})  # type: ignore[arg-type]
    assert ended == EndsUnsent("failed", "refused 9999 times; last: full")


def test_unknown_balance_refuses_nothing_and_a_low_one_names_the_rest() -> None:
    assert short_of_balance("lab", COST, None) is None
    assert short_of_balance("lab", COST, 60) is None
    assert short_of_balance("lab", COST, 59) == Short("account/lab/balance", 60, 59, 59, NEVER_MS)
    assert short_of_balance("lab", COST, -5) == Short("account/lab/balance", 60, 0, 0, NEVER_MS)


@given(enabled=st.booleans(), closed_ms=st.integers(0, 2), key=st.booleans(), quarantine=st.sampled_from(["", "no"]))
def test_account_and_key_are_usable_only_if_nothing_is_in_the_way(
    *, enabled: bool, closed_ms: int, key: bool, quarantine: str
) -> None:
    found = is_usable(enabled=enabled, closed_until_ms=closed_ms, key_enabled=key, quarantine=quarantine, now_ms=1)
    assert found == all((enabled, closed_ms <= 1, key, not quarantine))


def test_only_sends_whose_intent_is_old_are_given_up() -> None:
    assert is_given_up("sending", 9, intent_before_ms=10)
    assert not is_given_up("sending", 10, intent_before_ms=10)
    assert not is_given_up("unknown", 9, intent_before_ms=10)


def test_cancel_ends_unsent_measurements_and_stops_the_others() -> None:
    found = {state: cancel(state) for state in get_args(MeasurementState)}
    assert {state for state, what in found.items() if what == "end"} == {"queued", "parked"}
    assert {state for state, what in found.items() if what == "stop"} == {"sending", "unknown", "ongoing"}
    assert {state for state, what in found.items() if what is None} == ENDED


@given(held=amounts, used=amounts)
def test_user_pays_for_actual_usage_and_never_more_than_the_reservation(held: int, used: int) -> None:
    found = settle(held, used)
    assert found.credits == min(held, used)
    assert found.credits + found.overrun == used


@given(settled=st.integers(0, 60), delivered=st.integers(0, 10))
def test_measurement_settled_on_its_maximum_counts_as_all_delivered(settled: int, delivered: int) -> None:
    found = spent_before(COST, settled=settled, delivered=delivered)
    assert found == ((60, 10) if settled == 60 else (settled, delivered))


@given(
    state=st.sampled_from(["done", "failed", "cancelled"]),
    was=st.sampled_from(sorted(LIVE)),
    held=amounts,
    settled=amounts,
)
def test_sums_of_a_job_keep_adding_up_when_a_measurement_ends(state: str, was: str, held: int, settled: int) -> None:
    sums = job_sums(state, was=was, held=held, settled=settled, definitions=2)  # type: ignore[arg-type]
    assert sums["settled"] + sums["refunded"] == held
    assert sums["open"] + sums[state] == 0
    assert sums[f"definitions_{state}"] == 2
    assert sums["waiting"] == -(was in WAITING)


@given(told=st.tuples(st.integers(0, 8), amounts) | st.none(), scheduled=amounts | st.none())
def test_progress_keeps_the_highest_count_and_the_newest_status(
    told: tuple[int, int] | None, scheduled: int | None
) -> None:
    known = AtlasMeasurement(7, 2, 100, 50)
    found = with_progress(known, told, scheduled)
    assert found.atlas_id == 7
    assert found.status == (2 if told is None else told[0])
    assert found.delivered == max(100, 0 if told is None else told[1])
    assert found.scheduled == (50 if scheduled is None else scheduled)


states_of_measurements = st.sampled_from(sorted(get_args(MeasurementState)))


@given(
    rows=st.lists(st.tuples(states_of_measurements, st.integers(1, 5))),
    states=st.sets(states_of_measurements),
)
def test_definitions_in_some_states_are_counted_without_a_look_at_ended_measurements(
    rows: list[tuple[MeasurementState, int]], states: set[MeasurementState]
) -> None:
    wanted = wanted_states(states)
    assert wanted == (states or LIVE | ENDED)
    counts = {"definitions": sum(count for _, count in rows)}
    counts |= {f"definitions_{one}": sum(count for state, count in rows if state == one) for one in ENDED}
    counted, are_more = count_definitions(counts, wanted)
    live = sum(count for state, count in rows if state in wanted & LIVE) if are_more else 0
    assert counted + live == sum(count for state, count in rows if state in wanted)
    assert are_more == bool(wanted & LIVE and not wanted >= LIVE)


@given(spent=amounts, results=amounts)
def test_end_of_a_measurement_frees_its_slots_and_charges_at_most_the_reservation(spent: int, results: int) -> None:
    slots, day_results, day_credits = account_actual(COST, credits_spent=spent, results=results)
    assert slots == 0
    assert day_results == min(results, COST.daily_results)
    assert day_credits == min(spent, COST.daily_credits)
