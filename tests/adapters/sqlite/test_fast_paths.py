"""Claims, settlements and purges of many runs at once decide like those that read each run or monitor."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from paceline.adapters.sqlite.monitors import runs, uptime
from paceline.adapters.sqlite.monitors.check_claims import CheckQueue
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.leases import given_up
from paceline.core.monitors.outcome import Dead, Done, Outcome, Retry
from paceline.core.monitors.values import Claimed, RemoveMonitor
from paceline.core.users import UserEdit
from tests.contract.support.stage import (
    LEASE_MS,
    MINUTE_MS,
    T0_MS,
    armed_all,
    claim,
    make_runs,
    put,
    settle,
    spec,
    user,
)

OWNERS, MONITORS = ("ann", "bob"), 4
ACTS = st.lists(
    st.one_of(
        st.tuples(st.just("run"), st.just(0)),
        st.tuples(st.just("claim"), st.integers(3, 9)),
        st.tuples(st.just("settle"), st.integers(2, 9)),
        st.tuples(st.just("edit"), st.integers(0, MONITORS - 1)),
        st.tuples(st.just("remove"), st.integers(0, MONITORS - 1)),
        st.tuples(st.just("disable"), st.integers(0, 1)),
        st.tuples(st.just("wait"), st.integers(0, 1)),
        st.tuples(st.just("purge"), st.integers(1, 9)),
    ),
    max_size=30,
)
OUTCOMES: tuple[Outcome, ...] = (Done(ok=True), Dead("no"), Retry("later", T0_MS), Done(ok=False, detail={"a": 1}))


class Scene:
    """One store and its claimed runs."""

    def __init__(self) -> None:
        self.store = SqliteStore(":memory:")
        for owner in OWNERS:
            self.store.add_user(user(owner))
        self.monitors = [
            armed_all(self.store, [f"m{number}"], owner=OWNERS[number % 2])[0] for number in range(MONITORS)
        ]
        self.now_ms = T0_MS
        self.out: list[Claimed] = []
        self.removed: set[int] = set()
        self.disabled = False
        self.edits = 0

    def act(self, name: str, number: int) -> object:
        """Returns the answers of the store."""
        owner = OWNERS[number % 2]
        match name:
            case "run":
                for index in set(range(MONITORS)) - self.removed:
                    make_runs(self.store, self.monitors[index], now_ms=self.now_ms)
            case "claim":
                claimed = claim(self.store, runs_max=number, now_ms=self.now_ms)
                self.out += claimed
                return [(item.handle, item.attempt, item.monitor, item.lost, item.check) for item in claimed]
            case "settle":
                ended, self.out = self.out[:number], self.out[number:]
                return settle(self.store, ended, OUTCOMES[max(0, number - 5) % 4], now_ms=self.now_ms)
            case "edit" if number not in self.removed:
                self.edits += 1
                check = HttpCheck(url=f"http://example.org/{self.edits}")
                return put(self.store, f"m{number}", spec(check), owner=owner).disposition
            case "remove":
                self.removed.add(number)
                return self.store.remove_monitors([RemoveMonitor(owner, f"m{number}")])
            case "disable":
                self.disabled = not self.disabled
                return self.store.edit_user(owner, UserEdit(disabled=self.disabled))
            case "purge":
                # Open runs do not expire, so that some runs of a monitor end before earlier ones.
                return self.store.purge(
                    settled_before_ms=self.now_ms + 1, due_before_ms=0, now_ms=self.now_ms, limit=number
                )
            case "wait":
                self.now_ms += LEASE_MS + 1 if number else MINUTE_MS // 60
        return None

    def rows(self) -> list[object]:
        with self.store._db.read() as db:
            return [
                db.execute("SELECT * FROM open ORDER BY handle").fetchall(),
                db.execute("SELECT * FROM outcome ORDER BY handle").fetchall(),
                db.execute("SELECT handle FROM run ORDER BY handle").fetchall(),
                db.execute("SELECT * FROM uptime ORDER BY generation").fetchall(),
                db.execute("SELECT id, tail, position, out, ended FROM lane ORDER BY id").fetchall(),
            ]


@contextmanager
def one_by_one() -> Iterator[None]:
    """Switches the fast paths off."""
    with (
        patch.object(CheckQueue, "_lease_plain", lambda *_: None),
        patch.object(runs, "_close_all", lambda *_: False),
        patch.object(uptime, "_fold_whole", lambda _, unfolded: list(unfolded)),
    ):
        yield


@settings(max_examples=60, deadline=None)
@given(ACTS)
@example([("run", 0), ("claim", 9), ("settle", 4), ("edit", 0), ("run", 0), ("claim", 9)])
@example([("run", 0), ("claim", 9), ("wait", 1), ("claim", 9), ("settle", 9), ("settle", 4)])
@example([("run", 0), ("run", 0), ("claim", 9), ("settle", 3), ("run", 0), ("claim", 9), ("settle", 9), ("purge", 9)])
@example([("run", 0), ("claim", 4), ("settle", 4), ("purge", 2), ("run", 0), ("claim", 9), ("settle", 9), ("purge", 9)])
def test_fast_paths_of_claim_settle_and_purge_decide_as_the_slow_ones(acts: list[tuple[str, int]]) -> None:
    fast, slow = Scene(), Scene()
    for name, number in acts:
        answer = fast.act(name, number)
        with one_by_one():
            assert slow.act(name, number) == answer
    assert fast.rows() == slow.rows()
    for scene in (fast, slow):
        assert scene.store.verify() == []
        scene.store.close()


def test_run_that_ended_before_an_earlier_one_is_folded_only_after_that() -> None:
    scene = Scene()
    scene.act("run", 0)
    scene.act("run", 0)
    with scene.store._db.write() as db:
        query = "SELECT handle FROM run WHERE generation = (SELECT min(generation) FROM run) ORDER BY counter"
        first, later = [row[0] for row in db.execute(query)]
        runs.record_outcomes(db, [given_up(later, "skipped", now_ms=T0_MS)])
        assert uptime.fold_before_delete(db, [later]) == []
        runs.record_outcomes(db, [given_up(first, "late", now_ms=T0_MS)])
        assert uptime.fold_before_delete(db, [later]) == [later]
        assert db.execute("SELECT counter FROM uptime").fetchall() == [(1,)]
    scene.store.close()
