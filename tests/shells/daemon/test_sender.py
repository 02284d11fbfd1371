"""The sender on a real store, with a provider that does what the test tells it and a clock that the test moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest
from structlog.testing import capture_logs

from paceline.adapters.sqlite.store import SqliteStore
from paceline.config import Settings, load_settings
from paceline.core.monitors.definition import SpecLimits
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.values import CheckOrder, Finished
from paceline.core.users import User
from paceline.shells.daemon.in_flight import InFlight
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.daemon.monitors import Checks
from paceline.steps.monitors.define import parse_put, put_monitor
from paceline.steps.monitors.tick import tick
from paceline.wiring import System

T0_MS = 1_800_000_000_000


class Hand:
    """A clock, and a provider whose checks end when the test says so."""

    def __init__(self) -> None:
        self.ms = T0_MS
        self.started: list[CheckOrder] = []
        self.ends: list[Finished] = []
        self.in_flight = 0

    def now_ms(self) -> int:
        return self.ms

    def start(self, orders: Sequence[CheckOrder]) -> None:
        self.started += orders
        self.in_flight += len(orders)

    def finished(self, *, wait_ms: int) -> list[Finished]:
        del wait_ms
        ended, self.ends = self.ends, []
        self.in_flight -= len(ended)
        return ended

    def end(self, order: CheckOrder) -> None:
        self.ends.append(Finished(order.handle, order.attempt, Done(ok=True), started_ms=T0_MS, ended_ms=self.ms))

    def wake(self) -> None: ...
    def close(self) -> None: ...


def sender_of(system: System, hand: Hand, metrics: Metrics) -> InFlight[CheckOrder, Finished]:
    return InFlight(Checks(system, hand, metrics), clock=hand, remote=system.traits.remote)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "p.db"))
    yield store
    store.close()


def test_a_check_that_outlives_its_lease_does_not_confuse_its_second_attempt(store: SqliteStore) -> None:
    store.add_user(User("ann", "user", 0, disabled=False, created_ms=T0_MS))
    spec = b'{"check": {"kind": "http", "url": "http://example.org/"}, "every": "1h"}'
    put_monitor(store, parse_put("ann", "a", spec, SpecLimits()), monitors_max=1, now_ms=T0_MS)
    tick(store, now_ms=T0_MS, catch_up=CatchUp())
    hand, metrics = Hand(), Metrics()
    given: dict[str, Any] = {"check_lease": "1s"}
    sender = sender_of(System(Settings(**given), store, hand), hand, metrics)
    sender.turn()
    hand.ms += 1_500  # the lease is over, the check is not
    sender.turn()
    first, second = hand.started
    assert (first.attempt, second.attempt) == (1, 2)
    for order in (first, second):
        hand.ms += 100
        hand.end(order)
        sender.turn()
        sender.turn()  # settles it, with its claim
    assert 'paceline_runs_total{kind="http",outcome="ok"} 1.0' in metrics.render().decode()
    run = store.runs([second.handle], now_ms=T0_MS).get(second.handle)
    assert run is not None
    assert (run.state, run.attempt) == ("ok", 2)


def test_check_that_waits_for_a_place_starts_when_one_is_free_though_no_result_is_settled_yet(
    store: SqliteStore,
) -> None:
    store.add_user(User("ann", "user", 0, disabled=False, created_ms=T0_MS))
    spec = b'{"check": {"kind": "http", "url": "http://example.org/"}, "every": "1h"}'
    for name in "abcdef":
        put_monitor(store, parse_put("ann", name, spec, SpecLimits()), monitors_max=9, now_ms=T0_MS)
    tick(store, now_ms=T0_MS, catch_up=CatchUp())
    hand = Hand()
    sender = sender_of(System(load_settings(checks_per_owner_max=3), store, hand), hand, Metrics())
    sender.turn()
    assert len(hand.started) == 3
    hand.end(hand.started[0])
    hand.ms += 20
    sender.turn()
    sender.turn()
    assert len(hand.started) == 4
    second = hand.started[1]
    hand.end(second)
    hand.ms += 20
    sender.turn()
    sender.turn()
    assert len(hand.started) == 5
    assert store.runs([second.handle], now_ms=hand.ms)[second.handle].state == "out", "settled later, with others"
    hand.ms += 20
    sender.turn()
    assert len(hand.started) == 5, "there is no place"


class Wall:
    """The machine's clock."""

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


def due_check(store: SqliteStore, now_ms: int) -> None:
    store.add_user(User("ann", "user", 0, disabled=False, created_ms=now_ms))
    spec = b'{"check": {"kind": "http", "url": "http://example.org/", "timeout": "100ms"}, "every": "1s"}'
    put_monitor(store, parse_put("ann", "a", spec, SpecLimits()), monitors_max=1, now_ms=now_ms)
    due_ms = store.next_due_ms()
    assert due_ms is not None
    tick(store, now_ms=due_ms, catch_up=CatchUp())


@contextmanager
def locked(path: Path, seconds: float) -> Iterator[None]:
    """Another process writes for so long."""
    other = apsw.Connection(str(path))
    other.execute("BEGIN IMMEDIATE")
    timer = threading.Timer(seconds, lambda: other.execute("COMMIT"))
    timer.start()
    yield
    timer.join()
    other.close()


def test_check_claimed_for_longer_than_its_lease_is_given_back_and_not_sent(tmp_path: Path) -> None:
    """A lease counts from before the claim if the clock is not read in the lock, or if the reply hangs."""
    wall = Wall()
    with closing(SqliteStore(str(tmp_path / "p.db"))) as store:
        due_check(store, wall.now_ms())
        hand = Hand()
        hand.now_ms = wall.now_ms  # type: ignore[method-assign]
        sender = sender_of(System(load_settings(check_lease="1s"), store, hand), hand, Metrics())
        with locked(tmp_path / "p.db", 1.2), capture_logs() as logs:
            sender.turn()
        assert hand.started == []
        assert [line["checks"] for line in logs if line["event"] == "claimed_too_late"] == [1]
        sender.turn()
        assert [order.attempt for order in hand.started] == [2], "the run was released, and is claimed again at once"


def test_lease_of_a_claim_that_waited_for_the_lock_counts_from_its_write(tmp_path: Path) -> None:
    wall = Wall()
    with closing(SqliteStore(str(tmp_path / "p.db"), clock=wall)) as store:
        due_check(store, wall.now_ms())
        hand = Hand()
        hand.now_ms = wall.now_ms  # type: ignore[method-assign]
        sender = sender_of(System(load_settings(check_lease="5s"), store, hand), hand, Metrics())
        asked_ms = wall.now_ms()
        with locked(tmp_path / "p.db", 1.2):
            sender.turn()
        [order] = hand.started
        assert order.lease_until_ms >= asked_ms + 1_100 + 5_000
