from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from paceline.core.monitors.due import AlreadyOpen, ExtraRun, FiringOwed, decide_extra
from paceline.core.monitors.health import Glance
from paceline.core.monitors.schedule import Cadence, Entry, next_due_ms, upcoming_ms

T0_MS = 1_790_000_000_000
ENTRY = Entry(7, 3, 2, T0_MS + 60_000, Cadence(every_ms=60_000), outgoing=False, last_due_ms=T0_MS)


def test_open_run_is_the_check_now() -> None:
    assert decide_extra(ENTRY, Glance(open_due_ms=T0_MS), now_ms=T0_MS + 1) == AlreadyOpen(2)


def test_owed_firing_comes_before_an_extra_run() -> None:
    found = decide_extra(ENTRY, Glance(settled="ok"), now_ms=T0_MS + 60_000)
    assert isinstance(found, FiringOwed)
    assert found.due.token == (7, 3, 2, T0_MS + 60_000)


def test_extra_run_is_due_now_also_for_a_paused_entry() -> None:
    for entry in (ENTRY, replace(ENTRY, due_ms=None)):
        assert decide_extra(entry, Glance(settled="failed"), now_ms=T0_MS + 1) == ExtraRun(entry, T0_MS + 1)


@given(st.integers(1, 50), st.integers(-200_000, 200_000))
def test_upcoming_times_are_the_grid_and_rise(count: int, late_ms: int) -> None:
    assert ENTRY.due_ms is not None
    now_ms = ENTRY.due_ms + late_ms
    times = upcoming_ms(ENTRY, count=count, now_ms=now_ms)
    assert len(times) == count
    assert times[0] == ENTRY.due_ms
    assert all((ms - ENTRY.due_ms) % 60_000 == 0 for ms in times)
    assert all(ms > now_ms for ms in times[1:])
    assert times == sorted(set(times))


def test_upcoming_times_of_a_cron_follow_its_zone_over_a_change_of_clocks() -> None:
    cadence = Cadence(cron="30 2 * * *", timezone="Europe/Berlin")
    before_ms = 1_774_652_400_000  # 2026-03-28 00:00 in Berlin; clocks go forward on the 29th
    first_ms = next_due_ms(cadence, after_ms=before_ms, due_ms=0, generation=1)
    entry = Entry(1, 0, 1, first_ms, cadence, outgoing=False)
    hours = [(ms - before_ms) / 3_600_000 for ms in upcoming_ms(entry, count=3, now_ms=before_ms)]
    assert hours == [2.5, 26.0, 49.5]


def test_paused_entry_has_no_upcoming_times() -> None:
    assert upcoming_ms(replace(ENTRY, due_ms=None), count=5, now_ms=T0_MS) == []
