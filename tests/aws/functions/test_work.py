"""Runs for outside workers through the functions: messages in order, claims by id, reports over REST."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

import pytest

from paceline.adapters.aws.client.queues import Received
from paceline.core.batches.batch import BODY_BYTES_MAX
from paceline.ports.queue_messages import WorkMessage, work_letter
from paceline.shells.aws_lambda import sweeper, ticks
from tests.aws.functions.test_batches import declare, plan, states
from tests.aws.support.lambda_stage import Context, Cycle, Stage, Target

pytestmark = pytest.mark.aws


def received(stage: Stage) -> list[Received]:
    found: list[Received] = stage.store.queues.receive("work.fifo", messages_max=10, wait_s=0, hidden_s=60)
    stage.store.queues.forget("work.fifo", [one.receipt for one in found])
    return found


def work_day(stage: Stage, target: Target, *, records: int, **policy: Any) -> str:
    """A day of records at a provider that workers claim from, all of them due."""
    day = declare(stage, target, records=records)
    assert stage.rest("PUT", "/v1/providers/p0", {"kind": "outgoing", **policy})[0] == 200
    assert plan(day)["enqueued"] == records
    stage.at(120_000)
    return day


def finish(stage: Stage, work: dict[str, Any], status: str = "ok") -> None:
    run = quote(work["run"], safe="")
    code, item = stage.rest("POST", f"/v1/runs/{run}/claim", {"lease": "60s", "attempt": work["attempt"]})
    assert code == 200, item
    assert item["record"] == {name: work[name] for name in ("id", "provider", "endpoint", "body")}
    code, answer = stage.rest("POST", f"/v1/runs/{run}/outcome", {"lease": item["lease"], "status": status})
    assert code == 200, answer


def told(stage: Stage) -> list[Received]:
    """The next messages. What is behind its time is staggered and paced, so some time passes before they come."""
    for _ in range(20):
        sweeper.handler({}, Context())
        if found := received(stage):
            return found
        stage.at(stage.clock.ahead_ms + 10_000)
    raise AssertionError("nothing was told")


def test_a_program_that_reads_the_queue_does_a_whole_day_in_order(stage: Stage, target: Target) -> None:
    day = work_day(stage, target, records=4)
    done: list[str] = []
    while len(done) < 4:
        (message,) = told(stage)
        work = json.loads(message.body)
        assert set(work) == {"id", "provider", "endpoint", "body", "run", "due", "attempt"}
        assert (message.group, message.once) == ("p0", f"daily/{work['id']}@{day}#1")
        assert (work["provider"], work["endpoint"], work["body"]) == ("p0", f"/{work['id']}", {})
        finish(stage, work)
        done.append(work["due"])
    assert done == sorted(done)
    assert states(stage, day) == {"done": 4}
    assert target.asked == []


def test_report_of_a_worker_queues_the_message_for_the_next_run_at_once(stage: Stage, target: Target) -> None:
    work_day(stage, target, records=2, rate="100/1s")
    (first,) = told(stage)
    stage.at(stage.clock.ahead_ms + 600_000)
    finish(stage, json.loads(first.body))
    assert [json.loads(one.body)["attempt"] for one in received(stage) or told(stage)] == [1]


def test_retried_run_gets_a_new_message_with_the_next_attempt(stage: Stage, target: Target) -> None:
    work_day(stage, target, records=1)
    (first,) = told(stage)
    finish(stage, json.loads(first.body), "retry")
    (again,) = told(stage)
    assert json.loads(again.body)["attempt"] == 2
    assert again.once != first.once


def test_no_function_calls_a_provider_that_workers_claim_from(stage: Stage, target: Target) -> None:
    cycle = Cycle.of(stage)
    day = work_day(stage, target, records=3, max_in_flight=3)
    for _ in range(4):
        sweeper.handler({}, Context())
        cycle.turn()
        stage.at(stage.clock.ahead_ms + 20_000)
    assert target.asked == []
    assert states(stage, day) == {"waiting": 3}
    runs = [json.loads(one.body)["run"] for one in received(stage)]
    assert runs
    assert len(set(runs)) == len(runs), "a message sent twice within five minutes is in the queue once"


def test_due_release_of_an_outgoing_provider_goes_to_the_work_queue(stage: Stage, target: Target) -> None:
    work_day(stage, target, records=1)
    provider = stage.store.provider("p0")
    assert provider is not None
    event = {
        "Records": [{"messageId": "1", "body": json.dumps({"provider": provider.number, "at": 1}), "attributes": {}}]
    }
    for _ in range(20):
        ticks.handler(event, Context())
        if stage.depth("work.fifo"):
            break
        stage.at(stage.clock.ahead_ms + 10_000)
    assert (stage.depth("work.fifo"), stage.depth("runs.fifo")) == (1, 0)


def test_message_of_the_largest_record_fits_into_sqs() -> None:
    body = json.dumps("x" * (BODY_BYTES_MAX - 2))
    letter = work_letter(WorkMessage("r" * 128, "p" * 128, "/" * 2_048, body, "r" * 800, "2026-11-15T00:00:00Z", 1))
    assert len(letter.body.encode()) < 256 * 1024
    assert letter.once is not None
    assert len(letter.once) <= 128
    assert json.loads(letter.body)["body"] == "x" * (BODY_BYTES_MAX - 2)


def test_a_message_has_the_placeholders_of_its_record_filled_in(stage: Stage, target: Target) -> None:
    day = work_day(stage, target, records=1)
    record = {"id": "r0", "provider": "p0", "endpoint": "/{date}/{attempt}", "body": {"run": "{run}"}}
    assert stage.rest("PUT", "/v1/batches/daily/records", {"items": [record]})[0] == 200
    (message,) = told(stage)
    work = json.loads(message.body)
    assert (work["endpoint"], work["body"]) == (f"/{day}/1", {"run": f"daily/r0@{day}"})
    finish(stage, work)
