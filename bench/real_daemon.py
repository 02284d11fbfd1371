"""``paceline up`` as a process of its own on a real file: started, watched, stopped."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from urllib.parse import urlsplit

import psutil

from paceline.adapters.sqlite.store import SqliteStore
from paceline.config import Settings
from paceline.steps.access import TOKEN_BYTES, add_user
from paceline.wiring import read_secret_key

SECRET = "a secret that is only good for measuring"  # noqa: S105 - guards nothing
STOP_S = 30.0


class Daemon:
    """The running process: where it listens, and what it uses."""

    def __init__(self, url: str, process: psutil.Process) -> None:
        self.url = url
        self._process = process
        self.rss_bytes_max = 0

    def cpu_s(self) -> float:
        """User and system time so far. The daemon has no child processes."""
        times = self._process.cpu_times()
        return float(times.user + times.system)

    def note_memory(self) -> None:
        self.rss_bytes_max = max(self.rss_bytes_max, self._process.memory_info().rss)

    def connect(self) -> HTTPConnection:
        parts = urlsplit(self.url)
        assert parts.hostname is not None
        return HTTPConnection(parts.hostname, parts.port, timeout=60)

    def metric(self, name: str) -> float:
        """One value from /metrics, by its full name with labels."""
        connection = self.connect()
        connection.request("GET", "/metrics")
        text = connection.getresponse().read().decode()
        connection.close()
        line = next((line for line in text.splitlines() if line.startswith(f"{name} ")), None)
        return float(line.rpartition(" ")[2]) if line else 0.0


@contextmanager
def daemon(file: str, **settings: str) -> Iterator[Daemon]:
    """Settings are given by name, without the prefix."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PACELINE_")}
    environment |= {"PACELINE_SECRET_KEY": SECRET, "PACELINE_LOG_LEVEL": "warning"}
    environment |= {f"PACELINE_{name.upper()}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "paceline", "--store", f"sqlite:///{file}", "--json", "up", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"paceline up ended with exit code {process.wait(STOP_S)}")
            yield Daemon(json.loads(line)["url"], psutil.Process(process.pid))
        finally:
            process.terminate()
            process.wait(STOP_S)


def add_admin(store: SqliteStore) -> str:
    """The token of an admin, who may claim everybody's runs."""
    secret_key = read_secret_key(Settings(secret_key=SECRET), ":memory:")
    now_ms = time.time_ns() // 1_000_000
    _, token = add_user(
        store,
        "admin",
        role="admin",
        daily_credits=0,
        token_bytes=bytes(range(TOKEN_BYTES)),
        secret_key=secret_key,
        now_ms=now_ms,
    )
    return token.secret
