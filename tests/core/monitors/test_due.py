"""An advance, against a brute force that lists every slot."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import sqrt

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.monitors.catch_up import PUT_OFF_MS, Calendar, book
from paceline.core.monitors.cron import next_cron_ms
from paceline.core.monitors.due import (
    LATE_MS,
    Advance,
    CatchUp,
    Due,
    Firing,
    advance,
    advance_all,
    at_times,
    missed_runs,
)
from paceline.core.monitors.schedule import SLOT_MS, Cadence, Missed, jitter_offset_ms

T0_MS = 1_790_000_000_000
HOUR_MS = 3_600_000
POLICIES: list[Missed] = ["skip", "once", "all"]

intervals = st.integers(20, 40_000).map(lambda slots: Cadence(every_ms=slots * SLOT_MS))
crons = st.builds(
    Cadence,
    cron=st.sampled_from(["* * * * *", "*/15 * * * *", "30 2 * * *", "0 0 1 * *", "45 2 25 10 *", "5 4 29 2 *"]),
    timezone=st.sampled_from(["UTC", "Europe/Berlin", "Australia/Lord_Howe"]),
    jitter_ms=st.sampled_from([0, 30_000, 7_200_000]),
)
policies = st.sampled_from(POLICIES)
catch_ups = st.builds(
    CatchUp,
    grace_ms=st.sampled_from([50, 1_000, 30_000]),
    runs_max=st.integers(1, 120),
    window_ms=st.integers(1, HOUR_MS),
)
latenesses = st.one_of(st.integers(0, 120_000), st.integers(0, 30 * 86_400_000))


@st.composite
def dues(draw: st.DrawFn, cadences: st.SearchStrategy[Cadence]) -> Due:
    cadence = draw(cadences)
    cadence = Cadence(cadence.every_ms, cadence.cron, cadence.timezone, cadence.jitter_ms, draw(policies))
    generation = draw(st.integers(1, 2**28 - 1))
    due_ms = T0_MS + draw(st.integers(0, 365 * 86_400_000 // SLOT_MS)) * SLOT_MS
    if cadence.cron and draw(st.booleans()):  # else: owed from an earlier cadence, off the grid
        due_ms = _cron_grid(cadence, generation, after_ms=due_ms)
    lead_ms = draw(st.integers(0, 1 + cadence.every_ms // SLOT_MS)) * SLOT_MS if cadence.every_ms else 0
    return Due(generation, draw(st.integers(0, 10**9)), draw(st.integers(1, 100)), due_ms, cadence, lead_ms=lead_ms)


def _cron_grid(cadence: Cadence, generation: int, *, after_ms: int) -> int:
    offset_ms = jitter_offset_ms(cadence, generation)
    return next_cron_ms(cadence.cron, cadence.timezone, after_ms - offset_ms) + offset_ms


def slots_until(due: Due, now_ms: int) -> list[int]:
    """Every slot from the due time up to now, by walking them all."""
    slots = [due.due_ms]
    while True:
        every_ms = due.lead_ms if due.lead_ms and len(slots) == 1 else due.cadence.every_ms
        after_ms = slots[-1] + every_ms if every_ms else _cron_grid(due.cadence, due.generation, after_ms=slots[-1])
        if after_ms > now_ms:
            return slots
        slots.append(after_ms)


def expected_slots(due: Due, now_ms: int, catch_up: CatchUp) -> list[int]:
    """The policies, as they are told to users."""
    slots = slots_until(due, now_ms)
    on_time = now_ms - slots[-1] <= catch_up.grace_ms
    match due.cadence.missed:
        case "skip":
            return slots[-1:] if on_time else []
        case "once":
            return slots[-1:]
        case "all":
            return slots[-catch_up.runs_max :]


@given(due=dues(st.one_of(intervals, crons)), late_ms=latenesses, catch_up=catch_ups)
def test_an_advance_never_leaves_an_entry_due(due: Due, late_ms: int, catch_up: CatchUp) -> None:
    now_ms = due.due_ms + late_ms
    result = advance(due, now_ms=now_ms, catch_up=catch_up)
    assert result.due == due
    assert result.next_due_ms > now_ms
    assert result.next_due_ms % SLOT_MS == 0


@given(due=dues(st.one_of(intervals, crons)), late_ms=st.integers(0, 300_000), catch_up=catch_ups)
def test_policy_for_missed_runs_decides_which_slots_run(due: Due, late_ms: int, catch_up: CatchUp) -> None:
    now_ms = due.due_ms + late_ms
    result = advance(due, now_ms=now_ms, catch_up=catch_up)
    assert [firing.due_ms for firing in result.firings] == expected_slots(due, now_ms, catch_up)


@given(due=dues(st.one_of(intervals, crons)), late_ms=latenesses, catch_up=catch_ups)
def test_counters_are_contiguous_and_firings_in_order(due: Due, late_ms: int, catch_up: CatchUp) -> None:
    now_ms = due.due_ms + late_ms
    firings = advance(due, now_ms=now_ms, catch_up=catch_up).firings
    assert [firing.counter for firing in firings] == list(range(due.counter, due.counter + len(firings)))
    assert all(one.due_ms < other.due_ms for one, other in pairwise(firings))
    assert all(one.after_ms <= other.after_ms for one, other in pairwise(firings))
    assert len(firings) <= catch_up.runs_max
    assert all(due.due_ms <= firing.due_ms <= now_ms for firing in firings)


@given(due=dues(st.one_of(intervals, crons)), late_ms=latenesses, catch_up=catch_ups)
def test_catch_up_runs_lie_inside_their_window(due: Due, late_ms: int, catch_up: CatchUp) -> None:
    now_ms = due.due_ms + late_ms
    result = advance(due, now_ms=now_ms, catch_up=catch_up)
    missed = [firing for firing in result.firings if now_ms - firing.due_ms > catch_up.grace_ms]
    for firing in missed:
        assert now_ms <= firing.after_ms <= now_ms + catch_up.window_ms
        period_ms = result.next_due_ms - result.firings[-1].due_ms
        assert firing.after_ms <= now_ms + max(period_ms, len(missed) * period_ms // 2)


@given(due=dues(intervals), laps=st.integers(0, 10**6))
def test_schedule_does_not_drift_however_late_a_tick_is(due: Due, laps: int) -> None:
    result = advance(due, now_ms=due.due_ms + laps * 977, catch_up=CatchUp())
    assert (result.next_due_ms - due.due_ms - due.lead_ms) % due.cadence.every_ms == 0


@given(due=dues(crons), late_ms=latenesses)
def test_cron_goes_on_with_the_first_slot_after_now(due: Due, late_ms: int) -> None:
    now_ms = due.due_ms + late_ms
    expected_ms = _cron_grid(due.cadence, due.generation, after_ms=now_ms)
    assert advance(due, now_ms=now_ms, catch_up=CatchUp()).next_due_ms == expected_ms


@given(due=dues(st.one_of(intervals, crons)), late_ms=latenesses)
def test_advance_is_deterministic(due: Due, late_ms: int) -> None:
    now_ms = due.due_ms + late_ms
    assert advance(due, now_ms=now_ms, catch_up=CatchUp()) == advance(due, now_ms=now_ms, catch_up=CatchUp())


def test_advance_on_time_makes_one_run_without_a_delay() -> None:
    due = Due(7, 3, 1, T0_MS, Cadence(every_ms=60_000))
    assert advance(due, now_ms=T0_MS + 40, catch_up=CatchUp()) == Advance(
        due, T0_MS + 60_000, (Firing(counter=3, due_ms=T0_MS, after_ms=0),)
    )


def test_equality_of_due_entries_ignores_their_place_in_the_store() -> None:
    one, other = Due(7, 3, 1, T0_MS, Cadence(), place=(1,)), Due(7, 3, 1, T0_MS, Cadence(), place=(2,))
    assert one == other
    assert not one != other  # noqa: SIM202  the two operators are two methods
    assert len({one, other}) == 1
    assert one != Due(7, 3, 2, T0_MS, Cadence())


@pytest.mark.parametrize("missed", POLICIES)
def test_single_firing_within_the_grace_is_late_and_not_missed(missed: Missed) -> None:
    due = Due(7, 3, 1, T0_MS, Cadence(every_ms=HOUR_MS, missed=missed))
    firings = advance(due, now_ms=T0_MS + 30_000, catch_up=CatchUp(grace_ms=30_000)).firings
    assert firings == (Firing(counter=3, due_ms=T0_MS, after_ms=0),)


@pytest.mark.parametrize(("missed", "runs"), [("skip", 0), ("once", 1), ("all", 6)])
def test_policy_for_missed_runs_decides_the_runs_after_six_hours_down(missed: Missed, runs: int) -> None:
    due = Due(7, 3, 1, T0_MS, Cadence(every_ms=HOUR_MS, missed=missed))
    result = advance(due, now_ms=T0_MS + 6 * HOUR_MS - 1_000, catch_up=CatchUp())
    assert len(result.firings) == runs
    assert result.next_due_ms == T0_MS + 6 * HOUR_MS


def test_an_interval_shorter_than_the_outage_catches_up_the_newest_up_to_the_cap() -> None:
    due = Due(7, 0, 1, T0_MS, Cadence(every_ms=1_000, missed="all"))
    firings = advance(due, now_ms=T0_MS + 6 * HOUR_MS, catch_up=CatchUp(runs_max=100)).firings
    assert [firing.due_ms for firing in firings] == [T0_MS + 6 * HOUR_MS - 1_000 * back for back in range(99, -1, -1)]


@pytest.mark.parametrize("missed", ["once", "all"])
@pytest.mark.parametrize(("every_ms", "window_ms"), [(60_000, 60_000), (HOUR_MS, 600_000), (24 * HOUR_MS, 600_000)])
def test_ten_thousand_entries_after_six_hours_down_come_back_without_a_spike(
    missed: Missed, every_ms: int, window_ms: int
) -> None:
    cadence = Cadence(every_ms=every_ms, missed=missed)
    if missed == "all":  # ten of them, at twice the usual pace
        window_ms = max(window_ms, min(10 * every_ms // 2, 600_000))
    now_ms = T0_MS + 6 * HOUR_MS + 45_000
    entries = [Due(generation, 5, 1, T0_MS, cadence) for generation in range(1, 10_001)]
    advances = advance_all(entries, now_ms=now_ms, catch_up=CatchUp(runs_max=10))
    caught_up = [firing.after_ms - now_ms for one in advances for firing in one.firings]
    assert caught_up
    per_second = Counter(after_ms // 1_000 for after_ms in caught_up)
    mean = len(caught_up) / (window_ms / 1_000)
    assert set(per_second) == set(range(window_ms // 1_000))
    assert max(per_second.values()) < mean + 6 * sqrt(mean)
    assert min(per_second.values()) > mean - 6 * sqrt(mean)


@pytest.mark.parametrize("missed", ["skip", "once"])
def test_promise_7_short_intervals_come_back_after_an_outage_without_a_spike(missed: Missed) -> None:
    cadence = Cadence(every_ms=20_000, missed=missed)
    entries = [Due(generation, 5, 1, T0_MS + 10 * generation, cadence) for generation in range(2_000)]
    now_ms = T0_MS + 6 * HOUR_MS
    advances = advance_all(entries, now_ms=now_ms, catch_up=CatchUp())
    wanted = [missed_runs(one) for one in advances]
    placed, _ = book(Calendar(), wanted, ["ann"] * len(wanted), per_second=20, now_ms=now_ms)
    made = [at_times(one, times, now_ms=now_ms) for one, times in zip(advances, placed, strict=True)]
    paced = [one for one in made if one.firings and now_ms - one.firings[0].due_ms > LATE_MS]
    starts = Counter(max(firing.after_ms, now_ms) // 1_000 for one in paced for firing in one.firings)
    assert max(starts.values()) <= 20
    assert starts[now_ms // 1_000] == 20, "the first of them start at once"
    assert sum(len(one.firings) for one in made) - starts.total() <= 2_000 // 20 + 1, "those of this second: as usual"
    assert starts.total() >= 200, "those that find room before their next firing are made"
    for one in made:
        assert all(firing.after_ms < one.next_due_ms + PUT_OFF_MS for firing in one.firings)


def test_firing_after_a_delay_within_the_grace_is_made_at_once_however_many_were_missed() -> None:
    due = Due(7, 3, 1, T0_MS, Cadence(every_ms=1_000))
    firings = advance(due, now_ms=T0_MS + 20_500, catch_up=CatchUp(grace_ms=30_000)).firings
    assert firings == (Firing(counter=3, due_ms=T0_MS + 20_000, after_ms=0),)


def test_a_late_tick_in_a_doubled_hour_fires_once_and_moves_to_the_next_day() -> None:
    due_ms = 1_792_889_100_000  # 25 October 2026, 02:45 in Berlin, for the first time
    due = Due(7, 0, 1, due_ms, Cadence(cron="45 2 * * *", timezone="Europe/Berlin", missed="once"))
    result = advance(due, now_ms=due_ms + 45 * 60_000, catch_up=CatchUp())
    assert [firing.due_ms for firing in result.firings] == [due_ms]
    assert result.next_due_ms == due_ms + 25 * HOUR_MS
