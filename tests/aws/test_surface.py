"""Every route and every command answers the same on AWS as on a file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.adapters.aws.store import AwsStore
from paceline.core.daemons import Daemon
from paceline.steps.upkeep.daemons import beat
from tests.aws.support.ministack import Emulator
from tests.aws.support.surface_commands import (
    APART,
    LONG_RUNNING,
    OF_THE_ENGINE,
    Terminal,
    commands,
    run_command,
    tell_commands,
)
from tests.aws.support.surface_stage import ROUTES_APART, Surface, tell_api
from tests.shells.api.support.job_stage import atlas_world
from tests.shells.cli.support.program import Program
from tests.shells.support.daemons import SECRET

pytestmark = pytest.mark.aws


@pytest.fixture
def aws_url(aws: Emulator, aws_store: AwsStore, prefix: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A store with its tables, and boto3's environment to find it."""
    del aws_store
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)
    return f"aws://?prefix={prefix}"


def test_every_route_and_every_command_answers_on_aws_as_on_a_file(aws_url: str, tmp_path: Path) -> None:
    told: list[tuple[Surface, Terminal]] = []
    for number, store in enumerate((f"sqlite:///{tmp_path / 'p.db'}", aws_url)):
        folder = tmp_path / str(number)
        folder.mkdir()
        with atlas_world(folder, store=store, secret_key=SECRET) as stage:
            now_ms = stage.now_ms()  # on AWS there may be functions instead, so that nothing waits for a daemon
            beat(stage.store, Daemon("up-1", "up", "host", 7, "", now_ms, now_ms, every_ms=10**9))
            told.append((tell_api(stage), tell_commands(stage, folder, store, SECRET)))
            assert stage.store.verify() == []
    here, there = ([*surface.told, *terminal.told] for surface, terminal in told)
    for ours, theirs in zip(here, there, strict=True):
        assert ours == theirs
    surface, terminal = told[1]
    assert surface.routes - surface.walked == ROUTES_APART, "a route that this test does not request"
    assert set(commands()) - terminal.walked == LONG_RUNNING | OF_THE_ENGINE | APART, "a command that is not run here"


def test_commands_for_the_other_engine_say_so(aws_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_SECRET_KEY", SECRET)
    refused = run_command("backup", str(tmp_path / "copy.db"), "--store", aws_url, "--json")
    assert (refused.code, "point-in-time recovery" in json.loads(refused.err)["detail"]) == (1, True)
    refused = run_command("aws", "init", "--store", f"sqlite:///{tmp_path / 'p.db'}", "--json")
    assert (refused.code, "--store 'aws://" in json.loads(refused.err)["detail"]) == (2, True)


@pytest.mark.parametrize("command", ["up", "worker"])
def test_long_running_commands_start_print_their_address_and_drain(aws_url: str, tmp_path: Path, command: str) -> None:
    program = Program(tmp_path, store=aws_url, secret_key=SECRET, port="0", log_level="warning")
    with program.running(command) as running:
        assert running.said["store"] == aws_url
    assert (tmp_path / "daemon.log").read_text() == ""


def test_command_without_its_tables_says_how_to_create_them(aws: Emulator, tmp_path: Path) -> None:
    program = Program(tmp_path, store="aws://?prefix=nobody-made-it", secret_key=SECRET, port="0")
    program.env |= aws.environment
    for command in ("up", "migrate"):
        ended = program.run(command, "--json")
        assert (ended.code, ended.problem["code"]) == (1, "store_unavailable")
        assert "run paceline aws init" in ended.problem["detail"]


def test_invalid_store_address_is_reported_in_one_line(aws: Emulator, tmp_path: Path) -> None:
    program = Program(tmp_path, store="aws://?prefix=x", secret_key=SECRET)
    program.env |= aws.environment | {"AWS_ENDPOINT_URL": "localhost"}
    ended = program.run("status", "--json")
    assert (ended.code, ended.problem["code"]) == (1, "store_unavailable")
    assert "AWS_ENDPOINT_URL" in ended.problem["detail"]
