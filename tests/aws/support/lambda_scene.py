"""The deployment on a clock that the test moves: the emulator's, the functions' and that of the called targets."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

from paceline.simulators.http import ModelAnswer, ModelHttpServer, ModelRequest
from paceline.simulators.providers import ModelProviders
from tests.aws.support.deployment import PREFIX, Deployment, deployed
from tests.aws.support.virtual_clock import VirtualClock

EMULATOR = "tests.aws.support.hasty_ministack:app"
BUSY = "/_busy"
LEAP_BEYOND_MS = 100
"""Clocks are read one after the other, and what is due at this very moment is due."""
LOOK_S, IDLE_LOOKS = 0.01, 2
"""A state machine goes from one function to the next: once may be between the two."""
BEHIND_S_MAX = 120
MINUTE_MS = 60_000
DEAD = ("ticks-dead", "outgoing-dead", "runs-dead.fifo", "work-dead.fifo", "streams-dead")


class TimedProviders(ModelProviders):
    """Also records the time that the clock showed."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self.clock = clock
        self.seen: list[tuple[int, str]] = []

    def answer(self, request: ModelRequest) -> ModelAnswer:
        self.seen.append((self.clock.now_ms(), request.path))
        return super().answer(request)


@dataclass
class Scene:
    deployment: Deployment
    clock: VirtualClock
    model: TimedProviders
    url: str
    meanwhile: Callable[[list[str]], None] = lambda _busy: None
    """Called repeatedly with the work in progress."""

    def run_until(self, end_ms: int) -> None:
        """Waits for all work that is due at the current time, then moves the clock to the next due work."""
        next_ms = self.catch_up()
        while (now_ms := self.clock.now_ms()) < end_ms:
            leap_ms = end_ms if next_ms is None else min(next_ms + LEAP_BEYOND_MS, end_ms)
            self.clock.advance(max(leap_ms - now_ms, 1))
            next_ms = self.catch_up()

    def catch_up(self) -> int | None:
        """Returns when the next work is due."""
        end_s = time.monotonic() + BEHIND_S_MAX
        idle = 0
        while True:
            busy, next_ms = self.look()
            idle = 0 if busy else idle + 1
            if idle == IDLE_LOOKS:
                return next_ms
            assert time.monotonic() < end_s, (busy, self.deployment.aws.log.read_text()[-4_000:])
            if busy:
                self.meanwhile(busy)
            time.sleep(LOOK_S)

    def look(self) -> tuple[list[str], int | None]:
        """Returns the work in progress or due, and when the next work is due."""
        with urllib.request.urlopen(f"{self.deployment.aws.url}{BUSY}", timeout=60) as answer:  # noqa: S310  loopback
            told = json.loads(answer.read())
        return told["busy"], None if told["next_s"] is None else round(told["next_s"] * 1_000)

    def monitor(self, name: str, every_ms: int) -> None:
        spec = {"check": {"kind": "http", "url": f"{self.url}/{name}"}, "every": f"{every_ms // 1_000}s"}
        self.deployment.ask(201, "PUT", f"/v1/users/me/monitors/{name}", spec)

    def batch(self, providers: Mapping[str, int], spec: Mapping[str, Any]) -> None:
        """Makes a batch with this many records for each provider."""
        ask = self.deployment.ask
        for name in providers:
            ask(201, "PUT", f"/v1/providers/{name}", {"base_url": f"{self.url}/{name}"})
        ask(201, "PUT", "/v1/batches/daily", spec)
        items = [
            {"id": f"{name}-{n}", "provider": name, "endpoint": f"/{name}-{n}", "body": {}}
            for name, most in providers.items()
            for n in range(most)
        ]
        ask(200, "PUT", "/v1/batches/daily/records", {"items": items})

    def planned(self, date: str, provider: str) -> list[dict[str, Any]]:
        """Returns the planned runs by due time."""
        path = f"/v1/batches/daily/days/{date}/runs?provider={provider}&limit=1000"
        found: list[dict[str, Any]] = []
        cursor = ""
        while True:
            page = self.deployment.ask(200, "GET", f"{path}{cursor}")
            found += page["items"]
            if page["next_cursor"] is None:
                return sorted(found, key=lambda run: str(run["due"]))
            cursor = f"&cursor={page['next_cursor']}"

    def firings(self, name: str, every_ms: int) -> list[dict[str, Any]]:
        """Asserts that the monitor's runs are complete, without a duplicate, and all ok; returns them by due time."""
        runs: list[dict[str, Any]] = self.deployment.ask(200, "GET", f"/v1/users/me/monitors/{name}/runs?limit=1000")[
            "items"
        ]
        runs.sort(key=lambda run: str(run["due"]))
        dues_ms = [ms_of(run["due"]) for run in runs]
        assert {after - before for before, after in pairwise(dues_ms)} == {every_ms}, "a slot is missing or doubled"
        assert len(runs) == (self.clock.now_ms() - dues_ms[0]) // every_ms + 1
        assert {run["state"] for run in runs} == {"ok"}
        return runs

    def check(self) -> tuple[int, str]:
        """``paceline check`` of the deployment, at the time that it is there."""
        names = self.deployment.aws.environment | self.clock.environment
        names |= {"PACELINE_STORE": f"aws://?prefix={PREFIX}", "PACELINE_SECRET_KEY": self.deployment.secret}
        tool = Path(sys.executable).with_name("paceline")
        done = subprocess.run(
            [tool, "check"], env=os.environ | names, capture_output=True, text=True, timeout=120, check=False
        )
        return done.returncode, done.stdout + done.stderr


@contextmanager
def open_scene(folder: Path, *, start_ms: int, settings: Mapping[str, str]) -> Iterator[Scene]:
    """``settings`` of the functions, beside those of the template."""
    clock = VirtualClock(folder, start_ms=start_ms)
    with ExitStack() as stack:
        stack.callback(clock.sweep)
        model = TimedProviders(clock)
        server = stack.enter_context(ModelHttpServer(model=model))
        names = clock.environment | dict(settings)
        deployment = stack.enter_context(deployed(names, app=EMULATOR, now_ms=clock.now_ms))
        yield Scene(deployment, clock, model, server.base_url)


def ms_of(instant: str) -> int:
    return round(datetime.fromisoformat(instant).timestamp() * 1_000)
