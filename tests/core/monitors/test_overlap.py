"""Which firings are skipped, and when those that queue may start."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from paceline.core.monitors.due import LATE_MS, CatchUp, Due, advance
from paceline.core.monitors.overlap import SUPERSEDED_MAX, follow_ms, is_skipped, superseded
from paceline.core.monitors.schedule import Cadence, next_due_ms

T0_MS = 1_790_000_000_000
DAY_MS = 86_400_000
cadences = st.builds(
    Cadence,
    every_ms=st.sampled_from((1_000, 60_000, 3_600_000)),
    missed=st.sampled_from(("skip", "once", "all")),
    overlap=st.sampled_from(("skip", "queue")),
)
GRACE_MS = CatchUp().grace_ms
latenesses = st.integers(0, 10_000_000)


@given(cadence=cadences, late_ms=latenesses, overlapped=st.integers(0, 50))
def test_overlap_policy_changes_nothing_without_an_open_run(cadence: Cadence, late_ms: int, overlapped: int) -> None:
    due = Due(7, 3, 1, T0_MS, cadence, overlapped=overlapped)
    queue = Due(7, 3, 1, T0_MS, Cadence(cadence.every_ms, missed=cadence.missed, overlap="queue"))
    made = advance(due, now_ms=T0_MS + late_ms, catch_up=CatchUp())
    assert made.firings == advance(queue, now_ms=T0_MS + late_ms, catch_up=CatchUp()).firings
    assert made.overlapped == 0


@given(cadence=cadences, late_ms=latenesses, overlapped=st.integers(0, 50))
def test_entry_with_overlap_skip_and_an_open_run_makes_only_wanted_missed_runs(
    cadence: Cadence, late_ms: int, overlapped: int
) -> None:
    clear = Due(7, 3, 1, T0_MS, cadence)
    busy = Due(7, 3, 1, T0_MS, cadence, busy=True, overlapped=overlapped)
    wanted = advance(clear, now_ms=T0_MS + late_ms, catch_up=CatchUp())
    made = advance(busy, now_ms=T0_MS + late_ms, catch_up=CatchUp())
    assert made.next_due_ms == wanted.next_due_ms
    if cadence.overlap == "skip" and (cadence.missed != "all" or len(wanted.firings) == 1 == late_ms // 30_000 + 1):
        assert made.firings == ()
    if cadence.overlap == "queue":
        newest_ms = wanted.firings[-1].due_ms if wanted.firings else 0
        if late_ms > GRACE_MS >= T0_MS + late_ms - newest_ms > LATE_MS and cadence.missed != "all":
            # Without an open run it keeps to the pace of all monitors; behind one, it follows that run.
            assert [firing.after_ms > 0 for firing in wanted.firings] == [True]
            assert made.firings == tuple(replace(firing, after_ms=0) for firing in wanted.firings)
        else:
            assert made.firings == wanted.firings
        assert made.waiting_max == CatchUp().waiting_max
    assert made.overlapped == overlapped + len(wanted.firings)


@given(cadence=cadences)
def test_no_firing_is_skipped_while_no_run_is_open(cadence: Cadence) -> None:
    assert not is_skipped(cadence, busy=False, made_up=False)
    assert not is_skipped(cadence, busy=False, made_up=True)


@given(
    cadence=cadences,
    gaps=st.lists(st.integers(50, 100_000_000), min_size=1, max_size=30),
    taken_ms=st.integers(0, 200_000),
)
def test_queued_runs_start_at_no_more_than_twice_their_pace_however_long_each_takes(
    cadence: Cadence, gaps: list[int], taken_ms: int
) -> None:
    started_ms = due_ms = T0_MS
    for gap_ms in gaps:
        from_ms = follow_ms(
            cadence, started_ms=started_ms, previous_due_ms=due_ms, due_ms=due_ms + gap_ms, generation=7
        )
        begun_ms = max(from_ms, started_ms + taken_ms)
        assert begun_ms - started_ms >= min(gap_ms, cadence.every_ms) // 2
        assert from_ms - started_ms <= cadence.every_ms // 2, "a pause before it does not hold it back"
        started_ms, due_ms = begun_ms, due_ms + gap_ms


def test_a_queued_run_of_a_cron_monitor_waits_at_most_half_the_way_to_its_next_time() -> None:
    nightly = Cadence(cron="0 3 * * *", overlap="queue")
    due_ms = next_due_ms(nightly, after_ms=T0_MS, due_ms=0, generation=7)
    begun_ms = follow_ms(nightly, started_ms=T0_MS, previous_due_ms=due_ms - 9 * DAY_MS, due_ms=due_ms, generation=7)
    assert begun_ms == T0_MS + DAY_MS // 2


def test_a_queued_run_of_a_monitor_that_is_gone_waits_for_nothing() -> None:
    assert follow_ms(None, started_ms=T0_MS, previous_due_ms=T0_MS, due_ms=T0_MS + DAY_MS, generation=7) == T0_MS


@given(
    waiting=st.integers(-1, 300), made=st.integers(1, 120), waiting_max=st.integers(0, 100), firings=st.integers(1, 9)
)
def test_superseding_ends_only_as_many_runs_as_exceed_the_waiting_limit(
    waiting: int, made: int, waiting_max: int, firings: int
) -> None:
    ended = superseded(waiting=waiting, made=made, waiting_max=waiting_max)
    assert 0 <= ended <= max(0, min(waiting, SUPERSEDED_MAX))
    left = max(waiting, 0) + made - ended
    assert ended == 0 or left >= waiting_max > 0
    for _ in range(firings):
        after = left + 1 - superseded(waiting=left, made=1, waiting_max=waiting_max)
        assert after < left or after <= max(left, waiting_max) or not waiting_max
        left = after
