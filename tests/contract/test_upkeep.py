"""A whole store: it can be written, copied and checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.outcome import Done, Retry
from paceline.core.monitors.values import CHECKS, RemoveMonitor
from paceline.core.users import UserEdit
from paceline.errors import StoreUnavailable
from paceline.ports import Store
from tests.contract.support.stage import (
    ALL_OUTGOING,
    DAY_MS,
    GET,
    LEASE_MS,
    OUTGOING,
    T0_MS,
    arm_all,
    armed,
    claim,
    due_of,
    make_runs,
    put,
    settle,
    token,
    user,
)


def test_a_store_that_can_be_written_answers_a_ping(store: Store, other: Store) -> None:
    store.ping()
    other.ping()


@pytest.mark.sqlite  # a copy in one file
def test_a_backup_is_a_usable_copy_of_everything(store: Store, tmp_path: Path) -> None:
    monitor = armed(store, "a")
    store.add_token(token("t1", "ann"), tokens_max=100)
    make_runs(store, monitor, 3)
    settle(store, claim(store), Done(ok=False, detail={"x": 1}))
    (out,) = claim(store)
    put(store, "b")
    target = tmp_path / "copy.db"
    shares: list[tuple[int, int]] = []
    store.backup(target, progress=lambda done, total: shares.append((done, total)))
    assert shares
    assert shares[-1][0] == shares[-1][1]
    make_runs(store, monitor)  # goes on, and does not touch the copy
    copy = SqliteStore(str(target))  # a backup is an SQLite file, whatever the engine
    try:
        assert copy.verify() == []
        assert copy.monitor("ann", "a") == store.monitor("ann", "a")
        assert copy.token("t1") == store.token("t1")
        assert [run.state for run in copy.monitor_runs(monitor, before=None, limit=9, now_ms=T0_MS)] == [
            "parked",
            "out",
            "failed",
        ]
        assert settle(copy, [out]) == [True]
        assert due_of(copy, monitor).counter == 3
        assert len(copy.changes(limit=9, now_ms=T0_MS)) == 1
    finally:
        copy.close()
    assert settle(store, [out]) == [True]


def test_a_backup_overwrites_nothing(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "precious.db"
    target.write_text("precious")
    with pytest.raises(StoreUnavailable):
        store.backup(target, progress=lambda _done, _total: None)
    assert target.read_text() == "precious"


def test_check_finds_no_problem_after_many_different_operations(store: Store, other: Store) -> None:
    monitors = [armed(store, f"m{number}", check=OUTGOING if number % 3 else GET) for number in range(9)]
    for round_ in range(6):
        now_ms = T0_MS + round_ * LEASE_MS
        for monitor in monitors[round_ % 3 :: 2]:
            if store.monitor("ann", monitor.id) == monitor:
                make_runs(other, monitor, round_ % 3, now_ms=now_ms)
        for queue in (CHECKS, ALL_OUTGOING):
            out = claim(store, queue, now_ms=now_ms, runs_max=4)
            settle(other, out[::2], now_ms=now_ms)
            settle(other, out[1:2], Retry("x", now_ms + LEASE_MS), now_ms=now_ms)
        if round_ == 3:
            store.remove_monitors([RemoveMonitor("ann", "m4")])
            store.edit_user("ann", UserEdit(disabled=True))
            arm_all(store, T0_MS)
        if round_ == 4:
            store.remove_user("bob")
            store.add_user(user("bob"))
            store.edit_user("ann", UserEdit(disabled=False))
            arm_all(other, T0_MS + DAY_MS)
        store.purge(
            settled_before_ms=now_ms - LEASE_MS, due_before_ms=now_ms - 4 * LEASE_MS, now_ms=T0_MS + DAY_MS, limit=3
        )
        assert store.verify() == []
    assert other.verify() == []
