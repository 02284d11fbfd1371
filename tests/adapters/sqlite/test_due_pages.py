"""Cost of alerts and webhooks that are due: a pass reads what is new, not the backlog, and an index serves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from paceline.adapters.sqlite import alerts
from paceline.adapters.sqlite.jobs import jobs
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.try_turns import DuePosition
from tests.contract.support.stage import MINUTE_MS, T0_MS, user
from tests.contract.support.try_stage import AlertTelling, Telling, WebhookTelling

STEP_MS = 10
PASSES = 25


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    with closing(SqliteStore(":memory:")) as opened:
        for name in ("ann", "bob"):
            opened.add_user(user(name))
        yield opened


def rows_read(store: SqliteStore, work: Callable[[], object]) -> int:
    """Rows that the statements of the work return."""
    rows = 0

    def note(_cursor: object, row: Any) -> Any:
        nonlocal rows
        rows += 1
        return row

    with store._db.writer() as db:
        db.row_trace = note
    work()
    with store._db.writer() as db:
        db.row_trace = None
    return rows


def rows_of_passes(store: SqliteStore, telling: Telling, backlog: int) -> int:
    """Rows read by passes within a quarter of a second, in which tries end and others begin, while so many wait."""
    now_ms = T0_MS + MINUTE_MS
    telling.due("ann", backlog)
    telling.due("bob", 60)
    while telling.begin(now_ms=now_ms) or telling.more:
        pass

    def passes() -> None:
        for number in range(PASSES):
            telling.end("ann", "bob")
            assert len(telling.begin(now_ms=now_ms + number * STEP_MS)) == 2

    return rows_read(store, passes)


@pytest.mark.parametrize("kind", [AlertTelling, WebhookTelling])
def test_rows_read_by_a_claim_do_not_grow_with_the_backlog(
    kind: Callable[[SqliteStore], Telling], store: SqliteStore
) -> None:
    small = rows_of_passes(store, kind(store), 200)
    with closing(SqliteStore(":memory:")) as other:
        for name in ("ann", "bob"):
            other.add_user(user(name))
        large = rows_of_passes(other, kind(other), 1_600)
    assert large == small


@pytest.mark.parametrize("kind", [AlertTelling, WebhookTelling])
def test_what_waits_for_a_place_is_read_again_after_a_fault_of_the_store(
    kind: Callable[[SqliteStore], Any], tmp_path: Path
) -> None:
    path = str(tmp_path / "p.db")
    with closing(SqliteStore(path)) as first, closing(SqliteStore(path)) as second:
        first.add_user(user("ann"))
        telling = kind(first)
        names = telling.due("ann", 60)
        begun = telling.begin()
        with second._db.writer() as db:
            db.execute("ALTER TABLE alert RENAME TO alert_gone")
            db.execute("ALTER TABLE job RENAME TO job_gone")
        telling.out.clear()
        with pytest.raises(Exception, match="no such table"):
            telling.begin()
        assert len(telling.queue) == 0
        with second._db.writer() as db:
            db.execute("ALTER TABLE alert_gone RENAME TO alert")
            db.execute("ALTER TABLE job_gone RENAME TO job")
        assert sorted(name for _, name in begun + telling.begin()) == sorted(names)


@pytest.mark.parametrize("after", [None, 5])
def test_index_serves_the_pages_of_what_is_due(after: int | None, store: SqliteStore) -> None:
    asked: list[tuple[str, Any]] = []

    def note(_: object, statement: str, values: Any) -> bool:
        asked.append((statement, values or ()))
        return True

    with store._db.writer() as db:
        db.exec_trace = note
        alerts.due(db, now_ms=9, limit=5, after=None if after is None else DuePosition(after, "al_1"))
        jobs.due_webhooks(db, now_ms=9, limit=5, after=None if after is None else DuePosition(after, 1))
        db.exec_trace = None
        plans = [row[3] for text, values in asked for row in db.execute(f"EXPLAIN QUERY PLAN {text}", values)]
    assert len(plans) == 2, "no further step, such as sorting"
    assert all("USING COVERING INDEX" in plan for plan in plans), plans
    for place, plan in zip(("place_ms", "hook_ms"), plans, strict=True):
        assert f"{place}<?" in plan
        assert (f"{place}>?" in plan or f"({place},id)>" in plan) == (after is not None)
