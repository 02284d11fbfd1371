"""Records added during their batch's day, and reruns: spread evenly over the rest, without moving other runs."""

from __future__ import annotations

from array import array
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.batch import Day, Window
from paceline.core.batches.day_plan import PAGE_RUNS, no_placements
from paceline.core.batches.late_records import LOOK_MAX, around, gap_for, part_for, rest_of, spread_late
from paceline.core.batches.reruns import GAP_MS, Again, is_round, place_again, rerun_window, round_name, split_round
from paceline.core.batches.settle import Held, extended
from paceline.core.batches.values import LateRecord, Placements, PlanOrder

T0_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
DAY = Day(1, "daily", "2027-01-15", T0_MS, T0_MS + 10 * HOUR_MS, "planned", None, 1_000_000, 0)
WHOLE = Window(T0_MS, T0_MS + 1_000)


def test_rest_of_a_day_is_the_remaining_window_and_never_empty() -> None:
    assert rest_of(DAY, now_ms=T0_MS - 5) == Window(T0_MS, DAY.end_ms)
    assert rest_of(DAY, now_ms=T0_MS + HOUR_MS) == Window(T0_MS + HOUR_MS, DAY.end_ms)
    assert rest_of(DAY, now_ms=DAY.end_ms + 7) == Window(DAY.end_ms + 7, DAY.end_ms + 8)


@given(place=st.integers(0, 2**32 - 1), passed_ms=st.integers(0, 10 * HOUR_MS - 1))
def test_late_record_looks_for_its_gap_in_a_part_of_the_rest(place: int, passed_ms: int) -> None:
    part = part_for(LateRecord(1, 1, place), DAY, now_ms=T0_MS + passed_ms)
    rest = rest_of(DAY, now_ms=T0_MS + passed_ms)
    assert rest.start_ms <= part.start_ms < part.end_ms <= rest.end_ms


def test_nearest_runs_of_a_provider_are_looked_for_on_both_sides_of_the_part() -> None:
    assert around(Window(100, 500), cut_ms=300) == Window(-100, 500)


def gap(taken: list[int], own: list[int], page: Placements | None = None, part: Window = WHOLE) -> int:
    placed = page if page is not None else no_placements()
    return gap_for(LateRecord(1, 7, 0), part, placed, taken=taken, own=own, own_in=part)


def test_late_record_is_due_in_the_middle_of_the_largest_gap() -> None:
    assert gap([], []) == T0_MS + 500
    assert gap([T0_MS + 100, T0_MS + 200, T0_MS + 800], []) == T0_MS + 500
    assert gap([T0_MS + 100, T0_MS + 800], [T0_MS + 100]) == T0_MS + 450


def test_late_record_keeps_clear_of_records_placed_on_the_same_page() -> None:
    page = no_placements()
    for provider, due_ms in ((7, T0_MS + 500), (8, T0_MS + 250), (7, T0_MS - 400)):
        page.records.append(1)
        page.providers.append(provider)
        page.dues_ms.append(due_ms)
    assert gap([], [], page) == T0_MS + 750


def test_late_record_without_a_free_millisecond_is_due_at_the_end() -> None:
    part = Window(T0_MS, T0_MS + 3)
    assert gap([T0_MS, T0_MS + 1, T0_MS + 2], [], part=part) == T0_MS + 3


def test_late_record_looks_no_further_than_the_due_times_that_were_read() -> None:
    taken = [T0_MS + 10 * number for number in range(LOOK_MAX)]
    due_ms = gap(taken, [], part=Window(T0_MS, T0_MS + 10**7))
    assert T0_MS < due_ms < taken[-1]
    assert due_ms not in taken


def order_of(counts: list[int]) -> PlanOrder:
    total = sum(counts)
    return PlanOrder(list(enumerate(counts, 1)), array("q", range(total)), array("I", range(total)))


@given(counts=st.lists(st.integers(1, 40), min_size=1, max_size=5), enqueued=st.integers(0, 500))
def test_promise_7_many_late_records_are_spread_over_the_rest_of_the_day_each_once(
    counts: list[int], enqueued: int
) -> None:
    day = Day(1, "daily", "2027-01-15", T0_MS, T0_MS + 10 * HOUR_MS, "planned", None, enqueued, 0)
    now_ms = T0_MS + 4 * HOUR_MS
    [page] = spread_late(order_of(counts), day, now_ms=now_ms)
    assert list(page.records) == list(range(sum(counts)))
    assert Counter(page.providers) == dict(enumerate(counts, 1))
    slot_ms = 6 * HOUR_MS / sum(counts)
    dues = sorted(page.dues_ms)
    assert now_ms <= dues[0]
    assert dues[-1] < day.end_ms + slot_ms
    gaps = [later - sooner for sooner, later in pairwise(dues)]
    assert all(abs(gap_ms - slot_ms) <= 2 for gap_ms in gaps)


@pytest.mark.parametrize(
    ("counts", "sizes"),
    [([PAGE_RUNS + 5, 3], [PAGE_RUNS, 5, 3]), ([PAGE_RUNS - 1, 2], [PAGE_RUNS, 1]), ([4, 3], [7])],
)
def test_many_late_records_come_in_pages_that_one_transaction_can_hold(counts: list[int], sizes: list[int]) -> None:
    pages = list(spread_late(order_of(counts), DAY, now_ms=T0_MS))
    assert [len(page.records) for page in pages] == sizes
    assert [record for page in pages for record in page.records] == list(range(sum(counts)))


@given(number=st.integers(0, 99))
def test_round_of_a_day_leads_back_to_its_date_and_number(number: int) -> None:
    name = round_name("2027-01-15", number)
    assert split_round(name) == ("2027-01-15", number)
    assert is_round(name) is (number > 0)


def test_rerun_lasts_as_long_as_the_busiest_provider_needs() -> None:
    def length(counts: list[int], gaps: list[int], room_ms: int) -> int:
        window = rerun_window(counts, gaps, room_ms=room_ms, now_ms=T0_MS)
        assert window.start_ms == T0_MS
        return window.end_ms - T0_MS

    assert length([3, 10], [0, 0], HOUR_MS) == 10 * GAP_MS
    assert length([3, 10_000], [0, 0], HOUR_MS) == HOUR_MS, "much is squeezed into the room there is"
    assert length([3, 10_000], [0, 500], HOUR_MS) == 5_000_000, "but not beyond a rate"
    assert length([40_000] * 3, [0] * 3, 60_000) == 120_000, "nor two into one millisecond"
    assert length([], [], HOUR_MS) == GAP_MS


runs = st.lists(
    st.builds(Again, st.integers(1, 3), st.integers(T0_MS, T0_MS + 10**6), st.integers(1, 10**6)),
    min_size=1,
    max_size=40,
    unique_by=lambda run: run.record,
)


@given(runs)
def test_promise_6_runs_that_run_again_keep_the_order_of_their_provider(again: list[Again]) -> None:
    window = Window(T0_MS, T0_MS + 1_000_000)
    page = place_again(again, window)
    assert sorted(page.records) == sorted(run.record for run in again)
    for provider in {run.provider for run in again}:
        mine = sorted(run for run in again if run.provider == provider)
        placed = [(record, due_ms) for record, one, due_ms in zip(*page, strict=True) if one == provider]
        assert [record for record, _ in placed] == [run.record for run in mine]
        dues = [due_ms for _, due_ms in placed]
        assert dues == sorted(set(dues))
        assert all(window.start_ms <= due_ms < window.end_ms for due_ms in dues)


@pytest.mark.parametrize(
    ("held", "attempt"),
    [
        (None, 2),
        (Held(9, "retry", T0_MS + 100, 2, 0, None), 2),
        (Held(9, "out", T0_MS + 100, 3, 0, T0_MS), 2),
        (Held(9, "out", T0_MS - 1, 2, 0, T0_MS - 9), 2),
    ],
)
def test_lease_of_a_run_that_is_not_out_at_this_attempt_is_not_extended(held: Held | None, attempt: int) -> None:
    assert extended(held, attempt=attempt, until_ms=T0_MS + 500, now_ms=T0_MS) is None


def test_lease_of_a_run_that_is_out_ends_when_it_is_asked_to() -> None:
    held = Held(9, "out", T0_MS, 2, 1, T0_MS - 9)
    assert extended(held, attempt=2, until_ms=T0_MS + 500, now_ms=T0_MS) == held._replace(at_ms=T0_MS + 500)
