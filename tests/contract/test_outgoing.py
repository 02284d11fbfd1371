"""The outgoing queues: one per owner, and all of them together in fair turns."""

from __future__ import annotations

from collections import Counter

import pytest

from paceline.core.checks import Check
from paceline.core.outcome import Retry
from paceline.ports import CHECKS, Queue, Store, UserEdit
from tests.contract.stage import (
    ALL_OUTGOING,
    GET,
    LEASE_MS,
    OUTGOING,
    T0_MS,
    arm_all,
    armed,
    armed_all,
    claim,
    make_run_of_each,
    make_runs,
    names,
    outgoing_of,
    settle,
    user,
)


def test_promise_12_an_owner_s_queue_holds_only_the_owner_s_runs(store: Store) -> None:
    for owner in ("ann", "bob"):
        make_runs(store, armed(store, f"{owner}-1", check=OUTGOING, owner=owner))
    make_runs(store, armed(store, "check"))
    assert [(item.owner, item.monitor) for item in claim(store, outgoing_of("ann"))] == [("ann", "ann-1")]
    assert [(item.owner, item.monitor) for item in claim(store, outgoing_of("bob"))] == [("bob", "bob-1")]
    assert claim(store, outgoing_of("nobody")) == []
    assert names(claim(store, CHECKS)) == [("check", 0)]


def test_the_queue_of_all_owners_hands_out_each_run_once(store: Store, other: Store) -> None:
    for owner in ("ann", "bob"):
        many = (f"{owner}-{number}" for number in range(5))
        make_run_of_each(store, armed_all(store, many, check=OUTGOING, owner=owner))
    found = claim(store, outgoing_of("ann"), runs_max=2)
    while out := claim(other, ALL_OUTGOING, runs_max=3):
        found += out
    assert len({item.handle for item in found}) == len(found) == 10


def test_no_owner_s_backlog_keeps_another_waiting(store: Store) -> None:
    make_run_of_each(store, armed_all(store, (f"a-{number}" for number in range(60)), check=OUTGOING))
    make_run_of_each(store, armed_all(store, (f"b-{number}" for number in range(3)), check=OUTGOING, owner="bob"))
    first = claim(store, ALL_OUTGOING, runs_max=6)
    assert Counter(item.owner for item in first) == {"ann": 3, "bob": 3}


def test_with_one_at_a_time_the_owners_take_turns(store: Store) -> None:
    assert store.add_user(user("cem"))
    owners = ("ann", "bob", "cem")
    for owner in owners:
        many = (f"{owner}-{number}" for number in range(4))
        make_run_of_each(store, armed_all(store, many, check=OUTGOING, owner=owner))
    turns = [claim(store, ALL_OUTGOING, runs_max=1)[0].owner for _ in range(12)]
    for begin in range(0, 12, 3):
        assert sorted(turns[begin : begin + 3]) == sorted(owners)


def test_what_one_owner_leaves_another_may_use(store: Store) -> None:
    make_runs(store, armed(store, "a", check=OUTGOING))
    make_run_of_each(store, armed_all(store, (f"b-{number}" for number in range(9)), check=OUTGOING, owner="bob"))
    assert len(claim(store, ALL_OUTGOING, runs_max=8)) == 8


@pytest.mark.parametrize("check", [GET, OUTGOING], ids=["checks", "outgoing"])
def test_a_disabled_owner_s_runs_are_held_with_the_reason_and_come_back(
    store: Store, other: Store, check: Check
) -> None:
    monitor = armed(store, "a", check=check)
    make_runs(store, monitor, 2)
    queues = [CHECKS, ALL_OUTGOING]  # a disabled owner cannot ask for the own queue
    store.edit_user("ann", UserEdit(disabled=True))
    arm_all(store, T0_MS + LEASE_MS * 100, outgoing=check is OUTGOING)
    for now_ms in (T0_MS, T0_MS + LEASE_MS, T0_MS + 10 * LEASE_MS):
        assert all(claim(handle, queue, now_ms=now_ms) == [] for handle in (store, other) for queue in queues)
    oldest = store.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)[-1]
    assert oldest.state == "held"
    assert "disabled" in oldest.reason
    store.edit_user("ann", UserEdit(disabled=False))
    arm_all(store, T0_MS + LEASE_MS * 100, outgoing=check is OUTGOING)
    now_ms = T0_MS + 10 * LEASE_MS
    queue: Queue = outgoing_of("ann") if check is OUTGOING else CHECKS
    counters = []
    while out := claim(other, queue, now_ms=now_ms):
        counters += [item.counter for item in out]
        settle(other, out, now_ms=now_ms)
    assert counters == [0, 1]


def test_a_held_owner_does_not_hold_up_the_others(store: Store) -> None:
    make_run_of_each(store, armed_all(store, (f"a-{number}" for number in range(20))))
    make_runs(store, armed(store, "b", owner="bob"))
    store.edit_user("ann", UserEdit(disabled=True))
    arm_all(store, T0_MS + LEASE_MS)
    found = [item.monitor for _ in range(20) for item in claim(store, runs_max=2)]
    assert found == ["b"]


def test_runs_of_a_removed_user_are_not_handed_out(store: Store) -> None:
    make_runs(store, armed(store, "a", check=OUTGOING), 2)
    make_runs(store, armed(store, "b", check=OUTGOING, owner="bob"))
    assert store.remove_user("ann")
    arm_all(store, T0_MS)
    found = claim(store, ALL_OUTGOING)
    assert [item.monitor for item in found if item.check is not None] == ["b"]
    assert store.add_user(user("ann"))
    assert claim(store, outgoing_of("ann")) == []


def test_an_outgoing_retry_comes_back_in_the_owner_s_queue(store: Store) -> None:
    make_runs(store, armed(store, "a", check=OUTGOING))
    out = claim(store, outgoing_of("ann"))
    assert settle(store, out, Retry("later", T0_MS + 1_000)) == [True]
    assert claim(store, ALL_OUTGOING) == []
    (again,) = claim(store, ALL_OUTGOING, now_ms=T0_MS + 1_000)
    assert again.attempt == 2
