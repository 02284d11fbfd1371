"""Duties: periodic tasks that one process of many takes at a time."""

from __future__ import annotations

from paceline.ports import Store
from tests.contract.conftest import Opener
from tests.contract.monitors.test_races import race
from tests.contract.support.stage import DAY_MS, HOUR_MS, MINUTE_MS, T0_MS


def take(store: Store, now_ms: int, *, name: str = "follow", every_ms: int = MINUTE_MS) -> bool:
    return store.take_duty(name, every_ms=every_ms, now_ms=now_ms)


def test_duty_is_taken_by_one_process_and_not_again_before_its_time(store: Store, other: Store) -> None:
    assert take(store, T0_MS)
    assert not take(other, T0_MS)
    assert not take(other, T0_MS + MINUTE_MS - 1)
    assert take(other, T0_MS + MINUTE_MS)
    assert not take(store, T0_MS + MINUTE_MS)


def test_duties_with_different_names_are_independent(store: Store) -> None:
    assert take(store, T0_MS, name="sync/lab")
    assert take(store, T0_MS, name="sync/pub")
    assert not take(store, T0_MS, name="sync/lab")


def test_exactly_one_of_many_processes_gets_the_duty(store: Store, store_factory: Opener) -> None:
    del store  # opened first, so that it made the schema
    # Each asks with the time it read before it had to wait for the others, in whatever order they come to write.
    times_ms = iter([T0_MS + 3, T0_MS, T0_MS + 7, T0_MS + 2])
    assert sum(race(lambda handle: take(handle, next(times_ms)), store_factory)) == 1


def test_time_slightly_before_the_last_take_of_a_duty_is_not_a_clock_set_back(store: Store, other: Store) -> None:
    assert take(store, T0_MS)
    assert not take(other, T0_MS - 5)
    assert not take(other, T0_MS - 5_000)


def test_duty_is_due_again_after_the_clock_was_set_back(store: Store) -> None:
    assert take(store, T0_MS + 30 * DAY_MS)
    assert take(store, T0_MS)
    assert not take(store, T0_MS + 1)
    assert take(store, T0_MS - HOUR_MS)


def test_clock_set_back_by_more_than_a_short_interval_makes_a_duty_due(store: Store) -> None:
    assert take(store, T0_MS, every_ms=100)
    assert not take(store, T0_MS - 100, every_ms=100)
    assert take(store, T0_MS - 101, every_ms=100)
