"""Starts in each minute, from counts alone: what they say is what enumerating every firing says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.ahead.cadences import CadenceCount, CadenceLoad, counted, load_of_key, recount
from paceline.core.ahead.hours import HOURS_MAX
from paceline.core.ahead.minutes import Room, Span, even_starts, expected_sends, firings, firings_cost
from paceline.core.batches.spread import assign_slots, dues_ms
from paceline.core.monitors.phases.circle import bucket_count
from paceline.core.monitors.schedule import SLOT_MS, Cadence, next_due_ms

MINUTE_MS = 60_000
FIRST = 29_833_333
SPANS = st.builds(Span, st.integers(FIRST, FIRST + 20_000), st.integers(1, 600))
EXACT_MS = st.one_of(st.integers(1, 3_600).map(lambda s: s * 1_000), st.integers(1_800, 3_600).map(lambda s: s * 2_000))
ANY_MS = st.integers(1_000 // SLOT_MS, 8 * 86_400_000 // SLOT_MS).map(lambda slots: slots * SLOT_MS)
CRONS = st.sampled_from(
    ["* * * * *", "*/5 * * * *", "0 0 * * *", "30 2 * * *", "0 9-17 * * mon-fri", "7,37 */3 * * *", "0 0 29 2 *"]
)
ZONES = st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu", "America/St_Johns"])


def enumerated(dues: Iterable[int], span: Span) -> list[int]:
    found = Counter(due_ms // MINUTE_MS - span.first for due_ms in dues)
    return [found[minute] for minute in range(span.minutes)]


def dues_in(cadence: Cadence, *, due_ms: int, generation: int, start_ms: int, end_ms: int) -> list[int]:
    found, at_ms = [], start_ms - 1
    while (at_ms := next_due_ms(cadence, after_ms=at_ms, due_ms=due_ms, generation=generation)) < end_ms:
        found.append(at_ms)
    return found


def load_of(cadence: Cadence, dues: list[int]) -> CadenceLoad:
    places = [counted(cadence, generation=index, due_ms=due_ms) for index, due_ms in enumerate(dues)]
    return load_of_key(places[0].key, recount({}, [(place.bucket, 1) for place in places]))


@given(EXACT_MS, st.lists(st.integers(0, 10**9).map(lambda slot: slot * SLOT_MS), min_size=1, max_size=8), SPANS)
def test_counted_firings_of_whole_seconds_equal_enumerated_ones(every_ms: int, grids: list[int], span: Span) -> None:
    cadence = Cadence(every_ms=every_ms)
    dues = [
        due_ms
        for grid_ms in grids
        for due_ms in dues_in(
            cadence, due_ms=grid_ms % every_ms, generation=0, start_ms=span.start_ms, end_ms=span.end_ms
        )
    ]
    assert firings(load_of(cadence, grids), span) == enumerated(dues, span)


@given(ANY_MS, st.lists(st.integers(0, 10**9).map(lambda slot: slot * SLOT_MS), min_size=1, max_size=8), SPANS)
def test_firings_of_any_interval_are_at_most_half_a_bucket_away(every_ms: int, grids: list[int], span: Span) -> None:
    cadence = Cadence(every_ms=every_ms)
    away_ms = -(-every_ms // bucket_count(every_ms)) // 2 + SLOT_MS
    told = list(accumulate(firings(load_of(cadence, grids), span), initial=0))

    def until(end_ms: int) -> int:
        return sum((end_ms - 1 - grid_ms % every_ms) // every_ms for grid_ms in grids)

    for minute, count in enumerate(told):
        edge_ms = span.start_ms + minute * MINUTE_MS
        least = until(edge_ms - away_ms) - until(span.start_ms + away_ms)
        most = until(edge_ms + away_ms) - until(span.start_ms - away_ms)
        assert least <= count <= most


@given(CRONS, ZONES, st.integers(0, 7_200_000), st.integers(1, 6), SPANS)
def test_counted_firings_of_cron_with_jitter_equal_enumerated_ones(
    cron: str, zone: str, jitter_ms: int, monitors: int, span: Span
) -> None:
    cadence = Cadence(cron=cron, timezone=zone, jitter_ms=jitter_ms)
    dues = [
        due_ms
        for generation in range(monitors)
        for due_ms in dues_in(cadence, due_ms=0, generation=generation, start_ms=span.start_ms, end_ms=span.end_ms)
    ]
    assert firings(load_of(cadence, [0] * monitors), span) == enumerated(dues, span)


@given(
    st.dictionaries(st.integers(0, 3_599), st.integers(1, 9)),
    st.lists(st.tuples(st.integers(0, 3_599), st.sampled_from([-1, 1]))),
)
def test_counts_come_back_as_they_were_kept(counts: dict[int, int], changes: list[tuple[int, int]]) -> None:
    after = recount(counts, changes)
    assert CadenceCount.of(after).counts == after
    assert min(after.values(), default=1) > 0
    full = dict.fromkeys(range(3600), 10000)
    assert CadenceCount.of(full).counts == full


def test_cost_does_not_grow_with_the_monitors_of_a_bucket() -> None:
    span = Span(FIRST, 1_440)
    one, many = (CadenceLoad(61_000, "", "UTC", dict.fromkeys(range(61), count)) for count in (1, 100_000))
    assert firings_cost(one, span) == firings_cost(many, span) < 10_000
    assert [count * 100_000 for count in firings(one, span)] == firings(many, span)


@given(st.lists(st.integers(1, 200), min_size=1, max_size=5), st.integers(1, 30), SPANS)
def test_calls_of_a_day_are_within_one_of_the_day_s_own_slots(counts: list[int], minutes: int, span: Span) -> None:
    start_ms, end_ms = span.start_ms + 30_500, span.start_ms + 30_500 + minutes * MINUTE_MS
    for runs, slots in zip(counts, assign_slots(counts), strict=True):
        told = accumulate(even_starts(runs, start_ms=start_ms, end_ms=end_ms, span=span))
        planned = accumulate(enumerated(dues_ms(slots, sum(counts), start_ms=start_ms, end_ms=end_ms), span))
        assert all(abs(one - other) <= 1 for one, other in zip(told, planned, strict=True))


def test_sends_wait_for_slots_and_keep_to_the_pace() -> None:
    span = Span(FIRST, 5)
    second_ms = span.start_ms + 2 * MINUTE_MS
    rooms = [Room("a", 3, [(second_ms, 2)]), Room("b", 1)]
    a, b = expected_sends(9, rooms, per_minute_max=3, from_minute=1, span=span)
    assert (a.starts, b.starts) == ([0, 3, 2, 0, 0], [0, 0, 1, 0, 0])
    assert (a.capacity, b.capacity) == ([0, 3, 2, 0, 0], [0, 1, 1, 0, 0])


@pytest.mark.parametrize("every_ms", [1_000, 10_000, 60_000])
def test_intervals_that_divide_a_minute_are_the_same_in_each_minute(every_ms: int) -> None:
    load = CadenceLoad(every_ms, "", "UTC", {0: 7})
    assert firings(load, Span(FIRST, 3)) == [7 * MINUTE_MS // every_ms] * 3


def test_cron_fires_in_its_minutes_and_nothing_fires_without_a_monitor() -> None:
    span = Span(FIRST // 60 * 60, 90)
    assert firings(CadenceLoad(0, "0 * * * *", "UTC", {}), span) == [0] * 90
    hourly = firings(CadenceLoad(0, "0 * * * *", "UTC", {0: 2, 45: 3}), span)
    assert {minute: count for minute, count in enumerate(hourly) if count} == {0: 2, 45: 3, 60: 2}


def test_longest_look_ahead_at_any_cadence_takes_a_bounded_number_of_steps() -> None:
    span = Span(FIRST, 60 * HOURS_MAX)
    assert firings_cost(CadenceLoad(0, "* * * * *", "UTC", {0: 10**6}), span) <= 100_000
    assert firings_cost(CadenceLoad(1_000, "", "UTC", {0: 10**6}), span) == span.minutes
