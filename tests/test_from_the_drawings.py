"""The page that maps the three drawings: its files and commands exist, and no name of the drawings is missing."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from paceline.shells.cli.app import app

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "from-the-drawings.md").read_text()
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.splitlines()
    if line.startswith("| ") and not line.startswith(("| in the drawing", "|---"))
]
NAMES = [
    "Items",
    "items",
    "user_id",
    "monitor_id",
    "monitors",
    "Schedulers",
    "key",
    "counter",
    "RECORDS_TABLE",
    "Scan",
    "DelaySeconds",
    "MessageGroupId",
    "MessageDeduplicationId",
    "MessageBody",
    "id",
    "provider",
    "endpoint",
    "body",
    "Jobs",
    "MsrmntQueue",
    "get_key",
    "get_results",
    "ongoing",
    "completed",
    "APIKeys",
    "active",
    "Measurements",
    "MsrmntIDs",
    "measurement_completion_querier",
    "job_completion_querier",
]


def command_exists(words: list[str]) -> bool:
    command: object = get_command(app)
    for word in words:
        commands = getattr(command, "commands", {})
        if word not in commands:
            return False
        command = commands[word]
    return True


def test_rows_have_a_drawing_a_word_a_file_and_a_command() -> None:
    assert len(ROWS) > 50
    assert [row for row in ROWS if len(row) != 4 or not all(row)] == []


@pytest.mark.parametrize("path", sorted(set(re.findall(r"`((?:src|deploy|docs)/[\w/.-]+)`", PAGE))))
def test_file_of_the_page_exists(path: str) -> None:
    assert (ROOT / path).is_file()


def test_commands_of_the_page_exist() -> None:
    commands = set(re.findall(r"`paceline ([a-z ]+)`", PAGE))
    assert len(commands) > 20
    assert isinstance(app, typer.Typer)
    assert [command for command in sorted(commands) if not command_exists(command.split())] == []


@pytest.mark.parametrize("name", NAMES)
def test_name_of_the_drawings_is_on_the_page(name: str) -> None:
    assert any(f"`{name}`" in row[0] or f"`{name} " in row[0] for row in ROWS)
