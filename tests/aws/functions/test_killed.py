"""The deployment's functions, killed with `kill -9` in the middle of their work, lose, double and mix up nothing."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paceline.simulators.providers import Script
from tests.aws.support.deployment import PREFIX
from tests.aws.support.lambda_scene import DEAD, MINUTE_MS, Scene, ms_of, open_scene

pytestmark = [pytest.mark.aws, pytest.mark.slow]
SEED = int(os.environ.get("PACELINE_KILL_SEED", "20261116"))
KILLS = {"sender": 5, "ticks": 3, "schedulers-stream": 1, "sweeper": 1, "plan": 1}
RECORDS = 15
PROVIDERS = {"north": RECORDS, "south": RECORDS}
MONITORS = {"web-1": 5 * MINUTE_MS, "web-2": 10 * MINUTE_MS}
HOUR_MS = 60 * MINUTE_MS
# A function that has to start again needs a second or two: ten minutes and more of this clock.
SETTINGS = {"PACELINE_CALL_LEASE": "20m", "PACELINE_CHECK_LEASE": "20m", "PACELINE_MISSED_GRACE": "1h"}
RATES = {"sweeper": "rate(3 minutes)", "plan-start": "rate(5 minutes)"}


class Killer:
    """Kills a function in the middle of its work, when chance has it, and lets the others go on for a while."""

    def __init__(self, scene: Scene, chance: random.Random) -> None:
        self.scene = scene
        self.chance = chance
        self.left = Counter(KILLS)
        self.again_ms = 0

    def __call__(self, busy: list[str]) -> None:
        running = [name.rpartition(f":{PREFIX}-")[2] for name in busy if not name.startswith("arn:")]
        wanted = [name for name in running if self.left[name] > 0]
        if not wanted or self.scene.clock.now_ms() < self.again_ms or self.chance.random() > 0.3:
            return
        name = self.chance.choice(wanted)
        for pid in self.scene.deployment.processes(name):
            os.kill(pid, signal.SIGKILL)
        self.left[name] -= 1
        self.again_ms = self.scene.clock.now_ms() + 2 * MINUTE_MS


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    """Five minutes before noon."""
    noon = datetime.now(UTC).replace(hour=12, minute=0, second=0, microsecond=0) + timedelta(days=2)
    start_ms = int(noon.timestamp() * 1_000) - 5 * MINUTE_MS
    with open_scene(tmp_path, start_ms=start_ms, settings=SETTINGS) as opened:
        opened.deployment.reschedule(RATES)
        yield opened


def test_promise_10_functions_killed_again_and_again_lose_nothing_and_double_nothing(scene: Scene) -> None:
    print(f"seed {SEED}: run again with PACELINE_KILL_SEED={SEED}")
    noon_ms = scene.clock.now_ms() // HOUR_MS * HOUR_MS + HOUR_MS
    for name in PROVIDERS:
        scene.model.behave(name, Script(latency_ms=30))
    for name, every_ms in MONITORS.items():
        scene.monitor(name, every_ms)
    scene.batch(PROVIDERS, {"start": "12:00", "window": "1h"})
    scene.meanwhile = killer = Killer(scene, random.Random(SEED))
    scene.run_until(noon_ms + HOUR_MS)
    scene.meanwhile = lambda _busy: None
    date = datetime.fromtimestamp(noon_ms / 1_000, UTC).date().isoformat()
    end_ms = noon_ms + 4 * HOUR_MS
    while scene.clock.now_ms() < end_ms and totals(scene, date) != {"done": sum(PROVIDERS.values())}:
        scene.run_until(scene.clock.now_ms() + 10 * MINUTE_MS)
    print(f"not killed {dict(+killer.left)}")
    assert killer.left["sender"] + killer.left["ticks"] <= 3, "too few were killed in the middle of their work"
    assert totals(scene, date) == {"done": sum(PROVIDERS.values())}
    for name in PROVIDERS:
        judge_provider(scene, date, name)
    for name, every_ms in MONITORS.items():
        judge_monitor(scene, name, every_ms)
    assert scene.deployment.depths(*DEAD, delayed=True) == dict.fromkeys(DEAD, 0)
    assert scene.check() == (0, "OK\n")


def totals(scene: Scene, date: str) -> dict[str, int]:
    found = scene.deployment.ask(200, "GET", f"/v1/batches/daily/days/{date}")["totals"]
    return {state: count for state, count in found.items() if count}


def judge_provider(scene: Scene, date: str, name: str) -> None:
    """A call whose function died may come a second time, with the same key, and in its place."""
    effects, arrivals = scene.model.effects(name), scene.model.arrivals(name)
    assert (len(effects), set(effects.values())) == (RECORDS, {1})
    wanted = [f"/{name}/{run['record']}" for run in scene.planned(date, name)]
    assert list(dict.fromkeys(one.target for one in arrivals)) == wanted, "out of order"
    again = [one.target for one in arrivals]
    assert again == sorted(again, key=wanted.index), "one was called again after its turn"
    assert max(one.others for one in arrivals) == 0, "two were out at once"


def judge_monitor(scene: Scene, name: str, every_ms: int) -> None:
    runs = scene.firings(name, every_ms)
    times_ms = [ms_of(run[part]) for run in runs for part in ("started_at", "ended_at")]
    assert times_ms == sorted(times_ms), "out of order, or two at a time"
    assert len(scene.model.arrivals(name)) >= len(runs)
