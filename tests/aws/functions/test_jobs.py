"""Jobs through the functions: sent, followed to their end, and reported to webhook and channels."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from types import SimpleNamespace

import pytest

from paceline.core.alerts.alert import Alert
from paceline.core.jobs.values import AccountSpec
from paceline.shells.aws_lambda import jobs
from paceline.simulators.ripe_atlas import AtlasSimulator, SimulatedLimits
from paceline.steps.jobs.accounts import add_key, put_account_spec
from tests.aws.support.lambda_stage import Context, Stage, Target, lambda_stage
from tests.aws.support.mapping import Weather
from tests.shells.support.job_daemons import QUICK, document

pytestmark = pytest.mark.aws


@pytest.fixture
def atlas() -> Iterator[AtlasSimulator]:
    with AtlasSimulator(QUICK) as running:
        yield running
        assert running.defects == []


@pytest.fixture
def stage(atlas: AtlasSimulator) -> Iterator[Stage]:
    quick = {"PACELINE_ATLAS_EVERY": "1s", "PACELINE_ATLAS_SETTLE": "1s"}
    with lambda_stage(PACELINE_ATLAS_URL=atlas.base_url, **quick) as made:
        add_account(made, atlas)
        yield made


def add_account(stage: Stage, atlas: AtlasSimulator) -> None:
    (secret,) = atlas.add_account("lab", limits=SimulatedLimits(concurrent=100))
    put_account_spec(stage.store, "lab", AccountSpec(concurrent=100))
    add_key(stage.store, stage.now.system.vault, "lab", secret, now_ms=stage.now.now_ms())


@pytest.mark.slow
def test_functions_send_and_follow_a_job_and_call_its_webhook(stage: Stage, atlas: AtlasSimulator) -> None:
    with closing(Target()) as hook:
        status, answer = stage.rest("POST", "/v1/jobs", document(3) | {"webhook": f"{hook.url}/done"})
        assert status == 202, answer
        jobs.dispatch({}, Context())
        assert len(atlas.audit()["measurements"]) == 3
        end_s = time.monotonic() + 60
        while not stage.rest("GET", f"/v1/jobs/{answer['job']}")[1]["finished"]:
            assert time.monotonic() < end_s
            jobs.follow({}, Context())
            time.sleep(0.3)
        jobs.tell({}, Context())
        assert hook.asked == ["/done"]
    assert stage.rest("GET", f"/v1/jobs/{answer['job']}")[1]["success"]


def test_function_sends_an_alert_once_through_the_channel_of_its_user(stage: Stage) -> None:
    with closing(Target()) as hook:
        channel = {"kind": "webhook", "url": f"{hook.url}/alert", "default": True}
        assert stage.rest("PUT", "/v1/users/boss/channels/ops", channel)[0] == 201
        alert = Alert("al_1", "monitor.failing", stage.now.now_ms(), "boss", "home", "answered 500")
        assert stage.store.add_alerts([alert]) == [True]
        for _ in range(2):
            jobs.tell({}, Context())
        assert hook.asked == ["/alert"]
    [told] = stage.rest("GET", "/v1/users/boss/alerts")[1]["items"]
    assert (told["state"], told["deliveries"][0]["tries"]) == ("told", 1)


def test_repeated_calls_of_the_dispatch_function_send_nothing_twice(stage: Stage, atlas: AtlasSimulator) -> None:
    assert stage.rest("POST", "/v1/jobs", document(2))[0] == 202
    for _ in range(3):
        jobs.dispatch({}, Context())
    assert len(atlas.audit()["measurements"]) == 2


def test_submitted_job_is_sent_once_as_soon_as_its_stream_record_arrives(
    stage: Stage, atlas: AtlasSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jobs, "LATE_S", 0.0)
    stream = stage.stream("ledger", jobs.dispatch, weather=Weather(seed=3, again=1.0))
    assert stage.rest("POST", "/v1/jobs", document(3))[0] == 202
    stream.pump()
    assert len(atlas.audit()["measurements"]) == 3
    assert (stream.given_up, stream.pump()) == ([], 0), (
        "the function's own writes were in the stream too and were ignored"
    )


def test_a_job_that_the_index_shows_after_the_stream_is_sent_too(
    stage: Stage, atlas: AtlasSimulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is waited for is the index; the test lets the job come into it meanwhile."""
    came: list[float] = []

    def sleep(seconds: float) -> None:
        if not came:
            assert stage.rest("POST", "/v1/jobs", document(1))[0] == 202
        came.append(seconds)

    monkeypatch.setattr(jobs, "time", SimpleNamespace(sleep=sleep))
    record = {"eventName": "INSERT", "dynamodb": {"Keys": {"pk": {"S": "job#1"}, "sk": {"S": "-"}}}}
    assert jobs.dispatch({"Records": [record]}, Context()) == {"batchItemFailures": []}
    assert came[0] == jobs.LATE_S
    assert len(atlas.audit()["measurements"]) == 1


@pytest.mark.parametrize(
    ("event", "pk", "sk"),
    [("MODIFY", "job#1", "-"), ("REMOVE", "job#1", "-"), ("INSERT", "job#1#0", "0000"), ("INSERT", "jobs", "0001")],
)
def test_stream_record_that_is_no_new_job_is_ignored(stage: Stage, event: str, pk: str, sk: str) -> None:
    record = {"eventName": event, "dynamodb": {"Keys": {"pk": {"S": pk}, "sk": {"S": sk}}}}
    stage.asked.clear()
    jobs.dispatch({"Records": [record]}, Context())
    assert stage.asked == []
