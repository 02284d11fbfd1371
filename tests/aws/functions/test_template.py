"""The template says what the code says: tables, queues, functions; and cfn-lint has nothing to add."""

from __future__ import annotations

import importlib
import inspect
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from paceline.adapters.aws.client import tables
from paceline.adapters.aws.jobs.keys import job_key
from paceline.core.batches.provider import TIMEOUT_MS_MAX
from paceline.shells.aws_lambda import items_stream, jobs, keeper, runtime, sender

TEMPLATE = Path(__file__).parents[3] / "deploy" / "aws" / "template.yaml"
Node = dict[str, Any]


class _Loader(yaml.SafeLoader):
    """Knows CloudFormation's short forms."""


def _short(loader: _Loader, suffix: str, node: yaml.Node) -> Any:
    name = suffix if suffix in {"Ref", "Condition"} else f"Fn::{suffix}"
    if isinstance(node, yaml.ScalarNode):
        return {name: loader.construct_scalar(node)}
    if isinstance(node, yaml.SequenceNode):
        return {name: loader.construct_sequence(node, deep=True)}
    assert isinstance(node, yaml.MappingNode)
    return {name: loader.construct_mapping(node, deep=True)}


_Loader.add_multi_constructor("!", _short)


class Resource(NamedTuple):
    resource: str
    """Its name in the template."""
    name: str
    """Without the prefix."""
    properties: Node


@cache
def template() -> Node:
    read: Node = yaml.load(TEMPLATE.read_text(), Loader=_Loader)  # noqa: S506  a safe loader with CloudFormation's tags
    return read


def of_type(kind: str) -> dict[str, Node]:
    return {name: one for name, one in template()["Resources"].items() if one["Type"] == kind}


def functions() -> dict[str, Node]:
    return of_type("AWS::Serverless::Function")


def resources() -> list[Resource]:
    """Tables and queues."""
    found = []
    for kind, key in (("AWS::DynamoDB::Table", "TableName"), ("AWS::SQS::Queue", "QueueName")):
        for resource, one in of_type(kind).items():
            name = one["Properties"][key]["Fn::Sub"]
            assert name.startswith("${Prefix}-")
            found.append(Resource(resource, name.removeprefix("${Prefix}-"), one["Properties"]))
    return found


def table_or_queue(name: str) -> Node:
    (found,) = [one.properties for one in resources() if one.name == name]
    return found


def statements(role: str) -> list[Node]:
    (policy,) = template()["Resources"][role]["Properties"]["Policies"]
    found: list[Node] = policy["PolicyDocument"]["Statement"]
    return found


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def named(resource: Any, names: dict[str, str]) -> str | None:
    """The table, index (``table/index``) or queue that a statement is about; None: something else."""
    if resource.get("Ref") == "Planner" or ":execution:${Prefix}-planner:" in resource.get("Fn::Sub", ""):
        return "planner"
    if "Fn::GetAtt" in resource:
        return names.get(resource["Fn::GetAtt"].split(".")[0])
    text = resource.get("Fn::Sub", "")
    if "/index/" not in text:
        return None
    table, _, index = text.partition(".Arn}/index/")
    return f"{names[table.removeprefix('${')]}/{index}"


def test_cfn_lint_finds_nothing() -> None:
    tool = Path(sys.executable).with_name("cfn-lint")
    done = subprocess.run([tool, str(TEMPLATE)], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_tables_of_the_template_equal_those_of_the_code() -> None:
    assert {one.name for one in resources() if "TableName" in one.properties} == {one.name for one in tables.TABLES}
    for table in tables.TABLES:
        has = dict(table_or_queue(table.name))
        wanted = tables.table_definition(table, "prefix")
        del has["TableName"], wanted["TableName"]
        assert has.pop("PointInTimeRecoverySpecification") == {"PointInTimeRecoveryEnabled": True}
        expires = {"AttributeName": tables.EXPIRES, "Enabled": True} if table.expiring else None
        assert has.pop("TimeToLiveSpecification", None) == expires
        if stream := wanted.get("StreamSpecification"):
            del stream["StreamEnabled"]  # CloudFormation has it on where the view is given
        assert has == wanted


def test_table_outlives_its_stack_but_not_a_first_deployment_that_failed() -> None:
    for one in of_type("AWS::DynamoDB::Table").values():
        assert (one["DeletionPolicy"], one["UpdateReplacePolicy"]) == ("RetainExceptOnCreate", "Retain")


def test_readme_of_the_template_lists_its_parameters_functions_and_queues() -> None:
    text = TEMPLATE.with_name("README.md").read_text()
    defaults = {name: one["Default"] for name, one in template()["Parameters"].items()}
    told = dict(re.findall(r"^\| `([A-Z]\w+)` \| (.+?) \|", text, re.MULTILINE))
    assert {name: str(value) or "none" for name, value in defaults.items()} == {
        name: value.strip("`") for name, value in told.items()
    }
    runs = text.partition("## What runs")[2].partition("\n## ")[0]
    rows = [line.split("|")[1] for line in runs.splitlines() if line.startswith("|")]
    listed_functions = {name for row in rows for name in re.findall(r"`([\w-]+)`", row)}
    names = {one["Properties"]["FunctionName"]["Fn::Sub"].removeprefix("${Prefix}-") for one in functions().values()}
    assert listed_functions == names
    dead = [one for one in tables.QUEUES if "dead" in one.name]
    assert f"each of the {['zero', 'one', 'two', 'three', 'four', 'five', 'six'][len(dead)]} queues" in text


def test_guide_and_readme_deploy_with_the_same_command() -> None:
    guide = (TEMPLATE.parents[2] / "docs" / "guides" / "aws.md").read_text()
    commands = [
        re.findall(r"^sam deploy .+$", text, re.MULTILINE)
        for text in (guide, TEMPLATE.with_name("README.md").read_text())
    ]
    assert commands[0] == commands[1] != []


def test_log_of_every_function_is_kept_for_a_stated_time_and_is_its_own() -> None:
    groups = of_type("AWS::Logs::LogGroup")
    assert len(groups) == len(functions())
    for one in functions().values():
        properties = one["Properties"]
        group = groups[properties["LoggingConfig"]["LogGroup"]["Ref"]]["Properties"]
        name = properties["FunctionName"]["Fn::Sub"]
        assert group == {"LogGroupName": {"Fn::Sub": f"/aws/lambda/{name}"}, "RetentionInDays": {"Ref": "LogDays"}}
        written = [
            (listed(statement["Action"]), statement["Resource"]["Fn::Sub"].rpartition(":log-group:")[2])
            for statement in statements(properties["Role"]["Fn::GetAtt"].removesuffix(".Arn"))
            if listed(statement["Action"])[0].startswith("logs:")
        ]
        # A function that could make its group would make it again, without an end, after somebody deleted it.
        assert written == [(["logs:CreateLogStream", "logs:PutLogEvents"], f"/aws/lambda/{name}:*")]


def test_queues_of_the_template_equal_those_of_the_code() -> None:
    assert {one.name for one in resources() if "QueueName" in one.properties} == {one.name for one in tables.QUEUES}
    names = {one.resource: one.name for one in resources()}
    for queue in tables.QUEUES:
        has = dict(table_or_queue(queue.name))
        del has["QueueName"]
        redrive = has.pop("RedrivePolicy", None)
        wanted = tables.queue_attributes(queue, queue.dead)
        told = json.loads(wanted.pop("RedrivePolicy", "null"))
        assert {name: json.dumps(value).strip('"') for name, value in has.items()} == wanted
        if redrive is not None:
            redrive = redrive | {"deadLetterTargetArn": named(redrive["deadLetterTargetArn"], names)}
        assert redrive == told


def test_a_function_has_a_handler_that_takes_an_event_and_a_context() -> None:
    for one in functions().values():
        module, _, name = one["Properties"]["Handler"].rpartition(".")
        handler = getattr(importlib.import_module(module), name)
        assert list(inspect.signature(handler).parameters)[:2] == ["event", "context"]


def mappings(kind: str) -> list[tuple[Node, Node]]:
    """(function's properties, mapping's properties)."""
    return [
        (one["Properties"], event["Properties"])
        for one in functions().values()
        for event in one["Properties"].get("Events", {}).values()
        if event["Type"] == kind
    ]


def test_a_message_stays_hidden_six_times_as_long_as_its_function_may_take() -> None:
    names = {one.resource: one.name for one in resources()}
    hidden = {queue.name: queue.hidden_s for queue in tables.QUEUES}
    found = mappings("SQS")
    assert len(found) == 2
    for function, mapping in found:
        assert hidden[str(named(mapping["Queue"], names))] >= 6 * function["Timeout"]
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert mapping["BatchSize"] <= 10
        assert function["RecursiveLoop"] == "Allow", "ticks and sender wake each other, and are meant to"


def test_a_sender_has_the_time_for_the_longest_call_that_a_provider_may_allow() -> None:
    assert sender.CLAIM_S * 1_000 > TIMEOUT_MS_MAX
    assert functions()["SenderFunction"]["Properties"]["Timeout"] >= sender.CLAIM_S + 20, "it claims for a while"


@pytest.mark.parametrize("name", ["DeadLetters", "RunsExpired"])
def test_a_metric_of_the_functions_own_raises_an_alarm(name: str) -> None:
    (alarm,) = [
        one["Properties"]
        for one in of_type("AWS::CloudWatch::Alarm").values()
        if one["Properties"]["MetricName"] == name
    ]
    assert alarm["Namespace"] == runtime.metrics.namespace
    assert alarm["Dimensions"] == [{"Name": "service", "Value": {"Ref": "Prefix"}}]
    assert f'"{name}"' in inspect.getsource(keeper)


def test_stream_mapping_gives_up_failing_records_into_a_dead_queue() -> None:
    found = mappings("DynamoDB")
    assert len(found) == 3
    for _, mapping in found:
        assert 0 < mapping["MaximumRetryAttempts"] <= 20
        assert 0 < mapping["MaximumRecordAgeInSeconds"] < 86_400
        assert mapping["BisectBatchOnFunctionError"]
        assert mapping["FunctionResponseTypes"] == ["ReportBatchItemFailures"]
        assert mapping["StartingPosition"] == "TRIM_HORIZON"
        assert mapping["DestinationConfig"]["OnFailure"]["Destination"] == {"Fn::GetAtt": "StreamsDeadQueue.Arn"}
        for one in mapping["FilterCriteria"]["Filters"]:
            assert "REMOVE" not in json.loads(one["Pattern"])["eventName"]


def filter_of(table: str) -> Node:
    (pattern,) = [
        one["Pattern"]
        for _, mapping in mappings("DynamoDB")
        for one in mapping["FilterCriteria"]["Filters"]
        if table in str(mapping["Stream"])
    ]
    read: Node = json.loads(pattern)
    return read


def test_the_filter_of_the_items_lets_changes_through() -> None:
    passes = filter_of("ItemsTable")
    assert passes["dynamodb"] == {"Keys": {"pk": {"S": [{"prefix": items_stream.CHANGES}]}}}
    assert passes["eventName"] == ["INSERT", "MODIFY"]


def test_the_filter_of_the_ledger_lets_new_jobs_through_and_nothing_else() -> None:
    keys = {"pk": {"S": [{"prefix": jobs.JOB}]}, "sk": {"S": [jobs.JOB_SORT]}}
    assert filter_of("LedgerTable") == {"eventName": ["INSERT"], "dynamodb": {"Keys": keys}}
    assert job_key(7) == (f"{jobs.JOB}7", jobs.JOB_SORT)


@pytest.mark.parametrize("name", [queue.name for queue in tables.QUEUES if "dead" in queue.name])
def test_a_dead_message_raises_an_alarm(name: str) -> None:
    names = {one.resource: one.name for one in resources()}
    watched = [
        (one["Properties"]["MetricName"], named({"Fn::GetAtt": dimension["Value"]["Fn::GetAtt"]}, names))
        for one in of_type("AWS::CloudWatch::Alarm").values()
        for dimension in one["Properties"]["Dimensions"]
        if dimension["Name"] == "QueueName"
    ]
    assert ("ApproximateNumberOfMessagesVisible", name) in watched


def test_every_function_raises_an_alarm_when_it_fails() -> None:
    watched = {
        dimension["Value"]["Ref"]
        for one in of_type("AWS::CloudWatch::Alarm").values()
        if one["Properties"]["MetricName"] == "Errors"
        for dimension in one["Properties"]["Dimensions"]
    }
    assert watched == set(functions())
