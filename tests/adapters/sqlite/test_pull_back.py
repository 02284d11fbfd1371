"""Statements for many open runs do what core decides of each, on random facts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from random import Random

import pytest

from paceline.adapters.sqlite.keys import CHECKS_LANE, LANE_BITS, NEVER_MS
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.leases import LeaseTimes, pulled_back, waits
from paceline.core.monitors.outcome import RunState
from tests.contract.support.stage import T0_MS

OPEN: tuple[RunState, ...] = ("out", "later", "parked", "held", "retry")
Row = tuple[int, RunState, int, int | None]


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    with closing(SqliteStore(":memory:")) as opened:
        yield opened


def random_rows(random: Random) -> list[Row]:
    """Open runs around T0: handle, state, end of the lease or the wait, start of the lease."""
    rows: list[Row] = []
    for number in range(40):
        state = random.choice(OPEN)
        started_ms = T0_MS + random.randrange(-500, 500) if state == "out" else None
        at_ms = T0_MS + random.randrange(-500, 2_000)
        if state == "parked" and random.random() < 0.5:
            at_ms = random.choice((0, NEVER_MS))
        rows.append((CHECKS_LANE << LANE_BITS | number + 1, state, max(at_ms, started_ms or 0), started_ms))
    return rows


def as_core_decides(row: Row, *, wait_ms_max: int, later_ms_max: int) -> Row:
    handle, state, at_ms, started_ms = row
    if at_ms == NEVER_MS:  # it waits for another run, not for a time
        return row
    bounds = waits(wait_ms_max=wait_ms_max, later_ms_max=later_ms_max)
    moved = pulled_back(state, LeaseTimes(at_ms, started_ms), now_ms=T0_MS, waits=bounds)
    return row if moved is None else (handle, state, *moved)


@pytest.mark.parametrize("seed", range(12))
def test_clock_set_back_moves_open_runs_as_core_decides(store: SqliteStore, seed: int) -> None:
    random = Random(seed)
    rows = random_rows(random)
    limits = {"wait_ms_max": random.randrange(1_000), "later_ms_max": random.randrange(1_500)}
    with store._db.write() as db:
        db.executemany(
            """INSERT INTO open (handle, lane, state, at_ms, started_ms, behind)
               VALUES (?1, ?5, ?2, ?3, ?4, iif(?2 = 'parked', 1, NULL))""",
            [(*row, CHECKS_LANE) for row in rows],
        )
    expected = [as_core_decides(row, **limits) for row in rows]
    assert store.pull_back_runs(lambda: T0_MS, **limits) == sum(
        before != after for before, after in zip(rows, expected, strict=True)
    )
    with store._db.read() as db:
        assert db.execute("SELECT handle, state, at_ms, started_ms FROM open ORDER BY handle").fetchall() == expected
