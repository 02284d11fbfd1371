"""The keeper keeps up with what is made, and the ticker takes larger batches when it is behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.config import load_settings
from paceline.core.alerts.alert import Alert
from paceline.core.monitors.alerting.found import LATE_TOLD_MS
from paceline.core.monitors.checks import HttpCheck, OutgoingCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.values import CHECKS, PutMonitor, Settlement
from paceline.core.users import User
from paceline.shells.daemon.keeper import Keeper
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.daemon.monitors import Ticker
from paceline.steps.monitors import define
from paceline.steps.monitors.tick import ENTRIES_BEHIND_MAX, ENTRIES_MAX, next_entries_max
from paceline.steps.upkeep.purge import RUNS_MAX
from paceline.wiring import System

T0_MS = 1_800_000_000_000
SECRET = "0123456789abcdef0123456789abcdef"
TURNS_MAX = 1_000
RESTS = 5


class SteppingClock:
    """A wall clock that the test sets."""

    def __init__(self, ms: int) -> None:
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture
def clock() -> SteppingClock:
    return SteppingClock(T0_MS)


@pytest.fixture
def system(clock: SteppingClock) -> Iterator[System]:
    with closing(SqliteStore(":memory:")) as store:
        store.add_user(User("ann", "user", 0, disabled=False, created_ms=T0_MS))
        yield System(load_settings(runs_keep="1m", runs_expire="2m", secret_key=SECRET), store, clock)


def test_keeper_deletes_faster_than_runs_are_made_so_that_the_ledger_does_not_grow(
    system: System, clock: SteppingClock
) -> None:
    _put(system, 2 * RUNS_MAX + 1)
    keeper = Keeper(system, Metrics(), loops=list)
    ticker = Ticker(system, Metrics(), made=lambda: None, keep_on=lambda: True)
    kept: list[int] = []
    for _ in range(6):
        clock.ms += 60_000
        ticker.turn()
        _settle_all(system, clock.ms)
        _turn_until_it_rests(keeper)
        kept.append(_runs(system))
    assert kept[1] > 2 * RUNS_MAX
    assert kept[-1] <= kept[1], "what was kept long enough goes as fast as it is made"
    assert system.store.verify() == []


def test_keeper_ends_unclaimed_runs_and_pauses_between_its_passes(system: System, clock: SteppingClock) -> None:
    _put(system, 2 * RUNS_MAX + 1, outgoing=True)
    ticker = Ticker(system, Metrics(), made=lambda: None, keep_on=lambda: True)
    ticker.turn()
    assert system.store.status().runs_waiting == 2 * RUNS_MAX + 1
    clock.ms += 3 * 60_000
    keeper = Keeper(system, Metrics(), loops=list)
    pauses_ms = _turn_until_it_rests(keeper)
    assert len(pauses_ms) >= 2
    assert all(Keeper.PAUSE_MS_MIN <= pause_ms <= Keeper.TURN_MS for pause_ms in pauses_ms)
    assert system.store.status().runs_waiting == 0


def test_ticker_that_is_behind_takes_more_at_once_and_then_fewer_again(system: System) -> None:
    assert [next_entries_max(full=full) for full in (False, True)] == [ENTRIES_MAX, ENTRIES_BEHIND_MAX]
    _put(system, 3 * ENTRIES_MAX)
    metrics = Metrics()
    Ticker(system, metrics, made=lambda: None, keep_on=lambda: True).turn()
    assert system.store.status().runs_waiting == 3 * ENTRIES_MAX
    assert "paceline_ticks_total 2.0" in metrics.render().decode(), "a full pass, and a larger one for all the rest"


def _put(system: System, count: int, *, outgoing: bool = False) -> None:
    check = OutgoingCheck({"kind": "outgoing"}) if outgoing else HttpCheck(url="http://example.org/")
    spec = MonitorSpec(check=check, every="60s", initial_delay="0s")
    puts = [PutMonitor("ann", f"m{number}", spec) for number in range(count)]
    define.put_monitors(system.store, puts, monitors_max=count, now_ms=T0_MS)


def _settle_all(system: System, now_ms: int, *, ok: bool = True) -> None:
    items = system.store.claim(CHECKS, now_ms=now_ms, runs_max=100_000, lease_ms=60_000)
    done = [Settlement(item.handle, item.attempt, Done(ok=ok), started_ms=now_ms, ended_ms=now_ms) for item in items]
    assert all(system.store.settle(done))


def _turn_until_it_rests(keeper: Keeper) -> list[int]:
    """Turn until there is nothing left to do, and return the pauses between the passes.

    The loop turns again after the pause that a turn asks for; the clock of the test stands still meanwhile. On a busy
    machine a pass takes so long that its pause looks like a rest, but not many times in a row.
    """
    pauses_ms: list[int] = []
    rests = 0
    while rests < RESTS:
        pause_ms = keeper.turn().sleep_ms
        rests = rests + 1 if pause_ms == Keeper.TURN_MS else 0
        pauses_ms.append(pause_ms)
        assert len(pauses_ms) < TURNS_MAX
    return pauses_ms[:-RESTS]


def _runs(system: System) -> int:
    assert isinstance(system.store, SqliteStore)
    with system.store._db.read() as db:
        return int(db.execute("SELECT count(*) FROM run").get)


def test_keeper_alerts_late_runs_only_after_it_has_run_that_long_itself(system: System, clock: SteppingClock) -> None:
    system = System(load_settings(runs_expire="1d", secret_key=SECRET), system.store, clock)
    _put(system, 3, outgoing=True)
    Ticker(system, Metrics(), made=lambda: None, keep_on=lambda: True).turn()
    clock.ms += LATE_TOLD_MS + 60_000  # nothing ran meanwhile, and checkers could not claim
    keeper = Keeper(system, Metrics(), loops=list)
    told: list[int] = []
    for _ in range(8):
        keeper.turn()
        told.append(len(_alerts(system)))
        clock.ms += 60_000
    assert told == [0, 0, 0, 0, 0, 3, 3, 3]
    assert {alert.event for alert in _alerts(system)} == {"monitor.late"}


def test_keeper_closes_the_hour_of_a_monitor_that_flaps(system: System, clock: SteppingClock) -> None:
    _put(system, 1)
    ticker = Ticker(system, Metrics(), made=lambda: None, keep_on=lambda: True)
    keeper = Keeper(system, Metrics(), loops=list)
    for number in range(10):
        ticker.turn()
        _settle_all(system, clock.ms, ok=number % 2 == 1)
        clock.ms += 60_000
    assert len(_alerts(system)) == 6
    clock.ms += 50 * 60_000
    for _ in range(3):
        keeper.turn()
        clock.ms += 10_000
    newest = _alerts(system)[0]
    assert (len(_alerts(system)), newest.event, newest.data["held_back"]) == (7, "monitor.flapping", 4)


def _alerts(system: System) -> list[Alert]:
    return [record.alert for record in system.store.alerts("ann", since_ms=0, before=None, limit=100)]
