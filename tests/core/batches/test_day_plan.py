"""A day's window if planning begins late, its pages, and what a policy skips."""

from __future__ import annotations

from array import array
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.batch import BatchSpec, Window, window_of
from paceline.core.batches.day_plan import DayPlan, plan_window, without_missed
from paceline.core.batches.free_keys import CHUNK_KEYS, FreeKeys, UsedKeys, used_keys
from paceline.core.batches.run_keys import (
    EPOCH_MS,
    TIME_MASK,
    day_bounds,
    due_ms_of,
    provider_bounds,
    provider_of,
    queue_key,
    run_key,
)
from paceline.core.batches.values import Placements, PlanOrder

DAY = date(2026, 11, 15)
SPEC = BatchSpec(window="4h")
WINDOW = window_of(SPEC, DAY)
HOUR_MS = 3_600_000


def test_plan_that_begins_on_time_has_the_whole_window() -> None:
    for late_ms in (-HOUR_MS, 0, 10_000):
        assert plan_window(SPEC, DAY, now_ms=WINDOW.start_ms + late_ms) == WINDOW


def test_promise_7_late_plan_has_the_rest_of_the_window_and_at_least_a_quarter_of_its_length() -> None:
    now_ms = WINDOW.start_ms + HOUR_MS
    assert plan_window(SPEC, DAY, now_ms=now_ms) == Window(now_ms, WINDOW.end_ms)
    for late_ms in (4 * HOUR_MS - 1, 9 * HOUR_MS):
        now_ms = WINDOW.start_ms + late_ms
        assert plan_window(SPEC, DAY, now_ms=now_ms) == Window(now_ms, now_ms + HOUR_MS)


def test_late_plan_of_a_batch_that_skips_keeps_its_times() -> None:
    spec = BatchSpec(window="4h", missed="skip")
    assert plan_window(spec, DAY, now_ms=WINDOW.end_ms + HOUR_MS) == WINDOW


def test_window_before_the_times_that_keys_can_hold_is_moved_there() -> None:
    assert plan_window(SPEC, date(2020, 1, 1), now_ms=0) == Window(EPOCH_MS, EPOCH_MS + 4 * HOUR_MS)


def test_cursor_names_the_last_run_of_a_page() -> None:
    order = PlanOrder([(5, 2), (8, 1)], array("q", [11, 12, 13]), array("I", [0, 2, 1]))
    plan = DayPlan(order, WINDOW, batch="daily", jitter_ms_max=0)
    assert list(plan.page_records(0)) == [11, 13, 12]
    assert plan.cursor_after(0) == (5, 12)
    assert plan.cursor_after(2) == (5, 12)


def page(*dues: int) -> Placements:
    return Placements(array("q", range(len(dues))), array("q", [7] * len(dues)), array("q", dues))


def test_plan_of_a_skipping_batch_keeps_only_runs_that_are_not_missed_yet() -> None:
    spec, now_ms = BatchSpec(missed="skip"), WINDOW.start_ms + 2 * HOUR_MS
    dues = page(WINDOW.start_ms, now_ms - 1, now_ms + HOUR_MS)
    kept, missed = without_missed(dues, spec, WINDOW, now_ms=now_ms)
    assert list(missed.dues_ms) == [WINDOW.start_ms]
    assert list(kept.dues_ms) == [now_ms - 1, now_ms + HOUR_MS]
    assert (list(missed.records), list(kept.records), list(kept.providers)) == ([0], [1, 2], [7, 7])


@pytest.mark.parametrize(("missed", "now_ms"), [("once", WINDOW.end_ms), ("skip", WINDOW.start_ms)])
def test_plan_skips_no_run_of_a_batch_that_catches_up_or_is_on_time(missed: str, now_ms: int) -> None:
    dues = page(WINDOW.start_ms, WINDOW.end_ms)
    spec = BatchSpec(missed=missed)  # type: ignore[arg-type]
    kept, gone = without_missed(dues, spec, WINDOW, now_ms=now_ms)
    assert kept is dues
    assert not gone.records


@given(
    used=st.sets(st.integers(0, 900), max_size=700),
    asked=st.lists(st.integers(0, 900), min_size=1, max_size=30).map(sorted),
)
def test_promise_5_no_two_runs_of_a_provider_share_a_key_and_each_moves_to_the_next_free_one(
    used: set[int], asked: list[int]
) -> None:
    taken = set(used)

    def read(key: int) -> UsedKeys:
        return used_keys(sorted(one for one in taken if one >= key)[:CHUNK_KEYS])

    free, last = FreeKeys(read), -1
    for key in asked:
        found = free.next_free(max(key, last + 1))
        assert found == next(one for one in range(max(key, last + 1), 2_000) if one not in used)
        last = found


def test_used_keys_are_read_on_in_chunks() -> None:
    reads = []

    def read(key: int) -> UsedKeys:
        reads.append(key)
        return used_keys(list(range(key, 1_000))[:CHUNK_KEYS])

    assert FreeKeys(read).next_free(10) == 1_000
    assert reads == [10, 10 + CHUNK_KEYS, 10 + 2 * CHUNK_KEYS, 10 + 3 * CHUNK_KEYS]


providers = st.integers(0, 2**22 - 1)


@given(provider=providers, due_ms=st.integers(EPOCH_MS, EPOCH_MS + TIME_MASK))
def test_queue_key_leads_back_to_provider_and_due_time_and_lies_within_the_providers_bounds(
    provider: int, due_ms: int
) -> None:
    key = queue_key(provider, due_ms)
    assert (provider_of(key), due_ms_of(key)) == (provider, due_ms)
    first, beyond = provider_bounds(provider)
    assert first <= key < beyond == provider_bounds(provider + 1)[0]
    assert key < 2**63


def test_time_that_a_queue_key_cannot_hold_is_moved_to_its_edge() -> None:
    assert due_ms_of(queue_key(3, 0)) == EPOCH_MS
    assert due_ms_of(queue_key(3, 2**60)) == EPOCH_MS + TIME_MASK
    assert provider_of(queue_key(3, 2**60)) == 3


@given(day=st.integers(0, 2**31 - 1), record=st.integers(0, 2**31 - 1))
def test_run_key_lies_within_the_bounds_of_its_day(day: int, record: int) -> None:
    first, beyond = day_bounds(day)
    assert first <= run_key(day, record) < beyond == day_bounds(day + 1)[0]
    assert run_key(day, record) - first == record
