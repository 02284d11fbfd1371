"""Runs that queue behind one another: a firing costs the same however many wait, of its monitor and of others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from paceline.adapters.sqlite.identity import APPLICATION_ID
from paceline.adapters.sqlite.migrate import _scripts
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.due import CatchUp
from paceline.steps.monitors.tick import tick
from tests.contract.support.stage import MINUTE_MS, T0_MS, armed_all, claim, user

BEFORE = 18


def stage(path: Path, *, monitors: int, waiting: int) -> SqliteStore:
    """Of each monitor one run is out, and as many wait behind it as are kept."""
    store = SqliteStore(str(path), synchronous="off")
    store.add_user(user("ann"))
    armed_all(store, [f"m{number}" for number in range(monitors)], overlap="queue")
    fire(store, 0, waiting=waiting)
    assert len(claim(store, runs_max=monitors, lease_ms=10**9)) == monitors
    for minute in range(1, waiting + 2):
        fire(store, minute, waiting=waiting)
    assert store.status().runs_waiting == monitors * waiting
    return store


def fire(store: SqliteStore, minute: int, *, waiting: int) -> int:
    return tick(store, now_ms=T0_MS + minute * MINUTE_MS, catch_up=CatchUp(waiting_max=waiting)).runs


def instructions(store: SqliteStore, act: Callable[[], object]) -> int:
    """How many steps of its own machine SQLite's writer takes: the same on any computer."""
    taken = 0

    def count() -> bool:
        nonlocal taken
        taken += 1
        return False

    with store._db.writer() as db:
        db.set_progress_handler(count, 1)
    act()
    with store._db.writer() as db:
        db.set_progress_handler(None)
    return taken


def test_a_firing_that_supersedes_takes_as_many_steps_however_many_runs_wait(tmp_path: Path) -> None:
    taken = {}
    for waiting in (10, 200):
        with closing(stage(tmp_path / f"{waiting}.db", monitors=1, waiting=waiting)) as store:
            taken[waiting] = instructions(store, lambda: fire(store, waiting + 2, waiting=waiting))  # noqa: B023
            assert store.status().runs_waiting == waiting
            assert store.verify() == []
    assert 0 < taken[200] < 1.2 * taken[10]


def test_a_firing_that_supersedes_takes_as_many_steps_however_many_monitors_queue(tmp_path: Path) -> None:
    taken = {}
    for monitors in (5, 100):
        with closing(stage(tmp_path / f"{monitors}.db", monitors=monitors, waiting=5)) as store:
            steps = instructions(store, lambda: fire(store, 7, waiting=5))
            taken[monitors] = steps / monitors
            assert store.verify() == []
    assert 0 < taken[100] < 1.2 * taken[5]


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE open SET generation = NULL WHERE state = 'parked'",
        "UPDATE open SET counter = counter + 1 WHERE state = 'parked'",
        "UPDATE open SET generation = 1 WHERE state = 'out'",
    ],
)
def test_check_finds_a_run_that_is_not_in_its_monitors_queue(tmp_path: Path, damage: str) -> None:
    with closing(stage(tmp_path / "p.db", monitors=2, waiting=2)) as store:
        assert store.verify() == []
        with store._db.write() as db:
            db.execute(damage)
        assert any("not in its monitor's queue" in problem for problem in store.verify())


def test_runs_that_queue_in_an_older_store_are_in_their_monitors_queue(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(apsw.Connection(str(path))) as db:
        for script in _scripts()[:BEFORE]:
            db.execute(script)
        db.execute("INSERT INTO lane (id, outgoing, tail) VALUES (9, 0, 3)")
        for number, (state, behind) in enumerate((("out", None), ("parked", 9 << 40 | 1), ("later", None)), start=1):
            handle = 9 << 40 | number
            db.execute("INSERT INTO run VALUES (?, 5, ?, 0, ?)", (handle, number - 1, handle - 1 if behind else 0))
            db.execute(
                "INSERT INTO open (handle, lane, state, at_ms, behind) VALUES (?, 9, ?, 1, ?)", (handle, state, behind)
            )
        db.pragma("application_id", APPLICATION_ID)
        db.pragma("user_version", BEFORE)
    with closing(SqliteStore(str(path))) as store, store._db.read() as found:
        assert found.execute("SELECT generation, counter FROM open ORDER BY handle").fetchall() == [
            (None, None),
            (5, 1),
            (5, 2),
        ]
