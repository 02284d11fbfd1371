"""Jobs on their way to RIPE: a real store, the real client, and the simulator on loopback, all on one driven clock."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from paceline.adapters.providers.ripe_atlas import RipeAtlas
from paceline.adapters.sqlite.store import SqliteStore
from paceline.adapters.vault import SecretVault
from paceline.core.jobs.job import JobLimits
from paceline.core.jobs.pool import Account
from paceline.core.jobs.values import AccountSpec, StoredJob, StoredMeasurement
from paceline.core.users import UserEdit
from paceline.ports import Atlas, Store
from paceline.simulators.ripe_atlas import AtlasSimulator, Fault, Limits, Model, SimulatorClock
from paceline.steps.jobs.accounts import add_key, put_account_spec
from paceline.steps.jobs.dispatch import Dispatched, DispatchSettings, dispatch_next
from paceline.steps.jobs.lookup import LookedUp, look_up
from paceline.steps.jobs.submit import submit_job
from tests.contract.support.stage import user

START_MS = 1_790_000_000_000
SECOND_MS, MINUTE_MS = 1_000, 60_000
SETTLE_MS = 60_000
SITE = "site1"
SECRET = b"the secret of this installation"
VAULT = SecretVault(SECRET)
DESK = DispatchSettings(SITE, SECRET, sending_max=1, settle_ms=SETTLE_MS)
PASSES_MAX = 5_000


class DrivenClock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.at_ms = START_MS

    def now_ms(self) -> int:
        return self.at_ms

    def advance(self, ms: int) -> None:
        self.at_ms += ms


class Scene:
    """One installation against one simulated RIPE. ``restart`` is another process on the same store."""

    def __init__(self, path: Path, *, model: Model | None = None, users: Sequence[str] = ("ann", "bob")) -> None:
        self.path = str(path)
        self.clock = DrivenClock()
        self.simulator = AtlasSimulator(model, clock=SimulatorClock(source=self.clock.now_ms))
        self.simulator.start()
        self.desk = DESK
        self.chance = 0.5
        self.secrets: list[str] = []
        self.store, self.atlas = self.open_store(), self.open_atlas()
        for name in users:
            assert self.store.add_user(user(name))
            self.store.edit_user(name, UserEdit(daily_credits=10**12))

    def open_store(self) -> Store:
        return SqliteStore(self.path, synchronous="normal")

    def open_atlas(self) -> RipeAtlas:
        return RipeAtlas(self.simulator.base_url)

    def restart(self) -> None:
        """New objects, as after ``kill -9``."""
        self.atlas.close()
        self.store.close()
        self.store, self.atlas = self.open_store(), self.open_atlas()

    def close(self) -> None:
        self.atlas.close()
        self.store.close()
        self.simulator.stop()

    # -- the world as it is set up

    def add_account(
        self,
        name: str = "lab",
        *,
        spec: AccountSpec | None = None,
        limits: Limits | None = None,
        keys: int = 1,
    ) -> list[str]:
        """At RIPE and here; ``limits`` are RIPE's, ``spec`` ours. Returns the keys' secrets."""
        secrets = self.simulator.add_account(name, keys=keys, limits=limits)
        put_account_spec(self.store, name, spec or AccountSpec())
        for secret in secrets:
            add_key(self.store, VAULT, name, secret, now_ms=self.clock.now_ms())
        self.secrets += secrets
        return secrets

    def submit(self, *measurements: dict[str, Any], owner: str = "ann") -> StoredJob:
        body = json.dumps({"measurements": measurements or [measurement()]}).encode()
        return submit_job(self.store, owner, body, limits=JobLimits(), now_ms=self.clock.now_ms()).job

    def fault(self, kind: str, **more: Any) -> None:
        """Adds a fault, by default to the next creation."""
        self.simulator.add_fault(Fault(**({"kind": kind, "method": "POST"} | more)))

    # -- steps

    def dispatch(self, *, store: Store | None = None, atlas: Atlas | None = None) -> Dispatched:
        return dispatch_next(
            store or self.store,
            atlas or self.atlas,
            VAULT,
            self.desk,
            clock=self.clock,
            chance=lambda: self.chance,
        )

    def dispatch_all(self) -> list[Dispatched]:
        """Dispatches until there is nothing to do now. Returns the results that were not idle."""
        done = []
        for _ in range(PASSES_MAX):
            one = self.dispatch()
            if one.outcome != "idle":
                done.append(one)
            if one.next_ms is None or one.next_ms > self.clock.now_ms():
                return done
        raise AssertionError("it never comes to rest")

    def look_up(self, *, store: Store | None = None, atlas: Atlas | None = None) -> LookedUp:
        return look_up(
            store or self.store, atlas or self.atlas, VAULT, self.desk, clock=self.clock, chance=lambda: self.chance
        )

    # -- what there is

    def measurements(self, job: StoredJob) -> list[StoredMeasurement]:
        return self.store.measurements(job.number, after=-1, limit=20_000)

    def one(self, job: StoredJob, index: int = 0) -> StoredMeasurement:
        return self.measurements(job)[index]

    def account(self, name: str = "lab") -> Account:
        found = self.store.account(name, now_ms=self.clock.now_ms())
        assert found is not None
        return found

    def created(self) -> list[dict[str, Any]]:
        """What really exists at RIPE, in order of id."""
        rows: list[dict[str, Any]] = self.simulator.audit()["measurements"]
        return sorted(rows, key=lambda row: int(row["id"]))

    def posts(self) -> int:
        """Creations that reached RIPE, whatever became of them."""
        return sum(request.method == "POST" for request, _ in self.simulator.latest)


def measurement(target: str = "192.0.2.1", *, probes: int = 10, definitions: int = 1, **fields: Any) -> dict[str, Any]:
    """A one-off ping: six credits for each probe; ``fields`` go into every definition."""
    one = {"type": "ping", "af": 4, "target": target, "description": "a ping"} | fields
    return {
        "definitions": [one] * definitions,
        "probes": [{"requested": probes, "type": "area", "value": "WW"}],
        "is_oneoff": True,
    }


@contextmanager
def a_scene(path: Path, **more: Any) -> Iterator[Scene]:
    """In order at the end, whatever was done: the books balance, and no secret is to be seen."""
    with closing(Scene(path, **more)) as scene:
        yield scene
        assert scene.simulator.defects == []
        assert scene.store.verify() == []
        shown = repr([scene.measurements(job) for job in scene.store.jobs(None, before=None, limit=100)])
        shown += repr(scene.store.accounts(now_ms=scene.clock.now_ms(), releases_until_ms=scene.clock.now_ms()))
        shown += repr(scene.store.gates(["192.0.2.1"]))
        assert not any(secret in shown for secret in scene.secrets)
