"""The time that a store notes, by which a clock that was set back is found."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.clock import set_back_ms
from paceline.ports import Store
from paceline.steps.upkeep.clock import LongestWaits, SetBack, accept_time, note_time, watch_clock
from tests.contract.support.stage import (
    HOUR_MS,
    MINUTE_MS,
    T0_MS,
)


def test_stored_time_is_replaced_and_the_previous_one_is_returned(store: Store) -> None:
    assert note_time(store, lambda: T0_MS) == (None, T0_MS)
    assert note_time(store, lambda: T0_MS + 10_000) == (T0_MS, T0_MS + 10_000)
    assert note_time(store, lambda: T0_MS + 9_000) == (T0_MS + 10_000, T0_MS + 9_000), "so little is no step back"
    assert note_time(store, lambda: T0_MS + 4_000, apart_ms=5_000) == (T0_MS + 9_000, T0_MS + 4_000)
    assert note_time(store, lambda: T0_MS) == (T0_MS + 4_000, T0_MS)


def test_time_of_a_clock_that_was_set_back_is_kept_once_it_is_accepted(store: Store) -> None:
    """Accepted after everything is pulled back: if the process dies before that, the next one finds the step, too."""
    note_time(store, lambda: T0_MS)
    for _ in range(2):
        assert note_time(store, lambda: T0_MS - HOUR_MS) == (T0_MS, T0_MS - HOUR_MS)
    accept_time(store, lambda: T0_MS - HOUR_MS)
    assert note_time(store, lambda: T0_MS) == (T0_MS - HOUR_MS, T0_MS)


def test_time_noted_by_another_process_during_a_note_is_no_step_back(store: Store, other: Store) -> None:
    """Also if this process is slow: it reads its clock after the stored time, and does not overwrite a later one."""
    note_time(store, lambda: T0_MS)

    def read_slowly_ms() -> int:
        assert note_time(other, lambda: T0_MS + HOUR_MS) == (T0_MS, T0_MS + HOUR_MS)
        return T0_MS + 1

    latest_ms, now_ms = note_time(store, read_slowly_ms)
    assert set_back_ms(now_ms, latest_ms=latest_ms, apart_ms=0) == 0
    assert note_time(other, lambda: T0_MS + HOUR_MS + 1) == (T0_MS + HOUR_MS, T0_MS + HOUR_MS + 1)


def test_time_accepted_by_another_process_during_an_accept_is_no_step_back(store: Store, other: Store) -> None:
    note_time(store, lambda: T0_MS + HOUR_MS)

    def read_slowly_ms() -> int:
        accept_time(other, lambda: T0_MS + 1)
        return T0_MS

    accept_time(store, read_slowly_ms)
    latest_ms, now_ms = note_time(other, lambda: T0_MS + 2)
    assert set_back_ms(now_ms, latest_ms=latest_ms, apart_ms=0) == 0


def test_note_begun_before_a_step_back_does_not_replace_the_accepted_time(store: Store, other: Store) -> None:
    def read_overtaken() -> int:
        accept_time(other, lambda: T0_MS - HOUR_MS)
        return T0_MS + 1_000

    note_time(store, lambda: T0_MS)
    assert note_time(store, read_overtaken) == (T0_MS, T0_MS + 1_000)
    assert note_time(store, lambda: T0_MS - HOUR_MS) == (T0_MS - HOUR_MS, T0_MS - HOUR_MS), "not a second step back"


def test_clock_set_back_is_handled_again_if_the_first_process_died_while_pulling_back(store: Store) -> None:
    waits = LongestWaits(MINUTE_MS, MINUTE_MS, MINUTE_MS)

    class Dying:
        """The process ends in the middle of what it pulls back."""

        def __getattr__(self, name: str) -> Any:
            if name == "pull_back_sends":
                raise KeyboardInterrupt
            return getattr(store, name)

    def watch(process: Any, now_ms: int) -> SetBack | None:
        return watch_clock(process, read_ms=lambda: now_ms, stepped_ms=0, apart_ms=0, waits=waits)

    assert watch(store, T0_MS) is None
    with pytest.raises(KeyboardInterrupt):
        watch(Dying(), T0_MS - HOUR_MS)
    found = watch(store, T0_MS - HOUR_MS + 1_000)
    assert found is not None
    assert found.by_ms == HOUR_MS - 1_000
    assert watch(store, T0_MS - HOUR_MS + 2_000) is None
