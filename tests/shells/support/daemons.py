"""Real daemons as processes on a real file, for the tests that kill, freeze and multiply them."""

from __future__ import annotations

import contextlib
import hashlib
import http.client
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.users import Role
from paceline.steps.access import add_user

SECRET = "a secret key that is long enough"
CONNECTION_FAULTS = (OSError, http.client.HTTPException)


class Api:
    """A client that returns whether the daemon acknowledged: None means unknown."""

    def __init__(self, port: int, token: str, *, timeout_s: float = 10) -> None:
        self._port = port
        self._timeout_s = timeout_s
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    def __call__(self, method: str, path: str, body: Any = None) -> tuple[int, Any] | None:
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._timeout_s)
        try:
            connection.request(method, path, json.dumps(body) if body is not None else None, self._headers)
            answer = connection.getresponse()
            text = answer.read()
            return answer.status, json.loads(text) if text else None
        except CONNECTION_FAULTS:
            return None
        finally:
            connection.close()


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def new_user(folder: Path, name: str, *, role: Role = "user") -> str:
    """A user in the store that the daemons of this folder share; returns the token."""
    store = SqliteStore(str(folder / "p.db"))
    key = hashlib.sha256(SECRET.encode()).digest()
    made = add_user(
        store, name, role=role, daily_credits=0, token_bytes=secrets.token_bytes(32), secret_key=key, now_ms=now_ms()
    )
    store.close()
    return made[1].secret


def start_process(folder: Path, command: str, **settings: str) -> subprocess.Popen[bytes]:
    environment = os.environ | {
        "PACELINE_STORE": f"sqlite:///{folder / 'p.db'}",
        "PACELINE_SECRET_KEY": SECRET,
        "PACELINE_OUTBOUND_ALLOW": "127.0.0.0/8",
        "PACELINE_CHECK_LEASE": "2s",
        "PACELINE_LOG_LEVEL": "warning",
        **settings,
    }
    with (folder / "daemon.log").open("ab") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "paceline", command], env=environment, stdout=output, stderr=output
        )
    wait_until_it_minds_signals(process)
    return process


def wait_until_it_minds_signals(process: subprocess.Popen[Any], *, within_s: float = 60.0) -> None:
    """Before its first line of Python runs, a signal ends any process at once: no program can help that."""
    status, deadline_s = Path(f"/proc/{process.pid}/status"), time.monotonic() + within_s
    caught = 0
    while process.poll() is None and not caught & 1 << (signal.SIGTERM - 1):
        assert time.monotonic() < deadline_s, "it does not handle signals yet"
        time.sleep(0.01)
        with contextlib.suppress(OSError):  # it has just ended
            lines = status.read_text().splitlines()
            caught = next((int(line.split()[1], 16) for line in lines if line.startswith("SigCgt")), 0)


def start_daemon(folder: Path, port: int, **settings: str) -> subprocess.Popen[bytes]:
    """Returns when it answers; the port is given, so that clients find it again after a restart."""
    process = start_process(folder, "up", PACELINE_PORT=str(port), **settings)
    deadline_s = time.monotonic() + 90
    api = Api(port, "none")
    while api("GET", "/healthz") is None:
        assert process.poll() is None, (folder / "daemon.log").read_text()
        assert time.monotonic() < deadline_s, "the daemon does not answer"
        time.sleep(0.05)
    return process


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
