"""docs/reference/cli.md and settings.md say what the code does."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import typer

from paceline.config import Settings
from paceline.shells.cli.app import app
from tests.shells.cli.support.commands import Command, commands

REFERENCE = Path(__file__).parents[3] / "docs" / "reference"
SHARED = {"--config", "--store", "--json", "--utc", "--help"}


def sections() -> dict[str, str]:
    text = (REFERENCE / "cli.md").read_text()
    parts = re.split(r"^### (paceline .*)$", text[: text.index("\n## JSON")], flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


def usage(command: Command) -> str:
    arguments = [parameter for parameter in command.command.params if not parameter.opts[0].startswith("-")]
    words = [parameter.metavar if parameter.required else f"[{parameter.metavar}]" for parameter in arguments]
    return " ".join([command.path, *words])


def entry(parameter: Any) -> str:
    names = [*parameter.opts, *parameter.secondary_opts] if parameter.opts[0].startswith("-") else []
    return f"- `{' '.join(filter(None, [' / '.join(names), parameter.metavar]))}`: {parameter.help}"


def test_every_command_is_listed_and_no_other() -> None:
    assert list(sections()) == [command.path for command in commands()]


@pytest.mark.parametrize("command", list(commands()), ids=lambda command: command.path)
def test_every_argument_and_option_is_listed_and_no_other(command: Command) -> None:
    section = sections()[command.path]
    own = [parameter for parameter in command.command.params if parameter.opts[0] not in SHARED]
    assert f"`{usage(command)}`" in section
    assert command.command.help in section
    assert [line for line in section.splitlines() if line.startswith("- ")] == [entry(parameter) for parameter in own]


def test_the_shared_options_are_listed() -> None:
    text = (REFERENCE / "cli.md").read_text()
    command = next(commands()).command
    shared = [parameter for parameter in command.params if parameter.opts[0] in SHARED]
    assert len(shared) == 4
    assert [parameter for parameter in shared if entry(parameter) not in text] == []


def test_the_options_before_the_name_of_a_command_are_listed() -> None:
    text = (REFERENCE / "cli.md").read_text()
    root = [parameter for parameter in typer.main.get_command(app).params if parameter.opts[0] != "--version"]
    assert [entry(parameter) for parameter in root if entry(parameter) not in text] == []


def rows() -> dict[str, list[str]]:
    cells = [line.strip("|").split("|") for line in (REFERENCE / "settings.md").read_text().splitlines()]
    return {row[0].strip(" `"): [cell.strip() for cell in row] for row in cells if row[0].startswith(" `")}


def test_every_setting_is_listed_and_no_other() -> None:
    assert rows().keys() == Settings.model_fields.keys()


@pytest.mark.parametrize("name", Settings.model_fields)
def test_a_setting_is_listed_with_its_variable_and_default(name: str) -> None:
    _, variable, default, meaning = rows()[name]
    value = Settings.model_fields[name].default
    assert variable == f"`PACELINE_{name.upper()}`"
    assert default == {None: "none", "": "empty"}.get(value, f"`{value}`")
    assert len(meaning) > 20
