"""Ids, statuses and filters as RIPE's clients know them."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.compatible import ID_MAX, STATUS_NAMES, id_of, split_id, states_for, status_of
from paceline.core.job import JobLimits
from paceline.core.measurement import MeasurementState

STATES: tuple[MeasurementState, ...] = get_args(MeasurementState)


@given(st.integers(1, 2**32 - 1), st.integers(0, 9_999), st.integers(0, JobLimits().definitions_max - 1))
def test_an_id_is_computed_and_leads_back(job: int, index: int, definition: int) -> None:
    handle = job << 14 | index
    number = id_of(handle, definition)
    assert number == job << 21 | index << 7 | definition
    assert split_id(number) == (handle, definition)
    assert number <= ID_MAX


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("told", [None, 0, 1, 2, 4, 5, 6, 7, 8, 99])
@pytest.mark.parametrize("sent", [True, False])
def test_the_first_sieve_lets_every_state_pass_that_has_the_status(
    state: MeasurementState, told: int | None, *, sent: bool
) -> None:
    status = status_of(state, told, sent=sent)
    assert state in states_for(frozenset({status}))
    assert status in STATUS_NAMES or status == told


def test_before_it_is_sent_it_is_specified_and_after_the_end_it_is_what_it_came_to() -> None:
    assert {status_of(state, None, sent=False) for state in ("queued", "parked", "sending", "unknown")} == {0}
    assert status_of("ongoing", 2, sent=True) == 2
    assert status_of("done", 2, sent=True) == 4
    assert [status_of("failed", told, sent=True) for told in (5, 6, 7, 8, 4, None)] == [5, 6, 7, 8, 7, 7]
    assert (status_of("cancelled", 2, sent=True), status_of("cancelled", None, sent=False)) == (4, 9)
