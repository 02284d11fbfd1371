from __future__ import annotations

import pytest

from paceline.core.monitors.checks import Check
from paceline.core.monitors.schedule import Arm, Keep, Remove, Rest
from paceline.core.monitors.values import PutMonitor, Reacted, RemoveMonitor
from paceline.core.users import UserEdit
from paceline.ports import Store
from tests.contract.support.stage import (
    EVERY_MINUTE,
    GET,
    MINUTE_MS,
    OUTGOING,
    POST,
    T0_MS,
    arm_all,
    armed,
    due_of,
    make_runs,
    put,
    react_with,
    spec,
    step,
    user,
)


def test_a_put_creates_replaces_or_changes_nothing(store: Store, other: Store) -> None:
    created = put(store, "a", spec(every="60s"), now_ms=T0_MS)
    replaced = put(other, "a", spec(every="5s"), now_ms=T0_MS + 1)
    unchanged = put(store, "a", spec(every="5s"), now_ms=T0_MS + 2)
    assert [result.disposition for result in (created, replaced, unchanged)] == ["created", "replaced", "unchanged"]
    assert created.monitor is not None
    assert replaced.monitor is not None
    assert (created.monitor.revision, replaced.monitor.revision) == (1, 2)
    assert replaced.monitor.generation == created.monitor.generation
    assert (replaced.monitor.created_ms, replaced.monitor.updated_ms) == (T0_MS, T0_MS + 1)
    assert unchanged.monitor == replaced.monitor == store.monitor("ann", "a") == other.monitor("ann", "a")


def test_a_monitor_that_was_made_elsewhere_keeps_the_time_of_its_creation(store: Store, other: Store) -> None:
    puts = [
        PutMonitor(owner="ann", id=f"m{number}", spec=spec(), created_ms=T0_MS - number * MINUTE_MS)
        for number in range(3)
    ]
    made = store.put_monitors(puts, monitors_max=9, now_ms=T0_MS)
    changes = {change.generation: change for change in other.changes(limit=9, now_ms=T0_MS)}
    for put_, result in zip(puts, made, strict=True):
        monitor = other.monitor("ann", put_.id)
        assert monitor is not None
        assert result.change is not None
        assert monitor == result.monitor == result.change.monitor == changes[monitor.generation].monitor
        assert (monitor.created_ms, monitor.updated_ms) == (put_.created_ms, put_.created_ms)
    again = PutMonitor(owner="ann", id="m1", spec=spec(every="5s"), created_ms=T0_MS - 9 * MINUTE_MS)
    (replaced,) = other.put_monitors([again], monitors_max=9, now_ms=T0_MS + 1)
    assert replaced.monitor is not None
    assert (replaced.monitor.created_ms, replaced.monitor.updated_ms) == (T0_MS - MINUTE_MS, T0_MS + 1)


def test_put_for_an_unknown_user_is_refused(store: Store) -> None:
    result = put(store, "a", owner="nobody")
    assert (result.disposition, result.monitor) == ("no_owner", None)


@pytest.mark.parametrize(("seen", "disposition"), [(0, "revision_mismatch"), (1, "revision_mismatch"), (2, "replaced")])
def test_monitor_put_with_another_revision_is_refused(store: Store, seen: int, disposition: str) -> None:
    put(store, "a")
    put(store, "a", spec(every="5s"))
    result = put(store, "a", spec(every="6s"), expected_revision=seen)
    assert result.disposition == disposition
    assert result.monitor == store.monitor("ann", "a")


def test_monitor_put_with_expected_revision_0_only_creates(store: Store) -> None:
    assert put(store, "a", expected_revision=3).disposition == "revision_mismatch"
    assert store.monitor("ann", "a") is None
    assert put(store, "a", expected_revision=0).disposition == "created"
    assert put(store, "a", expected_revision=0).disposition == "revision_mismatch"


def test_monitor_limit_is_per_user_and_holds_within_one_bulk_put(store: Store) -> None:
    puts = [PutMonitor(owner=owner, id=name, spec=spec()) for owner in ("ann", "bob") for name in "abc"]
    results = store.put_monitors(puts, monitors_max=2, now_ms=T0_MS)
    assert [result.disposition for result in results] == ["created", "created", "limit_reached"] * 2
    assert store.put_monitors(puts[:1], monitors_max=2, now_ms=T0_MS)[0].disposition == "unchanged"
    changed = [PutMonitor(owner="ann", id="a", spec=spec(every="5s"))]
    assert store.put_monitors(changed, monitors_max=2, now_ms=T0_MS)[0].disposition == "replaced"
    store.remove_monitors([RemoveMonitor(owner="ann", id="a")])
    assert store.put_monitors(puts[2:3], monitors_max=2, now_ms=T0_MS)[0].disposition == "created"


def test_puts_of_one_bulk_request_are_judged_in_order(store: Store) -> None:
    puts = [
        PutMonitor(owner="ann", id="a", spec=spec(every="5s")),
        PutMonitor(owner="ann", id="a", spec=spec(every="5s")),
        PutMonitor(owner="ann", id="a", spec=spec(every="6s"), expected_revision=1),
        PutMonitor(owner="ann", id="a", spec=spec(every="7s"), expected_revision=1),
        PutMonitor(owner="nobody", id="a", spec=spec()),
        PutMonitor(owner="bob", id="a", spec=spec()),
    ]
    results = store.put_monitors(puts, monitors_max=9, now_ms=T0_MS)
    assert [result.disposition for result in results] == [
        "created",
        "unchanged",
        "replaced",
        "revision_mismatch",
        "no_owner",
        "created",
    ]
    found = store.monitor("ann", "a")
    assert found is not None
    assert (found.spec.every, found.revision) == ("6s", 2)
    assert len(store.changes(limit=10, now_ms=T0_MS)) == 2


def test_every_kind_of_spec_comes_back_as_it_was_put(store: Store, other: Store) -> None:
    checks: list[Check] = [GET, POST, OUTGOING]
    for number, check in enumerate(checks):
        written = spec(check, paused=True, tags=("x", "y"))
        put(store, str(number), written)
        found = other.monitor("ann", str(number))
        assert found is not None
        assert found.spec == written


def test_monitors_are_paged_in_order_of_id_and_only_the_owner_s(store: Store) -> None:
    for name in ("b", "a", "c-1", "c", "Z"):
        put(store, name)
    put(store, "a", owner="bob")
    everything = [found.id for found in store.monitors("ann", after="", limit=10)]
    assert everything == sorted(["a", "b", "c", "c-1", "Z"])
    assert [found.id for found in store.monitors("ann", after=everything[1], limit=2)] == everything[2:4]
    assert store.monitors("nobody", after="", limit=10) == []


def test_monitors_of_two_users_with_the_same_id_are_independent(store: Store) -> None:
    mine, yours = put(store, "a"), put(store, "a", owner="bob")
    assert mine.monitor is not None
    assert yours.monitor is not None
    assert mine.monitor.generation != yours.monitor.generation
    store.remove_monitors([RemoveMonitor(owner="ann", id="a")])
    assert store.monitor("bob", "a") == yours.monitor


def test_monitors_whose_owner_and_id_join_to_the_same_text_are_kept_apart(store: Store) -> None:
    for owner, name in (("1-a", "b"), ("1", "a-b")):
        assert store.add_user(user(owner))
        assert put(store, name, owner=owner).disposition == "created"
    store.remove_monitors([RemoveMonitor(owner="1", id="a-b")])
    assert store.monitor("1-a", "b") is not None


def test_removal_with_another_revision_owner_or_id_is_refused(store: Store, other: Store) -> None:
    put(store, "a")
    assert store.remove_monitors([RemoveMonitor("ann", "a", expected_revision=2)]) == ["revision_mismatch"]
    assert store.remove_monitors([RemoveMonitor("bob", "a"), RemoveMonitor("ann", "x")]) == ["not_found"] * 2
    assert other.remove_monitors([RemoveMonitor("ann", "a", expected_revision=1)]) == ["removed"]
    assert store.remove_monitors([RemoveMonitor("ann", "a")]) == ["not_found"]


def test_promise_3_a_generation_is_never_used_again(store: Store, other: Store) -> None:
    generations = []
    for number in range(6):
        result = put(store if number % 2 else other, "a")
        assert result.monitor is not None
        assert result.monitor.revision == 1
        generations.append(result.monitor.generation)
        if number != 2:
            arm_all(store, T0_MS)
        assert store.remove_monitors([RemoveMonitor("ann", "a")]) == ["removed"]
        if number != 3:
            react_with(store, Remove())
    assert sorted(set(generations)) == generations
    react_with(store, Remove())


def test_a_change_is_recorded_by_each_write_and_forgotten_by_its_reaction_alone(store: Store, other: Store) -> None:
    put(store, "a")
    for handle in (store, other, store):
        (change,) = handle.changes(limit=10, now_ms=T0_MS)
        assert change.monitor == store.monitor("ann", "a")
        assert change.entry is None
    arm_all(store, T0_MS)
    assert other.changes(limit=10, now_ms=T0_MS) == []
    put(store, "a")
    assert store.changes(limit=10, now_ms=T0_MS) == []
    put(other, "a", spec(every="5s"))
    (change,) = store.changes(limit=10, now_ms=T0_MS)
    assert change.entry is not None
    assert change.entry.due_ms == T0_MS


def test_several_changes_of_one_definition_are_listed_once_with_the_newest(store: Store) -> None:
    for every in ("5s", "6s", "7s"):
        put(store, "a", spec(every=every))
    (change,) = store.changes(limit=10, now_ms=T0_MS)
    assert change.monitor is not None
    assert change.monitor.spec.every == "7s"


def test_list_of_changes_keeps_to_its_limit(store: Store) -> None:
    for name in "abcde":
        put(store, name)
    assert len(store.changes(limit=3, now_ms=T0_MS)) == 3
    react_with(store, Arm(due_ms=T0_MS, cadence=EVERY_MINUTE, outgoing=False))
    assert store.changes(limit=3, now_ms=T0_MS) == []


def test_a_reaction_that_came_before_a_newer_change_does_not_erase_it(store: Store) -> None:
    put(store, "a", spec(every="60s"))
    (seen,) = store.changes(limit=10, now_ms=T0_MS)
    put(store, "a", spec(every="5s"))
    store.react([Reacted(seen, Arm(due_ms=T0_MS, cadence=EVERY_MINUTE, outgoing=False))], now_ms=T0_MS)
    (newer,) = store.changes(limit=10, now_ms=T0_MS)
    assert newer.monitor is not None
    assert newer.monitor.spec.every == "5s"


def test_overtaken_changes_of_a_bulk_put_stay_recorded(store: Store, other: Store) -> None:
    puts = [PutMonitor("ann", name, spec(every="60s")) for name in ("a", "b", "c", "d")]
    changes = [result.change for result in store.put_monitors(puts, monitors_max=10, now_ms=T0_MS)]
    put(other, "b", spec(every="5s"))
    arm = Arm(due_ms=T0_MS, cadence=EVERY_MINUTE, outgoing=False)
    assert store.react([Reacted(change, arm) for change in changes[:3] if change], now_ms=T0_MS) == [True, False, True]
    left = {change.monitor.id: change.seq for change in store.changes(limit=9, now_ms=T0_MS) if change.monitor}
    assert left.keys() == {"b", "d"}
    assert changes[1] is not None
    assert left["b"] > changes[1].seq
    assert store.react([Reacted(change, arm) for change in changes if change], now_ms=T0_MS) == [
        False,
        False,
        False,
        True,
    ]


def test_promise_4_a_reaction_loses_when_the_entry_has_moved(store: Store, other: Store) -> None:
    monitor = armed(store, "a")
    put(store, "a", spec(every="5s"))
    (seen,) = store.changes(limit=10, now_ms=T0_MS)
    make_runs(other, monitor)
    assert store.react([Reacted(seen, Arm(due_ms=T0_MS, cadence=EVERY_MINUTE, outgoing=False))], now_ms=T0_MS) == [
        False
    ]
    assert due_of(store, monitor).due_ms == T0_MS + MINUTE_MS
    assert len(store.changes(limit=10, now_ms=T0_MS)) == 1
    arm_all(store, T0_MS)


def test_second_reaction_to_one_change_changes_nothing(store: Store, other: Store) -> None:
    put(store, "a")
    (seen,) = store.changes(limit=10, now_ms=T0_MS)
    assert store.react([Reacted(seen, Arm(due_ms=T0_MS, cadence=EVERY_MINUTE, outgoing=False))], now_ms=T0_MS) == [True]
    assert other.react([Reacted(seen, Arm(due_ms=T0_MS + 50, cadence=EVERY_MINUTE, outgoing=False))], now_ms=T0_MS) == [
        False
    ]
    assert [due.due_ms for due in store.due(now_ms=T0_MS + MINUTE_MS, limit=10)] == [T0_MS]


def test_promise_1_an_old_reaction_cannot_put_an_entry_to_rest_that_was_armed_again(store: Store, other: Store) -> None:
    """A process that froze between reading a change and reacting to it wakes when two more changes are done."""
    monitor = armed(store, "a", due_ms=T0_MS + MINUTE_MS)
    store.edit_user("ann", UserEdit(disabled=True))
    (seen,) = other.changes(limit=10, now_ms=T0_MS)
    react_with(store, Rest(cadence=EVERY_MINUTE, outgoing=False))
    store.edit_user("ann", UserEdit(disabled=False))
    arm_all(store, T0_MS + MINUTE_MS)
    assert other.react([Reacted(seen, Rest(cadence=EVERY_MINUTE, outgoing=False))], now_ms=T0_MS) == [False]
    assert due_of(store, monitor).due_ms == T0_MS + MINUTE_MS


def test_promise_1_old_reaction_does_not_disarm_an_entry_while_a_newer_change_waits(store: Store, other: Store) -> None:
    monitor = armed(store, "a", due_ms=T0_MS + MINUTE_MS)
    store.edit_user("ann", UserEdit(disabled=True))
    (seen,) = other.changes(limit=10, now_ms=T0_MS)
    react_with(store, Rest(cadence=EVERY_MINUTE, outgoing=False))
    store.edit_user("ann", UserEdit(disabled=False))
    arm_all(store, T0_MS + MINUTE_MS)
    put(store, "a", spec(tags=("new",)))
    other.react([Reacted(seen, Rest(cadence=EVERY_MINUTE, outgoing=False))], now_ms=T0_MS)
    for change in store.changes(limit=10, now_ms=T0_MS):
        assert change.entry is not None
        due_ms = change.entry.due_ms
        assert store.react(
            [Reacted(change, Keep() if due_ms else Arm(T0_MS + MINUTE_MS, EVERY_MINUTE, outgoing=False))], now_ms=T0_MS
        ) == [True]
    assert due_of(store, monitor).due_ms == T0_MS + MINUTE_MS


def test_a_reaction_keeps_the_counter_and_takes_the_revision(store: Store) -> None:
    monitor = armed(store, "a")
    make_runs(store, monitor, 3)
    put(store, "a", spec(every="5s"))
    arm_all(store, T0_MS + 5_000)
    entry = store.entries([monitor.generation], now_ms=T0_MS)[monitor.generation]
    assert (entry.counter, entry.revision, entry.due_ms) == (3, 2, T0_MS + 5_000)
    assert entry.last_due_ms == T0_MS + 2 * MINUTE_MS


def test_reaction_can_keep_pause_or_remove_an_entry(store: Store) -> None:
    monitor = armed(store, "a")
    put(store, "a", spec(tags=("x",)))
    assert react_with(store, Keep()) == [True]
    assert due_of(store, monitor).due_ms == T0_MS
    put(store, "a", spec(paused=True))
    assert react_with(store, Rest(cadence=EVERY_MINUTE, outgoing=False)) == [True]
    entry = store.entries([monitor.generation], now_ms=T0_MS)[monitor.generation]
    assert entry.due_ms is None
    assert store.due(now_ms=T0_MS + 10**9, limit=10) == []
    assert store.next_due_ms() is None
    store.remove_monitors([RemoveMonitor("ann", "a")])
    assert react_with(store, Remove()) == [True]
    assert store.entries([monitor.generation], now_ms=T0_MS) == {}
    assert store.changes(limit=10, now_ms=T0_MS) == []


def test_promise_4_an_advance_that_began_before_an_edit_loses(store: Store, other: Store) -> None:
    monitor = armed(store, "a")
    stale = step(other.due(now_ms=T0_MS, limit=9)[0])
    put(store, "a", spec(every="5s"))
    arm_all(store, T0_MS)
    assert other.commit([stale], now_ms=T0_MS) == [False]
    assert store.monitor_runs(monitor, before=None, limit=10, now_ms=T0_MS) == []


def test_promise_3_an_advance_that_began_before_a_delete_loses(store: Store, other: Store) -> None:
    armed(store, "a")
    stale = step(other.due(now_ms=T0_MS, limit=9)[0])
    store.remove_monitors([RemoveMonitor("ann", "a")])
    react_with(store, Remove())
    again = armed(store, "a")
    assert other.commit([stale], now_ms=T0_MS) == [False]
    assert due_of(store, again).counter == 0
    assert store.status().entries == 1
