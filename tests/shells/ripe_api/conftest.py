"""The API in this process, beside a simulator; what the loops would do is done when a test says so."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from paceline.core.jobs.values import AccountSpec
from paceline.simulators.ripe_atlas import AtlasSimulator
from paceline.steps.jobs.accounts import add_key, put_account_spec
from paceline.steps.jobs.dispatch import DispatchSettings, dispatch_next
from paceline.steps.jobs.follow import Watch, follow
from paceline.wiring import open_atlas
from tests.shells.api.conftest import Client, Reply, World, serving
from tests.shells.ripe_api.support.stage import HURRIED, Stage, eventually, staged

PING: dict[str, Any] = {"type": "ping", "af": 4, "target": "192.0.2.1", "description": "one"}
PROBES: list[dict[str, Any]] = [{"requested": 3, "type": "area", "value": "WW"}]


def request_of(*definitions: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"definitions": list(definitions) or [PING], "probes": PROBES, "is_oneoff": True, **more}


@dataclass
class Ripe:
    """One user's view of /api/v2."""

    world: World
    token: str

    def __call__(self, method: str, path: str, body: Any = None, *, key: str | None = None) -> Reply:
        headers = {"Authorization": f"Key {self.token if key is None else key}"}
        return Client(self.world.port)(method, f"/api/v2{path}", body, headers=headers)

    def create(self, *definitions: dict[str, Any], **more: Any) -> list[int]:
        made = self("POST", "/measurements/", request_of(*definitions, **more))
        assert made.status == 201, made.body
        ids: list[int] = made.json["measurements"]
        return ids

    def status(self, number: int) -> str:
        return str(self("GET", f"/measurements/{number}/").json["status"]["name"])


@dataclass
class House:
    """``ann`` has credits, ``bob`` is another."""

    world: World
    simulator: AtlasSimulator
    ann: Ripe
    bob: Ripe

    def __post_init__(self) -> None:
        self.watch = Watch()

    def send(self) -> None:
        """All that is queued goes to RIPE."""
        system = self.world.system
        desk = DispatchSettings("here", b"secret", sending_max=1, settle_ms=1_000)
        with closing(open_atlas(system.settings)) as atlas:
            for _ in range(100):
                sent = dispatch_next(system.store, atlas, system.vault, desk, clock=system.clock, chance=lambda: 0.5)
                if sent.outcome == "idle":
                    return
        raise AssertionError("it does not come to an end")

    def follow(self) -> None:
        system = self.world.system
        with closing(open_atlas(system.settings)) as atlas:
            follow(system.store, atlas, system.vault, self.watch, clock=system.clock)

    def has_ended(self, number: int) -> bool:
        self.follow()
        return self.ann.status(number) == "Stopped"


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with (
        AtlasSimulator(HURRIED) as simulator,
        serving(tmp_path, atlas_url=simulator.base_url, log_level="debug", wrong_tokens_max=5) as world,
    ):
        ann, bob = (Ripe(world, world.add(name).token or "") for name in ("ann", "bob"))
        now_ms = world.system.clock.now_ms()
        put_account_spec(world.system.store, "lab", AccountSpec())
        key = simulator.add_account("lab")[0]
        add_key(world.system.store, world.system.vault, "lab", key, now_ms=now_ms)
        yield House(world, simulator, ann, bob)
        assert simulator.defects == []


def basic(token: str) -> str:
    return "Basic " + b64encode(f"paceline:{token}".encode()).decode()


def lines_of(reply: Reply) -> list[Any]:
    return [json.loads(line) for line in reply.body.splitlines()]


@pytest.fixture(scope="session")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    """One process for all that drive real clients. It logs all it can, and no token is in it."""
    with staged(tmp_path_factory.mktemp("ripe"), "--log-level", "debug") as running:
        yield running
        log = running.log()
        assert '"route": "/api/v2/measurements/"' in log
        assert [name for name, token in running.tokens.items() if token in log] == []


__all__ = ["eventually"]
