"""The help of every command suffices to use it, and shells complete what it names."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer

from paceline.shells.cli.app import app, main
from paceline.shells.cli.text.examples import EXAMPLES
from tests.shells.cli.support.commands import Command, commands

COLUMNS = 80


def parse(words: list[str]) -> Any:
    """Parses a command line without running it; returns the command's context, or raises as a wrong usage would."""
    command: Any = typer.main.get_command(app)
    context = command.make_context("paceline", list(words))
    while hasattr(command, "commands"):
        name, command, rest = command.resolve_command(context, [*context._protected_args, *context.args])
        context = command.make_context(name, rest, parent=context)
    return context


@pytest.mark.parametrize("command", list(commands()), ids=lambda command: command.path)
def test_every_command_has_examples_that_are_commands_of_its_own(command: Command) -> None:
    examples = EXAMPLES.get(command.path.removeprefix("paceline "), ())
    assert examples, f"add examples of {command.path} to src/paceline/shells/cli/text/examples.py"
    for line in examples:
        assert parse(shlex.split(line)).command_path == command.path


def test_example_with_an_unknown_option_or_argument_is_noticed() -> None:
    for line in ("monitor set home --often", "monitor list home alice", "monitor nothing", "user add"):
        with pytest.raises(typer.TyperException):
            parse(shlex.split(line))


@pytest.mark.parametrize("command", list(commands()), ids=lambda command: command.path)
def test_help_fits_80_columns_and_shows_the_examples(
    command: Command, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    words = command.path.split()[1:]
    assert main([*words, "--help"]) == 0
    told = capsys.readouterr().out
    assert [line for line in told.splitlines() if len(line) > COLUMNS] == []
    _, _, shown = told.partition("\n  Examples:\n")
    assert [line.strip() for line in shown.splitlines() if line] == [
        f"paceline {line}" for line in EXAMPLES[" ".join(words)]
    ]


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """The environment of a shell that finds ``paceline`` on its path, and whose home is empty."""
    program = tmp_path / "bin" / "paceline"
    program.parent.mkdir()
    program.write_text(f"#!{sys.executable}\nimport sys\nfrom paceline.shells.cli import main\nsys.exit(main())\n")
    program.chmod(0o755)
    return {**os.environ, "PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}", "HOME": str(tmp_path)}


def bash(script: str, env: dict[str, str]) -> str:
    done = subprocess.run(["bash", "-ec", script], env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_bash_completes_a_command_and_an_option_after_the_installation(shell: dict[str, str]) -> None:
    script = """
    paceline --install-completion >&2
    source "$HOME/.bashrc"
    complete_line() {
        COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _paceline_completion paceline; echo "${COMPREPLY[*]}"
    }
    complete_line paceline mon
    complete_line paceline monitor sil
    complete_line paceline monitor list --all
    """
    lines = [line.split() for line in bash(script, shell).splitlines()]
    assert lines == [["monitor"], ["silence"], ["--all-users"]]


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash here")
def test_completion_script_is_shown_for_the_shell_that_asks(shell: dict[str, str]) -> None:
    told = bash("paceline --show-completion; true", shell)
    assert "complete -o default -F _paceline_completion paceline" in told


@pytest.mark.parametrize("name", ["zsh", "fish"])
def test_zsh_and_fish_get_scripts_and_answers(shell: dict[str, str], name: str) -> None:
    source = bash("paceline", {**shell, "_PACELINE_COMPLETE": f"source_{name}"})
    assert f"_PACELINE_COMPLETE=complete_{name}" in source
    env = {**shell, "_PACELINE_COMPLETE": f"complete_{name}", "_TYPER_COMPLETE_FISH_ACTION": "get-args"}
    assert re.search(r"\bmonitor\b", bash("paceline", {**env, "_TYPER_COMPLETE_ARGS": "paceline mon"}))
