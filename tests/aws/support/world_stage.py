"""Real processes on one emulator, beside model providers and a RIPE Atlas simulator that write down what they see."""

from __future__ import annotations

import itertools
import json
import os
import secrets
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.store import AwsStore
from paceline.core.batches.batch import RecordSpec, day_at
from paceline.core.batches.values import CallRun
from paceline.core.ids import call_run_id
from paceline.core.jobs.job import JobLimits
from paceline.core.jobs.values import AccountSpec, StoredJob
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.values import PutMonitor, Run
from paceline.simulators.http import ModelHttpServer
from paceline.simulators.providers import ModelProviders, Script, serve_providers
from paceline.simulators.ripe_atlas import AtlasSimulator, SimulatedLimits
from paceline.steps.access import add_user
from paceline.steps.batches.batches import get_batch, put_batch, put_records
from paceline.steps.batches.plan import plan_day
from paceline.steps.batches.providers import put_provider
from paceline.steps.jobs.accounts import add_key, put_account_spec
from paceline.steps.jobs.submit import submit_job
from paceline.steps.monitors.define import put_monitor
from tests.aws.support.ministack import environment
from tests.shells.support.daemons import SECRET, Api, now_ms, start_process
from tests.shells.support.job_daemons import KEY, QUICK, TAG, VAULT, document, wait_for

UP = "Paceline is up"


class Stage:
    """A store on AWS with the user ann, and all that is outside. ``url``: where its processes find AWS."""

    def __init__(self, folder: Path, url: str, store: AwsStore, prefix: str) -> None:
        self.folder = folder
        self.store = store
        self.settings = environment(url) | {
            "PACELINE_STORE": f"aws://?prefix={prefix}",
            "PACELINE_SECRET_KEY": SECRET,
            "PACELINE_CALL_LEASE": "8s",
            "PACELINE_CHECK_LEASE": "4s",
            "PACELINE_ATLAS_EVERY": "1s",
            "PACELINE_ATLAS_SETTLE": "1s",
        }
        self._open = ExitStack()
        server, model = serve_providers()
        self.server: ModelHttpServer = self._open.enter_context(server)
        self.model: ModelProviders = model
        self.atlas = self._open.enter_context(AtlasSimulator(QUICK))
        self.settings["PACELINE_ATLAS_URL"] = self.atlas.base_url

    def close(self) -> None:
        self._open.close()
        assert self.atlas.defects == []

    # -- what people declare

    def user(self, name: str, *, role: Any = "user", daily_credits: int = 0) -> str:
        seed = secrets.token_bytes(32)
        made = add_user(
            self.store,
            name,
            role=role,
            daily_credits=daily_credits,
            token_bytes=seed,
            secret_key=KEY,
            now_ms=now_ms(),
        )
        return made[1].secret

    def monitors(self, owner: str, count: int) -> None:
        for number in range(count):
            name = f"web-{number}"
            spec = MonitorSpec(check=HttpCheck(url=f"{self.server.base_url}/{name}/"), every="1s")
            put_monitor(self.store, PutMonitor(owner, name, spec), monitors_max=100, now_ms=now_ms())

    def providers(self, script: Script, **max_in_flight: int) -> None:
        for name, most in max_in_flight.items():
            self.model.behave(name, script)
            body: dict[str, Any] = {
                "base_url": f"{self.server.base_url}/{name}",
                "timeout": "1s",
                "max_in_flight": most,
            }
            # The run is not given up, however often its caller is killed or is too slow.
            body |= {"retry": {"max_attempts": 20}}
            put_provider(self.store, VAULT, name, json.dumps(body).encode(), now_ms=now_ms())

    def batch(self, records: dict[str, int], *, window: str) -> None:
        """So many records for each provider, planned for today: a quarter of the window is left for them."""
        put_batch(self.store, "b", json.dumps({"window": window}).encode(), now_ms=now_ms())
        specs = [RecordSpec(f"{name}-{n}", name, f"q?n={n}") for name, most in records.items() for n in range(most)]
        batch = get_batch(self.store, "b")
        put_records(self.store, batch, specs, now_ms=now_ms())
        plan_day(self.store, batch, day_at(batch.spec, now_ms()), now_ms=now_ms())

    def accounts(self, *names: str, concurrent: int, daily_credits: int) -> None:
        """At RIPE they may do as much as is declared here, and no more."""
        for name in names:
            put_account_spec(self.store, name, AccountSpec(concurrent=concurrent, daily_credits=daily_credits))
            limits = SimulatedLimits(concurrent=concurrent, daily_credits=daily_credits)
            for key in self.atlas.add_account(name, keys=2, limits=limits):
                add_key(self.store, VAULT, name, key, now_ms=now_ms())

    def submit(self, owner: str, count: int) -> StoredJob:
        body = json.dumps(document(count)).encode()
        return submit_job(self.store, owner, body, limits=JobLimits(), now_ms=now_ms()).job

    # -- what came of it

    def calls(self) -> list[CallRun]:
        """Returns the runs in due order."""
        found: list[CallRun] = []
        for day in self.store.days(get_batch(self.store, "b"), before=None, limit=10):
            page, more = self.store.day_runs(day, state=None, provider=None, after=0, limit=1_000)
            assert more is None
            found += page
        return sorted(found, key=lambda run: (run.due_ms, run.record))

    def done(self) -> set[str]:
        return {key_of(run) for run in self.calls() if run.state == "done"}

    def runs(self, owner: str, monitor_id: str) -> list[Run]:
        """Returns the runs in due order."""
        monitor = self.store.monitor(owner, monitor_id)
        assert monitor is not None
        return self.store.monitor_runs(monitor, before=None, limit=1_000, now_ms=now_ms())[::-1]

    def job(self, job: StoredJob) -> StoredJob:
        found = self.store.job(job.id)
        assert found is not None
        return found

    def states(self, job: StoredJob) -> Counter[str]:
        return Counter(item.state for item in self.store.measurements(job.number, after=-1, limit=1_000))

    def lose_sends_of_the_dead(self) -> None:
        """Their time is two minutes; everybody who could still answer for a send is dead, so it need not pass here."""
        self.store.lose_sends(intent_before_ms=now_ms() + 1, look_ms=now_ms() + 1_000)

    def sent_once(self, count: int) -> None:
        """By what really happened at RIPE, whatever it answered."""
        audit = self.atlas.audit(marker=TAG)
        assert audit["doubled"] == {}
        assert len(audit["measurements"]) == count

    # -- processes

    def start(self, command: str = "worker", **settings: str) -> subprocess.Popen[bytes]:
        return start_process(self.folder, command, **self.settings | settings)

    def log(self) -> str:
        return (self.folder / "daemon.log").read_text()

    def run(self, *words: str) -> tuple[int, str]:
        """A command of the real command line on this store."""
        ended = subprocess.run(
            [sys.executable, "-m", "paceline", *words],
            env=os.environ | self.settings,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return ended.returncode, ended.stdout + ended.stderr


class Processes:
    """Runs some processes of each kind; all of them are ended afterwards."""

    def __init__(self, stage: Stage, *, up: Sequence[int] = (), workers: int = 0) -> None:
        """``up``: the ports on which one answers."""
        self._stage = stage
        kinds = [Kind("up", {"PACELINE_PORT": str(port)}) for port in up] + [Kind("worker", {})] * workers
        self._running: list[tuple[Kind, subprocess.Popen[bytes]]] = []
        self._started = 0
        self.start(kinds)

    def kill(self, count: int) -> list[Kind]:
        """Kills the longest-running processes with ``kill -9``. Returns their kinds."""
        killed, self._running = self._running[:count], self._running[count:]
        for _, process in killed:
            process.send_signal(signal.SIGKILL)
        for _, process in killed:
            process.wait()
        return [kind for kind, _ in killed]

    def start(self, kinds: Sequence[Kind]) -> None:
        self._running += [(kind, self._stage.start(kind.command, **kind.settings)) for kind in kinds]
        self._started += len(kinds)
        # Before they say that they are up, nothing minds their signals.
        wait_for(lambda: self._stage.log().count(UP) >= self._started, self._stage.log, within_s=60)

    def stop(self) -> None:
        for _, process in self._running:
            process.send_signal(signal.SIGTERM)
        codes = [process.wait(30) for _, process in self._running]
        assert set(codes) <= {0}, f"SIGTERM drains and exits 0: {codes} {self._stage.log()[-2_000:]}"
        self._running.clear()

    def close(self) -> None:
        self.kill(len(self._running))


class Kind(NamedTuple):
    """What a process is."""

    command: str
    settings: dict[str, str]


class Editor:
    """A user who declares and deletes monitors over REST all the time, and remembers what was acknowledged."""

    def __init__(self, owner: str, token: str, ports: Sequence[int]) -> None:
        self._owner = owner
        self._apis = [Api(port, token) for port in ports]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._edit, daemon=True)
        self.created: list[str] = []
        self.deleted: list[str] = []
        """Of the acknowledged ones; neither names what may or may not have been deleted."""
        self.unanswered = 0
        self._thread.start()

    def close(self) -> None:
        self._ended.set()
        self._thread.join(30)

    def _edit(self) -> None:
        """Tries the next address after a lost answer, as a client with two addresses does; each name is used once."""
        for number in itertools.count():
            if self._ended.wait(0.05):
                return
            api, path = self._apis[number % len(self._apis)], f"/v1/users/{self._owner}/monitors/edited-{number}"
            if not self._acknowledged(api("PUT", path, {"check": {"kind": "outgoing"}, "every": "1h"}), 201):
                continue
            if number % 3:
                self.created.append(f"edited-{number}")
            elif self._acknowledged(api("DELETE", path), 204):
                self.deleted.append(f"edited-{number}")

    def _acknowledged(self, answer: tuple[int, Any] | None, status: int) -> bool:
        self.unanswered += answer is None
        # An answer that the store is unavailable for a moment is an answer, but acknowledges nothing.
        return answer is not None and answer[0] == status


@contextmanager
def open_stage(folder: Path, url: str, clients: Clients, prefix: str) -> Iterator[Stage]:
    with closing(AwsStore(prefix, clients=clients)) as store:
        store.create()
        with closing(Stage(folder, url, store, prefix)) as stage:
            yield stage


def key_of(run: CallRun) -> str:
    return call_run_id(run.batch, run.record, run.date)
