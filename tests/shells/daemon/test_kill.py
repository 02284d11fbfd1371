"""The real daemon on a real file, under load, killed with `kill -9` again and again: nothing acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter
from pathlib import Path
from urllib.parse import quote

import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.alerting.record import ALERTS_PER_HOUR_MAX, NO_RECORD
from paceline.core.monitors.definition import Monitor
from paceline.simulators.http import ModelHttpServer
from tests.shells.support.daemons import Api, free_port, new_user, now_ms, start_daemon

SEED = int(os.environ.get("PACELINE_KILL_SEED", "20261115"))
ROUNDS = int(os.environ.get("PACELINE_KILL_ROUNDS", "6"))


class Ledger:
    """What the daemon acknowledged, as its users remember it."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.wanted: dict[str, str | None] = {}
        """The interval that an acknowledged put gave a monitor; None: an acknowledged delete."""
        self.unsure: set[str] = set()
        self.settled: dict[str, str] = {}
        self.claimed_after_settled: list[str] = []
        self.fences: Counter[tuple[str, str]] = Counter()


def writer(api: Api, ledger: Ledger, chance: random.Random, stop: threading.Event, name: str) -> None:
    """Puts, edits and deletes its own monitors, and remembers what was acknowledged."""
    while not stop.is_set():
        monitor = f"{name}-{chance.randrange(6)}"
        if chance.random() < 0.25:
            answer = api("DELETE", f"/v1/users/me/monitors/{monitor}")
            done, value = answer is not None and answer[0] in (204, 404), None
        else:
            value = f"{chance.randrange(1, 4)}s"
            answer = api("PUT", f"/v1/users/me/monitors/{monitor}", {"check": {"kind": "outgoing"}, "every": value})
            done = answer is not None and answer[0] in (200, 201)
        with ledger.lock:
            ledger.unsure.discard(monitor) if done else ledger.unsure.add(monitor)
            ledger.wanted[monitor] = value
        time.sleep(0.002 if done else 0.05)


def checker(api: Api, ledger: Ledger, stop: threading.Event) -> None:
    """Claims outgoing runs and settles them."""
    while not stop.is_set():
        answer = api("POST", "/v1/outgoing/claim", {"max": 20, "lease": "2s", "wait": "1s"})
        if answer is None or answer[0] != 200:
            time.sleep(0.05)
            continue
        for item in answer[1]["items"]:
            with ledger.lock:
                ledger.fences[item["run"], item["lease"]] += 1
                if item["run"] in ledger.settled:
                    ledger.claimed_after_settled.append(item["run"])
            path = f"/v1/runs/{quote(item['run'], safe='')}/outcome"
            settled = api("POST", path, {"lease": item["lease"], "status": "ok", "detail": {"by": item["lease"]}})
            if settled is not None and settled[0] == 200:
                with ledger.lock:
                    ledger.settled[item["run"]] = item["lease"]


@pytest.mark.slow
def test_promise_10_kill_minus_nine_loses_nothing_acknowledged_and_repeats_nothing_settled(tmp_path: Path) -> None:
    print(f"seed {SEED}: run again with PACELINE_KILL_SEED={SEED}")
    chance = random.Random(SEED)
    token = new_user(tmp_path, "ann")
    port, ledger, stop = free_port(), Ledger(), threading.Event()
    api = Api(port, token)
    with ModelHttpServer(seed=SEED) as server:
        process = start_daemon(tmp_path, port)
        for index in range(40):
            check = {"kind": "http", "url": f"{server.base_url}/ok"}
            assert api("PUT", f"/v1/users/me/monitors/web-{index}", {"check": check, "every": "1s"}) is not None
        for index in range(5):
            check = {"kind": "http", "url": f"{server.base_url}/flap"}
            assert api("PUT", f"/v1/users/me/monitors/flap-{index}", {"check": check, "every": "1s"}) is not None
        workers = [
            threading.Thread(target=writer, args=(api, ledger, random.Random(SEED + n), stop, f"w{n}"))
            for n in range(4)
        ] + [threading.Thread(target=checker, args=(api, ledger, stop)) for _ in range(3)]
        for worker in workers:
            worker.start()
        for _ in range(ROUNDS):
            time.sleep(0.4 + chance.random() * 1.2)
            process.send_signal(signal.SIGKILL)
            process.wait()
            process = start_daemon(tmp_path, port)
        time.sleep(1)
        stop.set()
        for worker in workers:
            worker.join()
        time.sleep(3.5)  # leases of the last kill run out, and what they held is done again
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, "SIGTERM drains and exits 0"
    assert "clock_set_back" not in (tmp_path / "daemon.log").read_text(), "the clock was not set"
    check_the_file(tmp_path / "p.db", ledger)


def check_the_file(path: Path, ledger: Ledger) -> None:
    store = SqliteStore(str(path))
    assert store.verify() == []
    monitors = {monitor.id: monitor for monitor in store.monitors("ann", after="", limit=1_000)}
    for name, every in ledger.wanted.items():
        if name in ledger.unsure:
            continue
        have = monitors[name].spec.every if name in monitors else None
        assert have == every, f"monitor {name} was acknowledged with {every} and is {have}"
    assert ledger.settled, "the load never settled anything"
    assert ledger.claimed_after_settled == [], "a settled run came back"
    assert max(ledger.fences.values()) == 1, "one attempt was handed out twice"
    for monitor in monitors.values():
        runs = store.monitor_runs(monitor, before=None, limit=1_000, now_ms=now_ms())
        assert [run.counter for run in runs] == list(range(len(runs) - 1, -1, -1)), f"{monitor.id}: a run is missing"
        assert len({run.due_ms for run in runs}) == len(runs), f"{monitor.id}: a slot fired twice"
        for run in runs:
            settled_by = ledger.settled.get(f"ann/{monitor.id}#{run.generation}@{run.counter}")
            if settled_by is not None:
                assert (run.state, run.detail) == ("ok", {"by": settled_by}), f"{monitor.id}: an outcome was lost"
    web = [
        run
        for name in monitors
        if name.startswith("web-")
        for run in store.monitor_runs(monitors[name], before=None, limit=1_000, now_ms=now_ms())
    ]
    check_the_alerts(store, [monitor for name, monitor in monitors.items() if name.startswith("flap-")])
    states = Counter(run.state for run in web)
    assert states["ok"] > 40, states
    assert set(states) <= {"ok", "failed", "waiting", "out", "parked", "retry"}, states
    store.close()


def check_the_alerts(store: SqliteStore, monitors: list[Monitor]) -> None:
    """Each change of health in the recorded history raised one alert, in order, up to the hourly limit."""
    alerts = [record.alert for record in store.alerts("ann", since_ms=0, before=None, limit=1_000)]
    assert len(monitors) == 5
    for monitor in monitors:
        runs = store.monitor_runs(monitor, before=None, limit=1_000, now_ms=now_ms())
        wanted: list[tuple[str, str]] = []
        failing = False
        for run in reversed(runs):
            if run.state in ("ok", "failed") and failing != (run.state == "failed"):
                failing = not failing
                event = "monitor.failing" if failing else "monitor.recovered"
                wanted.append((event, f"ann/{monitor.id}#{run.generation}@{run.counter}"))
        told = sorted((alert for alert in alerts if alert.subject == monitor.id), key=lambda alert: alert.at_ms)
        assert [(alert.event, alert.data["run"]) for alert in told] == wanted[:ALERTS_PER_HOUR_MAX]
        record = store.health_records([monitor.generation]).get(monitor.generation, NO_RECORD)
        assert record.failing == failing
        assert record.held_back == max(len(wanted) - ALERTS_PER_HOUR_MAX, 0)
        assert wanted, "nothing changed"
