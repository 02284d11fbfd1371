"""A process may die between any two of its writes: what is left is in order, and the next process finishes it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing

import pytest

from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.store import AwsStore
from paceline.core.monitors.due import Advance
from paceline.core.monitors.values import RemoveMonitor
from paceline.core.users import UserEdit
from paceline.steps.monitors.react import react_to_all
from tests.aws.support.ministack import fresh_prefix, make_tables
from tests.aws.support.monitor_stage import Cut, cut_before, with_users
from tests.contract.support.stage import (
    DAY_MS,
    OUTGOING,
    T0_MS,
    armed,
    claim,
    due_of,
    make_runs,
    put,
    settle,
    spec,
    step,
    token,
)

pytestmark = pytest.mark.aws
WRITES_MAX = 40
Act = Callable[[AwsStore], object]


def put_anew(store: AwsStore) -> object:
    return put(store, "new", spec(OUTGOING))


def edit(store: AwsStore) -> object:
    put(store, "a", spec(every="5s"))
    return react_to_all(store, now_ms=T0_MS)


def remove(store: AwsStore) -> object:
    store.remove_monitors([RemoveMonitor("ann", "a"), RemoveMonitor("ann", "b")])
    return react_to_all(store, now_ms=T0_MS)


def remove_user(store: AwsStore) -> object:
    return store.remove_user("ann")


def disable_and_enable(store: AwsStore) -> object:
    store.edit_user("ann", UserEdit(disabled=True))
    claim(store)
    return store.edit_user("ann", UserEdit(disabled=False))


def advance_far(store: AwsStore) -> object:
    monitor = store.monitor("ann", "a")
    assert monitor is not None
    advance: Advance = step(due_of(store, monitor), runs=200)
    return store.commit([advance], now_ms=T0_MS)


def carry_out(store: AwsStore) -> object:
    while out := claim(store):
        settle(store, out)
    return None


def purge(store: AwsStore) -> object:
    settle(store, claim(store))
    for _ in range(3):
        store.purge(settled_before_ms=T0_MS + 1, due_before_ms=T0_MS + DAY_MS, now_ms=T0_MS + DAY_MS, limit=100)
    return None


def staged(clients: Clients, stack: ExitStack) -> AwsStore:
    prefix = fresh_prefix()
    make_tables(clients, prefix)
    store = stack.enter_context(closing(AwsStore(prefix, clients=clients)))
    store.alarms.sends = store.alarms.offers = False
    with_users(store)
    store.add_token(token("t", "ann"), tokens_max=100)
    for name in ("a", "b"):
        make_runs(store, armed(store, name), 3)
    return store


@pytest.mark.parametrize(
    "act", [put_anew, edit, remove, remove_user, disable_and_enable, advance_far, carry_out, purge]
)
def test_promise_10_store_stays_consistent_wherever_a_write_is_interrupted(clients: Clients, act: Act) -> None:
    for request in range(WRITES_MAX):
        with ExitStack() as stack:
            store = staged(clients, stack)
            try:
                with cut_before(clients, request):
                    act(store)
            except Cut:
                assert store.verify_monitors() == []
            else:
                assert request > 0
                return
            heir = stack.enter_context(closing(AwsStore(store._database.prefix, clients=clients)))
            act(heir)
            react_to_all(heir, now_ms=T0_MS)
            assert heir.verify_monitors() == []
            if (
                act is not advance_far
            ):  # hundreds of runs, one after the other: verify has seen that they can be claimed
                _all_of_it_ends(heir)
    raise AssertionError(f"more than {WRITES_MAX} writes")


def _all_of_it_ends(store: AwsStore) -> None:
    """Every open run can be claimed."""
    now_ms = T0_MS + DAY_MS
    for _ in range(600):
        out = claim(store, now_ms=now_ms)
        if not out:
            break
        assert settle(store, out, now_ms=now_ms) == [True] * len(out)
    counts = store.monitor_counts()
    assert (counts.runs_waiting, counts.runs_out, counts.changes) == (0, 0, 0)
