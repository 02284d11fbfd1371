"""What runs on a store is known from the store itself, wherever it listens."""

from __future__ import annotations

import signal

import msgspec

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.daemons import Daemon
from paceline.steps.upkeep.daemons import beat
from paceline.wiring import SystemClock
from tests.shells.cli.support.program import Program, eventually

A_DAY_MS = 86_400_000


def test_status_shows_a_daemon_on_another_port_and_with_tls(program: Program) -> None:
    program.ok("user", "add", "alice")
    with program.running("up", "--port", "0", "--tls-self-signed") as up:
        status = program.json("status")
        assert status["daemon"] == {"url": up.said["url"], "answering": True}
        (daemon,) = status["daemons"]
        assert (daemon["kind"], daemon["state"], daemon["pid"]) == ("up", "running", up.process.pid)
        assert daemon["url"].startswith("https://127.0.0.1:")
        text = program.ok("status")
        assert f"answers at {up.said['url']}" in text
        assert "start one" not in text
    assert program.json("status")["daemons"] == []
    assert "start one: paceline up" in program.ok("status")


def test_status_shows_a_worker(program: Program) -> None:
    program.ok("user", "add", "alice")
    with program.running("worker") as worker:
        (daemon,) = program.json("status")["daemons"]
        assert (daemon["kind"], daemon["url"], daemon["pid"]) == ("worker", None, worker.process.pid)
        assert "works without an API" in program.ok("status")
        ended = program.run("export", "now.ndjson")
        assert (ended.code, "works without an API" in ended.err) == (2, True)
    assert program.run("export", "after.ndjson").code == 0


def test_a_daemon_that_was_killed_is_shown_as_gone(program: Program) -> None:
    program.ok("user", "add", "alice")
    process = program.begin("up", "--port", "0", "--json")
    try:
        assert process.stdout is not None
        assert process.stdout.readline()
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate(timeout=60)
    text = program.ok("status")
    assert "gone without a word since 20" in text
    assert f"process {process.pid}" in text
    assert "start one: paceline up" in text
    assert program.run("export", "out.ndjson").code == 0, "its process is not there any more"


def test_daemons_of_other_hosts_count_while_they_beat_and_are_forgotten_in_time(program: Program) -> None:
    program.ok("user", "add", "alice")
    now_ms = SystemClock().now_ms()
    other = Daemon("d1", "up", "another-host", 1, "http://10.0.0.7:8080", now_ms, now_ms, 3_600_000)
    old = msgspec.structs.replace(other, id="d0", beat_ms=now_ms - 2 * A_DAY_MS, every_ms=1_000)
    store = SqliteStore(str(program.folder / "paceline.db"))
    beat(store, other)
    beat(store, old)
    store.close()
    status = program.json("status")
    assert status["daemon"] == {"url": "http://10.0.0.7:8080", "answering": True}
    assert [one["state"] for one in status["daemons"]] == ["running", "gone"]
    with program.running("up", "--port", "0"):
        ids = eventually(lambda: [one["id"] for one in program.json("status")["daemons"]])
        assert "d0" not in ids
        assert "d1" in ids
