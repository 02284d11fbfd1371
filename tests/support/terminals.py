"""Terminals that follow a page of the documentation: what to type, what it prints, what stays running.

In a ``console`` block, lines with ``$`` are commands and the rest is what they print: blanks count as one, ``…`` stands
for anything, and a line of ``…`` alone for any number of lines. A command must end well, unless the text below it says
``error:`` or that something was refused.

``console background`` is a terminal of its own, whose last command stays running; with ``^C`` below it, it is the one
that runs already, and is stopped. A block with ``file=NAME`` is written to that file. ``sh`` is not run, and a comment
before it says why.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple, Self

TIMEOUT_S = 120.0
LOOK_AGAIN_S = 60.0
LOOKS = re.compile(
    r"paceline (alert|monitor|batch|dead|job|run) (list|show|runs|results)\b|curl -sS \"|ripe-atlas report\b"
)
"""What only looks is asked again for a while: on a busy machine a check may take longer than the text allows."""
MARK = "--the-command-ended-with "
CONTROL_C = "^C"
PORTS = ("8080", "8081", "8090", "8091", "8092", "8093", "8443")


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
        found.append(Step("\n".join(lines[: end + 1]), [line for line in lines[end + 1 :] if line.strip()]))
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


def ports_of_the_docs() -> dict[str, str]:
    """A free port for each that pages name."""
    return dict(zip(PORTS, map(str, free_ports(len(PORTS))), strict=True))


def on_this_machine(text: str, ports: dict[str, str], model_url: str) -> str:
    """The page with free ports, a model server in the place of the Internet, and tomorrow as its day."""
    tomorrow = (datetime.now(UTC) + timedelta(days=1)).date().isoformat()
    for there, here in (
        ("https://api.example.org/v2", model_url),
        ("https://hooks.example.org/paceline", f"{model_url}/ok"),
        ("https://example.org/", f"{model_url}/ok"),
        ("example.org", "127.0.0.1"),
        ("2026-11-20", tomorrow),
    ):
        text = text.replace(there, here)
    return re.sub("|".join(ports), lambda found: ports[found[0]], text)


class Shell:
    """One terminal: a bash that keeps its variables from command to command."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self.stays = ""
        self.said: list[str] = []
        self._reader: threading.Thread | None = None
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

    def run(self, command: str) -> tuple[str, int]:
        """What the command prints, on stdout and stderr but for blank lines, and its exit code."""
        self._send(f'{command}\nended_with=$?; echo; echo "{MARK}$ended_with"')
        printed = ""
        for line in self._lines():
            if line.startswith(MARK):
                return printed, int(line.removeprefix(MARK))
            printed += line if line.strip() else ""
        raise AssertionError(f"the shell ended:\n$ {command}\n{printed}")

    def follow(self, step: Step) -> None:
        """Runs a command of the page and compares what it prints."""
        deadline_s = time.monotonic() + LOOK_AGAIN_S
        while wrong := self._wrong(step):
            assert LOOKS.match(step.command), wrong
            assert time.monotonic() < deadline_s, wrong
            time.sleep(0.5)

    def begin(self, step: Step) -> None:
        """Starts a command that stays, and waits until it has said what is expected."""
        self.stays = step.command
        self._send(f"exec {step.command}")
        printed, pattern = "", as_pattern(step.expected)
        for line in self._lines():
            if line.startswith("{"):
                continue  # the log
            printed += line
            if pattern.fullmatch(printed):
                self._reader = threading.Thread(target=self._read_on, daemon=True)
                self._reader.start()
                return
        raise AssertionError(f"it did not say so:\n$ {step.command}\n{printed}")

    def leave(self) -> None:
        """Ctrl-C: what stays running must end well then."""
        stayed, self.stays = self.stays, ""
        if self.process.returncode is not None:
            return
        self.process.send_signal(signal.SIGINT)
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            ended_with = self.process.wait(timeout=TIMEOUT_S)
        finally:
            self.process.kill()
        if self._reader is not None:
            self._reader.join(timeout=TIMEOUT_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        assert ended_with == 0 or not stayed, f"$ {stayed}\n{''.join(self.said[-50:])}(exit code {ended_with})"

    def _wrong(self, step: Step) -> str:
        """What is wrong with what it did; empty if nothing is."""
        printed, code = self.run(step.command)
        good = code == 0 or any("refused" in line or "error:" in line for line in step.expected)
        if step.expected:
            good = good and bool(as_pattern(step.expected).fullmatch(printed))
        elif step.command.startswith("curl"):
            good = good and '"code":' not in printed
        return "" if good else f"$ {step.command}\n{printed}(exit code {code})"

    def _send(self, text: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def _read_on(self) -> None:
        """So that a log of any length finds room."""
        assert self.process.stdout is not None
        self.said.extend(self.process.stdout)

    def _lines(self) -> Iterator[str]:
        assert self.process.stdout is not None
        watchdog = threading.Timer(TIMEOUT_S, os.killpg, (self.process.pid, signal.SIGKILL))
        watchdog.start()
        try:
            while line := self.process.stdout.readline():
                yield line
        finally:
            watchdog.cancel()


class Terminals:
    """The terminals of one reader, all in one folder."""

    def __init__(self, folder: Path, env: dict[str, str]) -> None:
        self._folder, self._env, self._open = folder, env, list[Shell]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with ExitStack() as stack:
            for shell in self._open:
                stack.callback(shell.leave)

    def read(self, page: str) -> None:
        """Does all that a page says, in a new terminal."""
        mine = self._terminal()
        for info, body in blocks(page):
            if info == "console background":
                self._beside(body)
            elif info == "console":
                for step in steps(body):
                    mine.follow(step)
            elif "file=" in info:
                file = self._folder / info.rpartition("file=")[2]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text(body)
        mine.leave()

    def _beside(self, body: str) -> None:
        *first, last = steps(body)
        if CONTROL_C in last.expected:
            (running,) = [shell for shell in self._open if shell.stays == last.command]
            running.leave()
            return
        shell = self._terminal()
        for step in first:
            shell.follow(step)
        shell.begin(last)

    def _terminal(self) -> Shell:
        self._open.append(Shell(self._folder, self._env))
        return self._open[-1]
