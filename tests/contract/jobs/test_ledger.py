"""Promise 8 on the real store: conservation, never over, no leak, whatever is cut short at whichever write.

A cut is a ``kill -9``: the files are copied as they are between two statements, and the copy is all that is left.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeVar

import apsw
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.jobs.cost import Cost
from paceline.core.jobs.meters import Balance, Posting, Reading, Short, add_up
from paceline.core.jobs.values import (
    AccountSpec,
    Admitted,
    Busy,
    MeasurementEnd,
    MeterFull,
    NotSent,
    OverCredits,
    Rejected,
    SendOutcome,
    Sent,
    StoredMeasurement,
    Unsure,
)
from tests.contract.support.job_stage import add_account, limit, submission, submit
from tests.contract.support.stage import DAY_MS, HOUR_MS, MINUTE_MS, T0_MS, user

pytestmark = pytest.mark.sqlite  # it dies between two statements of SQL, and does its damage in SQL

T = TypeVar("T")
SPEC = AccountSpec(concurrent=3, daily_results=60, daily_credits=240)
DAILY_CREDITS = 300
SENDING_MAX = 2
TABLES = (
    "meter",
    "release",
    "posting",
    "job",
    "measurement",
    "atlas_measurement",
    "account",
    "turn",
    "atlas",
    "target",
)


class Cut(Exception):
    """The process dies here."""


class Bench:
    """A store on a file that can be cut before any of its statements, and goes on from what the disk had."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._copies = 0
        self.path = folder / "store.db"
        self.store = SqliteStore(str(self.path), synchronous="normal")
        self.cuts = 0

    def act(self, work: Callable[[SqliteStore], T], *, cut: int | None) -> T | None:
        """Returns the result of the act; None if it was cut before the given statement, and then it had no effect."""
        if cut is None:
            return work(self.store)
        before = self.dump()
        self._arm(cut)
        try:
            return work(self.store)
        except Cut:
            self._reopen()
            assert self.dump() == before
            return None
        finally:
            self._disarm()

    def dump(self) -> dict[str, list[tuple[Any, ...]]]:
        with self.store._db.read() as db:
            return {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}  # noqa: S608  of ours

    def postings(self) -> list[Posting]:
        with self.store._db.read() as db:
            rows = db.execute("SELECT meter, hold, kind, amount, at_ms FROM posting").fetchall()
        return [Posting(str(meter), str(hold), kind, amount, at_ms) for meter, hold, kind, amount, at_ms in rows]

    def meters(self) -> dict[str, tuple[int, int, int]]:
        """By number: limit, held, spent."""
        with self.store._db.read() as db:
            rows = db.execute('SELECT id, "limit", held, spent FROM meter').fetchall()
        return {str(number): (limit_, held, spent) for number, limit_, held, spent in rows}

    def opened(self) -> dict[str, tuple[int, int]]:
        """By number: what removed postings added up to, held and spent."""
        with self.store._db.read() as db:
            rows = db.execute("SELECT id, opened_held, opened_spent FROM meter").fetchall()
        return {str(number): (held, spent) for number, held, spent in rows}

    def open_holds(self) -> int:
        return len(add_up(self.postings()).open_lines)

    def close(self) -> None:
        self.store.close()

    def _arm(self, cut: int) -> None:
        left = iter(range(cut))

        def trace(_cursor: apsw.Cursor, sql: str, _bindings: object) -> bool:
            if sql != "ROLLBACK" and next(left, None) is None:
                self._copies += 1
                self.path = self._folder / f"copy{self._copies}.db"
                shutil.copy(self.store._db.path, self.path)
                shutil.copy(f"{self.store._db.path}-wal", f"{self.path}-wal")
                raise Cut
            return True

        with self.store._db.writer() as connection:
            connection.exec_trace = trace

    def _disarm(self) -> None:
        with self.store._db.writer() as connection:
            connection.exec_trace = None

    def _reopen(self) -> None:
        self._disarm()
        self.store.close()
        self.store = SqliteStore(str(self.path), synchronous="normal")
        self.cuts += 1


CUTS = st.integers(0, 60).map(lambda number: number - 35 if number >= 35 else None)
COSTS = st.builds(
    lambda probes, slots: Cost(6 * probes * slots, probes * slots, slots, 6 * probes * slots, probes * slots),
    st.integers(1, 12),
    st.integers(1, 2),
)


class Ledger(RuleBasedStateMachine):
    """Users submit, a dispatcher sends, RIPE answers or does not, days pass, and the process dies now and then."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = TemporaryDirectory()
        self.bench = Bench(Path(self._folder.name))
        self.now_ms = T0_MS
        self.atlas_id = 0
        self.keys: dict[str, str] = {}

    @initialize()
    def people(self) -> None:
        for name in ("ann", "bob"):
            self.bench.store.add_user(user(name))
            limit(self.bench.store, DAILY_CREDITS, owner=name)
        self.keys = {name: add_account(self.bench.store, name, SPEC) for name in ("lab", "pub")}

    @rule(owner=st.sampled_from(["ann", "bob"]), count=st.integers(1, 4), cost=COSTS, cut=CUTS)
    def submit(self, owner: str, count: int, cost: Cost, cut: int | None) -> None:
        item = submission(count, owner=owner, cost=cost)
        budget = self.bench.store.budget(owner, now_ms=self.now_ms)
        assert budget is not None
        found = self.bench.act(lambda store: submit(store, item, now_ms=self.now_ms), cut=cut)
        if found is not None:
            assert isinstance(found, Admitted if cost.credits * count <= budget.left else OverCredits)

    @rule(account=st.sampled_from(["lab", "pub"]), place=st.integers(0, 3), at_once=st.integers(1, 2), cut=CUTS)
    def begin(self, account: str, place: int, at_once: int, cut: int | None) -> None:
        waiting = self.bench.store.next_to_send(now_ms=self.now_ms, users_max=2, each_max=2)
        if not waiting:
            return
        item, key = waiting[place % len(waiting)], self.keys[account]
        room, busy = self._room(account), len(self._holding("sending")) >= at_once
        begun = self.bench.act(
            lambda store: store.begin_send(item, account=account, key=key, sending_max=at_once, now_ms=self.now_ms),
            cut=cut,
        )
        fits = (
            item.cost.concurrent <= room[0]
            and item.cost.daily_results <= room[1]
            and item.cost.daily_credits <= room[2]
        )
        assert begun is None or isinstance(begun, Busy if busy else StoredMeasurement if fits else Short)

    @rule(account=st.sampled_from(["lab", "pub"]), share=st.integers(1, 12))
    def live(self, account: str, share: int) -> None:
        """Runs a job to its end undisturbed: random acts reach the states after an end too seldom."""
        store = self.bench.store
        for item in store.next_to_send(now_ms=self.now_ms, users_max=1, each_max=1):
            begun = store.begin_send(
                item, account=account, key=self.keys[account], sending_max=SENDING_MAX, now_ms=self.now_ms
            )
            if isinstance(begun, StoredMeasurement):
                self.atlas_id += 10
                ids = tuple(range(self.atlas_id, self.atlas_id + item.cost.concurrent))
                assert store.answer(item.handle, begun.attempt, Sent(ids), now_ms=self.now_ms)
                delivered = item.cost.results * share // 10
                ending = MeasurementEnd(
                    item.handle, begun.attempt, "done", "", 6 * delivered, delivered, frees_slot=True
                )
                assert store.end([ending], now_ms=self.now_ms)[0].won

    @rule(count=st.integers(1, 2), cut=CUTS)
    def refuse(self, count: int, cut: int | None) -> None:
        waiting = self.bench.store.next_to_send(now_ms=self.now_ms, users_max=1, each_max=count)
        fences = [(one.handle, one.attempt) for one in waiting]

        def work(store: SqliteStore) -> list[bool]:
            return store.refuse(fences, reason="too large", now_ms=self.now_ms)

        if self.bench.act(work, cut=cut) is not None:
            assert not any(work(self.bench.store))

    @rule(place=st.integers(0, 9), kind=st.sampled_from(["sent", "unsure", "back", "parked", "full", "no"]), cut=CUTS)
    def answer(self, place: int, kind: str, cut: int | None) -> None:
        out = self._holding("sending") + self._holding("unknown")
        if not out:
            return
        item = out[place % len(out)]
        self.atlas_id += 10
        ids = tuple(range(self.atlas_id, self.atlas_id + item.cost.concurrent))
        blame = MeterFull("credits", item.cost.daily_credits) if kind == "full" else None
        outcomes: dict[str, SendOutcome] = {
            "sent": Sent(ids),
            "unsure": Unsure("lost", self.now_ms + MINUTE_MS),
            "back": NotSent("refused"),
            "full": NotSent("refused"),
            "parked": NotSent("refused", self.now_ms + MINUTE_MS),
            "no": Rejected("never"),
        }
        outcome = outcomes[kind]

        def work(store: SqliteStore) -> bool:
            return store.answer(item.handle, item.attempt, outcome, effect=blame, now_ms=self.now_ms)

        if self.bench.act(work, cut=cut) and kind != "unsure":
            assert not work(self.bench.store)  # the same answer a second time counts for nothing

    @rule(place=st.integers(0, 9), share=st.integers(0, 15), frees=st.booleans(), cut=CUTS)
    def end(self, place: int, share: int, frees: bool, cut: int | None) -> None:  # noqa: FBT001  drawn by name
        ongoing = self._holding("ongoing")
        if not ongoing:
            return
        item = ongoing[place % len(ongoing)]
        delivered = item.cost.results * share // 10
        ending = MeasurementEnd(item.handle, item.attempt, "done", "", 6 * delivered, delivered, frees)
        ended = self.bench.act(lambda store: store.end([ending], now_ms=self.now_ms)[0], cut=cut)
        if ended is not None:
            assert ended == (True, max(0, 6 * delivered - item.cost.credits))
            assert not self.bench.store.end([ending], now_ms=self.now_ms)[0].won

    @rule(cut=CUTS)
    def free_slots(self, cut: int | None) -> None:
        fences = [(one.handle, one.attempt) for one in self._holding("done")]
        self.bench.act(lambda store: store.free_slots(fences, now_ms=self.now_ms), cut=cut)

    @rule(place=st.integers(0, 9), cut=CUTS)
    def cancel(self, place: int, cut: int | None) -> None:
        jobs = self.bench.store.jobs(None, before=None, limit=100)
        if jobs:
            number = jobs[place % len(jobs)].number
            self.bench.act(lambda store: store.cancel_job(number, now_ms=self.now_ms), cut=cut)

    @rule(keep_ms=st.sampled_from([0, HOUR_MS, DAY_MS]), limit_=st.integers(1, 4), cut=CUTS)
    def purge(self, keep_ms: int, limit_: int, cut: int | None) -> None:
        self.bench.store.finish_jobs(now_ms=self.now_ms, limit=2)
        before = self.bench.meters()
        budgets = [self.bench.store.budget(name, now_ms=self.now_ms) for name in ("ann", "bob")]
        until_ms = self.now_ms + 1 - keep_ms
        self.bench.act(lambda store: store.purge_jobs(finished_before_ms=until_ms, limit=limit_), cut=cut)
        after = self.bench.meters()
        assert after.items() <= before.items()
        assert all(before[number][1] == 0 for number in before.keys() - after.keys())
        assert budgets == [self.bench.store.budget(name, now_ms=self.now_ms) for name in ("ann", "bob")]

    @rule(account=st.sampled_from(["lab", "pub"]), figure=st.integers(0, 300), cut=CUTS)
    def sync(self, account: str, figure: int, cut: int | None) -> None:
        found = self.bench.store.account(account, now_ms=self.now_ms)
        assert found is not None
        reading = Reading(self.now_ms, figure, found.credits.spent + found.credits.held)
        self.bench.act(lambda store: store.sync_account(account, [("credits", reading)], now_ms=self.now_ms), cut=cut)

    @rule(cut=CUTS)
    def lose(self, cut: int | None) -> None:
        self.bench.act(lambda store: store.lose_sends(intent_before_ms=self.now_ms, look_ms=self.now_ms), cut=cut)

    @precondition(lambda self: self.now_ms < T0_MS + 5 * DAY_MS)
    @rule(by_ms=st.sampled_from([1, MINUTE_MS, 5 * HOUR_MS, DAY_MS + MINUTE_MS]))
    def time_passes(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @invariant()
    def conserved_and_never_over(self) -> None:
        books, opened = add_up(self.bench.postings()), self.bench.opened()
        for number, (limit_, held, spent) in self.bench.meters().items():
            balance = books.balances.get(number, Balance())
            assert (held, spent) == (balance.held + opened[number][0], balance.spent + opened[number][1])
            assert opened[number][0] == 0  # only what was closed is ever removed
            assert held + spent <= limit_

    @invariant()
    def never_more_at_once_than_may_be(self) -> None:
        assert len(self._holding("sending")) <= SENDING_MAX

    @invariant()
    def in_order(self) -> None:
        assert self.bench.store.verify() == []

    def teardown(self) -> None:
        """Whatever happened, once everything has ended nothing is held any more."""
        try:
            store = self.bench.store
            for job in store.jobs(None, before=None, limit=1_000):
                store.cancel_job(job.number, now_ms=self.now_ms)
            for item in self._holding("sending") + self._holding("unknown"):
                store.answer(item.handle, item.attempt, NotSent("it is not there"), now_ms=self.now_ms)
            for item in self._holding("ongoing"):
                store.end(
                    [MeasurementEnd(item.handle, item.attempt, "cancelled", "", 0, 0, frees_slot=True)],
                    now_ms=self.now_ms,
                )
            store.free_slots([(one.handle, one.attempt) for one in self._holding("done")], now_ms=self.now_ms)
            assert self.bench.open_holds() == 0
            assert all(held == 0 for _, held, _ in self.bench.meters().values())
            finished = store.finish_jobs(now_ms=self.now_ms, limit=1_000)
            assert all(job.settled + job.refunded == job.reserved for job in finished)
            assert store.verify() == []
            store.purge_jobs(finished_before_ms=self.now_ms + 2 * DAY_MS, limit=1_000)
            assert self.bench.postings() == []
            assert store.verify() == []
        finally:
            self.bench.close()
            self._folder.cleanup()

    def _holding(self, state: Any) -> list[StoredMeasurement]:
        return self.bench.store.holding(state, after=0, limit=1_000)

    def _room(self, account: str) -> tuple[int, int, int]:
        found = self.bench.store.account(account, now_ms=self.now_ms)
        assert found is not None
        meters = (found.concurrent, found.results, found.credits)
        slots, results, spend = (max(0, one.limit - one.spent - one.held - one.foreign) for one in meters)
        return slots, results, spend


TestLedger = pytest.mark.slow(Ledger.TestCase)
TestLedger.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def lead_to_send(store: SqliteStore) -> object:
    [item] = store.next_to_send(now_ms=T0_MS, users_max=1, each_max=1)
    return store.begin_send(item, account="lab", key="k1", sending_max=SENDING_MAX, now_ms=T0_MS)


def sent(store: SqliteStore) -> object:
    [item] = store.holding("sending", after=0, limit=1)
    return store.answer(item.handle, item.attempt, Sent((7,)), now_ms=T0_MS)


def ended(store: SqliteStore) -> object:
    [item] = store.holding("ongoing", after=0, limit=1)
    return store.end([MeasurementEnd(item.handle, item.attempt, "done", "", 30, 5, frees_slot=True)], now_ms=T0_MS)


def test_promise_10_job_whose_process_dies_before_any_write_ends_like_an_undisturbed_job(tmp_path: Path) -> None:
    acts: list[Callable[[SqliteStore], object]] = [
        lambda store: submit(store, submission(1)),
        lead_to_send,
        sent,
        ended,
        lambda store: store.finish_jobs(now_ms=T0_MS, limit=1),
        lambda store: store.purge_jobs(finished_before_ms=T0_MS + DAY_MS, limit=1),
    ]
    ends = []
    for cutting in (False, True):
        folder = tmp_path / str(cutting)
        folder.mkdir()
        bench = Bench(folder)
        bench.store.add_user(user("ann"))
        limit(bench.store, 60)
        assert add_account(bench.store) == "k1"
        for act in acts:
            cut = 0 if cutting else None
            while bench.act(act, cut=cut) is None:
                assert cut is not None
                cut += 1
        ends.append(bench.dump())
        if cutting:
            assert bench.cuts > 40
        bench.close()
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("UPDATE meter SET held = held + 1 WHERE name LIKE 'user/%'", "do not add up to what is held"),
        ("UPDATE posting SET amount = amount + 1 WHERE kind = 'settle'", "closed on exactly what it held"),
        ("DELETE FROM posting WHERE kind = 'refund'", "closed on exactly what it held"),
        ("DELETE FROM release", "releases do not add up"),
        ("UPDATE measurement SET settled = settled - 1", "settled on another sum"),
        ("UPDATE measurement SET slot = 1 WHERE state = 'done'", "slot is held and its line is closed"),
        ("UPDATE job SET settled = settled - 1", "counts or sums"),
        ("DELETE FROM atlas_measurement", "no id at RIPE"),
        ("UPDATE meter SET opened_spent = opened_spent + 1", "do not add up to what is held"),
        ("UPDATE job SET definitions_done = 0", "definitions are not those"),
        ("UPDATE job SET purged = 1", "on its way out"),
        ("DELETE FROM atlas_measurement; DELETE FROM measurement", "of no measurement"),
        ("UPDATE tally SET value = 7 WHERE name = 'measurements_queued'", "number of queued measurements is wrong"),
        ("UPDATE tally SET value = 7 WHERE name = 'measurements_parked'", "number of parked measurements is wrong"),
        ("UPDATE tally SET value = 7 WHERE name = 'jobs_open'", "number of unfinished jobs is wrong"),
    ],
)
def test_check_reports_books_that_do_not_add_up(tmp_path: Path, damage: str, words: str) -> None:
    bench = Bench(tmp_path)
    bench.store.add_user(user("ann"))
    limit(bench.store, 60)
    add_account(bench.store)
    submit(bench.store, submission(1))
    for act in (lead_to_send, sent, ended):
        act(bench.store)
    assert bench.store.verify() == []
    with bench.store._db.write() as db:
        db.execute(damage)
        assert db.changes() >= 1
    assert any(words in problem for problem in bench.store.verify())
    bench.close()
