"""Least privilege: what each function asks of AWS is what its role in the template allows, and no more."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from paceline.adapters.aws.client.items import put
from paceline.adapters.aws.keys import user_key
from paceline.adapters.aws.monitors.users import fan_item
from paceline.core.batches.batch import RecordSpec
from paceline.core.monitors.definition import parse_spec
from paceline.core.monitors.values import PutMonitor
from paceline.shells.aws_lambda import (
    items_stream,
    jobs,
    keeper,
    planner,
    schedulers_stream,
    sender,
    sweeper,
    ticks,
)
from paceline.simulators.ripe_atlas import AtlasSimulator
from tests.aws.functions.test_batches import declare, failing_machine, today
from tests.aws.functions.test_jobs import add_account
from tests.aws.functions.test_template import functions, listed, named, resources, statements
from tests.aws.support.lambda_stage import Context, Stage, Target, lambda_stage
from tests.shells.support.job_daemons import QUICK, document

pytestmark = [pytest.mark.aws, pytest.mark.slow]
DAY_MS = 86_400_000
BATCH = "dynamodb:BatchWriteItem"
WRITES = {f"dynamodb:{name}" for name in ("PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem")}
STATED: dict[str, set[str]] = {
    # Numbers are taken in blocks, and another function of this process has one; runs were held while a user was out,
    # and are offered again.
    "ItemsStream": {"ledger", "runs", "outgoing"},
    # The run behind one that a worker reported may start at once: here it is behind its time, and paced.
    "Api": {"work.fifo"},
    # The first look staggers a provider that was left alone, so here the message always comes from the tick.
    "Sweeper": {"runs", "work.fifo"},
    # After an edit a monitor's next run is for an outside checker; a provider is ready as the time is over.
    # A provider that became one for workers while the sender had it.
    "Sender": {"outgoing", "runs.fifo", "work.fifo"},
    # A measurement of many definitions has many ids; what is left of a refused job is swept.
    "Dispatch": {"many ledger"},
    "Follow": {"many ledger"},
    # Removed records that no run names any more; users that have no outgoing runs any more; and a run
    # that is offered because the one before it has expired.
    # Whether a monitor still fails is asked when its silence ends.
    "Tell": {"runs"},
    "Keeper": {"items", "many items", "many ledger", "outgoing"},
}
"""What a scene of this length does not bring up, with its reason. ``many``: writes in batches."""
Right = tuple[str, str]
"""An action of IAM, and what it is on: a table, an index (``table/index``) or a queue, without the prefix."""
_KINDS = {"Put": "PutItem", "Update": "UpdateItem", "Delete": "DeleteItem", "ConditionCheck": "ConditionCheckItem"}


def rights_of(calls: set[tuple[str, str, str]]) -> set[Right]:
    """What IAM must allow for these calls: a transaction is allowed by its parts."""
    found: set[Right] = set()
    for service, operation, name in calls:
        if operation == "TransactWriteItems":
            table, _, kind = name.rpartition(":")
            found.add((f"dynamodb:{_KINDS[kind]}", table))
        elif operation == "TransactGetItems":
            found.add(("dynamodb:GetItem", name.rpartition(":")[0]))
        elif operation == "SendMessageBatch":
            # Its address is asked for once in a process, so perhaps by another function of this one.
            found |= {("sqs:SendMessage", name), ("sqs:GetQueueUrl", name)}
        elif operation == "DeleteMessageBatch":
            found.add(("sqs:DeleteMessage", name))
        else:
            found.add((f"{'states' if service == 'stepfunctions' else service}:{operation}", name))
    return found


def granted(function: str) -> set[Right]:
    """What its role allows of tables, indexes and queues; what the mappings need is AWS's part, and not listed here."""
    names = {one.resource: one.name for one in resources()}
    found: set[Right] = set()
    for statement in statements(f"{function}Role"):
        for action in listed(statement["Action"]):
            for resource in listed(statement["Resource"]):
                name = named(resource, names)
                if (
                    name is not None
                    and action.startswith(("dynamodb:", "sqs:", "states:"))
                    and (action not in OF_MAPPINGS or "-dead" in name)  # no mapping reads those
                ):
                    found.add((action, name))
    found.discard(("sqs:SendMessage", "streams-dead"))
    return found


OF_MAPPINGS = {
    *(f"dynamodb:{name}" for name in ("DescribeStream", "GetRecords", "GetShardIterator", "ListStreams")),
    *(f"sqs:{name}" for name in ("ReceiveMessage", "DeleteMessage", "GetQueueAttributes", "ChangeMessageVisibility")),
}


class Recording:
    """Each function's calls, one scene after the other."""

    def __init__(self, stage: Stage) -> None:
        self.stage = stage
        self.rights: dict[str, set[Right]] = {}

    @contextmanager
    def of(self, function: str) -> Iterator[None]:
        """All requests inside the block are made by this function."""
        self.stage.asked.clear()
        yield
        self.rights.setdefault(function, set()).update(rights_of(self.stage.calls()))


@pytest.fixture(scope="module")
def recorded() -> Iterator[dict[str, set[Right]]]:
    with AtlasSimulator(QUICK) as atlas, closing(Target()) as target, pytest.MonkeyPatch.context() as patch:
        quick = {"PACELINE_ATLAS_EVERY": "1s", "PACELINE_ATLAS_SETTLE": "1s", "PACELINE_ATLAS_URL": atlas.base_url}
        with lambda_stage(**quick) as stage:
            recording = Recording(stage)
            patch.setenv(planner.MACHINE_NAME, failing_machine(stage))
            monitors(recording, target)
            batches(recording, target)
            work(recording)
            measurements(recording, atlas, target)
            for shift_ms in (0, -5 * 3_600_000, 100 * DAY_MS, 200 * DAY_MS):  # it is also set back once
                stage.at(shift_ms)
                with recording.of("Keeper"):
                    keeper.handler({}, Context())
            yield recording.rights


def monitors(recording: Recording, target: Target) -> None:
    stage = recording.stage
    streams = {
        "ItemsStream": stage.stream("items", items_stream.handler),
        "SchedulersStream": stage.stream("schedulers", schedulers_stream.handler),
    }
    specs = {
        "often": {"check": {"kind": "http", "url": target.url}, "every": "2s"},
        "bad": {"check": {"kind": "http", "url": target.url, "expect": {"status": [201]}}, "every": "2s"},
        "gone": {"check": {"kind": "http", "url": target.url}, "every": "2s"},
        "mine": {"check": {"kind": "outgoing", "payload": {}}, "every": "2s", "overlap": "queue"},
        "late": {"check": {"kind": "http", "url": target.url}, "every": "1d", "initial_delay": "10m"},
    }
    with recording.of("Api"):
        for name, spec in specs.items():
            status, answer = stage.rest("PUT", f"/v1/users/boss/monitors/{name}", spec)
            assert status == 201, answer
        stage.rest("PATCH", "/v1/users/boss/monitors/often", {"tags": ["a"]})
        stage.rest("DELETE", "/v1/users/boss/monitors/gone")
    unfollowed(stage, specs["often"], "raw")
    half_disabled(stage)
    for status in (200, 200, *[201] * 9):  # what is bad recovers with a 201: the first, unless the machine is busy
        if "monitor.recovered" in told(stage):
            break
        target.status = status
        for name, stream in streams.items():
            with recording.of(name):
                stream.pump()
        time.sleep(1.5)
        with recording.of("Ticks"):
            stage.queue("ticks", ticks.handler).pump()
        with recording.of("Sender"):
            stage.queue("runs.fifo", sender.handler).pump()
    target.status = 200
    assert told(stage) == {"monitor.failing", "monitor.recovered"}
    stage.at(2 * 60_000)  # nothing ran for a while: late firings keep to the pace of all
    with recording.of("Sweeper"):
        sweeper.handler({}, Context())
    with recording.of("Ticks"):
        stage.queue("ticks", ticks.handler).pump()
    assert ("dynamodb:UpdateItem", "ledger") in recording.rights["Ticks"]
    stage.at(0)
    unfollowed(stage, specs["often"], "raw2")
    half_disabled(stage)
    with recording.of("Sweeper"):
        sweeper.handler({}, Context())
    stage.at(20 * 60_000)
    with recording.of("Sweeper"):
        sweeper.handler({}, Context())
    stage.at(0)
    read_monitors(recording)


def told(stage: Stage) -> set[str]:
    return {record.alert.event for record in stage.store.alerts("boss", since_ms=0, before=None, limit=10)}


def unfollowed(stage: Stage, spec: dict[str, Any], name: str) -> None:
    parsed = parse_spec(json.dumps(spec).encode(), limits=stage.now.system.limits)
    stage.store.put_monitors([PutMonitor("boss", name, parsed)], monitors_max=99, now_ms=stage.now.now_ms())


def half_disabled(stage: Stage) -> None:
    """An edit of all monitors of a user that was interrupted before the changes were recorded."""
    user = stage.store._database.get("items", user_key("boss"))
    fan = fan_item(stage.store._numbers, user, "enabled")
    assert stage.store._database.write(put("items", fan)).won


def read_monitors(recording: Recording) -> None:
    stage = recording.stage
    with recording.of("Api"):
        for path in ("users", "users/boss", "users/boss/tokens", "users/boss/monitors", "schedulers", "status"):
            assert stage.rest("GET", f"/v1/{path}")[0] == 200, path
        assert stage.rest("GET", "/v1/users/boss/monitors/often/runs")[0] == 200
        for path in ("monitors", "monitors?health=failing", "monitors?sort=next_due", "users/boss/monitors/late/next"):
            assert stage.rest("GET", f"/v1/{path}")[0] == 200, path
        for name in ("late", "often", "mine"):
            assert stage.rest("POST", f"/v1/users/boss/monitors/{name}/run")[0] == 202, name
        assert stage.rest("GET", "/metrics")[0] == 200
        assert stage.rest("GET", "/readyz")[0] == 200
        status, answer = stage.rest("POST", "/v1/outgoing/claim", {"max": 1, "lease": "60s", "wait": "0s"})
        assert status == 200
        for item in answer["items"]:
            body = {"lease": item["lease"], "status": "ok"}
            assert stage.rest("POST", f"/v1/runs/{item['run']}/outcome", body)[0] == 200
        assert stage.rest("POST", "/v1/users", {"id": "ann", "role": "user", "daily_credits": 5})[0] == 201
        assert stage.rest("PATCH", "/v1/users/ann", {"disabled": True})[0] == 200
        assert stage.rest("DELETE", "/v1/users/ann")[0] == 204


def batches(recording: Recording, target: Target) -> None:
    stage = recording.stage
    with recording.of("Api"):
        day = declare(stage, target, records=6, providers=2)
        assert stage.rest("GET", "/v1/providers")[0] == 200
        assert stage.rest("GET", "/v1/batches/daily/records")[0] == 200
    with recording.of("Plan"):
        planner.plan({"batch": "daily", "date": day, "before": 0}, Context())
    with recording.of("Api"):
        late = {"items": [{"id": "late", "provider": "p0", "endpoint": "/late"}]}
        assert stage.rest("PUT", "/v1/batches/daily/records", late)[0] == 200
    newcomer(stage, "later")
    spec = {"start": today(61).strftime("%H:%M"), "window": "1m", "missed": "once"}
    assert stage.rest("PUT", "/v1/batches/next", spec)[0] == 201
    for shift_ms in (0, 62_000, 62_000):
        stage.at(shift_ms)
        with recording.of("PlanStart"):
            planner.start({}, Context())
    stage.at(0)
    newcomer(stage, "latest")
    with recording.of("Plan"):
        planner.plan({"batch": "daily", "date": day, "before": 0}, Context())
    for shift_ms in (-60_000, 30_000):
        stage.at(shift_ms)
        with recording.of("PlanRelease"):
            planner.release({"batch": "daily", "date": day, "before": 0, "enqueued": 6}, Context())
    with recording.of("Sweeper"):
        sweeper.handler({}, Context())
    stage.at(120_000)
    for _ in range(3):
        with recording.of("Sweeper"):
            sweeper.handler({}, Context())
        with recording.of("Sender"):
            stage.queue("runs.fifo", sender.handler).pump()
        with recording.of("Ticks"):
            stage.send("ticks", '{"provider": 1, "at": 1}', f'{{"provider": 1, "at": {stage.now.now_ms() + 60_000}}}')
            stage.queue("ticks", ticks.handler).pump()
    with recording.of("Api"):
        assert stage.rest("GET", f"/v1/batches/daily/days/{day}")[0] == 200
        assert stage.rest("GET", f"/v1/batches/daily/days/{day}/runs")[0] == 200
        assert stage.rest("GET", "/v1/dead")[0] == 200
        dead_messages(stage)
        assert stage.rest("POST", "/v1/dead/redrive", {"queues": True})[1]["redriven"] == 3
        assert stage.rest("POST", "/v1/batches/daily/plan", {"date": today().date().isoformat()})[0] == 200
        assert stage.rest("DELETE", "/v1/batches/daily/records/late")[0] == 204
    stage.at(0)


def work(recording: Recording) -> None:
    """Runs for outside workers: messages from the sweeper and from ticks, claims and reports over the API."""
    stage = recording.stage
    with recording.of("Api"):
        assert stage.rest("PUT", "/v1/providers/depot", {"kind": "outgoing"})[0] == 201
        began = today(-5)
        assert stage.rest("PUT", "/v1/batches/picks", {"start": began.strftime("%H:%M"), "window": "1m"})[0] == 201
        items = [{"id": f"r{number}", "provider": "depot", "body": {}} for number in range(4)]
        assert stage.rest("PUT", "/v1/batches/picks/records", {"items": items})[0] == 200
        assert stage.rest("POST", "/v1/batches/picks/plan", {"date": began.date().isoformat()})[0] == 200
    depot = stage.store.provider("depot").number
    for step in range(8):
        stage.at(120_000 + step * 15_000)
        with recording.of("Sweeper"):
            sweeper.handler({}, Context())
        with recording.of("Ticks"):
            stage.send("ticks", f'{{"provider": {depot}, "at": 1}}')
            stage.queue("ticks", ticks.handler).pump()
        with recording.of("Api"):
            for item in stage.rest("POST", "/v1/outgoing/claim", {"provider": "depot"})[1]["items"]:
                body = {"lease": item["lease"], "status": "ok"}
                assert stage.rest("POST", f"/v1/runs/{item['run']}/outcome", body)[0] == 200
    stage.at(0)


def dead_messages(stage: Stage) -> None:
    """One message in each dead queue: two that are sent again, one that is unreadable, and one of a stream."""
    provider = stage.store.provider("p0").number
    stage.rest("PUT", "/v1/providers/p0", {"kind": "http", "base_url": "http://192.0.2.1"})  # so it is ready at once
    stage.send("ticks-dead", f'{{"provider": {provider}, "at": 1}}')
    stage.send("runs-dead.fifo", f'{{"provider": {provider}, "at": 1, "look": 1}}', group=f"provider-{provider}")
    stage.send("outgoing-dead", "?")
    stage.send("streams-dead", '{"DDBStreamBatchInfo": {}}')


def newcomer(stage: Stage, name: str) -> None:
    """A record whose place in the day was not planned by the request that brought it."""
    batch = stage.store.batch("daily")
    stage.store.put_records(batch, [RecordSpec(name, "p0", f"/{name}")], now_ms=stage.now.now_ms())


def measurements(recording: Recording, atlas: AtlasSimulator, target: Target) -> None:
    stage = recording.stage
    add_account(stage, atlas)
    with recording.of("Api"):
        status, answer = stage.rest("POST", "/v1/jobs", document(2) | {"webhook": target.url})
        assert status == 202, answer
        cancelled = stage.rest("POST", "/v1/jobs", document(120))[1]
        stage.rest("DELETE", f"/v1/jobs/{cancelled['job']}")
        for path in ("jobs", f"jobs/{answer['job']}", "users/boss/budget", "accounts"):
            assert stage.rest("GET", f"/v1/{path}")[0] == 200, path
    with recording.of("Dispatch"):
        jobs.dispatch({}, Context())
    end_s = time.monotonic() + 60
    while not stage.rest("GET", f"/v1/jobs/{answer['job']}")[1]["finished"]:
        assert time.monotonic() < end_s
        with recording.of("Follow"):
            jobs.follow({}, Context())
        time.sleep(0.3)
    with recording.of("Tell"):
        jobs.tell({}, Context())


FUNCTIONS = sorted(name.removesuffix("Function") for name in functions())


def touched(rights: set[Right]) -> set[str]:
    return {name for _, name in rights}


def written(rights: set[Right]) -> set[str]:
    return {name for action, name in rights if action in WRITES}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_function_calls_nothing_that_its_role_does_not_allow(function: str, recorded: dict[str, set[Right]]) -> None:
    assert recorded[function] - granted(function) == set()


@pytest.mark.parametrize("function", FUNCTIONS)
def test_a_role_allows_nothing_that_its_function_does_not_call(function: str, recorded: dict[str, set[Right]]) -> None:
    """By table, index and queue; and where it may write, it writes. What only trouble brings up is stated above."""
    used, may = recorded[function], granted(function)
    stated = STATED.get(function, set())
    assert touched(may) - touched(used) - stated == set()
    assert written(may) - written(used) - stated == set()
    many = {name for action, name in may if action == BATCH} - {name for action, name in used if action == BATCH}
    assert many - {name.removeprefix("many ") for name in stated if name.startswith("many ")} == set()
    assert stated <= touched(may) | {f"many {name}" for name in touched(may)}


def test_no_role_is_shared_and_none_has_a_wildcard() -> None:
    roles = [one["Properties"]["Role"]["Fn::GetAtt"] for one in functions().values()]
    assert len({str(role) for role in roles}) == len(roles)
    for function in FUNCTIONS:
        for statement in statements(f"{function}Role"):
            assert not any("*" in action for action in listed(statement["Action"]))
            assert not any(resource == "*" for resource in listed(statement["Resource"]))
