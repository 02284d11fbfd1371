"""Several real daemons on one file, and one that freezes for longer than its lease."""

from __future__ import annotations

import contextlib
import resource
import signal
import socket
import subprocess
import time
from pathlib import Path

import apsw

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.monitors.definition import SpecLimits
from paceline.core.monitors.values import Run
from paceline.simulators.http import ModelHttpServer
from paceline.steps.monitors.define import parse_put, put_monitors
from tests.shells.support.daemons import Api, free_port, new_user, now_ms, start_daemon, start_process

MONITORS = 50


def stop(*processes: subprocess.Popen[bytes]) -> None:
    for process in processes:
        process.send_signal(signal.SIGTERM)
    for process in processes:
        assert process.wait(90) == 0, "SIGTERM drains and exits 0"


def put(folder: Path, name: str, document: str) -> SqliteStore:
    store = SqliteStore(str(folder / "p.db"))
    item = parse_put("ann", name, document.encode(), SpecLimits())
    put_monitors(store, [item], monitors_max=1_000, now_ms=now_ms())
    return store


def runs_of(store: SqliteStore, name: str) -> list[Run]:
    monitor = store.monitor("ann", name)
    assert monitor is not None
    return store.monitor_runs(monitor, before=None, limit=1_000, now_ms=now_ms())


def test_promise_5_three_daemons_on_one_file_make_and_send_each_run_once(tmp_path: Path) -> None:
    new_user(tmp_path, "ann")
    with ModelHttpServer() as server:
        for index in range(MONITORS):
            url = f"{server.base_url}/status/{210 + index}"
            put(tmp_path, f"m{index}", f'{{"check": {{"kind": "http", "url": "{url}"}}, "every": "1s"}}').close()
        processes = [
            start_daemon(tmp_path, free_port()),
            start_process(tmp_path, "worker"),
            start_process(tmp_path, "worker"),
        ]
        time.sleep(6)
        stop(*processes)
        store = SqliteStore(str(tmp_path / "p.db"))
        assert store.verify() == []
        for index in range(MONITORS):
            runs = runs_of(store, f"m{index}")
            assert [run.counter for run in runs] == list(range(len(runs) - 1, -1, -1))
            settled = [run for run in runs if run.state == "ok"]
            assert len(settled) >= 3, runs
            assert all(run.attempt == 1 for run in settled)
            assert server.log.count(f"/status/{210 + index}") == len(settled), "a run was sent twice, or not at all"
        store.close()


def test_promise_10_a_worker_frozen_beyond_its_lease_wakes_to_a_refusal(tmp_path: Path) -> None:
    new_user(tmp_path, "ann")
    with ModelHttpServer() as server:
        frozen = start_process(tmp_path, "worker")
        url = f"{server.base_url}/slow/700"
        store = put(tmp_path, "slow", f'{{"check": {{"kind": "http", "url": "{url}"}}, "every": "1h"}}')
        wait_until(lambda: bool(runs_of(store, "slow")) and runs_of(store, "slow")[0].state == "out")
        freeze(frozen, tmp_path / "p.db")
        other = start_process(tmp_path, "worker")
        wait_until(lambda: runs_of(store, "slow")[0].state == "ok", seconds=30)
        taken_over = runs_of(store, "slow")[0]
        frozen.send_signal(signal.SIGCONT)
        time.sleep(1.5)
        assert runs_of(store, "slow") == [taken_over], "the late outcome changed what was recorded"
        assert taken_over.attempt == 2
        assert server.log.count("/slow/700") == 2
        stop(frozen, other)
        assert "stale_outcomes" in (tmp_path / "daemon.log").read_text(), "the refusal is visible"
        assert store.verify() == []
        store.close()


def freeze(process: subprocess.Popen[bytes], file: Path) -> None:
    """Stops it at a moment at which it is not writing: else nobody could write until it goes on."""
    for _ in range(100):
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        with contextlib.closing(apsw.Connection(str(file))) as connection, contextlib.suppress(apsw.BusyError):
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
            return
        process.send_signal(signal.SIGCONT)
        time.sleep(0.01)
    raise AssertionError("it was writing whenever it was stopped")


def test_an_edit_through_the_file_reaches_a_running_daemon_at_once(tmp_path: Path) -> None:
    token = new_user(tmp_path, "ann")
    with ModelHttpServer() as server:
        port = free_port()
        process = start_daemon(tmp_path, port)
        url = f"{server.base_url}/ok"
        store = put(tmp_path, "web", f'{{"check": {{"kind": "http", "url": "{url}"}}, "every": "1h"}}')
        wait_until(lambda: server.log.count("/ok") == 1)
        put(tmp_path, "web", f'{{"check": {{"kind": "http", "url": "{url}"}}, "every": "1s"}}').close()
        wait_until(lambda: server.log.count("/ok") >= 3, seconds=6)
        answer = Api(port, token)("GET", "/v1/users/me/monitors/web")
        assert answer is not None
        assert answer[1]["health"] == "ok"
        stop(process)
        store.close()


def wait_until(condition: object, *, seconds: float = 15) -> None:
    assert callable(condition)
    deadline_s = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline_s, "it did not happen in time"
        time.sleep(0.05)


def test_a_daemon_that_can_open_no_more_files_says_that_accepting_fails(tmp_path: Path) -> None:
    port = free_port()
    process = start_daemon(tmp_path, port)
    try:
        resource.prlimit(process.pid, resource.RLIMIT_NOFILE, (100, 100))
        with contextlib.ExitStack() as stack:
            for _ in range(200):
                with contextlib.suppress(OSError):
                    stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
            log, until_s = tmp_path / "daemon.log", time.monotonic() + 20
            while "accepting_fails" not in log.read_text():
                assert time.monotonic() < until_s, log.read_text()
                time.sleep(0.1)
        api, until_s = Api(port, "none"), time.monotonic() + 30
        while (answer := api("GET", "/healthz")) is None or answer[0] != 200:
            assert time.monotonic() < until_s, "it does not recover"
            time.sleep(0.1)
    finally:
        process.kill()
        process.wait()
