"""``paceline aws init``: tables and queues from nothing, on a real server."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.adapters.aws.client.tables import QUEUES, TABLES
from tests.aws.support.ministack import fresh_prefix, plain_client, shared_emulator
from tests.shells.cli.support.program import Program, free_port

pytestmark = pytest.mark.aws


@pytest.fixture
def aws_program(tmp_path: Path) -> Program:
    """The command line with nothing but the emulator to find."""
    program = Program(tmp_path, secret_key="a secret for every process")
    program.env = {name: value for name, value in program.env.items() if not name.startswith("AWS_")}
    program.env |= shared_emulator().environment
    return program


def test_aws_init_creates_tables_and_queues_once_and_lists_existing_ones(aws_program: Program) -> None:
    prefix = fresh_prefix()
    store = f"aws://?prefix={prefix}"
    names = [f"{prefix}-{part.name}" for part in (*TABLES, *QUEUES)]
    first = aws_program.json("aws", "init", "--store", store)
    assert first == {"prefix": prefix, "created": names, "existing": [], "differences": []}
    again = aws_program.json("aws", "init", "--store", store)
    assert again == {"prefix": prefix, "created": [], "existing": names, "differences": []}
    text = aws_program.ok("--store", store, "aws", "init")
    assert text.splitlines() == [f"there already: {name}" for name in names]


def test_aws_init_names_differences_and_changes_nothing(aws_program: Program) -> None:
    prefix = fresh_prefix()
    sqs = plain_client("sqs", shared_emulator().url)
    url = sqs.create_queue(QueueName=f"{prefix}-ticks", Attributes={"VisibilityTimeout": "1"})["QueueUrl"]
    ended = aws_program.run("aws", "init", store=f"aws://?prefix={prefix}")
    assert ended.code == 1
    assert f"differs: {prefix}-ticks: VisibilityTimeout is 1, and should be 180" in ended.err
    assert f"created: {prefix}-items" in ended.out
    found = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"]
    assert found == {"VisibilityTimeout": "1"}


def test_a_store_that_is_a_file_needs_no_tables(aws_program: Program) -> None:
    ended = aws_program.run("aws", "init", "--json")
    assert (ended.code, ended.problem["code"]) == (2, "invalid_input")
    assert "--store 'aws://?prefix=paceline'" in ended.problem["detail"]


def test_missing_aws_configuration_is_reported_in_one_line(aws_program: Program) -> None:
    missing = {"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"}
    aws_program.env = {name: value for name, value in aws_program.env.items() if name not in missing}
    ended = aws_program.run("aws", "init", store="aws://?prefix=paceline")
    assert (ended.code, len(ended.err.splitlines())) == (1, 1)
    assert "credentials" in ended.err
    assert "(store_unavailable)" in ended.err


def test_move_from_a_file_to_aws_keeps_everything_for_the_commands(aws_program: Program) -> None:
    aws_program.env["PACELINE_PORT"] = str(free_port())
    there = f"aws://?prefix={fresh_prefix()}"
    aws_program.ok("aws", "init", store=there)
    aws_program.ok("user", "add", "ann")
    aws_program.ok("monitor", "set", "web", "--url", "https://example.org/", "--every", "1h", "--initial-delay", "1d")
    stream = aws_program.ok("export")
    counts = json.loads(aws_program.ok("import", "--json", stdin=stream, store=there))["counts"]
    assert counts["monitors"] == {"created": 1}
    here, moved = (aws_program.json("monitor", "show", "web", store=url) for url in ("sqlite:///paceline.db", there))
    assert moved["schedule"]["next_due"] == here["schedule"]["next_due"]
    assert aws_program.json("status", store=there)["entries"] == 1
    assert aws_program.ok("check", store=there) == "OK\n"
