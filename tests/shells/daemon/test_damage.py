"""A store that is removed, replaced, cut short or overwritten under a running daemon: real processes, real damage."""

from __future__ import annotations

import contextlib
import json
import os
import random
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.shells.support.daemons import Api, free_port, new_user, start_daemon

RED_S = 10.0
"""Two seconds on an idle machine."""
CHECK = {"check": {"kind": "outgoing"}, "every": "1s"}


class Scene:
    def __init__(self, folder: Path) -> None:
        self.folder, self.path = folder, folder / "p.db"
        port = free_port()
        self.api = Api(port, new_user(folder, "alice"))
        self.process = start_daemon(folder, port)

    def put(self, name: str) -> int | None:
        answer = self.api("PUT", f"/v1/users/me/monitors/{name}", CHECK)
        return None if answer is None else answer[0]

    def red_within_s(self) -> float:
        """Until /readyz says that the store is damaged."""
        began_s = time.monotonic()
        while time.monotonic() < began_s + RED_S:
            answer = self.api("GET", "/readyz")
            if answer is not None and answer[0] == 503 and answer[1]["code"] == "store_damaged":
                return time.monotonic() - began_s
            time.sleep(0.05)
        raise AssertionError(f"still ready: {answer}; {self.log}")

    def errors_logged(self) -> list[str]:
        """Waits for the first."""
        until_s = time.monotonic() + RED_S
        while True:
            lines = [json.loads(line) for line in self.log.splitlines() if line.startswith("{")]
            events = [line["event"] for line in lines if line["level"] == "error"]
            if events or time.monotonic() > until_s:
                return events
            time.sleep(0.05)

    @property
    def log(self) -> str:
        return (self.folder / "daemon.log").read_text()


@pytest.fixture
def scene(tmp_path: Path) -> Iterator[Scene]:
    scene = Scene(tmp_path)
    try:
        assert [scene.put(f"m{number}") for number in range(20)] == [201] * 20
        yield scene
    finally:
        scene.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            scene.process.wait(30)
        scene.process.kill()
        scene.process.wait()


def flip(path: Path, count: int, *, seed: int = 1) -> None:
    """Overwrites bytes anywhere in the file with others, as a broken disk or program would."""
    chance, size = random.Random(seed), path.stat().st_size
    with path.open("r+b", buffering=0) as file:
        for _ in range(count):
            at = chance.randrange(size)
            file.seek(at)
            byte = file.read(1)[0]
            file.seek(at)
            file.write(bytes([byte ^ chance.randrange(1, 256)]))


def replace(path: Path) -> None:
    """Replaces the file by a copy of itself, as a restore of a backup in the wrong order does."""
    copy = path.with_suffix(".copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def checkpoint(scene: Scene) -> None:
    """Everything into the main file, as SQLite does it now and then; and a moment for the daemon to see it."""
    with contextlib.closing(sqlite3.connect(scene.path)) as other:
        other.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
    time.sleep(1.0)


def side(scene: Scene, suffix: str) -> Path:
    return Path(f"{scene.path}{suffix}")


DAMAGE: dict[str, Callable[[Scene], None]] = {
    "the file is removed": lambda scene: scene.path.unlink(),
    "the log is removed": lambda scene: side(scene, "-wal").unlink(),
    "the log's index is removed": lambda scene: side(scene, "-shm").unlink(),
    "the file is replaced": lambda scene: replace(scene.path),
    "the file is cut short": lambda scene: os.truncate(scene.path, scene.path.stat().st_size // 2),
    "the file is emptied": lambda scene: os.truncate(scene.path, 0),
    "the log is emptied": lambda scene: os.truncate(side(scene, "-wal"), 0),
    "400 bytes are flipped": lambda scene: flip(scene.path, 400),
    "400 bytes of the log are flipped": lambda scene: flip(side(scene, "-wal"), 400),
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE.keys())
def test_promise_10_damage_turns_readiness_red_and_stops_writes(scene: Scene, damage: Callable[[Scene], None]) -> None:
    checkpoint(scene)
    assert scene.put("before") == 201
    damage(scene)
    scene.red_within_s()
    refused = scene.api("PUT", "/v1/users/me/monitors/after", CHECK)
    assert refused is not None
    assert (refused[0], refused[1]["code"]) == (503, "store_damaged")
    assert "restore a backup" in refused[1]["detail"]
    scene.errors_logged()
    scene.process.terminate()
    assert scene.process.wait(60) == 0
    assert scene.errors_logged() == ["store_damaged"]


@pytest.mark.parametrize("suffix", ["", "-wal"])
def test_promise_10_no_write_is_acknowledged_once_a_file_is_removed(scene: Scene, suffix: str) -> None:
    side(scene, suffix).unlink()
    assert [scene.put(f"lost{number}") for number in range(20)] == [503] * 20


def test_claim_is_refused_after_the_store_was_removed(scene: Scene) -> None:
    scene.path.unlink()
    scene.red_within_s()
    answer = scene.api("POST", "/v1/outgoing/claim", {"max": 10})
    assert answer is not None
    assert (answer[0], answer[1]["code"]) == (503, "store_damaged")


def test_a_daemon_with_a_damaged_store_ends_in_order_and_leaves_the_new_files_alone(scene: Scene) -> None:
    scene.path.unlink()
    scene.red_within_s()
    side(scene, "-wal").unlink()
    side(scene, "-wal").write_bytes(b"of another store")
    scene.process.terminate()
    assert scene.process.wait(60) == 0
    assert side(scene, "-wal").read_bytes() == b"of another store"
    assert "Traceback" not in scene.log


def test_writes_checkpoints_and_vacuums_of_other_processes_are_not_damage(scene: Scene) -> None:
    """Another process writes, brings the log into the file, and vacuums; none of it is damage."""
    for number in range(5):
        with contextlib.closing(sqlite3.connect(scene.path, timeout=30)) as other:
            other.execute("CREATE TABLE IF NOT EXISTS spare (x BLOB)")
            other.execute("INSERT INTO spare VALUES (zeroblob(3000000))")
            other.execute("DELETE FROM spare")
            other.commit()
            other.execute("VACUUM")
            other.execute(f"PRAGMA wal_checkpoint({'TRUNCATE' if number % 2 else 'PASSIVE'})").fetchall()
        time.sleep(0.3)
        assert scene.put(f"n{number}") == 201
    ready = scene.api("GET", "/readyz")
    assert ready is not None
    assert ready[0] == 200, scene.log
