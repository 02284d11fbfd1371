"""The tutorial's commands, run as they stand, one after the other, against a real daemon.

In a ``console`` block, lines with ``$`` are commands and the rest is what they print: blanks count as one, ``…`` stands
for anything, and a line of ``…`` alone for any number of lines. ``console background`` blocks stay running.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

TUTORIAL = Path(__file__).parents[1] / "docs" / "tutorial.md"
TIMEOUT_S = 60.0
LOOK_AGAIN_S = 20.0
LOOKS = re.compile(r"paceline (monitor|batch|dead|job) (list|show|runs)\b")
MARK = "--tutorial-mark--"


class Block(NamedTuple):
    info: str
    text: str


class Step(NamedTuple):
    command: str
    expected: list[str]


def blocks(text: str) -> list[Block]:
    return [Block(*found) for found in re.findall(r"^```(\w.*?)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)]


def steps(text: str) -> list[Step]:
    found: list[Step] = []
    for part in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        lines = part.splitlines()
        end = next(number for number, line in enumerate(lines) if not line.endswith("\\"))
        found.append(Step("\n".join(lines[: end + 1]), lines[end + 1 :]))
    return found


def as_pattern(expected: list[str]) -> re.Pattern[str]:
    parts = []
    for line in expected:
        if line.strip() == "…":
            parts.append(r"(?:.*\n)*?")
        else:
            words = [re.escape(word).replace("…", r".*?") for word in line.split()]
            parts.append(
                r"[ \t]*" + r"\s+".join(words).replace(r"\s+.*?", r".*?").replace(r".*?\s+", r".*?") + r"[ \t]*\n"
            )
    return re.compile("".join(parts))


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]


class Shell:
    """One terminal: a bash that keeps its variables from command to command."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            ["bash"],
            cwd=folder,
            env=env,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )

    def run(self, command: str) -> str:
        """What the command prints, on stdout and stderr."""
        self._send(f"{command}\necho; echo {MARK}")
        printed = ""
        for line in self._lines():
            if line.startswith(MARK):
                return printed.rstrip("\n") + "\n" if printed.strip() else ""
            printed += line
        raise AssertionError(f"the shell ended:\n$ {command}\n{printed}")

    def begin(self, step: Step) -> None:
        """Starts a command that stays, and waits until it has said what is expected."""
        self._send(f"exec env {step.command}" if "=" in step.command.split()[0] else f"exec {step.command}")
        printed, pattern = "", as_pattern(step.expected)
        for line in self._lines():
            if line.startswith("{"):
                continue  # the log
            printed += line
            if pattern.fullmatch(printed):
                return
        raise AssertionError(f"it did not say so:\n$ {step.command}\n{printed}")

    def _send(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def _lines(self) -> Iterator[str]:
        assert self.process.stdout is not None
        watchdog = threading.Timer(TIMEOUT_S, os.killpg, (self.process.pid, signal.SIGKILL))
        watchdog.start()
        try:
            while line := self.process.stdout.readline():
                yield line
        finally:
            watchdog.cancel()


@contextmanager
def terminal(folder: Path, env: dict[str, str]) -> Iterator[Shell]:
    """A shell that is left with Ctrl-C; what stays running in it must end well then."""
    shell = Shell(folder, env)
    try:
        yield shell
    finally:
        shell.process.send_signal(signal.SIGINT)
        said, _ = shell.process.communicate(timeout=TIMEOUT_S)
    assert shell.process.returncode in (0, -signal.SIGINT), said


@pytest.mark.skipif(shutil.which("curl") is None, reason="the tutorial asks for curl")
def test_the_tutorial_does_what_it_says(tmp_path: Path) -> None:
    api_port, model_port, atlas_port = (str(port) for port in free_ports(3))
    text = TUTORIAL.read_text().replace("8080", api_port).replace("8090", model_port).replace("8091", atlas_port)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
    env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}", "PACELINE_PORT": api_port}
    with ExitStack() as stack:
        mine = stack.enter_context(terminal(tmp_path, env))
        for info, body in blocks(text):
            if info == "console background":
                (step,) = steps(body)
                stack.enter_context(terminal(tmp_path, env)).begin(step)
            elif info == "console":
                for step in steps(body):
                    assert_says(mine, step)
            elif "file=" in info:
                (tmp_path / info.rpartition("file=")[2]).write_text(body)


def assert_says(shell: Shell, step: Step) -> None:
    """What only looks is asked again for a while: on a busy machine a check may take longer than the text allows."""
    pattern, deadline_s = as_pattern(step.expected), time.monotonic() + LOOK_AGAIN_S
    printed = shell.run(step.command)
    while LOOKS.match(step.command) and not pattern.fullmatch(printed) and time.monotonic() < deadline_s:
        time.sleep(0.5)
        printed = shell.run(step.command)
    assert pattern.fullmatch(printed), f"$ {step.command}\n{printed}"


def test_the_tutorial_leaves_out_no_block() -> None:
    files = {"python file=checker.py", "toml file=paceline.toml", "json file=job.json"}
    known = {"console", "console background", "sh"} | files
    infos = [block.info for block in blocks(TUTORIAL.read_text())]
    assert set(infos) == known
    assert len(re.findall(r"^```", TUTORIAL.read_text(), flags=re.MULTILINE)) == 2 * len(infos)


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        (["a …  b"], "a x y b\n", True),
        (["a …  b"], "a x y c\n", False),
        (["a", "…", "z"], "a\n1\n2\nz\n", True),
        (["a", "…"], "a\n", True),
        (["health …  ok"], "health   failing\n", False),
        (["pl_…"], "pl_0123\n", True),
        (["OK"], "OK\nand more\n", False),
        ([], "something\n", False),
    ],
)
def test_what_is_expected_is_compared_with_care(expected: list[str], printed: str, *, same: bool) -> None:
    assert bool(as_pattern(expected).fullmatch(printed)) is same
