"""REST through API Gateway's events: requests and answers arrive unchanged."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from paceline.ports import queue_messages
from paceline.shells.aws_lambda import api
from tests.aws.support.lambda_stage import Context, Stage, http_event, lambda_stage

pytestmark = pytest.mark.aws


@pytest.fixture(scope="module")
def stage() -> Iterator[Stage]:
    with lambda_stage() as made:
        yield made


def test_a_problem_is_text_with_its_own_content_type(stage: Stage) -> None:
    answer = api.handler(http_event("GET", "/v1/users/nobody", token=stage.token), Context())
    assert (answer["statusCode"], answer["isBase64Encoded"]) == (404, False)
    assert answer["headers"]["content-type"] == "application/problem+json"
    assert json.loads(answer["body"])["code"] == "not_found"


def test_api_function_refuses_requests_without_a_token(stage: Stage) -> None:
    del stage
    answer = api.handler(http_event("GET", "/v1/users"), Context())
    assert answer["statusCode"] == 401


def test_queries_and_escaped_paths_arrive_as_they_were_sent(stage: Stage) -> None:
    spec = {"check": {"kind": "outgoing", "payload": {"ä": 1}}, "every": "60s", "paused": True}
    assert stage.rest("PUT", "/v1/users/boss/monitors/a%2Eb", spec)[0] == 201
    status, page = stage.rest("GET", "/v1/users/me/monitors?limit=1")
    assert (status, [item["id"] for item in page["items"]]) == (200, ["a.b"])
    assert page["items"][0]["check"]["payload"] == {"ä": 1}


def test_an_edit_that_is_out_of_date_is_refused_by_its_etag(stage: Stage) -> None:
    spec = {"check": {"kind": "outgoing", "payload": {}}, "every": "60s", "paused": True}
    assert stage.rest("PUT", "/v1/users/boss/monitors/tagged", spec)[0] == 201
    headers = {"if-match": '"999"'}
    event = http_event("PUT", "/v1/users/boss/monitors/tagged", spec, token=stage.token, headers=headers)
    assert api.handler(event, Context())["statusCode"] == 412


def test_later_requests_reuse_the_adapter_of_the_process(stage: Stage) -> None:
    for _ in range(3):
        assert stage.rest("GET", "/readyz")[0] == 200
    assert api._adapter.cache_info().currsize == 1


def test_binary_answers_are_encoded_in_base64(stage: Stage) -> None:
    answer = api.handler(http_event("GET", "/openapi.json", token=stage.token), Context())
    text = answer["body"] if not answer["isBase64Encoded"] else base64.b64decode(answer["body"]).decode()
    assert "/v1/jobs" in json.loads(text)["paths"]


@pytest.mark.parametrize(
    "message",
    [queue_messages.Alarm(1, 2, 3), queue_messages.ProviderRelease(1, 2), queue_messages.Start(1, 2, 3)],
    ids=["alarm", "release", "start"],
)
def test_a_tick_is_read_as_it_was_written(message: queue_messages.Tick) -> None:
    assert queue_messages.read_tick(queue_messages.write(message)) == message


@pytest.mark.parametrize(
    "message",
    [queue_messages.CheckWake(1, 2), queue_messages.CallWake(1, 2, 3), queue_messages.MinuteWake(1)],
    ids=["check", "call", "look"],
)
def test_a_wake_is_read_as_it_was_written(message: queue_messages.Wake) -> None:
    assert queue_messages.read_wake(queue_messages.write(message)) == message


@pytest.mark.parametrize("body", ["", "{}", "[]", '{"generation": 1}', '{"look": 1, "more": 2}', '{"provider": "x"}'])
def test_unknown_message_is_refused(body: str) -> None:
    with pytest.raises(queue_messages.WrongMessage):
        queue_messages.read_tick(body)
    with pytest.raises(queue_messages.WrongMessage):
        queue_messages.read_wake(body)
