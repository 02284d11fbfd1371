"""The real daemon as a process, with model providers over real HTTP: order, pace, pauses, `kill -9`, drain."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import random
import signal
import statistics
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.adapters.vault import SecretVault
from paceline.core.batches.batch import RecordSpec, day_at
from paceline.core.batches.values import CallRun, PutProvider
from paceline.core.ids import call_run_id
from paceline.simulators.http import ModelHttpServer
from paceline.simulators.providers import Arrival, ModelProviders, Script, serve_providers
from paceline.steps.batches.batches import get_batch, put_batch, put_records
from paceline.steps.batches.plan import plan_day
from paceline.steps.batches.providers import put_provider
from tests.shells.support.daemons import SECRET, free_port, now_ms, start_daemon, start_process

SEED = int(os.environ.get("PACELINE_KILL_SEED", "20261115"))
VAULT = SecretVault(hashlib.sha256(SECRET.encode()).digest())


class Stage:
    """One store in a folder, one batch, and the model providers that its records name."""

    def __init__(self, folder: Path, server: ModelHttpServer, model: ModelProviders) -> None:
        self.folder = folder
        self.server = server
        self.model = model
        self.store = SqliteStore(str(folder / "p.db"))

    def provider(self, name: str, script: Script = Script(), **fields: Any) -> None:  # noqa: B008  frozen
        self.model.behave(name, script)
        body = {"base_url": f"{self.server.base_url}/{name}", "timeout": "1s", **fields}
        put_provider(self.store, VAULT, name, json.dumps(body).encode(), now_ms=now_ms())

    def pause(self, name: str, *, paused: bool) -> None:
        stored = self.store.provider(name)
        assert stored is not None
        spec = msgspec.structs.replace(stored.spec, paused=paused)
        self.store.put_provider(PutProvider(name, spec), now_ms=now_ms())

    def batch(self, records: dict[str, int], **fields: Any) -> None:
        """Makes the batch with this many records for each provider."""
        put_batch(self.store, "b", json.dumps(fields).encode(), now_ms=now_ms())
        specs = [
            RecordSpec(f"{name}-{n}", name, f"query?n={n}", json.dumps({"n": n, "of": name}))
            for name, count in records.items()
            for n in range(count)
        ]
        put = put_records(self.store, get_batch(self.store, "b"), specs, now_ms=now_ms())
        assert {one.disposition for one in put} == {"created"}

    def plan(self) -> None:
        """Late, so that a quarter of the window's length is left for it."""
        batch = get_batch(self.store, "b")
        plan_day(self.store, batch, day_at(batch.spec, now_ms()), now_ms=now_ms())

    def runs(self) -> list[CallRun]:
        """Returns the runs in due order."""
        batch = get_batch(self.store, "b")
        found: list[CallRun] = []
        for day in self.store.days(batch, before=None, limit=10):
            after: int | None = 0
            while after is not None:
                page, after = self.store.day_runs(day, state=None, provider=None, after=after, limit=1_000)
                found += page
        return sorted(found, key=lambda run: (run.due_ms, run.record))

    def states(self) -> Counter[str]:
        return Counter(run.state for run in self.runs())

    def ended(self, count: int, *, within_s: float = 90.0) -> Counter[str]:
        """Waits until this many runs have ended."""
        ends = {"done", "failed", "unknown", "skipped"}
        wait_for(lambda: sum(n for s, n in self.states().items() if s in ends) >= count, self.states, within_s=within_s)
        return self.states()

    def arrived(self, count: int, name: str | None = None) -> list[Arrival]:
        wait_for(lambda: len(self.model.arrivals(name)) >= count, self.states, within_s=90)
        return self.model.arrivals(name)


UP = "Paceline is up"


def wait_for(true: Callable[[], bool], say: Callable[[], object], *, within_s: float) -> None:
    until_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until_s, say()
        time.sleep(0.05)


def key_of(run: CallRun) -> str:
    return call_run_id(run.batch, run.record, run.date)


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[Stage]:
    server, model = serve_providers()
    with server:
        opened = Stage(tmp_path, server, model)
        yield opened
        opened.store.close()


@contextmanager
def worker(stage: Stage, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon without the API; whatever the test did to it, it is gone afterwards."""
    log = stage.folder / "daemon.log"
    starts = log.read_text().count(UP) if log.exists() else 0
    process = start_process(stage.folder, "worker", PACELINE_CALL_LEASE="500ms", **settings)
    try:
        # Before that message, signals are not handled.
        wait_for(lambda: log.read_text().count(UP) > starts, log.read_text, within_s=90)
        yield process
    finally:
        process.kill()
        process.wait()


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(90) == 0, "SIGTERM drains and exits 0"


def test_promise_6_each_run_goes_to_its_provider_evenly_in_order_and_no_more_than_allowed_at_once(
    stage: Stage,
) -> None:
    stage.provider("north", Script(latency_ms=30), headers={"X-Key": "canary-4711"})
    stage.provider("south", Script(latency_ms=300), max_in_flight=3)
    stage.batch({"north": 25, "south": 25}, window="20s")
    with worker(stage) as process:
        time.sleep(1.5)  # it is there before the window begins
        stage.plan()
        assert stage.ended(50) == {"done": 50}
        stop(process)
    for name, others_max in (("north", 0), ("south", 2)):
        arrivals = stage.model.arrivals(name)
        runs = [run for run in stage.runs() if run.provider == name]
        assert [one.key for one in arrivals] == [key_of(run) for run in runs], "in due order"
        assert max(one.others for one in arrivals) <= others_max
        late_ms = [one.at_ms - run.due_ms for one, run in zip(arrivals, runs, strict=True)]
        assert min(late_ms) >= -1, "nothing starts before its time"
        assert statistics.median(late_ms) < 100
        gaps_ms = [(b.at_s - a.at_s) * 1_000 for a, b in itertools.pairwise(arrivals)]
        assert statistics.median(gaps_ms) == pytest.approx(200, abs=60)
    first = stage.model.arrivals("north")[0]
    number = json.loads(first.body)["n"]
    assert (first.method, first.target) == ("POST", f"/north/query?n={number}")
    assert json.loads(first.body) == {"n": number, "of": "north"}
    assert (first.key.partition("@")[0], first.headers["X-Key"]) == (f"b/north-{number}", "canary-4711")
    run = stage.runs()[0]
    assert (run.code, run.payload, run.attempt) == (200, '{"ok": true}', 1)
    assert run.latency_ms is not None
    assert stage.store.verify() == []
    for file in stage.folder.iterdir():
        assert b"canary-4711" not in file.read_bytes(), file.name


def settled_count(count: Callable[[], int]) -> int:
    """Returns the count once it has stayed the same for a second."""
    seen, since_s, until_s = count(), time.monotonic(), time.monotonic() + 60
    while time.monotonic() - since_s < 1:
        assert time.monotonic() < until_s, "the count keeps changing"
        time.sleep(0.05)
        if (now := count()) != seen:
            seen, since_s = now, time.monotonic()
    return seen


def test_a_day_is_planned_by_the_daemon_itself_when_its_window_begins(stage: Stage) -> None:
    stage.provider("north")
    with worker(stage) as process:
        # Not before it works: on a busy machine its start takes longer than the time to the window.
        start = datetime.now(UTC) + timedelta(seconds=6)
        stage.batch({"north": 10}, start=f"{start:%H:%M:%S}", window="5s")
        assert stage.runs() == []
        assert stage.ended(10) == {"done": 10}
        stop(process)
    runs = stage.runs()
    assert {run.date for run in runs} == {f"{start:%Y-%m-%d}"}
    assert runs[0].due_ms == int(start.timestamp()) * 1_000
    assert max(run.due_ms for run in runs) < runs[0].due_ms + 5_000
    assert min((run.started_ms or 0) - run.due_ms for run in runs) >= 0


def test_promise_7_a_paused_provider_starts_nothing_and_catches_up_without_a_burst(stage: Stage) -> None:
    stage.provider("north", Script(latency_ms=5))
    stage.provider("south", Script(latency_ms=5))
    stage.batch({"north": 40, "south": 40}, window="32s")
    with worker(stage) as process:
        stage.plan()
        stage.arrived(8, "north")
        stage.pause("north", paused=True)
        before = settled_count(lambda: len(stage.model.arrivals("north")))  # what was on its way has arrived
        meanwhile = len(stage.model.arrivals("south"))
        time.sleep(2)
        assert len(stage.model.arrivals("north")) == before
        assert len(stage.model.arrivals("south")) > meanwhile, "the others go on"
        stage.pause("north", paused=False)
        resumed_ms = now_ms()
        assert stage.ended(80) == {"done": 80}
        stop(process)
    late = [one for one in stage.model.arrivals("north") if one.at_ms >= resumed_ms]
    # 200 ms apart by plan, and never faster than four times that: in any half second ten, and one at its edge.
    in_half_a_second = max(sum(0 <= b.at_s - a.at_s <= 0.5 for b in late) for a in late)
    assert in_half_a_second <= 12
    assert [one.key for one in stage.model.arrivals("north")] == [
        key_of(run) for run in stage.runs() if run.provider == "north"
    ]


@pytest.mark.slow
def test_promise_10_kill_minus_nine_loses_no_run_and_repeats_nothing_that_was_settled(stage: Stage) -> None:
    print(f"seed {SEED}: run again with PACELINE_KILL_SEED={SEED}")
    chance = random.Random(SEED)
    names = [f"p{n}" for n in range(8)]
    for name in names:
        stage.provider(name, Script(latency_ms=20), max_in_flight=1 if name < "p4" else 4)
    stage.batch(dict.fromkeys(names, 75), window="24s")
    settled_before: list[tuple[set[str], Counter[str]]] = []
    stage.plan()
    for _ in range(3):
        with worker(stage) as process:
            time.sleep(1.2 + chance.random() * 1.5)
            process.send_signal(signal.SIGKILL)
            process.wait()
        time.sleep(0.1)  # what was on its way arrives
        settled = {key_of(run) for run in stage.runs() if run.state == "done"}
        settled_before.append((settled, Counter(one.key for one in stage.model.arrivals())))
    with worker(stage) as process:
        assert stage.ended(600, within_s=60) == {"done": 600}
        stop(process)
    assert "clock_set_back" not in (stage.folder / "daemon.log").read_text(), "the clock was not set"
    assert settled_before[-1][0], "the load never settled anything"
    arrivals = Counter(one.key for one in stage.model.arrivals())
    for settled, seen in settled_before:
        assert [key for key in settled if arrivals[key] != seen[key]] == [], "a settled run was called again"
    for name in names:
        assert set(stage.model.effects(name).values()) == {1}
        assert len(stage.model.effects(name)) == 75
    assert stage.store.verify() == []


def test_promise_9_a_call_cut_by_kill_minus_nine_is_unknown_under_hold_and_not_repeated(stage: Stage) -> None:
    stage.provider("north", Script(latency_ms=900), unknown="hold")
    stage.batch({"north": 3}, window="4s")
    stage.plan()
    with worker(stage) as process:
        (first,) = stage.arrived(1)
        process.send_signal(signal.SIGKILL)
        process.wait()
    with worker(stage) as process:
        assert stage.ended(3) == {"unknown": 1, "done": 2}
        stop(process)
    (unknown,) = [run for run in stage.runs() if run.state == "unknown"]
    assert key_of(unknown) == first.key
    assert unknown.dead
    assert Counter(one.key for one in stage.model.arrivals())[first.key] == 1
    assert stage.store.verify() == []


def test_promise_9_a_reply_that_was_lost_is_looked_up_before_anything_is_sent_again(stage: Stage) -> None:
    stage.provider(
        "north",
        Script(lost_every=3, honours_keys=False),
        unknown="look_up",
        look_up="/calls/{run}",
        retry={"base": "50ms"},
    )
    stage.batch({"north": 12}, window="8s")
    stage.plan()
    with worker(stage) as process:
        assert stage.ended(12) == {"done": 12}
        stop(process)
    assert set(stage.model.effects("north").values()) == {1}
    assert len(stage.model.arrivals("north")) == 12


def test_429_with_retry_after_closes_the_provider_and_no_other(stage: Stage) -> None:
    stage.provider("busy", Script(busy_every=4, retry_after="1"), max_in_flight=4, retry={"base": "10ms"})
    stage.provider("free", Script())
    stage.batch({"busy": 8, "free": 8}, window="4s")
    stage.plan()
    with worker(stage) as process:
        assert stage.ended(16) == {"done": 16}
        stop(process)
    arrivals = stage.model.arrivals("busy")
    refused = [one for one in arrivals if one.status == 429]
    assert refused
    for one in refused:
        # Calls that were on their way when the answer came are not held back.
        after_s = [other.at_s - one.at_s for other in arrivals if other.at_s > one.at_s + 0.1]
        assert not after_s or min(after_s) > 0.95
    assert {run.attempt for run in stage.runs() if run.provider == "free"} == {1}


def test_sigterm_lets_calls_in_flight_end_and_starts_no_more(stage: Stage) -> None:
    stage.provider("slow", Script(latency_ms=1_500), timeout="10s", max_in_flight=5)
    stage.batch({"slow": 20}, window="4s")
    stage.plan()
    with worker(stage) as process:
        stage.arrived(5)
        stop(process)
    states = stage.states()
    assert (states["done"], states["waiting"]) == (5, 15)
    assert len(stage.model.arrivals()) == 5
    assert stage.store.verify() == []


def test_the_figures_of_a_batch_are_in_metrics_and_status(stage: Stage) -> None:
    stage.provider("north", Script())
    stage.provider("wrong", Script(status=422))
    stage.batch({"north": 5, "wrong": 2}, window="4s")
    stage.plan()
    port = free_port()
    process = start_daemon(stage.folder, port)
    try:
        assert stage.ended(7) == {"done": 5, "failed": 2}
        time.sleep(1.1)  # gauges are read once a second
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        stop(process)
    finally:
        process.kill()
        process.wait()
    for line in (
        'paceline_runs_total{kind="batch",outcome="done"} 5.0',
        'paceline_runs_total{kind="batch",outcome="failed"} 2.0',
        "paceline_dead_letters 2.0",
        "paceline_calls_waiting 0.0",
        "paceline_calls_in_flight 0.0",
        "paceline_call_lateness_seconds_count 7.0",
    ):
        assert line in text
    status = stage.store.status()
    assert (status.providers, status.batches, status.calls_waiting, status.dead_letters) == (2, 1, 0, 2)
