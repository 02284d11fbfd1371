"""What an edit does to an entry (promise 2), what a set-back clock does, and that nothing drifts."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.monitors.due import CatchUp, Due, advance
from paceline.core.monitors.schedule import (
    SLOT_MS,
    Arm,
    Cadence,
    Entry,
    Keep,
    Phase,
    Remove,
    Rest,
    WantedSchedule,
    allotted_ms,
    jitter_offset_ms,
    next_due_ms,
    pulled_back_ms,
    react,
    too_far_ahead,
)

T0_MS = 1_790_000_000_000
MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
NEVER_MISSED = CatchUp(grace_ms=10**12)
GENERATION = 7


def wish(
    cadence: Cadence, *, delay_ms: int = 0, resting: bool = False, outgoing: bool = False, created_ms: int = T0_MS
) -> WantedSchedule:
    return WantedSchedule(
        cadence=cadence, initial_delay_ms=delay_ms, resting=resting, outgoing=outgoing, created_ms=created_ms
    )


def every(ms: int, *, jitter_ms: int = 0) -> Cadence:
    return Cadence(every_ms=ms, jitter_ms=jitter_ms)


def armed(cadence: Cadence, due_ms: int | None, *, counter: int = 1, last_due_ms: int | None = None) -> Entry:
    return Entry(GENERATION, counter, 1, due_ms, cadence, outgoing=False, last_due_ms=last_due_ms)


class Life:
    """One entry, edited and ticked as the steps would do it; keeps the due times that fired."""

    def __init__(self, first: WantedSchedule) -> None:
        self.now_ms = T0_MS
        self.wish = first
        self.entry: Entry | None = None
        self.fired: list[int] = []
        self.edit(first)

    def edit(self, newest: WantedSchedule) -> None:
        self.wish = newest
        before = self.entry
        reaction = react(newest, before, generation=GENERATION, now_ms=self.now_ms)
        counter = before.counter if before else 0
        last_due_ms = before.last_due_ms if before else None
        match reaction:
            case Arm(due_ms=due_ms):
                self.entry = Entry(GENERATION, counter, 1, due_ms, newest.cadence, newest.outgoing, last_due_ms)
            case Rest():
                self.entry = Entry(GENERATION, counter, 1, None, newest.cadence, newest.outgoing, last_due_ms)
            case Keep():
                assert before is not None
            case Remove():
                self.entry = None

    def tick(self) -> None:
        entry = self.entry
        assert entry is not None
        if entry.due_ms is None or entry.due_ms > self.now_ms:
            return
        due = Due(entry.generation, entry.counter, entry.revision, entry.due_ms, entry.cadence)
        step = advance(due, now_ms=self.now_ms, catch_up=NEVER_MISSED)
        self.fired += [firing.due_ms for firing in step.firings]
        self.entry = msgspec.structs.replace(
            entry,
            counter=entry.counter + len(step.firings),
            due_ms=step.next_due_ms,
            last_due_ms=self.fired[-1] if self.fired else None,
        )


intervals = st.sampled_from([every(ms) for ms in (1_000, 5_000, 7_050, 60_000)])
cadences = st.one_of(
    st.builds(every, st.sampled_from([1_000, 7_050, 60_000]), jitter_ms=st.sampled_from([0, 900, 50_000, 10 * DAY_MS])),
    st.builds(Cadence, cron=st.just("* * * * *"), jitter_ms=st.sampled_from([0, 20_000])),
)
pauses_ms = st.one_of(st.just(0), st.integers(0, 300), st.integers(0, 20_000))


@settings(max_examples=3 * settings().max_examples)
@given(first=intervals, story=st.lists(st.tuples(pauses_ms, st.booleans(), intervals, st.booleans()), max_size=40))
def test_promise_2_edits_neither_lose_nor_double_a_firing(
    first: Cadence, story: list[tuple[int, bool, Cadence, bool]]
) -> None:
    life = Life(wish(first))
    life.tick()
    longest_step_ms = 0
    for pause_ms, ticks, cadence, edits in story:
        life.now_ms += pause_ms
        longest_step_ms = max(longest_step_ms, pause_ms)
        if ticks:
            life.tick()
        if edits:
            life.edit(wish(cadence))
        life.tick()
    used = [first.every_ms, *(cadence.every_ms for _, _, cadence, edits in story if edits)]
    for one, other in pairwise(life.fired):
        assert other - one >= min(used)
        assert other - one <= max(used) + longest_step_ms
    assert life.entry is not None
    assert life.entry.due_ms is not None
    assert life.now_ms < life.entry.due_ms <= life.now_ms + max(used)


@settings(max_examples=3 * settings().max_examples)
@given(
    first=cadences,
    story=st.lists(st.tuples(pauses_ms, st.one_of(st.none(), cadences), st.booleans(), st.booleans()), max_size=40),
)
def test_promise_2_edits_keep_due_times_rising_and_an_owed_firing_owed(
    first: Cadence, story: list[tuple[int, Cadence | None, bool, bool]]
) -> None:
    life = Life(wish(first))
    for pause_ms, cadence, resting, ticks in story:
        life.now_ms += pause_ms
        if cadence is not None:
            before = life.entry
            life.edit(wish(cadence, resting=resting))
            assert life.entry is not None
            assert (life.entry.due_ms is None) == resting
            if before is not None and before.due_ms is not None and before.due_ms <= life.now_ms and not resting:
                assert life.entry.due_ms == before.due_ms
        if ticks:
            life.tick()
        assert life.entry is not None
        assert life.entry.due_ms is None or life.entry.due_ms % SLOT_MS == 0
    assert all(one < other for one, other in pairwise(life.fired))


@given(
    storm=st.lists(cadences, min_size=2, max_size=6), step_ms=st.integers(1, 900), start_ms=st.integers(0, MINUTE_MS)
)
def test_promise_2_a_storm_of_edits_faster_than_the_interval_does_not_starve_the_firings(
    storm: list[Cadence], step_ms: int, start_ms: int
) -> None:
    life = Life(wish(storm[0], created_ms=T0_MS))
    life.now_ms += start_ms
    steps = 8 * MINUTE_MS // step_ms
    for number in range(min(steps, 2_000)):
        life.now_ms += step_ms
        life.tick()
        life.edit(wish(storm[number % len(storm)]))
    spent_ms = life.now_ms - T0_MS
    assert len(life.fired) >= spent_ms // (3 * MINUTE_MS)


@given(edited_at_ms=st.integers(1, 59_999), new_ms=st.integers(20, 4_000).map(lambda slots: slots * SLOT_MS))
def test_promise_2_an_interval_counts_from_the_previous_firing_at_once(edited_at_ms: int, new_ms: int) -> None:
    entry = armed(every(MINUTE_MS), T0_MS + MINUTE_MS, last_due_ms=T0_MS)
    now_ms = T0_MS + edited_at_ms
    reaction = react(wish(every(new_ms)), entry, generation=GENERATION, now_ms=now_ms)
    if new_ms == MINUTE_MS:
        assert reaction == Keep()
        return
    assert isinstance(reaction, Arm)
    assert reaction.due_ms == max(T0_MS + new_ms, now_ms // SLOT_MS * SLOT_MS)


def test_promise_2_a_new_cron_takes_effect_now() -> None:
    entry = armed(every(DAY_MS), T0_MS + DAY_MS, last_due_ms=T0_MS)
    reaction = react(wish(Cadence(cron="* * * * *")), entry, generation=GENERATION, now_ms=T0_MS + 1)
    assert isinstance(reaction, Arm)
    assert T0_MS < reaction.due_ms <= T0_MS + MINUTE_MS


@given(edit_ms=st.integers(1, HOUR_MS))
def test_promise_2_an_edit_between_a_cron_slot_and_its_jitter_keeps_the_firing(edit_ms: int) -> None:
    cadence = Cadence(cron="0 * * * *", jitter_ms=30 * MINUTE_MS)
    first = react(wish(cadence), None, generation=GENERATION, now_ms=T0_MS)
    assert isinstance(first, Arm)
    entry = armed(cadence, first.due_ms, counter=0)
    edited = msgspec.structs.replace(cadence, missed="all")
    reaction = react(wish(edited), entry, generation=GENERATION, now_ms=T0_MS + edit_ms)
    assert isinstance(reaction, Arm)
    assert reaction.due_ms == first.due_ms


def test_promise_2_a_resume_keeps_the_grid_while_it_can_and_fires_at_once_when_it_is_over() -> None:
    paused = armed(every(MINUTE_MS), None, counter=4, last_due_ms=T0_MS)
    soon = react(wish(every(MINUTE_MS)), paused, generation=GENERATION, now_ms=T0_MS + 10_000)
    late = react(wish(every(MINUTE_MS)), paused, generation=GENERATION, now_ms=T0_MS + DAY_MS)
    assert soon == Arm(due_ms=T0_MS + MINUTE_MS, cadence=every(MINUTE_MS), outgoing=False)
    assert late == Arm(due_ms=T0_MS + DAY_MS, cadence=every(MINUTE_MS), outgoing=False)


def test_a_pause_rests_the_entry_and_a_second_one_changes_nothing() -> None:
    resting = wish(every(MINUTE_MS), resting=True)
    entry = armed(every(MINUTE_MS), T0_MS + MINUTE_MS)
    assert react(resting, entry, generation=GENERATION, now_ms=T0_MS) == Rest(cadence=every(MINUTE_MS), outgoing=False)
    assert react(resting, armed(every(MINUTE_MS), None), generation=GENERATION, now_ms=T0_MS) == Keep()
    assert react(resting, None, generation=GENERATION, now_ms=T0_MS) == Rest(cadence=every(MINUTE_MS), outgoing=False)


def test_removed_definition_removes_its_entry() -> None:
    assert react(None, armed(every(MINUTE_MS), T0_MS), generation=GENERATION, now_ms=T0_MS) == Remove()
    assert react(None, None, generation=GENERATION, now_ms=T0_MS) == Remove()


@given(now_ms=st.integers(T0_MS, T0_MS + DAY_MS), cadence=cadences, first=cadences, resting=st.booleans())
def test_promise_10_replaying_a_change_decides_nothing_new(
    *, now_ms: int, cadence: Cadence, first: Cadence, resting: bool
) -> None:
    life = Life(wish(first))
    life.tick()
    life.now_ms = now_ms
    life.edit(wish(cadence, resting=resting))
    assert react(life.wish, life.entry, generation=GENERATION, now_ms=now_ms) == Keep()


def test_moving_a_monitor_to_the_outgoing_queue_keeps_its_due_time() -> None:
    entry = armed(every(MINUTE_MS), T0_MS + MINUTE_MS, last_due_ms=T0_MS)
    reaction = react(wish(every(MINUTE_MS), outgoing=True), entry, generation=GENERATION, now_ms=T0_MS + 5)
    assert reaction == Arm(due_ms=T0_MS + MINUTE_MS, cadence=every(MINUTE_MS), outgoing=True)


@given(
    cadence=cadences, delay_ms=st.integers(0, DAY_MS), reacted_ms=st.integers(0, DAY_MS), generation=st.integers(1, 999)
)
def test_the_first_firing_waits_for_the_initial_delay(
    cadence: Cadence, delay_ms: int, reacted_ms: int, generation: int
) -> None:
    now_ms = T0_MS + reacted_ms
    reaction = react(wish(cadence, delay_ms=delay_ms), None, generation=generation, now_ms=now_ms)
    assert isinstance(reaction, Arm)
    start_ms = max(now_ms, T0_MS + delay_ms)
    assert reaction.due_ms >= start_ms
    jitter_ms = min(cadence.jitter_ms, cadence.every_ms or cadence.jitter_ms)
    assert reaction.due_ms < start_ms + SLOT_MS + jitter_ms + (0 if cadence.every_ms else MINUTE_MS)


@pytest.mark.parametrize("cadence", [every(MINUTE_MS), Cadence(cron="* * * * *")])
def test_promise_2_an_edited_initial_delay_moves_the_first_firing(cadence: Cadence) -> None:
    entry = armed(cadence, T0_MS + DAY_MS, counter=0)
    sooner = react(wish(cadence), entry, generation=GENERATION, now_ms=T0_MS + 5_000)
    assert isinstance(sooner, Arm)
    assert sooner.due_ms <= T0_MS + 5_000 + MINUTE_MS
    later = react(wish(cadence, delay_ms=2 * DAY_MS), entry, generation=GENERATION, now_ms=T0_MS + 5_000)
    assert isinstance(later, Arm)
    assert later.due_ms >= T0_MS + 2 * DAY_MS
    fired = armed(cadence, T0_MS + MINUTE_MS, counter=1, last_due_ms=T0_MS)
    assert react(wish(cadence, delay_ms=2 * DAY_MS), fired, generation=GENERATION, now_ms=T0_MS + 5_000) == Keep()


@given(generation=st.integers(1, 2**28), jitter_ms=st.integers(0, DAY_MS))
def test_jitter_is_stable_and_inside_its_width(generation: int, jitter_ms: int) -> None:
    cadence = every(HOUR_MS, jitter_ms=jitter_ms)
    offset_ms = jitter_offset_ms(cadence, generation)
    assert 0 <= offset_ms <= min(jitter_ms, HOUR_MS)
    assert offset_ms % SLOT_MS == 0
    assert offset_ms == jitter_offset_ms(cadence, generation)


def test_jitter_differs_between_entries() -> None:
    offsets = {jitter_offset_ms(every(HOUR_MS, jitter_ms=HOUR_MS), generation) for generation in range(1, 1_001)}
    assert len(offsets) > 980


@given(due_ms=st.integers(0, 10**6), after_ms=st.integers(0, 10**8), period=st.integers(20, 10**5))
def test_next_due_time_lies_on_the_grid_through_the_last_one(due_ms: int, after_ms: int, period: int) -> None:
    cadence = every(period * SLOT_MS)
    found_ms = next_due_ms(cadence, after_ms=after_ms, due_ms=due_ms, generation=1)
    assert found_ms > after_ms or found_ms == due_ms
    assert (found_ms - due_ms) % cadence.every_ms == 0
    assert found_ms - cadence.every_ms <= max(after_ms, due_ms - cadence.every_ms)


TOLERANCE_MS = 300_000
intervals_with_jitter = st.builds(
    every, st.sampled_from([1_000, MINUTE_MS, HOUR_MS, DAY_MS]), jitter_ms=st.sampled_from([0, 30_000, DAY_MS])
)
crons = st.builds(Cadence, cron=st.sampled_from(["* * * * *", "0 3 * * *"]), jitter_ms=st.sampled_from([0, 30_000]))
running = st.one_of(intervals_with_jitter, crons)


@given(cadence=crons, back_ms=st.integers(0, TOLERANCE_MS), handled_ms=st.integers(0, 20_000))
def test_a_cron_time_that_has_fired_does_not_fire_again_when_the_clock_is_put_right_a_little(
    cadence: Cadence, back_ms: int, handled_ms: int
) -> None:
    now_ms = T0_MS + handled_ms
    due_ms = next_due_ms(cadence, after_ms=now_ms, due_ms=T0_MS, generation=GENERATION)
    assert not too_far_ahead(armed(cadence, due_ms), now_ms=now_ms - back_ms, tolerance_ms=TOLERANCE_MS)


@given(cadence=intervals_with_jitter, handled_ms=st.integers(0, DAY_MS), back_ms=st.integers(0, DAY_MS))
def test_an_interval_is_never_silent_for_longer_than_its_period_when_the_clock_is_set_back(
    cadence: Cadence, handled_ms: int, back_ms: int
) -> None:
    now_ms = T0_MS + handled_ms
    due_ms = next_due_ms(cadence, after_ms=now_ms, due_ms=T0_MS, generation=GENERATION)
    entry, now_ms = armed(cadence, due_ms), now_ms - back_ms
    if not too_far_ahead(entry, now_ms=now_ms, tolerance_ms=TOLERANCE_MS):
        assert due_ms - now_ms <= cadence.every_ms + min(cadence.jitter_ms, cadence.every_ms) + SLOT_MS
        return
    assert back_ms > 0
    assert now_ms < pulled_back_ms(entry, now_ms=now_ms) <= now_ms + cadence.every_ms


@given(edited_ms=st.integers(1, MINUTE_MS - 1), old_ms=st.integers(0, MINUTE_MS), new_ms=st.integers(0, 2 * MINUTE_MS))
def test_an_edit_of_the_jitter_is_not_taken_for_a_clock_set_back(edited_ms: int, old_ms: int, new_ms: int) -> None:
    entry = armed(every(MINUTE_MS, jitter_ms=old_ms), T0_MS + MINUTE_MS, last_due_ms=T0_MS)
    edited = every(MINUTE_MS, jitter_ms=new_ms)
    reaction = react(wish(edited), entry, generation=GENERATION, now_ms=T0_MS + edited_ms)
    if isinstance(reaction, Arm):
        moved = armed(edited, reaction.due_ms)
        assert not too_far_ahead(moved, now_ms=T0_MS + edited_ms, tolerance_ms=TOLERANCE_MS)


@given(cadence=running, back_ms=st.integers(3 * DAY_MS, 400 * DAY_MS))
def test_a_clock_set_back_by_days_brings_the_entry_back_to_its_grid(cadence: Cadence, back_ms: int) -> None:
    due_ms = next_due_ms(cadence, after_ms=T0_MS, due_ms=T0_MS, generation=GENERATION)
    entry, now_ms = armed(cadence, due_ms), T0_MS - back_ms
    assert too_far_ahead(entry, now_ms=now_ms, tolerance_ms=TOLERANCE_MS)
    moved_ms = pulled_back_ms(entry, now_ms=now_ms)
    assert now_ms < moved_ms < due_ms
    assert moved_ms <= now_ms + (cadence.every_ms or DAY_MS + cadence.jitter_ms)
    if cadence.every_ms:
        assert (due_ms - moved_ms) % cadence.every_ms == 0
    moved = armed(cadence, moved_ms)
    assert not too_far_ahead(moved, now_ms=now_ms, tolerance_ms=TOLERANCE_MS)


def test_entry_of_a_minute_is_due_within_a_minute_after_the_clock_was_set_back_an_hour() -> None:
    entry = armed(every(MINUTE_MS), T0_MS + MINUTE_MS)
    now_ms = T0_MS - HOUR_MS
    assert too_far_ahead(entry, now_ms=now_ms, tolerance_ms=TOLERANCE_MS)
    assert pulled_back_ms(entry, now_ms=now_ms) == now_ms + MINUTE_MS


def test_an_initial_delay_is_not_taken_for_a_clock_set_back() -> None:
    entry = armed(every(MINUTE_MS), T0_MS + 9 * DAY_MS, counter=0)
    assert not too_far_ahead(entry, now_ms=T0_MS, tolerance_ms=TOLERANCE_MS)
    assert not too_far_ahead(armed(every(MINUTE_MS), None), now_ms=T0_MS, tolerance_ms=TOLERANCE_MS)


def test_promise_2_extra_run_before_the_first_firing_leaves_the_initial_delay() -> None:
    cadence = every(MINUTE_MS)
    asked = armed(cadence, T0_MS + DAY_MS, counter=1)
    kept = wish(cadence, delay_ms=DAY_MS)
    assert react(kept, asked, generation=GENERATION, now_ms=T0_MS + 5_000) == Keep()
    later = react(wish(cadence, delay_ms=2 * DAY_MS), asked, generation=GENERATION, now_ms=T0_MS + 5_000)
    assert isinstance(later, Arm)
    assert later.due_ms == T0_MS + 2 * DAY_MS
    resumed = react(kept, armed(cadence, None, counter=1), generation=GENERATION, now_ms=T0_MS + 5_000)
    assert isinstance(resumed, Arm)
    assert resumed.due_ms == T0_MS + DAY_MS


def allotted(cadence: Cadence, phase_ms: int, *, first_ms: int | None = T0_MS) -> WantedSchedule:
    return msgspec.structs.replace(wish(cadence), phase=Phase(phase_ms, first_ms))


def entry_of(arm: Arm, *, counter: int = 0, last_due_ms: int | None = None) -> Entry:
    entry = armed(arm.cadence, arm.due_ms, counter=counter, last_due_ms=last_due_ms)
    return msgspec.structs.replace(entry, lead_ms=arm.lead_ms)


def reaction(wanted: WantedSchedule, entry: Entry | None, *, now_ms: int = T0_MS) -> Arm:
    found = react(wanted, entry, generation=GENERATION, now_ms=now_ms)
    assert isinstance(found, Arm)
    return found


@given(
    st.integers(20, 2_000).map(lambda slots: slots * SLOT_MS),
    st.integers(0, 10**6).map(lambda slots: slots * SLOT_MS),
    st.sampled_from([0, 4_000]),
)
def test_allotted_monitor_is_checked_at_once_and_then_on_its_grid(every_ms: int, phase: int, jitter_ms: int) -> None:
    cadence = every(every_ms, jitter_ms=jitter_ms)
    arm = reaction(allotted(cadence, phase % every_ms), None, now_ms=T0_MS + 7)
    entry = entry_of(arm)
    assert T0_MS <= arm.due_ms <= T0_MS + 1_000 + SLOT_MS
    assert allotted_ms(entry) == phase % every_ms
    first = advance(
        Due(GENERATION, 0, 1, arm.due_ms, cadence, lead_ms=arm.lead_ms or 0), now_ms=arm.due_ms, catch_up=NEVER_MISSED
    )
    on_grid_ms = first.next_due_ms - jitter_offset_ms(cadence, GENERATION)
    assert on_grid_ms % every_ms == phase % every_ms
    assert min(1_000, every_ms // 4) <= first.next_due_ms - arm.due_ms <= every_ms * 5 // 4


def test_allotted_monitor_without_a_first_check_begins_on_its_grid() -> None:
    phase_ms = (T0_MS + 41_000) % MINUTE_MS
    arm = reaction(allotted(every(MINUTE_MS), phase_ms, first_ms=None), None)
    assert (arm.due_ms, arm.lead_ms) == (T0_MS + 41_000, 0)


def test_paced_first_check_comes_at_its_own_time_or_with_the_grid() -> None:
    phase_ms = (T0_MS + 41_000) % MINUTE_MS
    early = reaction(allotted(every(MINUTE_MS), phase_ms, first_ms=T0_MS + 5_000), None)
    assert (early.due_ms, early.lead_ms) == (T0_MS + 5_000, 36_000)
    with_grid = reaction(allotted(every(MINUTE_MS), phase_ms, first_ms=T0_MS + 40_500), None)
    assert (with_grid.due_ms, with_grid.lead_ms) == (T0_MS + 41_000, 0)


def test_edit_that_keeps_the_phase_moves_no_firing() -> None:
    wanted = allotted(every(MINUTE_MS), (T0_MS + 10_000) % MINUTE_MS)
    arm = reaction(wanted, None)
    assert (arm.due_ms, arm.lead_ms) == (T0_MS, 10_000)
    fired = armed(arm.cadence, T0_MS + 10_000, last_due_ms=T0_MS)
    fired = msgspec.structs.replace(fired, lead_ms=0)
    assert react(wanted, fired, generation=GENERATION, now_ms=T0_MS + 5_000) == Keep()
    edited = msgspec.structs.replace(wanted, cadence=msgspec.structs.replace(wanted.cadence, missed="all"))
    again = reaction(edited, fired, now_ms=T0_MS + 5_000)
    assert (again.due_ms, again.lead_ms) == (T0_MS + 10_000, 0)


def test_new_interval_fires_when_it_would_without_a_phase_and_then_on_its_grid() -> None:
    fired = msgspec.structs.replace(armed(every(MINUTE_MS), T0_MS + 50_000, last_due_ms=T0_MS - 10_000), lead_ms=0)
    wanted = allotted(every(30_000), (T0_MS + 29_000) % 30_000)
    arm = reaction(wanted, fired, now_ms=T0_MS + 1_000)
    assert (arm.due_ms, arm.lead_ms) == (T0_MS + 20_000, 9_000)


def test_resumed_monitor_fires_as_soon_as_its_interval_allows_and_then_on_its_grid() -> None:
    wanted = allotted(every(MINUTE_MS), (T0_MS + 10_000) % MINUTE_MS)
    at_rest = armed(every(MINUTE_MS), None, last_due_ms=T0_MS - 50_000)
    soon = reaction(wanted, at_rest)
    assert (soon.due_ms, soon.lead_ms) == (T0_MS + 10_000, 0)
    late = reaction(wanted, at_rest, now_ms=T0_MS + HOUR_MS)
    assert (late.due_ms, late.lead_ms) == (T0_MS + HOUR_MS, 10_000)


def test_initial_delay_that_is_given_or_taken_away_later_changes_the_grid_and_not_the_next_firing() -> None:
    plain = armed(every(MINUTE_MS), T0_MS + 20_000, last_due_ms=T0_MS - 40_000)
    arm = reaction(allotted(every(MINUTE_MS), (T0_MS + 50_000) % MINUTE_MS), plain)
    assert (arm.due_ms, arm.lead_ms) == (T0_MS + 20_000, 30_000)
    back = reaction(wish(every(MINUTE_MS)), entry_of(arm, counter=1, last_due_ms=T0_MS - 40_000))
    assert (back.due_ms, back.lead_ms) == (T0_MS + 20_000, None)


def test_clock_set_back_returns_an_allotted_entry_to_its_grid() -> None:
    entry = msgspec.structs.replace(armed(every(MINUTE_MS), T0_MS + HOUR_MS), lead_ms=10_000)
    assert too_far_ahead(entry, now_ms=T0_MS, tolerance_ms=0)
    assert pulled_back_ms(entry, now_ms=T0_MS) == T0_MS + 10_000
