"""A batch's day through the functions: planned page by page, released when due, in order, each once."""

from __future__ import annotations

import json
import time
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from paceline.ports.queue_messages import CallWake
from paceline.shells.aws_lambda import keeper, planner, sender, sweeper
from paceline.shells.aws_lambda.planner import DueDay, execution_name
from tests.aws.support.lambda_stage import Context, Cycle, Stage, Target, timed
from tests.aws.support.mapping import Weather
from tests.aws.support.ministack import plain_client

pytestmark = pytest.mark.aws


def today(shift_s: int = 0) -> datetime:
    return datetime.now(UTC) + timedelta(seconds=shift_s)


def declare(stage: Stage, target: Target, *, records: int, providers: int = 1) -> str:
    """A batch whose day began a moment ago and is a minute long; the date to plan."""
    began = today(-5)
    for number in range(providers):
        assert stage.rest("PUT", f"/v1/providers/p{number}", {"kind": "http", "base_url": target.url})[0] == 201
    spec = {"start": began.strftime("%H:%M"), "window": "1m", "missed": "once"}
    assert stage.rest("PUT", "/v1/batches/daily", spec)[0] == 201
    items = [{"id": f"r{n}", "provider": f"p{n % providers}", "endpoint": f"/r{n}", "body": {}} for n in range(records)]
    if items:
        status, answer = stage.rest("PUT", "/v1/batches/daily/records", {"items": items})
        assert status == 200, answer
    return began.date().isoformat()


def plan(day: str, **more: Any) -> dict[str, Any]:
    told: dict[str, Any] = planner.plan({"batch": "daily", "date": day, "before": 0} | more, Context())
    return told


def states(stage: Stage, day: str) -> dict[str, int]:
    status, answer = stage.rest("GET", f"/v1/batches/daily/days/{day}")
    assert status == 200, answer
    return {name: count for name, count in answer["totals"].items() if count and name != "runs"}


def test_a_day_is_planned_released_and_carried_out(stage: Stage, target: Target) -> None:
    cycle = Cycle.of(stage)
    day = declare(stage, target, records=6, providers=2)
    told = plan(day)
    assert (told["enqueued"], told["finished"]) == (6, True)
    stage.at(120_000)
    assert planner.release(told, Context()) == {"enqueued": 6}
    assert stage.depth("runs.fifo") == 2, "one message for each provider"
    cycle.until(lambda: len(target.asked) == 6)
    assert states(stage, day) == {"done": 6}
    for provider in range(2):
        own = [path for path in target.asked if int(path[2:]) % 2 == provider]
        assert len(own) == 3


def test_day_planned_and_delivered_twice_runs_each_record_once(stage: Stage, target: Target) -> None:
    cycle = Cycle.of(stage, weather=Weather(seed=1, again=1.0, shuffled=True))
    day = declare(stage, target, records=5)
    assert plan(day)["enqueued"] == 5
    assert plan(day)["enqueued"] == 5, "the ledger's count: a call whose answer was lost has counted"
    assert plan(day, before=5)["enqueued"] == 0
    stage.at(120_000)
    for _ in range(3):
        sweeper.handler({}, Context())
    cycle.until(lambda: len(target.asked) >= 5)
    cycle.turn()
    assert sorted(target.asked) == [f"/r{n}" for n in range(5)]


def test_a_provider_is_released_when_it_is_due_and_not_before(stage: Stage, target: Target) -> None:
    declare(stage, target, records=1)
    stage.rest("PUT", "/v1/batches/daily", {"start": "00:00", "window": "24h", "missed": "once"})
    day = today().date().isoformat()
    plan(day)
    ((_, ready_ms),) = stage.store.ready_lanes(until_ms=1 << 60)
    shift_ms = ready_ms - stage.now.now_ms() - 30_000
    stage.at(shift_ms)
    assert sweeper.handler({}, Context())["released"] == 0
    assert stage.depth("ticks") == 1, "its alarm, for the FIFO queue cannot delay"
    stage.at(shift_ms + 31_000)
    assert sweeper.handler({}, Context())["released"] == 1


def test_next_run_of_a_provider_gets_its_message_without_the_sweeper(stage: Stage, target: Target) -> None:
    cycle = Cycle.of(stage)
    day = declare(stage, target, records=12)
    assert plan(day)["enqueued"] == 12
    sweeper.handler({}, Context())
    cycle.until(lambda: len(target.asked) >= 2, within_s=40)
    # On a busy machine the minute of the batch is over, and all have been sent by then.
    assert stage.depth("ticks") + stage.depth("runs.fifo") >= 1 or len(target.asked) == 12


def test_message_for_one_provider_does_not_read_the_others(stage: Stage, target: Target) -> None:
    cycle = Cycle.of(stage)
    assert plan(declare(stage, target, records=4, providers=2))["enqueued"] == 4
    stage.at(120_000)
    ready = dict(stage.store.ready_lanes(until_ms=stage.now.now_ms()))
    assert len(ready) == 2
    first = min(ready)
    stage.asked.clear()
    stage.now.outbox.wake([CallWake(first, ready[first], 0)])
    cycle.until(lambda: len(target.asked) == 2)
    assert sorted(target.asked) == ["/r0", "/r2"]
    assert ("dynamodb", "Query", "runs/ready") not in stage.calls()
    sweeper.handler({}, Context())
    cycle.until(lambda: len(target.asked) == 4)


@pytest.mark.slow
def test_a_call_that_outlasts_its_function_is_given_back_where_it_can_be_repeated(
    stage: Stage, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sender, "CLAIM_S", 0.5)
    day = declare(stage, target, records=0)
    items = {"items": [{"id": "slow", "provider": "p0", "endpoint": "/slow"}]}
    assert stage.rest("PUT", "/v1/batches/daily/records", items)[0] == 200
    plan(day)
    stage.at(120_000)
    target.takes_s = 5.0
    sweeper.handler({}, Context())
    cycle = Cycle.of(stage)
    cycle.runs.handler = timed(sender.handler, left_s=4.0)
    cycle.until(lambda: target.asked)
    assert states(stage, day) == {"waiting": 1}, "not out any more"
    target.takes_s = 0.0
    cycle.until(lambda: len(target.asked) == 2)
    assert states(stage, day) == {"done": 1}


def failing_machine(stage: Stage) -> str:
    """A planner that fails at once; its ARN."""
    machines = plain_client("stepfunctions", stage.aws.url)
    definition = {"StartAt": "Broken", "States": {"Broken": {"Type": "Fail", "Error": "broken"}}}
    arn: str = machines.create_state_machine(
        name=f"{stage.prefix}-planner",
        definition=json.dumps(definition),
        roleArn="arn:aws:iam::000000000000:role/planner",
    )["stateMachineArn"]
    return arn


def test_failed_planning_of_a_day_is_started_again_under_another_name_at_most_five_times(
    stage: Stage, target: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(planner.MACHINE_NAME, failing_machine(stage))
    starts = today(61)
    assert stage.rest("PUT", "/v1/providers/p0", {"kind": "http", "base_url": target.url})[0] == 201
    spec = {"start": starts.strftime("%H:%M"), "window": "1m", "missed": "once"}
    assert stage.rest("PUT", "/v1/batches/daily", spec)[0] == 201
    assert planner.start({}, Context())["started"] == [], "it has not begun"
    stage.at(62_000)
    begun = []
    for _ in range(7):
        begun += planner.start({}, Context())["started"]
        time.sleep(0.3)
    plain = f"daily-{starts.date().isoformat()}"
    assert begun == [plain, *(f"{plain}-r{again}" for again in range(1, 5))]


@pytest.mark.usefixtures("stage")
def test_planning_a_removed_batch_enqueues_nothing() -> None:
    assert plan("2026-11-16") == {
        "batch": "daily",
        "date": "2026-11-16",
        "before": 0,
        "enqueued": 0,
        "finished": True,
    }


def test_planning_function_without_time_for_a_page_asks_to_be_called_again(stage: Stage, target: Target) -> None:
    day = declare(stage, target, records=3)
    told = planner.plan({"batch": "daily", "date": day, "before": 0}, Context(left_s=30))
    assert not told["finished"]
    told = planner.plan(told, Context())
    assert (told["finished"], told["enqueued"]) == (True, 3)


def test_a_days_execution_has_a_name_that_step_functions_takes() -> None:
    names = set()
    for batch_id in ("daily", "daily_", "täglich", "dai ly", "x" * 120, "x" * 121):
        batch: Any = SimpleNamespace(id=batch_id)
        for again in range(3):
            name = execution_name(DueDay(batch, date(2026, 11, 16)), again)
            assert len(name) <= 80
            assert name.replace("-", "").replace("_", "").isalnum()
            assert name.isascii()
            names.add(name)
    assert len(names) == 18
    assert execution_name(DueDay(SimpleNamespace(id="daily"), date(2026, 11, 16))) == "daily-2026-11-16"  # type: ignore[arg-type]


def test_keeper_function_deletes_runs_older_than_their_retention(stage: Stage, target: Target) -> None:
    cycle = Cycle.of(stage)
    day = declare(stage, target, records=2)
    plan(day)
    stage.at(120_000)
    sweeper.handler({}, Context())
    cycle.until(lambda: len(target.asked) == 2)
    assert keeper.handler({}, Context())["calls"] == 0
    stage.at(100 * 86_400_000)
    assert keeper.handler({}, Context())["calls"] == 2


def test_keeper_function_publishes_the_number_of_dead_letters_as_a_metric(
    stage: Stage, target: Target, capsys: pytest.CaptureFixture[str]
) -> None:
    cycle = Cycle.of(stage)
    day = declare(stage, target, records=2)
    plan(day)
    stage.at(120_000)
    target.status = 404
    sweeper.handler({}, Context())
    cycle.until(lambda: len(target.asked) == 2)
    capsys.readouterr()
    keeper.handler({}, Context())
    (told,) = [json.loads(line) for line in capsys.readouterr().out.splitlines() if '"_aws"' in line]
    (where,) = told["_aws"]["CloudWatchMetrics"]
    assert where["Namespace"] == "Paceline"
    assert (told["DeadLetters"], told["RunsExpired"]) == ([2.0], [0.0])


def test_message_received_by_a_function_that_died_does_not_block_the_provider(stage: Stage, target: Target) -> None:
    day = declare(stage, target, records=1)
    plan(day)
    sweeper.handler({}, Context())
    sqs = plain_client("sqs", stage.aws.url)
    died_with = sqs.receive_message(QueueUrl=stage.url("runs.fifo"), MaxNumberOfMessages=10)["Messages"]
    assert died_with
    for minute in (2, 3, 4):
        stage.at(minute * 60_000)
        sweeper.handler({}, Context())
        stage.queue("runs.fifo", sender.handler).pump()
    assert states(stage, day) == {"done": 1}
