"""Results over REST: read from RIPE while they go out, nothing left out silently, nothing left running."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.shells.api import atlas_reads
from paceline.simulators.ripe_atlas import Fault
from tests.shells.api.conftest import Client
from tests.shells.api.support.job_stage import TARGET, AtlasWorld, atlas_world, job, lines, measurement, submitted


@pytest.fixture
def stage(tmp_path: Path) -> Iterator[AtlasWorld]:
    with atlas_world(tmp_path) as running:
        running.root("PATCH", "/v1/users/alice", {"daily_credits": 100_000})
        yield running


def results(stage: AtlasWorld, made: str, query: str = "") -> list[Any]:
    return lines(stage.alice("GET", f"/v1/jobs/{made}/results{query}"))


def delivered(stage: AtlasWorld, atlas_id: int) -> int:
    found = stage.simulator.audit()["measurements"]
    return sum(one["results"] for one in found if one["id"] == atlas_id)


def wait_for(condition: Any) -> None:
    until_s = time.monotonic() + 15
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.02)


def test_each_result_names_its_measurement_and_missing_results_are_reported(stage: AtlasWorld) -> None:
    made = submitted(stage.alice, job(measurements=[measurement(TARGET, "192.0.2.2"), measurement("192.0.2.3")]))
    sent = stage.send()
    found = results(stage, made)
    told = [line for line in found if "result" in line]
    assert {(line["measurement"], line["definition"], line["target"]) for line in told} == {
        (0, 0, TARGET),
        (0, 1, "192.0.2.2"),
    }
    for line in told:
        assert line["atlas_id"] == line["result"]["msm_id"] == sent.atlas[line["definition"]].atlas_id
        assert line["result"]["type"] == "ping"
    assert len(told) > 10
    [missing] = [line for line in found if "error" in line]
    assert (missing["measurement"], missing["error"], missing["atlas_id"]) == (1, "it is not sent yet", None)


def test_results_are_merged_by_target(stage: AtlasWorld) -> None:
    wanted = [measurement("Example.org", "192.0.2.2"), measurement("example.org."), measurement("192.0.2.9")]
    made = submitted(stage.alice, job(measurements=wanted))
    first, second = stage.send(), stage.send()
    name, address, waiting = results(stage, made, "?merged=target")
    assert [line["target"] for line in (name, address, waiting)] == ["Example.org", "192.0.2.2", "192.0.2.9"]
    ids = {first.atlas[0].atlas_id, second.atlas[0].atlas_id}
    assert {result["msm_id"] for result in name["results"]} == ids
    assert {place["atlas_id"] for place in name["measurements"]} == ids
    assert {result["msm_id"] for result in address["results"]} == {first.atlas[1].atlas_id}
    assert (name["errors"], address["errors"], waiting["results"]) == ([], [], [])
    [error] = waiting["errors"]
    assert (error["measurement"], error["error"]) == (2, "it is not sent yet")
    assert stage.alice("GET", f"/v1/jobs/{made}/results?merged=probe").pointers == ["/query/merged"]


def test_results_that_ripe_refuses_have_an_error_and_the_others_are_written(stage: AtlasWorld) -> None:
    made = submitted(stage.alice, job(2))
    lost, kept = stage.send(), stage.send()
    path = f"/measurements/{lost.atlas[0].atlas_id}/results"
    stage.simulator.add_fault(Fault(kind="error_before", path=path, status=502, times=None))
    found = results(stage, made)
    [error] = [line for line in found if "error" in line]
    assert (error["measurement"], error["atlas_id"]) == (0, lost.atlas[0].atlas_id)
    assert "502" in error["error"]
    assert {line["atlas_id"] for line in found if "result" in line} == {kept.atlas[0].atlas_id}


def test_results_stop_asking_ripe_after_429(stage: AtlasWorld) -> None:
    made = submitted(stage.alice, job(3))
    for _ in range(3):
        stage.send()
    stage.simulator.add_fault(Fault(kind="rate_limit", path="/results", times=None))
    before = len(stage.simulator.latest)
    found = results(stage, made)
    assert len(stage.simulator.latest) == before + 1
    assert [line["measurement"] for line in found] == [0, 1, 2]
    assert all("429" in line["error"] for line in found)


def test_public_results_are_read_without_a_key(stage: AtlasWorld) -> None:
    made = submitted(stage.alice, job())
    stage.send()
    stage.root("DELETE", f"/v1/accounts/lab/keys/{stage.key}")
    assert all("result" in line for line in results(stage, made))


def test_only_the_owner_and_an_admin_read_job_results(stage: AtlasWorld) -> None:
    made = submitted(stage.alice, job())
    stage.send()
    bob = stage.world.add("bob")
    reply = bob("GET", f"/v1/jobs/{made}/results")
    assert (reply.status, reply.code) == (404, "not_found")
    assert lines(stage.root("GET", f"/v1/jobs/{made}/results"))


def test_head_of_job_results_does_not_ask_ripe(stage: AtlasWorld) -> None:
    made = submitted(stage.alice, job())
    stage.send()
    before = len(stage.simulator.latest)
    for _ in range(atlas_reads.READS_EACH_MAX + 1):
        reply = stage.alice("HEAD", f"/v1/jobs/{made}/results")
        assert (reply.status, reply.body) == (200, b"")
    assert len(stage.simulator.latest) == before


def begin_reading(
    stage: AtlasWorld, made: str, client: Client | None = None
) -> tuple[http.client.HTTPConnection, http.client.HTTPResponse]:
    connection = http.client.HTTPConnection("127.0.0.1", stage.world.port, timeout=30)
    connection.request(
        "GET", f"/v1/jobs/{made}/results", headers={"Authorization": f"Bearer {(client or stage.alice).token}"}
    )
    return connection, connection.getresponse()


def reading_threads() -> int:
    return sum(thread.name == "paceline-api-atlas" for thread in threading.enumerate())


def test_client_that_disconnects_ends_the_requests_to_ripe(stage: AtlasWorld) -> None:
    made = submitted(stage.alice, job(50))
    for _ in range(50):
        stage.send()
    stage.simulator.add_fault(Fault(kind="delay", path="/results", delay_ms=300, times=None))
    connection, response = begin_reading(stage, made)
    assert response.status == 200
    wait_for(lambda: reading_threads() == 1)
    connection.close()
    response.close()
    wait_for(lambda: reading_threads() == 0)
    asked = sum("/results" in request.path for request, _ in stage.simulator.latest)
    assert asked < 25


def test_too_many_result_readers_are_throttled_with_retry_after(stage: AtlasWorld) -> None:
    made = submitted(stage.alice, job())
    stage.send()
    stage.simulator.add_fault(Fault(kind="delay", path="/results", delay_ms=1_500, times=None))
    opened = [begin_reading(stage, made) for _ in range(atlas_reads.READS_EACH_MAX)]
    wait_for(lambda: reading_threads() == atlas_reads.READS_EACH_MAX)
    refused = stage.alice("GET", f"/v1/jobs/{made}/results")
    assert (refused.status, refused.code) == (429, "throttled")
    assert int(refused.headers["retry-after"]) > 0
    for connection, response in opened:
        assert [json.loads(line) for line in response.read().splitlines()]
        connection.close()
    wait_for(lambda: reading_threads() == 0)
    stage.simulator.faults.clear()
    assert results(stage, made)


def test_requests_that_wait_for_ripe_do_not_block_other_requests(stage: AtlasWorld) -> None:
    made = submitted(stage.alice, job())
    stage.send()
    readers = [stage.world.add(f"admin{number}", "admin") for number in range(4)]
    stage.simulator.add_fault(Fault(kind="delay", path="/results", delay_ms=4_000, times=None))
    opened = [begin_reading(stage, made, reader) for reader in readers for _ in range(2)]
    wait_for(lambda: reading_threads() == atlas_reads.READS_MAX)
    assert stage.alice("GET", f"/v1/jobs/{made}/results").code == "throttled"
    began_s = time.monotonic()
    assert stage.alice("GET", f"/v1/jobs/{made}").status == 200
    assert time.monotonic() - began_s < 3.5
    for connection, response in opened:
        response.close()
        connection.close()
    wait_for(lambda: reading_threads() == 0)


def test_a_process_that_drains_does_not_wait_for_ripe(stage: AtlasWorld) -> None:
    made = submitted(stage.alice, job(3))
    for _ in range(3):
        stage.send()
    stage.simulator.add_fault(Fault(kind="delay", path="/results", delay_ms=8_000, times=None))
    connection, response = begin_reading(stage, made)
    wait_for(lambda: reading_threads() == 1)
    began_s = time.monotonic()
    stage.world.hooks.arrivals.close()
    found = [json.loads(line) for line in response.read().splitlines()]
    connection.close()
    assert time.monotonic() - began_s < 5
    assert [line["measurement"] for line in found] == [0, 1, 2]
    assert all("stopping" in line["error"] for line in found)
