"""Ids, statuses and filters as RIPE's clients know them."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.compatible.measurements import (
    ID_MAX,
    NUMBERS_MAX,
    RIPE_ALONE_MAX,
    SHORT_ID_MAX,
    STATUS_NAMES,
    id_of,
    id_of_number,
    number_of_id,
    place_in_block,
    split_older_id,
    states_for,
    status_of,
)
from paceline.core.jobs.job import JobLimits
from paceline.core.jobs.measurement import MeasurementState

STATES: tuple[MeasurementState, ...] = get_args(MeasurementState)


@given(st.integers(1, 2**32 - 1), st.integers(0, 9_999), st.integers(0, JobLimits().definitions_max - 1))
def test_older_id_is_split_back_into_its_parts_and_never_read_as_a_newer_id(
    job: int, index: int, definition: int
) -> None:
    handle = job << 14 | index
    number = id_of(handle, definition, number=None)
    assert number == job << 21 | index << 7 | definition
    assert split_older_id(number) == (handle, definition)
    assert number <= ID_MAX
    assert number_of_id(number) is None


@given(st.integers(0, NUMBERS_MAX - 2))
def test_ids_of_numbers_rise_stay_below_2_to_the_31_and_lead_back(number: int) -> None:
    assert RIPE_ALONE_MAX <= id_of_number(number) < id_of_number(number + 1) <= SHORT_ID_MAX
    assert number_of_id(id_of_number(number)) == number
    assert id_of(7 << 14, 1, number=number) == id_of_number(number + 1)


@given(st.integers(0, 2**33))
def test_number_of_a_compatible_id_leads_back_to_the_id_or_there_is_none(id_: int) -> None:
    number = number_of_id(id_)
    assert number is None or id_of_number(number) == id_


@given(st.integers(0, 10**6), st.integers(1, 100), st.integers(1, 1_000), st.data())
def test_number_in_a_jobs_block_leads_to_its_definition(
    numbered: int, stride: int, measurements: int, data: st.DataObject
) -> None:
    index, definition = data.draw(st.integers(0, measurements - 1)), data.draw(st.integers(0, stride - 1))
    number = numbered + index * stride + definition
    assert place_in_block(number, 5, numbered, stride, measurements) == (5 << 14 | index, definition)
    assert place_in_block(numbered + measurements * stride, 5, numbered, stride, measurements) is None


@pytest.mark.parametrize("state", STATES)
@pytest.mark.parametrize("told", [None, 0, 1, 2, 4, 5, 6, 7, 8, 99])
@pytest.mark.parametrize("sent", [True, False])
def test_states_for_a_status_include_every_state_that_shows_it(
    state: MeasurementState, told: int | None, *, sent: bool
) -> None:
    status = status_of(state, told, sent=sent)
    assert state in states_for(frozenset({status}))
    assert status in STATUS_NAMES or status == told


def test_ripe_status_is_specified_before_the_send_and_the_result_after_the_end() -> None:
    assert {status_of(state, None, sent=False) for state in ("queued", "parked", "sending", "unknown")} == {0}
    assert status_of("ongoing", 2, sent=True) == 2
    assert status_of("done", 2, sent=True) == 4
    assert [status_of("failed", told, sent=True) for told in (5, 6, 7, 8, 4, None)] == [5, 6, 7, 8, 7, 7]
    assert (status_of("cancelled", 2, sent=True), status_of("cancelled", None, sent=False)) == (4, 9)
