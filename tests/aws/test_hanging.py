"""AWS that accepts requests and never answers: the service still says in time that it is not ready."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shells.api.conftest import serving

ANSWER_S = 2.0
BUSY_MACHINE_S = 3.0


@pytest.fixture
def hanging_aws(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A server on loopback to which every connection is made and which says nothing."""
    with socket.create_server(("127.0.0.1", 0), backlog=100) as server:
        for name, value in {
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.getsockname()[1]}",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
        }.items():
            monkeypatch.setenv(name, value)
        yield server


def test_readyz_and_metrics_answer_within_two_seconds_while_aws_hangs(
    tmp_path: Path, hanging_aws: socket.socket
) -> None:
    key = "a secret key that is long enough"
    with serving(tmp_path, store="aws://?prefix=hanging", secret_key=key) as world:
        world.system.__dict__["secret_key"] = key.encode()  # a daemon has compared it with the store at its start
        stranger = world.client("pl_000000000000_" + "0" * 64)

        def ask() -> None:
            with contextlib.suppress(OSError):
                stranger("GET", "/v1/users/me/monitors")

        askers = [threading.Thread(target=ask, daemon=True) for _ in range(3)]
        for asker in askers:
            asker.start()  # their tokens are looked up all the while
        time.sleep(0.3)
        for path, status in (("/readyz", 503), ("/metrics", 200), ("/readyz", 503), ("/healthz", 200)):
            began_s = time.monotonic()
            answer = world.client()("GET", path)
            assert time.monotonic() - began_s < ANSWER_S + BUSY_MACHINE_S
            assert answer.status == status
            if path == "/metrics":
                assert b"paceline_store_up 0.0" in answer.body
        hanging_aws.close()  # what waits for an answer need not wait for its time-out
