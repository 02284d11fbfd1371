"""``paceline up`` as a separate process on a real file: starts, watches and stops it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped]  # it has no types of its own

from paceline.shells.daemon.metrics import LATENESS_MS

SECRET = "a secret that is only good for measuring"  # noqa: S105 - guards nothing
STOP_S = 30.0


class Daemon:
    """The running process: its address, and what it uses."""

    def __init__(self, url: str, process: psutil.Process) -> None:
        self.url = url
        self._process = process
        self.rss_bytes_max = 0

    def cpu_s(self) -> float:
        """Returns user and system time so far. The daemon has no child processes."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    @contextmanager
    def stopped(self) -> Iterator[None]:
        """Suspends the daemon while something else is measured."""
        self._process.suspend()
        try:
            yield
        finally:
            self._process.resume()

    def note_memory(self) -> None:
        self.rss_bytes_max = max(self.rss_bytes_max, self._process.memory_info().rss)

    def connect(self) -> HTTPConnection:
        return connect(self.url)

    def metric(self, name: str) -> float:
        """Returns one value from /metrics, by its full name with labels."""
        return self._metrics().get(name, 0.0)

    def lateness(self, name: str, labels: str = "") -> list[float]:
        """Returns the counts of a histogram of lateness: how many were at most as late as each of its bounds."""
        metrics = self._metrics()
        bounds = [*(str(ms / 1_000) for ms in LATENESS_MS), "+Inf"]
        return [metrics.get(f'{name}_bucket{{{labels}le="{bound}"}}', 0.0) for bound in bounds]

    def _metrics(self) -> dict[str, float]:
        connection = self.connect()
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
        return {name: float(value) for name, _, value in lines}


def connect(url: str) -> HTTPConnection:
    parts = urlsplit(url)
    assert parts.hostname is not None
    return HTTPConnection(parts.hostname, parts.port, timeout=60)


def late_ms(before: list[float], after: list[float], share: float) -> float:
    """Returns the bound within which this share was late, between two readings; above the last bound, twice that."""
    below = [new - old for old, new in zip(before, after, strict=True)]
    bounds = [*map(float, LATENESS_MS), 2.0 * LATENESS_MS[-1]]
    return next((bound for bound, count in zip(bounds, below, strict=True) if count >= share * below[-1]), bounds[-1])


@contextmanager
def daemon(file: str, **settings: str) -> Iterator[Daemon]:
    """Starts the daemon. Settings are given by name, without the prefix."""
    command = [*_program(file), "up", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=_environment(settings), text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"paceline up ended with exit code {process.wait(STOP_S)}")
            yield Daemon(json.loads(line)["url"], psutil.Process(process.pid))
        finally:
            process.terminate()
            process.wait(STOP_S)


def add_user(file: str, name: str, *, role: str = "user") -> str:
    """Adds a user. Returns the token. An admin may claim all users' runs."""
    command = [*_program(file), "user", "add", name, "--role", role]
    answer = subprocess.run(command, capture_output=True, check=True, text=True, env=_environment({}))
    return str(json.loads(answer.stdout)["token"])


def _program(file: str) -> list[str]:
    return [sys.executable, "-m", "paceline", "--store", f"sqlite:///{file}", "--json"]


def _environment(settings: dict[str, str]) -> dict[str, str]:
    """Returns the environment for the daemon, without this process's own settings."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
    given = {f"PACELINE_{name.upper()}": value for name, value in settings.items()}
    return outside | {"PACELINE_SECRET_KEY": SECRET, "PACELINE_LOG_LEVEL": "warning"} | given
