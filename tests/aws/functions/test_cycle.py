"""A monitor's cycle through the functions: repeated, late, shuffled or broken messages change nothing."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from paceline.core.monitors.definition import parse_spec
from paceline.core.monitors.values import PutMonitor
from paceline.ports.queue_messages import CheckWake
from paceline.shells.aws_lambda import items_stream, schedulers_stream, sweeper, ticks
from tests.aws.support.lambda_stage import Context, Cycle, Stage, Target
from tests.aws.support.mapping import Weather

pytestmark = pytest.mark.aws
MONITOR = "/v1/users/boss/monitors/home"


def monitor(url: str, **more: Any) -> dict[str, Any]:
    return {"check": {"kind": "http", "url": url}, "every": "60s"} | more


def runs_of(stage: Stage) -> list[dict[str, Any]]:
    status, page = stage.rest("GET", f"{MONITOR}/runs")
    assert status == 200
    items: list[dict[str, Any]] = page["items"]
    return items


def test_monitor_put_over_rest_is_checked_and_shows_its_outcome(stage: Stage, target: Target) -> None:
    cycle = Cycle.of(stage)
    status, answer = stage.rest("PUT", MONITOR, monitor(f"{target.url}/home"))
    assert status == 201, answer
    cycle.until(lambda: target.asked)
    (run,) = runs_of(stage)
    assert (run["state"], target.asked) == ("ok", ["/home"])
    cycle.schedulers.pump()
    assert stage.depth("ticks") == 1, "the alarm of its next firing waits"


def test_every_firing_is_one_run_with_repeated_and_shuffled_messages(stage: Stage, target: Target) -> None:
    cycle = Cycle.of(stage, weather=Weather(seed=3, again=1.0, shuffled=True))
    for name in ("a", "b", "c"):
        path = f"/v1/users/boss/monitors/{name}"
        assert stage.rest("PUT", path, monitor(f"{target.url}/{name}", every="2s"))[0] == 201
    cycle.until(lambda: len(target.asked) >= 9)
    for name in ("a", "b", "c"):
        _, page = stage.rest("GET", f"/v1/users/boss/monitors/{name}/runs")
        dues = [run["due"] for run in page["items"]]
        asked = target.asked.count(f"/{name}")
        assert len(set(dues)) == len(dues)
        assert asked <= len(dues) <= asked + 1, "none was carried out twice"


def test_alarm_from_before_an_edit_makes_no_run(stage: Stage, target: Target) -> None:
    assert stage.rest("PUT", MONITOR, monitor(target.url, initial_delay="1s"))[0] == 201
    stage.stream("schedulers", schedulers_stream.handler).pump()
    assert stage.rest("PUT", MONITOR, monitor(target.url, initial_delay="1s", paused=True))[0] == 200
    time.sleep(2.2)
    assert stage.queue("ticks", ticks.handler).pump() == 1
    assert (runs_of(stage), stage.depth("runs.fifo")) == ([], 0)


def test_change_that_the_api_did_not_apply_is_applied_by_the_stream(stage: Stage, target: Target) -> None:
    stream = stage.stream("items", items_stream.handler)
    spec = parse_spec(json.dumps(monitor(target.url)).encode(), limits=stage.now.system.limits)
    stage.store.put_monitors([PutMonitor("boss", "home", spec)], monitors_max=10, now_ms=stage.now.now_ms())
    assert stage.rest("GET", MONITOR)[1]["schedule"]["next_due"] is None
    stream.pump()
    assert stage.rest("GET", MONITOR)[1]["schedule"]["next_due"] is not None


def test_unreadable_entry_does_not_block_the_others(stage: Stage, target: Target) -> None:
    table = f"{stage.prefix}-schedulers"
    broken = {"pk": {"S": "broken"}, "sk": {"S": "-"}, "due_ms": {"S": "soon"}}
    stage.store._clients.dynamodb.put_item(TableName=table, Item=broken)
    assert stage.rest("PUT", MONITOR, monitor(target.url))[0] == 201
    stream = stage.stream("schedulers", schedulers_stream.handler)
    stream.pump()
    assert [record["dynamodb"]["Keys"]["pk"]["S"] for record in stream.given_up] == ["broken"]
    time.sleep(1.1)
    stage.queue("ticks", ticks.handler).pump()
    assert len(runs_of(stage)) == 1, "its alarm came twice, with the broken one's second chance, and counts once"


def test_unreadable_message_fails_alone_and_ends_in_the_dead_queue(stage: Stage, target: Target) -> None:
    assert stage.rest("PUT", MONITOR, monitor(target.url))[0] == 201
    stage.stream("schedulers", schedulers_stream.handler).pump()
    stage.send("ticks", "no alarm", '{"generation": "one", "counter": 0, "due": 0}')
    mapping = stage.queue("ticks", ticks.handler)
    time.sleep(1.1)
    mapping.pump()
    assert len(runs_of(stage)) == 1
    assert (stage.depth("ticks"), stage.depth("ticks-dead")) == (0, 2)


def test_entry_due_later_than_a_message_can_wait_is_armed_in_its_last_15_minutes(stage: Stage, target: Target) -> None:
    assert stage.rest("PUT", MONITOR, monitor(target.url, every="1d", initial_delay="20m"))[0] == 201
    stage.stream("schedulers", schedulers_stream.handler).pump()
    assert stage.depth("ticks") == 0
    assert sweeper.handler({}, Context())["armed"] == 0
    stage.at(6 * 60_000)
    assert sweeper.handler({}, Context())["armed"] == 1
    stage.at(7 * 60_000)
    assert sweeper.handler({}, Context())["armed"] == 0, "one alarm, not one for each sweep"
    assert stage.depth("ticks") == 1


def test_sweep_alerts_once_that_a_run_without_a_checker_is_late(stage: Stage) -> None:
    assert stage.rest("PUT", MONITOR, {"check": {"kind": "outgoing", "payload": {}}, "every": "1d"})[0] == 201
    stage.at(2_000)
    cycle = Cycle.of(stage)
    sweeper.handler({}, Context())
    cycle.ticks.pump()
    assert sweeper.handler({}, Context())["told"] == 0
    stage.at(6 * 60_000)
    assert sweeper.handler({}, Context())["told"] == 1
    assert sweeper.handler({}, Context())["told"] == 0, "once"


def test_entry_with_a_lost_alarm_is_found_by_the_sweeper(stage: Stage, target: Target) -> None:
    cycle = Cycle.of(stage)
    assert stage.rest("PUT", MONITOR, monitor(target.url))[0] == 201
    stage.at(2 * 60_000)
    assert sweeper.handler({}, Context())["late"] == 1
    cycle.ticks.pump()
    cycle.runs.pump()
    assert len(target.asked) == 1


def test_run_with_a_lost_message_is_sent_at_the_next_sweep(stage: Stage, target: Target) -> None:
    cycle = Cycle.of(stage)
    assert stage.rest("PUT", MONITOR, monitor(target.url))[0] == 201
    cycle.schedulers.pump()
    time.sleep(1.1)
    cycle.ticks.pump()
    stage.store._clients.sqs.purge_queue(QueueUrl=stage.url("runs.fifo"))
    assert cycle.runs.pump() == 0
    sweeper.handler({}, Context())
    cycle.runs.pump()
    assert len(target.asked) == 1


def test_failed_check_is_tried_again_by_a_message_of_its_own(stage: Stage, target: Target) -> None:
    cycle = Cycle.of(stage)
    target.status = 503
    assert stage.rest("PUT", MONITOR, monitor(target.url, attempts=2))[0] == 201
    cycle.schedulers.pump()
    time.sleep(1.1)
    cycle.ticks.pump()
    cycle.runs.pump()
    (run,) = runs_of(stage)
    assert (run["state"], run["attempt"]) == ("retry", 1)
    time.sleep(1.1)
    target.status = 200
    cycle.ticks.pump()
    cycle.runs.pump()
    (run,) = runs_of(stage)
    assert (run["state"], run["attempt"], len(target.asked)) == ("ok", 2, 2)


def test_message_for_one_run_does_not_read_the_others(stage: Stage, target: Target) -> None:
    cycle = Cycle.of(stage)
    for name in ("a", "b"):
        assert stage.rest("PUT", f"/v1/users/boss/monitors/{name}", monitor(f"{target.url}/{name}"))[0] == 201
    cycle.schedulers.pump()
    time.sleep(1.1)
    cycle.ticks.pump()
    stage.store._clients.sqs.purge_queue(QueueUrl=stage.url("runs.fifo"))
    entries = {one.monitor: one.entry for one in stage.store.schedulers(after_generation=0, limit=9, now_ms=0)}
    stage.asked.clear()
    stage.now.outbox.wake([CheckWake(entries["b"].generation, 1)])  # not its name, for which SQS drops a second one
    cycle.runs.pump()
    assert target.asked == ["/b"]
    assert ("dynamodb", "Query", "runs/ready") not in stage.calls()
    sweeper.handler({}, Context())
    cycle.runs.pump()
    assert target.asked == ["/b", "/a"]


def test_unreadable_message_blocks_only_its_own_group(stage: Stage, target: Target) -> None:
    cycle = Cycle.of(stage)
    stage.send("runs.fifo", "no wake", group="provider-7")
    stage.send("runs.fifo", '{"provider": 7, "at": 1, "look": 1}', group="provider-7")
    assert stage.rest("PUT", MONITOR, monitor(target.url))[0] == 201
    cycle.schedulers.pump()
    time.sleep(1.1)
    cycle.ticks.pump()
    cycle.runs.pump()
    assert len(target.asked) == 1
    assert stage.depth("runs-dead.fifo") == 2, "the one behind it kept its place, and the sweep makes up for it"


def test_deleted_monitor_makes_no_more_runs(stage: Stage, target: Target) -> None:
    cycle = Cycle.of(stage)
    assert stage.rest("PUT", MONITOR, monitor(target.url))[0] == 201
    cycle.schedulers.pump()
    assert stage.rest("DELETE", MONITOR)[0] == 204
    time.sleep(1.1)
    cycle.turn()
    assert (target.asked, stage.depth("ticks"), stage.depth("runs.fifo")) == ([], 0, 0)


def test_runs_that_are_caught_up_have_a_message_for_their_time(stage: Stage, target: Target) -> None:
    cycle = Cycle.of(stage)
    assert stage.rest("PUT", MONITOR, monitor(target.url, missed="all"))[0] == 201
    cycle.schedulers.pump()
    stage.at(6 * 60_000)
    time.sleep(1.1)
    cycle.ticks.pump()
    runs = runs_of(stage)
    assert len(runs) > 3
    ripe = stage.depth("runs.fifo")
    assert ripe + stage.depth("ticks") >= len(runs), "they wait for their own time, not for the next minute"
    generation, counter = map(int, runs[0]["run"].partition("#")[2].split("@"))
    stage.send("ticks", json.dumps({"generation": generation, "counter": counter, "at": stage.now.now_ms()}))
    cycle.ticks.pump()
    assert stage.depth("runs.fifo") > ripe, "its time has come"
