"""Another process that holds the write lock: readiness answers in time, and one deadline covers a whole wait."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shells.support.daemons import Api, free_port, new_user, start_daemon

ANSWER_S = 2.0
BUSY_MACHINE_S = 3.0
CHECK = {"check": {"kind": "outgoing"}, "every": "1h"}


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    port = free_port()
    api = Api(port, new_user(tmp_path, "alice"), timeout_s=60)
    process = start_daemon(tmp_path, port)
    yield api
    process.terminate()
    process.wait(60)


@contextlib.contextmanager
def held(path: Path) -> Iterator[None]:
    """As ``sqlite3`` at somebody's keyboard, in the middle of a transaction."""
    with contextlib.closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def test_readyz_answers_within_two_seconds_while_another_process_holds_the_store(api: Api, tmp_path: Path) -> None:
    with held(tmp_path / "p.db"):
        time.sleep(0.6)  # the last trial write no longer counts
        for _ in range(3):
            began_s = time.monotonic()
            answer = api("GET", "/readyz")
            assert time.monotonic() - began_s < ANSWER_S + BUSY_MACHINE_S
            assert answer is not None
            assert (answer[0], answer[1]["code"]) == (503, "store_unavailable")
    until_s = time.monotonic() + 20
    while (answer := api("GET", "/readyz")) is None or answer[0] != 200:
        assert time.monotonic() < until_s, answer
        time.sleep(0.1)


def test_writers_that_wait_for_another_process_are_refused_together_and_not_one_after_another(
    api: Api, tmp_path: Path
) -> None:
    answers: list[tuple[int, float]] = []

    def write(number: int) -> None:
        time.sleep(number * 0.3)
        began_s = time.monotonic()
        put = number % 2 == 0  # two kinds of writes, so that they do not share a transaction
        path = f"/v1/users/me/monitors/m{number}"
        answer = api("PUT", path, CHECK) if put else api("DELETE", path)
        assert answer is not None
        answers.append((answer[0], time.monotonic() - began_s))

    with held(tmp_path / "p.db"):
        threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert {status for status, _ in answers} == {503}
    assert max(seconds for _, seconds in answers) < 10 + BUSY_MACHINE_S
