"""Jobs over the real API, with a RIPE Atlas simulator behind it, in as few words as a test needs."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paceline.adapters.providers.ripe_atlas import RipeAtlas
from paceline.core.jobs.atlas import Created, Marker, client_id, request_body
from paceline.core.jobs.values import Ending, Sent, StoredMeasurement
from paceline.simulators.ripe_atlas import AtlasSimulator, SimulatorClock, SimulatorModel
from tests.shells.api.conftest import Client, Reply, World, serving
from tests.steps.support.stored_keys import open_key

PROBES = 10
COST = 60
"""Ten probes, three packets, twice for a one-off."""
TARGET = "192.0.2.1"


def measurement(*targets: str, **fields: Any) -> dict[str, Any]:
    definitions = [
        {"type": "ping", "af": 4, "target": target, "description": "a ping"} | fields for target in targets or (TARGET,)
    ]
    return {
        "definitions": definitions,
        "probes": [{"requested": PROBES, "type": "area", "value": "WW"}],
        "is_oneoff": True,
    }


def job(count: int = 1, **fields: Any) -> dict[str, Any]:
    return {"title": "a job", "measurements": [measurement()] * count} | fields


def submitted(client: Client, body: dict[str, Any] | None = None) -> str:
    reply = client("POST", "/v1/jobs", body or job())
    assert reply.status == 202, reply.body
    return str(reply.json["job"])


def lines(reply: Reply) -> list[Any]:
    assert reply.status == 200, reply.body
    assert reply.headers["content-type"] == "application/x-ndjson"
    return [json.loads(line) for line in reply.body.splitlines()]


class AtlasWorld:
    """The API, a simulator whose clock moves only when told, and one account whose key the simulator knows."""

    def __init__(self, world: World, simulator: AtlasSimulator) -> None:
        self.world, self.simulator = world, simulator
        self.store = world.system.store
        self.root = world.add("root", "admin")
        self.alice = world.add("alice")
        self.secret = simulator.add_account("lab")[0]
        assert self.root("PUT", "/v1/accounts/lab", {}).status == 201
        self.key = self.root("POST", "/v1/accounts/lab/keys", {"key": self.secret, "label": "first"}).json["id"]

    def now_ms(self) -> int:
        return self.world.system.clock.now_ms()

    def begin(self) -> StoredMeasurement:
        """The intent of whatever is next."""
        [item, *_] = self.store.next_to_send(now_ms=self.now_ms(), users_max=10, each_max=1)
        begun = self.store.begin_send(item, account="lab", key=self.key, sending_max=16, now_ms=self.now_ms())
        assert isinstance(begun, StoredMeasurement)
        return begun

    def send(self) -> StoredMeasurement:
        """Whatever is next, as far as RIPE's ids; its results are there."""
        begun = self.begin()
        secret = open_key(self.store, self.world.system.vault, "lab", self.key)
        assert secret is not None
        atlas = RipeAtlas(self.simulator.base_url)
        try:
            marker = Marker("site1", begun.job, begun.index, begun.attempt)
            body = request_body(begun.measurement, marker, client=client_id(begun.owner, b"s"), now_ms=self.now_ms())
            answer = atlas.create(secret, begun.measurement, body)
        finally:
            atlas.close()
        assert isinstance(answer, Created), answer
        assert self.store.answer(begun.handle, begun.attempt, Sent(answer.ids), now_ms=self.now_ms())
        self.simulator.clock.advance(60_000)
        found = self.store.measurement(begun.handle)
        assert found is not None
        return found

    def done(self, item: StoredMeasurement, *, spent: int = COST) -> None:
        ending = Ending(item.handle, item.attempt, "done", "", spent, PROBES, frees_slot=True)
        assert self.store.end([ending], now_ms=self.now_ms())[0].won


@contextmanager
def atlas_world(folder: Path, **settings: Any) -> Iterator[AtlasWorld]:
    clock = SimulatorClock(start_ms=time.time_ns() // 1_000_000, speed=0)
    with AtlasSimulator(SimulatorModel(index_lag_ms=0), clock=clock) as simulator:
        with serving(folder, atlas_url=simulator.base_url, **settings) as world:
            yield AtlasWorld(world, simulator)
        assert simulator.defects == []
