"""Results are read from RIPE, line by line, and nothing is left out silently. Against the simulator's real server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from paceline.adapters.providers.ripe_atlas import RipeAtlas
from paceline.adapters.vault import SecretVault
from paceline.core.jobs.atlas import Created, Marker, client_id, request_body
from paceline.core.jobs.job import JobLimits
from paceline.core.jobs.values import Rejected, Sent, StoredJob, StoredMeasurement
from paceline.core.users import UserEdit
from paceline.ports import Store
from paceline.simulators.ripe_atlas import AtlasSimulator, Fault, SimulatorClock, SimulatorModel
from paceline.steps.jobs import accounts, results
from paceline.steps.jobs.results import write_merged, write_results
from paceline.steps.jobs.submit import submit_job
from tests.contract.support.job_stage import begin
from tests.contract.support.stage import T0_MS

VAULT = SecretVault(b"a secret key of enough bytes")


class Stage:
    def __init__(self, store: Store, simulator: AtlasSimulator, atlas: RipeAtlas) -> None:
        self.store, self.simulator, self.atlas = store, simulator, atlas
        self.secret = simulator.add_account("lab")[0]
        accounts.put_account(store, "lab", b"{}")
        self.key = accounts.add_key(store, VAULT, "lab", self.secret, now_ms=T0_MS)
        store.edit_user("ann", UserEdit(daily_credits=10**9))

    def submit(self, *measurements: dict[str, Any]) -> StoredJob:
        body = json.dumps({"measurements": measurements}).encode()
        return submit_job(self.store, "ann", body, limits=JobLimits(), now_ms=T0_MS).job

    def send(self) -> StoredMeasurement:
        begun = begin(self.store, self.key.id)
        marker = Marker("site1", begun.job, begun.index, begun.attempt)
        body = request_body(begun.measurement, marker, client=client_id("ann", b"s"), now_ms=T0_MS)
        answer = self.atlas.create(self.secret, begun.measurement, body)
        assert isinstance(answer, Created), answer
        assert self.store.answer(begun.handle, begun.attempt, Sent(answer.ids), now_ms=T0_MS)
        found = self.store.measurement(begun.handle)
        assert found is not None
        return found

    def wait(self) -> None:
        self.simulator.clock.advance(60_000)

    def read(self, job: StoredJob) -> list[Any]:
        pieces: list[bytes] = []
        read = write_results(self.store, self.atlas, VAULT, job, pieces.append)
        found = [json.loads(line) for line in b"".join(pieces).splitlines()]
        assert (read.results, read.errors) == (
            sum("result" in line for line in found),
            sum("error" in line for line in found),
        )
        return found

    def merge(self, job: StoredJob) -> list[Any]:
        pieces: list[bytes] = []
        write_merged(self.store, self.atlas, VAULT, job, pieces.append)
        return [json.loads(line) for line in b"".join(pieces).splitlines()]


@pytest.fixture
def stage(store: Store) -> Iterator[Stage]:
    with AtlasSimulator(SimulatorModel(index_lag_ms=0), clock=SimulatorClock(start_ms=T0_MS, speed=0)) as simulator:
        atlas = RipeAtlas(simulator.base_url)
        yield Stage(store, simulator, atlas)
        atlas.close()


def ping(*targets: str, **fields: Any) -> dict[str, Any]:
    definitions = [{"type": "ping", "af": 4, "target": one, "description": "d"} | fields for one in targets]
    return {
        "definitions": definitions,
        "probes": [{"requested": 10, "type": "area", "value": "WW"}],
        "is_oneoff": True,
    }


def test_each_line_names_measurement_definition_id_and_target(stage: Stage) -> None:
    job = stage.submit(ping("192.0.2.1", "192.0.2.2"))
    sent = stage.send()
    stage.wait()
    found = stage.read(job)
    assert all(line["result"]["msm_id"] == line["atlas_id"] for line in found)
    assert {(line["measurement"], line["definition"], line["target"], line["atlas_id"]) for line in found} == {
        (0, 0, "192.0.2.1", sent.atlas[0].atlas_id),
        (0, 1, "192.0.2.2", sent.atlas[1].atlas_id),
    }


def test_definition_without_results_has_a_line_with_the_reason(stage: Stage) -> None:
    job = stage.submit(*(ping(f"192.0.2.{number}") for number in range(1, 6)))
    stage.send()
    rejected = begin(stage.store, stage.key.id)
    assert stage.store.answer(rejected.handle, rejected.attempt, Rejected("RIPE says no"), now_ms=T0_MS)
    begin(stage.store, stage.key.id)
    fourth = stage.store.measurements(job.number, after=2, limit=1)[0]
    stage.store.cancel_measurement(fourth.handle, now_ms=T0_MS)
    assert [(line["measurement"], line["error"]) for line in stage.read(job)] == [
        (0, "RIPE has no results of it yet"),
        (1, "it failed before it ran: RIPE says no"),
        (2, "it is being sent"),
        (3, "it was cancelled before it was sent: cancelled"),
        (4, "it is not sent yet"),
    ]


def test_private_results_are_read_with_a_key_of_the_same_account(stage: Stage) -> None:
    job = stage.submit(ping("192.0.2.1", is_public=False))
    stage.send()
    stage.wait()
    assert all("result" in line for line in stage.read(job))
    accounts.remove_key(stage.store, "lab", stage.key.id)
    [refused] = stage.read(job)
    assert "its account has no key that can be used" in refused["error"]


def test_results_are_not_read_further_after_three_unanswered_requests(stage: Stage) -> None:
    job = stage.submit(*(ping(f"192.0.2.{number}") for number in range(1, 7)))
    for _ in range(6):
        stage.send()
    stage.wait()
    stage.simulator.add_fault(Fault(kind="error_before", path="/results", times=None))
    asked = len(stage.simulator.latest)
    found = stage.read(job)
    assert len(stage.simulator.latest) - asked == results.LOST_MAX
    assert [line["error"].startswith("not asked") for line in found] == [False] * 3 + [True] * 3


def test_an_answer_that_breaks_off_leaves_its_beginning_and_an_error(stage: Stage) -> None:
    job = stage.submit(ping("192.0.2.1"), ping("192.0.2.2"))
    stage.send()
    whole = stage.send()
    stage.wait()
    stage.simulator.add_fault(Fault(kind="half_reply", path="/results", times=1))
    found = stage.read(job)
    first = [line for line in found if line["measurement"] == 0]
    assert "not all of it was read" in first[-1]["error"]
    assert all("result" in line for line in first[:-1])
    assert {line["atlas_id"] for line in found if line["measurement"] == 1} == {whole.atlas[0].atlas_id}


def test_results_above_the_size_limit_end_with_an_error(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "BYTES_MAX", 1_500)
    job = stage.submit(ping("192.0.2.1"))
    stage.send()
    stage.wait()
    found = stage.read(job)
    assert "there is more than 1500 bytes of it" in found[-1]["error"]
    assert len(found) > 1


def test_merged_results_have_one_line_for_each_target(stage: Stage) -> None:
    dns = {
        "definitions": [
            {
                "type": "dns",
                "af": 4,
                "description": "d",
                "query_class": "IN",
                "query_type": "A",
                "query_argument": "example.org",
                "use_probe_resolver": True,
            }
        ],
        "probes": [{"requested": 10, "type": "area", "value": "WW"}],
        "is_oneoff": True,
    }
    job = stage.submit(ping("Example.ORG", "192.0.2.1"), ping("example.org"), dns, ping("192.0.2.1"))
    sent = [stage.send() for _ in range(3)]
    stage.wait()
    plain = stage.read(job)
    merged = stage.merge(job)
    assert [line["target"] for line in merged] == ["Example.ORG", "192.0.2.1", None]
    assert sum(len(line["results"]) for line in merged) == sum("result" in line for line in plain)
    name, address, resolver = merged
    assert [place["measurement"] for place in name["measurements"]] == [0, 1]
    assert {one["msm_id"] for one in resolver["results"]} == {sent[2].atlas[0].atlas_id}
    assert (name["errors"], resolver["errors"]) == ([], [])
    [error] = address["errors"]
    assert (error["measurement"], error["error"]) == (3, "it is not sent yet")


def test_exception_of_the_result_consumer_ends_the_reading(stage: Stage) -> None:
    job = stage.submit(ping("192.0.2.1"), ping("192.0.2.2"))
    stage.send()
    stage.send()
    stage.wait()
    taken: list[bytes] = []

    def take(piece: bytes) -> None:
        taken.append(piece)
        raise BrokenPipeError

    asked = len(stage.simulator.latest)
    with pytest.raises(BrokenPipeError):
        write_results(stage.store, stage.atlas, VAULT, job, take)
    assert (len(taken), len(stage.simulator.latest) - asked) == (1, 1)


def test_key_that_cannot_be_opened_adds_an_error_line_to_the_results(stage: Stage) -> None:
    job = stage.submit(ping("192.0.2.1", is_public=False))
    stage.send()
    stage.wait()
    pieces: list[bytes] = []
    write_results(stage.store, stage.atlas, SecretVault(b"quite another secret key"), job, pieces.append)
    assert "no key that can be used" in json.loads(pieces[0])["error"]
