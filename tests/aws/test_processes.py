"""Real processes on DynamoDB and SQS: workers killed with `kill -9` while loaded, and the API beside its loops."""

from __future__ import annotations

import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from paceline.adapters.aws.connect import Clients
from paceline.simulators.providers import Script
from tests.aws.ministack import Emulator
from tests.aws.world_stage import Stage, Workers, key_of, open_stage
from tests.shells.daemons import Api, free_port
from tests.shells.job_daemons import document, on_create, wait_for

pytestmark = [pytest.mark.aws, pytest.mark.slow]

SEED = int(os.environ.get("PACELINE_KILL_SEED", "20261115"))
CONCURRENT = 3
MONITORS, RECORDS, MEASUREMENTS = 3, 15, 8


@pytest.fixture
def stage(tmp_path: Path, aws: Emulator, clients: Clients, prefix: str) -> Iterator[Stage]:
    with open_stage(tmp_path, aws, clients, prefix) as opened:
        yield opened


def test_promise_10_three_workers_killed_again_and_again_lose_nothing_and_double_nothing(stage: Stage) -> None:
    print(f"seed {SEED}: run again with PACELINE_KILL_SEED={SEED}")
    chance = random.Random(SEED)
    stage.user("ann", daily_credits=60 * MEASUREMENTS)
    stage.accounts("lab-1", "lab-2", concurrent=CONCURRENT)
    stage.atlas.add_fault(on_create("delay", delay_ms=150, times=None))
    stage.providers(Script(latency_ms=20), north=1, south=3)
    settled: list[tuple[set[str], Counter[str]]] = []
    with closing(Workers(stage, 3)) as workers:
        stage.monitors("ann", MONITORS)
        job = stage.submit("ann", MEASUREMENTS)
        stage.batch({"north": RECORDS, "south": RECORDS}, window="40s")
        for killed in (1, 2, 3):
            time.sleep(1 + chance.random() * 1.5)
            workers.kill(killed)
            if killed == 3:
                stage.lose_sends_of_the_dead()
            settled.append((stage.done(), Counter(one.key for one in stage.model.arrivals())))
            workers.add(killed)
        wait_for(lambda: stage.job(job).finished, lambda: (stage.states(job), stage.log()), within_s=90)
        wait_for(lambda: len(stage.done()) == 2 * RECORDS, stage.calls, within_s=60)
        workers.stop()
    assert settled[-1][0], "the load never settled anything"
    judge_batch(stage, settled)
    judge_job(stage, job)
    judge_monitors(stage)
    assert stage.run("check") == (0, "OK\n")


def judge_batch(stage: Stage, settled: list[tuple[set[str], Counter[str]]]) -> None:
    arrivals = stage.model.arrivals()
    counts = Counter(one.key for one in arrivals)
    for done, seen in settled:
        assert [key for key in done if counts[key] != seen[key]] == [], "a settled run was called again"
    for name in ("north", "south"):
        effects = stage.model.effects(name)
        assert (len(effects), set(effects.values())) == (RECORDS, {1})
    first = list(dict.fromkeys(one.key for one in arrivals if one.provider == "north"))
    assert first == [key_of(run) for run in stage.calls() if run.provider == "north"], "out of order"
    for name, others_max in (("north", 0), ("south", 2)):
        assert max(one.others for one in arrivals if one.provider == name) <= others_max


def judge_job(stage: Stage, job: Any) -> None:
    ended = stage.job(job)
    assert ended.success, stage.states(job)
    stage.sent_once(MEASUREMENTS)
    audit = stage.atlas.audit()
    for account in audit["accounts"].values():
        assert account["peaks"]["concurrent"] <= CONCURRENT
        assert account["refusals"] == {}
    assert ended.settled == sum(one["charge"] for one in audit["measurements"])
    assert ended.settled + ended.refunded == ended.reserved
    budget = stage.store.budget("ann", now_ms=ended.created_ms)
    assert budget is not None
    assert (budget.spent, budget.held) == (ended.settled, 0)


def judge_monitors(stage: Stage) -> None:
    for number in range(MONITORS):
        runs = stage.runs("ann", f"web-{number}")
        assert [run.counter for run in runs] == list(range(len(runs))), "a run is missing"
        gaps_ms = [after.due_ms - before.due_ms for before, after in pairwise(runs)]
        assert min(gaps_ms) >= 1_000, "a slot fired twice"
        assert {gap_ms % 1_000 for gap_ms in gaps_ms} == {0}, "it drifted"
        ended = [run for run in runs if run.state == "ok"]
        # Only of these: a claim that nothing came of is dated when it was begun, a while before it was granted.
        times_ms = [ms for run in ended for ms in (run.started_ms, run.ended_ms) if ms is not None]
        assert times_ms == sorted(times_ms), "out of order, or two at a time"
        assert len(ended) > 5
        # The last ones may have been given back when all were told to stop.
        assert {run.state for run in runs[: len(ended)]} == {"ok"}, "an earlier run was left behind"
        assert len(stage.model.arrivals(f"web-{number}")) >= len(ended)


def test_paceline_up_on_aws_answers_rest_for_monitors_batches_and_jobs(stage: Stage) -> None:
    port, token = free_port(), stage.user("root", role="admin", daily_credits=1_000)
    api = Api(port, token)
    process = stage.start("up", PACELINE_PORT=str(port))
    try:
        wait_for(lambda: (found := api("GET", "/readyz")) is not None and found[0] == 200, stage.log, within_s=60)
        follow_a_monitor(stage, api)
        follow_a_batch(stage, api)
        follow_a_job(stage, api)
        process.terminate()
        assert process.wait(30) == 0, stage.log()
    finally:
        process.kill()
        process.wait()
    assert stage.run("check") == (0, "OK\n")


def asked(api: Api, status: int, method: str, path: str, body: Any = None) -> Any:
    found = api(method, path, body)
    assert found is not None, path
    assert found[0] == status, found
    return found[1]


def follow_a_monitor(stage: Stage, api: Api) -> None:
    check = {"kind": "http", "url": f"{stage.server.base_url}/web/"}
    made = asked(api, 201, "PUT", "/v1/users/me/monitors/home", {"check": check, "every": "1s"})
    assert made["schedule"]["counter"] == 0

    def states() -> list[str]:
        found = asked(api, 200, "GET", "/v1/users/me/monitors/home/runs")
        return [run["state"] for run in found["items"]]

    wait_for(lambda: states().count("ok") >= 2, states)
    assert asked(api, 200, "GET", "/v1/users/me/monitors/home")["health"] == "ok"
    asked(api, 204, "DELETE", "/v1/users/me/monitors/home")


def follow_a_batch(stage: Stage, api: Api) -> None:
    asked(api, 201, "PUT", "/v1/providers/north", {"base_url": f"{stage.server.base_url}/north"})
    asked(api, 201, "PUT", "/v1/batches/b", {"window": "8s"})
    records = [{"id": f"r{n}", "provider": "north", "endpoint": f"/{n}"} for n in range(5)]
    asked(api, 200, "PUT", "/v1/batches/b/records", {"items": records})
    date = time.strftime("%Y-%m-%d", time.gmtime())
    planned = asked(api, 200, "POST", "/v1/batches/b/plan", {"date": date})
    assert planned["enqueued"] + planned["already"] == 5

    def day() -> Any:
        return asked(api, 200, "GET", f"/v1/batches/b/days/{date}")

    wait_for(lambda: day()["totals"].get("done") == 5, day)
    assert set(stage.model.effects("north").values()) == {1}


def follow_a_job(stage: Stage, api: Api) -> None:
    (key,) = stage.atlas.add_account("lab", keys=1)
    asked(api, 201, "PUT", "/v1/accounts/lab", {})
    asked(api, 201, "POST", "/v1/accounts/lab/keys", {"key": key})
    job = asked(api, 202, "POST", "/v1/jobs", document(2))["job"]

    def now() -> Any:
        return asked(api, 200, "GET", f"/v1/jobs/{job}")

    wait_for(lambda: now()["finished"], now, within_s=60)
    assert now()["success"]
    assert asked(api, 200, "GET", "/v1/users/me/budget")["spent"] == now()["cost"]["settled"]
    stage.sent_once(2)
