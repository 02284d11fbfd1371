"""The real command line, as a process of its own in a folder of its own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

TIMEOUT_S = 120.0


BEGUN: list[subprocess.Popen[str]] = []
"""Processes started by tests. A failed test must not leave open pipes that are blamed on another test."""


def end_all_that_was_begun() -> None:
    while BEGUN:
        process = BEGUN.pop()
        if process.poll() is None:
            process.kill()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()
        process.wait()


class Ended(NamedTuple):
    """How a command ended, and what it said."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)

    @property
    def problem(self) -> Any:
        return json.loads(self.err)


class Program:
    """``paceline`` in one folder, with nothing but the given settings in its environment."""

    def __init__(self, folder: Path, **settings: str) -> None:
        self.folder = folder
        self.env = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
        self.env["XDG_CONFIG_HOME"] = str(folder / "config")  # not where a person who runs the tests is logged in
        self.env |= {f"PACELINE_{name.upper()}": value for name, value in settings.items()}

    def run(self, *words: str, stdin: str = "", **settings: str) -> Ended:
        ended = subprocess.run(
            self._command(words),
            cwd=self.folder,
            env=self._env_with(settings),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        return Ended(ended.returncode, ended.stdout, ended.stderr)

    def ok(self, *words: str, stdin: str = "", **settings: str) -> str:
        """What a command that must succeed prints."""
        ended = self.run(*words, stdin=stdin, **settings)
        assert ended.code == 0, f"paceline {' '.join(words)}: {ended}"
        return ended.out

    def json(self, *words: str, **settings: str) -> Any:
        """The document that a command prints with ``--json``."""
        return json.loads(self.ok(*words, "--json", **settings))

    def begin(self, *words: str, **settings: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            self._command(words),
            cwd=self.folder,
            env=self._env_with(settings),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        BEGUN.append(process)
        return process

    @contextmanager
    def running(self, *words: str, **settings: str) -> Iterator[Running]:
        """Runs a command until it is stopped; it must then exit with 0."""
        log = (self.folder / "daemon.log").open("a")
        with (
            log,
            subprocess.Popen(
                self._command([*words, "--json"]),
                cwd=self.folder,
                env=self._env_with(settings),
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            ) as process,
        ):
            try:
                assert process.stdout is not None
                line = _line_within(process, TIMEOUT_S)
                assert line, f"it ended instead:\n{(self.folder / 'daemon.log').read_text()}"
                yield Running(process, json.loads(line))
            finally:
                process.send_signal(signal.SIGTERM)
                code = process.wait(TIMEOUT_S)
        assert code == 0, (self.folder / "daemon.log").read_text()

    def _command(self, words: Any) -> list[str]:
        return [sys.executable, "-m", "paceline", *words]

    def _env_with(self, settings: dict[str, str]) -> dict[str, str]:
        return self.env | {f"PACELINE_{name.upper()}": value for name, value in settings.items()}


class Running(NamedTuple):
    process: subprocess.Popen[str]
    said: Any
    """The document it printed when it was ready."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def eventually(question: Any, *, within_s: float = 60.0) -> Any:
    """The first true answer; fails if there is none in time."""
    deadline = time.monotonic() + within_s
    while time.monotonic() < deadline:
        if answer := question():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"not within {within_s} s")


def _line_within(process: subprocess.Popen[str], timeout_s: float) -> str:
    """Its first line, or nothing if it ends before; killed if it does neither."""
    assert process.stdout is not None
    watchdog = threading.Timer(timeout_s, process.kill)
    watchdog.start()
    try:
        return process.stdout.readline()
    finally:
        watchdog.cancel()
