"""Stored counters equal a recount after any history, and the status reads only counters."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import apsw
import pytest

from paceline.adapters.sqlite import upkeep
from paceline.adapters.sqlite.identity import APPLICATION_ID
from paceline.adapters.sqlite.jobs import sends
from paceline.adapters.sqlite.migrate import _scripts
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.batches.batch import BatchSpec, RecordSpec
from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.values import DeadChoice
from paceline.core.jobs.values import NotSent, SendCounts, StoredMeasurement
from tests.contract.support.batch_stage import DATE, plan, put_batch, put_provider, put_records
from tests.contract.support.job_stage import add_account, begin, done, heads, limit, send, submission, submit
from tests.contract.support.stage import DAY_MS, HOUR_MS, T0_MS, user

BEFORE = 17
ACTS = 150


def counted(store: SqliteStore) -> tuple[int, ...]:
    """Counts the rows."""
    tables = ("queue", "aside", "result WHERE dead = 1")
    with store._db.read() as db:
        return tuple(db.execute(f"SELECT count(*) FROM {table}").get for table in tables)  # noqa: S608  fixed texts


def kept(store: SqliteStore) -> tuple[int, ...]:
    status = store.status()
    return status.calls_waiting, status.calls_aside, status.dead_letters


class Batches:
    """Operators and callers that act at random."""

    def __init__(self, store: SqliteStore, seed: int) -> None:
        self.store, self.chance, self.now_ms = store, random.Random(seed), T0_MS
        for name in ("p", "q"):
            put_provider(store, name, max_in_flight=3)
        put_records(store, {f"r{n}": self.chance.choice("pq") for n in range(12)})
        self.days = 0

    def act(self) -> None:
        acts: list[Callable[[], object]] = [self.plan, self.pause, self.move, self.remove, self.let_go, self.purge]
        self.chance.choice([*[self.call] * 8, *acts])()

    def plan(self) -> None:
        plan(self.store, put_batch(self.store), day=DATE + timedelta(days=self.days), now_ms=self.now_ms)
        self.days += 1

    def call(self) -> None:
        self.now_ms = max(self.now_ms, self.store.next_call_ms() or 0) + self.chance.choice([0, 1, HOUR_MS])
        claimed = self.store.claim_calls(now_ms=self.now_ms, runs_max=self.chance.randint(1, 5), lease_ms=60_000)
        for one in claimed:
            state = self.chance.choice(["done", "failed", "unknown", "retry", "out"])
            if state == "out":
                continue
            times = {"started_ms": self.now_ms, "ended_ms": self.now_ms, "not_before_ms": self.now_ms + 1}
            self.store.settle_calls(
                [CallSettlement(one.handle, one.attempt, state, reason="so", verdict="good", **times)]  # type: ignore[arg-type]
            )

    def pause(self) -> None:
        spec = BatchSpec(paused=self.chance.random() < 0.5)
        self.store.put_batch("daily", spec, expected_revision=None, now_ms=self.now_ms)

    def move(self) -> None:
        record = RecordSpec(f"r{self.chance.randrange(12)}", self.chance.choice("pq"))
        self.store.put_records(put_batch(self.store), [record], now_ms=self.now_ms)

    def remove(self) -> None:
        self.store.remove_record(put_batch(self.store), f"r{self.chance.randrange(12)}")

    def let_go(self) -> None:
        if self.chance.random() < 0.5:
            self.store.redrive(DeadChoice(), gap_ms=1, now_ms=self.now_ms, limit=self.chance.randint(1, 4))
        else:
            self.store.discard(DeadChoice(), limit=self.chance.randint(1, 4))

    def purge(self) -> None:
        before_ms = self.now_ms - self.chance.choice([0, DAY_MS])
        self.store.purge_calls(ended_before_ms=before_ms, dead_before_ms=before_ms, after=-1, limit=10)


@pytest.mark.parametrize("seed", range(5))
def test_stored_counters_of_batches_equal_a_recount_after_any_history(tmp_path: Path, seed: int) -> None:
    seen: set[tuple[bool, ...]] = set()
    with closing(SqliteStore(str(tmp_path / "p.db"), synchronous="off")) as store:
        world = Batches(store, seed)
        for number in range(ACTS):
            world.act()
            assert kept(store) == counted(store), f"seed {seed}, act {number}"
            seen.add(tuple(figure > 0 for figure in kept(store)))
        assert store.verify() == []
    assert all(any(figures) for figures in zip(*seen, strict=True)), "some counter was always zero"


def sends_counted(store: SqliteStore) -> SendCounts:
    with store._db.read() as db:
        states = dict(db.execute("SELECT state, count(*) FROM measurement GROUP BY state").fetchall())
        names = ("queued", "parked", "sending", "unknown", "ongoing")
        oldest = db.execute(
            """SELECT min(created_ms) FROM job JOIN measurement ON measurement.id >> 14 = job.id
               WHERE state IN ('queued', 'parked')"""
        ).get
        jobs = db.execute("SELECT count(*) FROM job WHERE finished_ms IS NULL").get
    queued, parked, sending, unknown, ongoing = (states.get(name, 0) for name in names)
    return SendCounts(queued, parked, sending, unknown, ongoing, jobs, oldest)


class Jobs:
    """Users and an account that act at random."""

    def __init__(self, store: SqliteStore, seed: int) -> None:
        self.store, self.chance, self.now_ms = store, random.Random(seed), T0_MS
        for owner in ("ann", "bob"):
            store.add_user(user(owner))
            limit(store, 10**7, owner=owner)
        self.key = add_account(store)
        self.out: list[StoredMeasurement] = []

    def act(self) -> None:
        self.now_ms += self.chance.randint(0, 20)
        waiting = heads(self.store, now_ms=self.now_ms, each_max=3)
        sends = [self.park, self.refuse, self.send] if waiting else []
        acts: list[Callable[[], object]] = [self.submit, self.cancel, self.end, *sends]
        self.chance.choice(acts)()

    def submit(self) -> None:
        item = submission(self.chance.randint(1, 4), owner=self.chance.choice(["ann", "bob"]))
        submit(self.store, item, now_ms=self.now_ms)

    def park(self) -> None:
        waiting = heads(self.store, now_ms=self.now_ms, each_max=3)
        fences = [(item.handle, item.attempt) for item in waiting[:2]]
        self.store.park(fences, next_ms=self.now_ms + 30, reason="so")

    def refuse(self) -> None:
        begun = begin(self.store, self.key, now_ms=self.now_ms)
        self.store.answer(begun.handle, begun.attempt, NotSent("refused"), now_ms=self.now_ms)

    def send(self) -> None:
        self.out.append(send(self.store, self.key, now_ms=self.now_ms))

    def cancel(self) -> None:
        jobs = self.store.jobs(None, before=None, limit=10)
        if jobs:
            self.store.cancel_job(self.chance.choice(jobs).number, now_ms=self.now_ms)

    def end(self) -> None:
        if self.out:
            done(self.store, self.out.pop(0), now_ms=self.now_ms)
        self.store.finish_jobs(now_ms=self.now_ms, limit=5)
        self.store.purge_jobs(finished_before_ms=self.now_ms - 100, limit=5)


@pytest.mark.parametrize("seed", range(5))
def test_stored_counters_of_jobs_equal_a_recount_after_any_history(tmp_path: Path, seed: int) -> None:
    most: dict[str, int] = {}
    with closing(SqliteStore(str(tmp_path / "p.db"), synchronous="off")) as store:
        world = Jobs(store, seed)
        for number in range(ACTS):
            world.act()
            counts = store.send_counts()
            assert counts == sends_counted(store), f"seed {seed}, act {number}"
            most = {name: max(most.get(name, 0), getattr(counts, name)) for name in ("queued", "parked", "open_jobs")}
        assert store.verify() == []
    assert all(most.values()), f"some counter was always zero: {most}"


def test_status_query_scans_no_table_of_runs(tmp_path: Path) -> None:
    """Only tables with one row per user, provider, batch or edit may be scanned."""
    small = {"user", "lane", "pace", "provider", "batch", "change", "turn"}
    asked: list[tuple[str, Any]] = []

    def note(_: object, statement: str, values: Any) -> bool:
        asked.append((statement, values or ()))
        return True

    with closing(SqliteStore(str(tmp_path / "p.db"))) as store, store._db.writer() as db:
        db.exec_trace = note
        upkeep.status(db, bytes_used=0)
        sends.counts(db)
        db.exec_trace = None
        plans = [row[3] for text, values in asked for row in db.execute(f"EXPLAIN QUERY PLAN {text}", values)]
    assert len(asked) >= 15
    walked = {plan.split()[1] for plan in plans if plan.startswith("SCAN")}
    assert {"lane", "few"} <= walked <= small | {"few"}, plans


def test_counters_of_an_older_store_are_computed_once_by_the_upgrade(tmp_path: Path) -> None:
    path = tmp_path / "old.db"
    with closing(apsw.Connection(str(path))) as db:
        for script in _scripts()[:BEFORE]:
            db.execute(script)
        db.execute("INSERT INTO queue (k, run) VALUES (1, 1), (2, 2)")
        db.execute("INSERT INTO aside (k, run, batch) VALUES (3, 3, 1)")
        db.execute(
            "INSERT INTO result (k, run, state, attempt, ended_ms, reason, dead) VALUES (4, 4, 'failed', 1, 1, 'so', 1)"
        )
        db.pragma("application_id", APPLICATION_ID)
        db.pragma("user_version", BEFORE)
    with closing(SqliteStore(str(path))) as store:
        assert kept(store) == counted(store) == (2, 1, 1)
