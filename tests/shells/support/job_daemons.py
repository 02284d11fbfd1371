"""Daemons beside a RIPE Atlas simulator: one store, one user, and what really happened at RIPE."""

from __future__ import annotations

import hashlib
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from paceline.adapters.sqlite.store import SqliteStore
from paceline.adapters.vault import SecretVault
from paceline.core.jobs.job import JobLimits
from paceline.core.jobs.values import AccountSpec, StoredJob, StoredMeasurement
from paceline.core.users import UserEdit
from paceline.simulators.ripe_atlas import AtlasSimulator, Fault, SimulatedLimits, SimulatorModel
from paceline.simulators.ripe_atlas.faults import Kind
from paceline.steps.jobs.accounts import add_key, put_account_spec
from paceline.steps.jobs.submit import submit_job
from tests.shells.support.daemons import SECRET, new_user, now_ms, start_process

KEY = hashlib.sha256(SECRET.encode()).digest()
VAULT = SecretVault(KEY)
TAG = r"paceline-[0-9a-z]+-[0-9a-z]+-\d+"
UP = "Paceline is up"
QUICK = SimulatorModel(
    index_lag_ms=200,
    schedule_after_ms=50,
    start_after_ms=100,
    one_off_ms=1_500,
    result_after_ms=100,
    result_before_ms=1_000,
    probes=500,
)


class Stage:
    """One store in a folder with the user ann, and a RIPE Atlas that takes two seconds for a one-off."""

    def __init__(self, folder: Path, atlas: AtlasSimulator) -> None:
        self.folder = folder
        self.atlas = atlas
        self.token = new_user(folder, "ann")
        self.store = SqliteStore(str(folder / "p.db"))
        self.store.edit_user("ann", UserEdit(daily_credits=1_000_000))
        self.settings = {
            "PACELINE_ATLAS_URL": atlas.base_url,
            "PACELINE_ATLAS_EVERY": "1s",
            "PACELINE_ATLAS_SETTLE": "1s",
        }

    def accounts(self, *names: str, concurrent: int = 100) -> None:
        for name in names:
            keys = self.atlas.add_account(name, keys=2, limits=SimulatedLimits(concurrent=concurrent))
            put_account_spec(self.store, name, AccountSpec(concurrent=concurrent))
            for key in keys:
                add_key(self.store, VAULT, name, key, now_ms=now_ms())

    def submit(self, count: int, *, target: str = "192.0.2.{}", **fields: Any) -> StoredJob:
        body = json.dumps(document(count, target=target) | fields).encode()
        return submit_job(self.store, "ann", body, limits=JobLimits(), now_ms=now_ms()).job

    def job(self, job: StoredJob) -> StoredJob:
        found = self.store.job(job.id)
        assert found is not None
        return found

    def items(self, job: StoredJob) -> list[StoredMeasurement]:
        return self.store.measurements(job.number, after=-1, limit=1_000)

    def states(self, job: StoredJob) -> Counter[str]:
        return Counter(item.state for item in self.items(job))

    def finished(self, job: StoredJob, *, within_s: float = 120.0) -> StoredJob:
        wait_for(lambda: self.job(job).finished, lambda: (self.job(job), self.reasons(job)), within_s=within_s)
        return self.job(job)

    def reasons(self, job: StoredJob) -> list[tuple[str, str]]:
        return [(item.state, item.reason) for item in self.items(job)]

    def sent_once(self, count: int) -> None:
        """Counts by what happened at RIPE, not by its answers."""
        audit = self.atlas.audit(marker=TAG)
        assert audit["doubled"] == {}
        assert len(audit["measurements"]) == count

    def in_balance(self) -> None:
        """Asserts that the settled credits equal the delivered results and that the books add up."""
        delivered = sum(one["charge"] for one in self.atlas.audit()["measurements"])
        assert sum(job.settled for job in self.store.jobs(None, before=None, limit=100)) == delivered
        command = [sys.executable, "-m", "paceline", "--store", f"sqlite:///{self.folder / 'p.db'}", "check"]
        checked = subprocess.run(command, capture_output=True, text=True, cwd=self.folder, check=False)
        assert (checked.returncode, checked.stdout) == (0, "OK\n"), checked

    def lose_sends_of_the_dead(self) -> None:
        """Their time is two minutes; everybody who could still answer for a send is dead, so it need not pass here."""
        self.store.lose_sends(intent_before_ms=now_ms() + 1, look_ms=now_ms() + 1_000)

    def log(self) -> str:
        return (self.folder / "daemon.log").read_text()


def document(count: int, *, target: str = "192.0.2.{}") -> dict[str, Any]:
    """Ten probes, three packets, twice for a one-off: up to 60 credits each."""
    one = {"type": "ping", "af": 4, "description": "a ping"}
    probes = {"requested": 10, "type": "area", "value": "WW"}
    measurements = [
        {"definitions": [one | {"target": target.format(number % 200 + 1)}], "probes": [probes], "is_oneoff": True}
        for number in range(count)
    ]
    return {"title": "a job", "measurements": measurements}


def on_create(kind: Kind, **fields: Any) -> Fault:
    """What goes wrong with the orders of measurements."""
    return Fault(kind=kind, method="POST", path="/measurements/$", **fields)


def wait_for(true: Callable[[], object], say: Callable[[], object], *, within_s: float = 90.0) -> None:
    until_s = time.monotonic() + within_s
    while not true():
        assert time.monotonic() < until_s, say()
        time.sleep(0.05)


@contextmanager
def worker(stage: Stage, **settings: str) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon without the API; whatever the test did to it, it is gone afterwards."""
    log = stage.folder / "daemon.log"
    starts = log.read_text().count(UP) if log.exists() else 0
    process = start_process(stage.folder, "worker", **stage.settings | settings)
    try:
        # Before that message, signals are not handled.
        wait_for(lambda: log.read_text().count(UP) > starts, stage.log)
        yield process
    finally:
        process.kill()
        process.wait()


def stop(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGTERM)
    assert process.wait(90) == 0, "SIGTERM drains and exits 0"


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait()
