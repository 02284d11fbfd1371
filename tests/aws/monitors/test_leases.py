"""Processes on AWS whose replies come after their leases are over: nothing is sent twice."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from paceline.adapters.aws.client.connect import Clients
from paceline.core.jobs.job import JobLimits
from paceline.core.jobs.values import StoredJob
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.values import PutMonitor
from paceline.simulators.providers import Script
from paceline.steps.jobs.submit import submit_job
from paceline.steps.monitors.define import put_monitor
from tests.aws.support.fault_proxy import FaultProxy, Faults, fault_proxy
from tests.aws.support.ministack import Emulator
from tests.aws.support.world_stage import Processes, Stage, open_stage
from tests.shells.daemon.test_job_loops import Receiver
from tests.shells.support.daemons import now_ms
from tests.shells.support.job_daemons import document, wait_for

pytestmark = [pytest.mark.aws, pytest.mark.slow]

PROVIDERS, RECORDS, MONITORS, MEASUREMENTS = 5, 6, 6, 4
LEASE_S, HOLD_S = 3.0, 3.7
"""As 7 s to 8.5 s; a provider's time-out of a second is a part of the first."""
HELD = Faults(hold=0.08, hold_s=HOLD_S, only=frozenset({"PutItem", "UpdateItem", "TransactWriteItems"}))


@pytest.fixture
def proxy(aws: Emulator) -> Iterator[FaultProxy]:
    with fault_proxy(aws.url, seed=7, faults=HELD) as made:
        yield made


@pytest.fixture
def stage(tmp_path: Path, proxy: FaultProxy, clients: Clients, prefix: str) -> Iterator[Stage]:
    with open_stage(tmp_path, proxy.url, clients, prefix) as opened:
        opened.settings["PACELINE_CALL_LEASE"] = f"{LEASE_S - 1:.0f}s"
        opened.settings["PACELINE_CHECK_LEASE"] = f"{LEASE_S:.0f}s"
        opened.settings["PACELINE_ATTEMPTS_MAX"] = "50"
        yield opened


def test_promise_5_replies_held_for_longer_than_a_lease_send_no_call_no_check_and_no_measurement_twice(
    stage: Stage, proxy: FaultProxy
) -> None:
    stage.user("ann", daily_credits=10_000)
    stage.accounts("lab", concurrent=10, daily_credits=10_000)
    names = [f"p{number}" for number in range(PROVIDERS)]
    stage.providers(Script(latency_ms=20), **dict.fromkeys(names, 1))
    with Receiver() as receiver, closing(Processes(stage, workers=2)) as processes:
        put_monitors(stage, every="1s")
        stage.batch(dict.fromkeys(names, RECORDS), window="20s")
        job = submit(stage, receiver.url)
        wait_for(lambda: len(stage.done()) == PROVIDERS * RECORDS, stage.log, within_s=180)
        wait_for(lambda: stage.job(job).finished, stage.log, within_s=120)
        wait_for(lambda: bool(receiver.got), stage.log, within_s=120)
        wait_for(lambda: all(len(stage.runs("ann", name)) >= 5 for name in monitors()), stage.log, within_s=120)
        put_monitors(stage, every="1d")
        wait_for(lambda: not open_runs(stage), stage.log, within_s=120)
        processes.stop()
    assert proxy.hits["hold"] > 5
    arrivals = Counter(one.key for one in stage.model.arrivals() if one.provider in names)
    assert (len(arrivals), set(arrivals.values())) == (PROVIDERS * RECORDS, {1})
    checks = {name: len(stage.model.arrivals(name)) for name in monitors()}
    assert checks == {name: sum(run.state == "ok" for run in stage.runs("ann", name)) for name in monitors()}
    assert min(checks.values()) > 0
    stage.sent_once(MEASUREMENTS)
    assert len(receiver.got) == 1
    assert stage.run("check") == (0, "OK\n")


def monitors() -> list[str]:
    return [f"once-{number}" for number in range(MONITORS)]


def put_monitors(stage: Stage, *, every: str) -> None:
    for name in monitors():
        spec = MonitorSpec(check=HttpCheck(url=f"{stage.server.base_url}/{name}/", timeout="1s"), every=every)
        put_monitor(stage.store, PutMonitor("ann", name, spec), monitors_max=100, now_ms=now_ms())


def open_runs(stage: Stage) -> list[str]:
    runs = (run for name in monitors() for run in stage.runs("ann", name))
    return [f"{run.monitor}@{run.counter}: {run.state}" for run in runs if run.ended_ms is None]


def submit(stage: Stage, webhook: str) -> StoredJob:
    body = json.dumps(document(MEASUREMENTS) | {"webhook": webhook}).encode()
    return submit_job(stage.store, "ann", body, limits=JobLimits(), now_ms=now_ms()).job
