"""How a daemon ends: SIGTERM drains; a second one ends it sooner, as cleanly, and says so in one line."""

from __future__ import annotations

import contextlib
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shells.daemon.test_daemons import put, runs_of
from tests.shells.support.daemons import free_port, new_user, start_daemon, start_process
from tests.shells.support.job_daemons import wait_for

SOON_S = 3.5
"""A second signal ends it within this time; one alone waits for 5 s for requests, and 10 s for checks."""
TOLD_AGAIN = "told_to_stop_again"


@contextlib.contextmanager
def half_a_request(port: int, token: str) -> Iterator[socket.socket]:
    """The rest of its body never comes."""
    head = f"PUT /v1/users/me/monitors/m HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    with socket.create_connection(("127.0.0.1", port)) as client:
        client.sendall(f"{head}Content-Type: application/json\r\nContent-Length: 99\r\n\r\n{{".encode())
        yield client


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_second_signal_ends_the_wait_for_an_open_request_without_a_traceback(
    tmp_path: Path, number: signal.Signals
) -> None:
    port, token = free_port(), new_user(tmp_path, "ann")
    process = start_daemon(tmp_path, port)
    with half_a_request(port, token):
        time.sleep(0.3)
        process.send_signal(number)
        time.sleep(0.5)
        assert process.poll() is None, "it waits for the request"
        assert_ends_soon(tmp_path, process, number)


@pytest.mark.parametrize("command", ["up", "worker"])
def test_second_signal_gives_back_checks_in_flight_without_waiting_for_them(tmp_path: Path, command: str) -> None:
    new_user(tmp_path, "ann")
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        url = f"http://127.0.0.1:{hangs.getsockname()[1]}/"
        store = put(tmp_path, "m", f'{{"check": {{"kind": "http", "url": "{url}", "timeout": "60s"}}, "every": "1d"}}')
        process = start_process(tmp_path, command, PACELINE_CHECK_LEASE="3m", PACELINE_PORT=str(free_port()))
        wait_for(lambda: store.status().runs_out == 1, lambda: log(tmp_path))
        process.send_signal(signal.SIGTERM)
        time.sleep(0.5)
        assert process.poll() is None, "it waits for the check"
        assert_ends_soon(tmp_path, process, signal.SIGTERM)
        given_back = [(run.state, run.attempt) for run in runs_of(store, "m")]
        assert given_back == [("waiting", 1)], "given back: the next daemon makes it, as its second attempt"
        store.close()


def test_stop_waits_for_a_check_as_long_as_the_setting_says_and_then_gives_it_back(tmp_path: Path) -> None:
    new_user(tmp_path, "ann")
    with socket.create_server(("127.0.0.1", 0)) as hangs:
        url = f"http://127.0.0.1:{hangs.getsockname()[1]}/"
        store = put(tmp_path, "m", f'{{"check": {{"kind": "http", "url": "{url}", "timeout": "60s"}}, "every": "1d"}}')
        process = start_process(tmp_path, "worker", PACELINE_CHECK_LEASE="3m", PACELINE_DRAIN_TIMEOUT="2s")
        wait_for(lambda: store.status().runs_out == 1, lambda: log(tmp_path))
        began_s = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
        assert 2 <= time.monotonic() - began_s < 2 + SOON_S
        assert [(run.state, run.attempt) for run in runs_of(store, "m")] == [("waiting", 1)]
        store.close()


def test_signal_during_a_request_that_never_ends_leaves_no_traceback(tmp_path: Path) -> None:
    port, token = free_port(), new_user(tmp_path, "ann")
    process = start_daemon(tmp_path, port)
    with half_a_request(port, token):
        time.sleep(0.3)
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    assert "Traceback" not in log(tmp_path)
    assert TOLD_AGAIN not in log(tmp_path)


def assert_ends_soon(folder: Path, process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    began_s = time.monotonic()
    process.send_signal(number)
    assert process.wait(30) == 0
    assert time.monotonic() - began_s < SOON_S
    lines = log(folder).splitlines()
    assert [line for line in lines if "Traceback" in line or "CancelledError" in line] == []
    assert sum(TOLD_AGAIN in line for line in lines) == 1, lines


def log(folder: Path) -> str:
    return (folder / "daemon.log").read_text()
