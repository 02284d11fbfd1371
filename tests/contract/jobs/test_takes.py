"""Claims of a single outgoing run by its id, for checkers that received a message about it."""

from __future__ import annotations

import threading

from msgspec.structs import replace

from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.outcome import Retry
from paceline.core.monitors.values import Claimed, RemoveMonitor, Take
from paceline.core.users import UserEdit
from paceline.ports import Store
from tests.contract.conftest import Opener
from tests.contract.support.stage import (
    ALL_OUTGOING,
    GET,
    LEASE_MS,
    OUTGOING,
    T0_MS,
    arm_all,
    armed,
    claim,
    make_runs,
    names,
    outgoing_of,
    put,
    run_of,
    settle,
    spec,
)


def named(monitor: Monitor, counter: int = 0, *, attempt: int | None = 1) -> Take:
    return Take(monitor.owner, monitor.id, monitor.generation, counter, LEASE_MS, attempt)


def take(store: Store, item: Take, *, now_ms: int = T0_MS) -> Claimed | None:
    return store.take([item], now_ms=now_ms)[0]


def test_run_claimed_by_id_is_leased_like_a_claimed_run(store: Store, other: Store) -> None:
    monitor = armed(store, "a", check=OUTGOING)
    make_runs(store, monitor)
    taken = take(store, named(monitor))
    assert taken is not None
    assert (taken.owner, taken.monitor, taken.generation, taken.counter) == ("ann", "a", monitor.generation, 0)
    assert (taken.attempt, taken.due_ms, taken.lease_until_ms) == (1, T0_MS, T0_MS + LEASE_MS)
    assert (taken.lost, taken.check) == (False, OUTGOING)
    assert claim(other, ALL_OUTGOING) == []
    assert run_of(other, taken).state == "out"
    assert settle(other, [taken]) == [True]
    assert run_of(store, taken).state == "ok"


def test_promise_5_exactly_one_of_all_checkers_with_the_same_message_gets_the_run(
    store: Store, store_factory: Opener
) -> None:
    monitor = armed(store, "a", check=OUTGOING)
    make_runs(store, monitor)
    start = threading.Barrier(4)
    found: list[Claimed | None] = []

    def ask(mine: Store) -> None:
        start.wait()
        found.extend(mine.take([named(monitor), named(monitor, attempt=None)], now_ms=T0_MS))

    threads = [threading.Thread(target=ask, args=(store_factory(),)) for _ in range(3)]
    for thread in threads:
        thread.start()
    start.wait()
    found += claim(store, ALL_OUTGOING)
    for thread in threads:
        thread.join()
    assert [item.attempt for item in found if item is not None] == [1]


def test_duplicate_message_claims_nothing(store: Store, other: Store) -> None:
    monitor = armed(store, "a", check=OUTGOING)
    make_runs(store, monitor)
    taken = take(store, named(monitor))
    assert taken is not None
    assert take(other, named(monitor)) is None
    assert take(other, named(monitor, attempt=None)) is None
    assert settle(store, [taken]) == [True]
    for attempt in (1, 2, None):
        assert take(other, named(monitor, attempt=attempt)) is None


def test_promise_6_only_the_first_run_of_a_monitor_that_is_not_settled_can_be_taken(store: Store) -> None:
    monitor = armed(store, "a", check=OUTGOING)
    make_runs(store, monitor, 3)
    assert take(store, named(monitor, 1)) is None
    first = take(store, named(monitor))
    assert first is not None
    assert take(store, named(monitor, 1)) is None
    assert settle(store, [first]) == [True]
    assert take(store, named(monitor, 2)) is None
    second = take(store, named(monitor, 1))
    assert second is not None
    assert settle(store, [second]) == [True]
    assert names(claim(store, outgoing_of("ann"))) == [("a", 2)]


def test_run_claimed_by_id_is_skipped_by_other_claims(store: Store) -> None:
    monitors = [armed(store, f"m{number}", check=OUTGOING) for number in range(5)]
    for monitor in monitors:
        make_runs(store, monitor)
    taken = [take(store, named(monitors[number])) for number in (3, 1)]
    assert settle(store, [item for item in taken if item is not None][:1]) == [True]
    assert sorted(names(claim(store, outgoing_of("ann")))) == [("m0", 0), ("m2", 0), ("m4", 0)]


def test_an_older_message_does_not_take_a_later_attempt(store: Store) -> None:
    monitor = armed(store, "a", check=OUTGOING)
    make_runs(store, monitor)
    first = take(store, named(monitor))
    assert first is not None
    assert settle(store, [first], Retry("again", T0_MS + 5_000)) == [True]
    for attempt in (1, 2, None):
        assert take(store, named(monitor, attempt=attempt), now_ms=T0_MS + 4_999) is None
    assert take(store, named(monitor), now_ms=T0_MS + 5_000) is None
    second = take(store, named(monitor, attempt=2), now_ms=T0_MS + 5_000)
    assert second is not None
    assert (second.attempt, second.lost) == (2, False)
    assert settle(store, [first], now_ms=T0_MS + 5_000) == [False]


def test_run_with_an_expired_lease_is_claimed_as_the_next_attempt_and_counted_as_lost(store: Store) -> None:
    monitor = armed(store, "a", check=OUTGOING)
    make_runs(store, monitor)
    assert take(store, named(monitor)) is not None
    later_ms = T0_MS + LEASE_MS
    assert take(store, named(monitor, attempt=None), now_ms=later_ms - 1) is None
    assert take(store, named(monitor), now_ms=later_ms) is None
    again = take(store, named(monitor, attempt=None), now_ms=later_ms)
    assert again is not None
    assert (again.attempt, again.lost, again.lease_until_ms) == (2, True, later_ms + LEASE_MS)


def test_waiting_run_can_be_claimed_by_id_with_a_clock_that_is_behind(store: Store) -> None:
    monitor = armed(store, "a", check=OUTGOING)
    make_runs(store, monitor)
    assert take(store, named(monitor), now_ms=T0_MS - 200) is not None


def test_caught_up_run_cannot_be_claimed_by_id_before_its_time(store: Store) -> None:
    monitor = armed(store, "a", check=OUTGOING)
    make_runs(store, monitor, after_ms=T0_MS + 3_000)
    assert take(store, named(monitor), now_ms=T0_MS + 2_999) is None
    assert take(store, named(monitor), now_ms=T0_MS + 3_000) is not None


def test_a_run_of_a_disabled_owner_is_taken_when_the_owner_is_enabled(store: Store) -> None:
    monitor = armed(store, "a", check=OUTGOING)
    make_runs(store, monitor)
    store.edit_user("ann", UserEdit(disabled=True))
    arm_all(store, T0_MS, outgoing=True)
    assert take(store, named(monitor)) is None
    assert claim(store, ALL_OUTGOING) == []
    assert take(store, named(monitor)) is None
    store.edit_user("ann", UserEdit(disabled=False))
    arm_all(store, T0_MS, outgoing=True)
    assert take(store, named(monitor)) is not None


def test_a_paused_monitor_s_run_is_taken_and_a_removed_one_s_is_not(store: Store) -> None:
    monitors = [armed(store, name, check=OUTGOING) for name in ("paused", "gone", "again")]
    for monitor in monitors:
        make_runs(store, monitor)
    put(store, "paused", spec(OUTGOING, paused=True))
    store.remove_monitors([RemoveMonitor("ann", "gone"), RemoveMonitor("ann", "again")])
    arm_all(store, T0_MS)
    armed(store, "again", check=OUTGOING)
    taken = store.take([named(monitor) for monitor in monitors], now_ms=T0_MS)
    assert [item is not None for item in taken] == [True, False, False]


def test_promise_12_run_cannot_be_claimed_by_id_under_another_name(store: Store) -> None:
    mine = armed(store, "a", check=OUTGOING)
    make_runs(store, mine)
    make_runs(store, armed(store, "a", check=OUTGOING, owner="bob"))
    right = named(mine)
    for wrong in (
        replace(right, owner="bob"),
        replace(right, owner="nobody"),
        replace(right, monitor="b"),
        replace(right, generation=right.generation + 999),
        replace(right, counter=1),
        replace(right, counter=10**18 - 1),
        replace(right, generation=10**18 - 1),
    ):
        assert take(store, wrong) is None
    assert take(store, right) is not None


def test_check_made_by_paceline_cannot_be_claimed_by_id(store: Store) -> None:
    monitor = armed(store, "a", check=GET)
    make_runs(store, monitor)
    assert take(store, named(monitor)) is None
    assert names(claim(store)) == [("a", 0)]


def test_runs_claimed_by_id_in_bulk_are_judged_one_by_one(store: Store) -> None:
    monitors = [armed(store, f"m{number:02}", check=OUTGOING) for number in range(12)]
    for monitor in monitors:
        make_runs(store, monitor)
    asked = [named(monitor, attempt=2 if number % 4 == 0 else 1) for number, monitor in enumerate(monitors)]
    taken = store.take([*asked, asked[1]], now_ms=T0_MS)
    assert [item is not None for item in taken] == [number % 4 != 0 for number in range(12)] + [False]
    assert [item.monitor for item in taken if item is not None] == [
        monitor.id for number, monitor in enumerate(monitors) if number % 4
    ]
    assert len(claim(store, outgoing_of("ann"))) == 3
