"""Loops of alerts and webhooks with one user whose receivers hang, and another who must not notice (promise 13)."""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.adapters.vault import SecretVault
from paceline.config import load_settings
from paceline.core.alerts.alert import Alert, Event, alert_id
from paceline.core.alerts.channel import ChannelBody
from paceline.core.batches.calls import CallResult
from paceline.core.users import UserEdit
from paceline.shells.daemon.alerts import AlertEngine, Alerts
from paceline.shells.daemon.in_flight import InFlight
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.daemon.tries import Tries
from paceline.shells.daemon.webhooks import Webhooks
from paceline.steps.alerts.channels import put_channel
from paceline.wiring import System, SystemClock
from tests.contract.support.job_stage import admitted, limit
from tests.contract.support.stage import T0_MS, user
from tests.shells.support.daemons import SECRET, new_user, now_ms
from tests.shells.support.job_daemons import KEY
from tests.support.hook_receiver import hook_receiver

VAULT = SecretVault(KEY)
PLACES, PLACES_PER_USER = 50, 40
MANY = 2_000
DEADLINE_S = 90
"""While hanging messages held all places, the other user's alert waited for more than six minutes."""


class SteppingClock:
    """A wall clock that the test sets."""

    ms = T0_MS + 1_000

    def now_ms(self) -> int:
        return self.ms


class HangingEdge:
    """Receivers that answer only when the test says so."""

    def __init__(self) -> None:
        self.out: list[Any] = []
        self.started: list[str] = []
        self._ended: list[CallResult] = []

    @property
    def in_flight(self) -> int:
        return len(self.out)

    def start(self, orders: Sequence[Any]) -> None:
        self.out += orders
        self.started += [order.url for order in orders]

    def end(self, url: str, *, code: int) -> None:
        order = next(one for one in self.out if one.url == url)
        self.out.remove(order)
        self._ended.append(CallResult(order.handle, order.attempt, T0_MS, T0_MS, code=code))

    def finished(self, *, wait_ms: int) -> list[CallResult]:
        del wait_ms
        ended, self._ended = self._ended, []
        return ended

    def wake(self) -> None: ...
    def close(self) -> None: ...


def url_of(owner: str) -> str:
    return f"https://{owner}.example.org/hook"


def give_channel(store: SqliteStore, owner: str, url: str, *, at_ms: int) -> None:
    put_channel(store, VAULT, owner, "ops", ChannelBody("webhook", url, default=True), now_ms=at_ms)


def add_alerts(store: SqliteStore, owner: str, many: int, *, at_ms: int) -> None:
    causes = [f"{owner}/{at_ms}/{number}" for number in range(many)]
    event: Event = "monitor.failing" if owner else "account.quarantined"
    store.add_alerts([Alert(alert_id(event, cause), event, at_ms, owner, "home") for cause in causes])


def due_alerts(store: SqliteStore, owner: str, many: int, *, at_ms: int) -> None:
    give_channel(store, owner, url_of(owner), at_ms=at_ms)
    add_alerts(store, owner, many, at_ms=at_ms)


def due_webhooks(store: SqliteStore, owner: str, many: int, *, at_ms: int) -> None:
    limit(store, 10**9, owner=owner)
    for _ in range(many):
        store.cancel_job(admitted(store, 1, owner=owner, webhook=url_of(owner)).number, now_ms=at_ms)
    store.finish_jobs(now_ms=at_ms, limit=many)


class Scene:
    """One loop on a clock that stands still."""

    def __init__(self, kind: type[Tries[Any, Any]]) -> None:
        self.store = SqliteStore(":memory:")
        self.clock = SteppingClock()
        self.edge = HangingEdge()
        system = System(load_settings(secret_key=SECRET), self.store, self.clock)
        work = kind(system, self.edge, Metrics(), chance=lambda: 0.5)
        self.loop = InFlight(work, clock=self.clock, remote=False)
        self._make_due = due_alerts if kind is Alerts else due_webhooks
        for name in ("ann", "bob"):
            self.store.add_user(user(name))

    def due(self, owner: str, many: int) -> None:
        self._make_due(self.store, owner, many, at_ms=self.clock.ms)

    def turn(self, turns: int = 1, *, after_ms: int = 0) -> Counter[str]:
        """Turns the loop; returns the users whose tries it has started."""
        before = len(self.edge.started)
        self.clock.ms += after_ms
        for _ in range(turns):
            self.loop.turn()
        return Counter(url.removeprefix("https://").split(".")[0] for url in self.edge.started[before:])


@pytest.fixture(params=[Alerts, Webhooks], ids=["alerts", "webhooks"])
def scene(request: pytest.FixtureRequest) -> Iterator[Scene]:
    opened = Scene(request.param)
    with closing(opened.store):
        yield opened


def test_promise_13_hanging_receivers_of_one_user_do_not_stop_a_try_of_another(scene: Scene) -> None:
    scene.due("ann", 300)
    assert scene.turn(3) == {"ann": PLACES_PER_USER}
    scene.clock.ms += 10
    scene.due("bob", 2)
    assert scene.turn(after_ms=1_000) == {"bob": 2}
    assert scene.turn(3, after_ms=1_000) == {}


def test_freed_place_is_given_at_once_to_a_try_that_waits(scene: Scene) -> None:
    scene.due("ann", 300)
    scene.turn(3)
    for code in (204, 500, 204):
        scene.edge.end(url_of("ann"), code=code)
        assert scene.turn(2) == {"ann": 1}, "without a look at the clock, which stands still"
    assert scene.edge.in_flight == PLACES_PER_USER


def test_places_are_full_only_if_many_users_have_tries(scene: Scene) -> None:
    names = [f"u{number}" for number in range(PLACES + 10)]
    for name in names:
        scene.store.add_user(user(name))
        scene.due(name, 1)
    assert scene.turn(3).total() == PLACES
    left = set(names) - {url.removeprefix("https://").split(".")[0] for url in scene.edge.started}
    scene.edge.end(scene.edge.started[0], code=204)
    [(name, _)] = scene.turn(2).items()
    assert name in left


def test_alerts_for_admins_are_passed_on_while_all_places_are_taken() -> None:
    scene = Scene(Alerts)
    with closing(scene.store):
        for number in range(PLACES):
            scene.store.add_user(user(f"u{number}"))
            scene.due(f"u{number}", 1)
        scene.store.edit_user("ann", UserEdit(role="admin"))
        assert scene.turn(3).total() == PLACES
        add_alerts(scene.store, "", 1, at_ms=scene.clock.ms)
        assert scene.turn(3, after_ms=1_000) == {}
        assert len(scene.store.alerts("ann", since_ms=0, before=None, limit=9)) == 1


def wait_for(met: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + DEADLINE_S
    while not met():
        assert time.monotonic() < until_s, what
        time.sleep(0.05)


def test_promise_13_alerts_to_a_receiver_that_hangs_do_not_delay_those_of_another_user(tmp_path: Path) -> None:
    for name in ("ann", "bob"):
        new_user(tmp_path, name)
    store = SqliteStore(str(tmp_path / "p.db"))
    settings = load_settings(secret_key=SECRET, outbound_allow="127.0.0.0/8")
    engine = AlertEngine(System(settings, store, SystemClock()), Metrics(), own=[])
    with closing(store), hook_receiver() as receiver, socket.create_server(("127.0.0.1", 0), backlog=1_024) as hangs:
        give_channel(store, "ann", f"http://127.0.0.1:{hangs.getsockname()[1]}/", at_ms=now_ms())
        give_channel(store, "bob", receiver.url, at_ms=now_ms())
        add_alerts(store, "ann", MANY, at_ms=now_ms())
        engine.loop.start()
        try:
            wait_for(lambda: len(store.open_alerts_after(now_ms(), limit=PLACES)) > 20, "ann's messages are begun")
            add_alerts(store, "bob", 1, at_ms=now_ms())
            wait_for(lambda: len(receiver.calls) == 1, "bob's alert is sent while ann's messages hang")
        finally:
            engine.hurry()
            engine.loop.stop()
            engine.drain()
