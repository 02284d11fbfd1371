"""The container image: built from the real Dockerfile, and run as compose.yaml says. `make image-test` runs this."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.support.podman import MADE_BY_MAKE, SERVICES, UP_S, Podman

SLOW_MS = 14_000
"""Longer than a stop waits for without the setting in compose.yaml."""

pytestmark = MADE_BY_MAKE


@pytest.fixture
def running(podman: Podman) -> Iterator[Podman]:
    podman.start("server", options=("--env", "PACELINE_OUTBOUND_ALLOW=127.0.0.0/8"))
    podman.wait_until_healthy("server")
    yield podman
    podman("rm", "--all", "--force", "--time", "1")
    podman("volume", "rm", "--all", "--force")


def test_container_is_healthy_without_root_capabilities_or_a_writable_root(running: Podman) -> None:
    assert running.inside("server", "id", "-u") == running.inside("server", "id", "-g") == "10001"
    status = dict(line.split(":\t", 1) for line in running.inside("server", "cat", "/proc/1/status").splitlines())
    assert {status[name].strip() for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert status["NoNewPrivs"] == "1"
    for folder in ("/", "/opt/paceline", "/etc", "/var"):
        with pytest.raises(AssertionError, match="Read-only file system"):
            running.inside("server", "touch", f"{folder}/new")
    assert running.inside("server", "find", "/data", "-maxdepth", "1", "-name", "paceline.db") == "/data/paceline.db"


def test_stop_waits_for_a_check_in_flight_and_the_volume_keeps_its_result(running: Podman) -> None:
    running("exec", "--detach", "server", "paceline", "simulator", "http", "--port", "8090")
    running.inside("server", "paceline", "user", "add", "root", "--role", "admin")
    address = f"http://127.0.0.1:8090/slow/{SLOW_MS}"
    running.inside(
        "server", "paceline", "monitor", "set", "slow", "--url", address, "--every", "1h", "--timeout", "60s"
    )
    wait_for_state(running, "server", "out")
    code, took_s = running.stop("server")
    assert code == 0, running("logs", "server")
    assert took_s > 5, "it did not wait for the check"
    running("rm", "server")
    running.start("again")
    running.wait_until_healthy("again")
    assert wait_for_state(running, "again", "ok")["attempt"] == 1
    assert running.inside("again", "paceline", "check") == "OK"


def wait_for_state(podman: Podman, name: str, state: str) -> dict[str, Any]:
    until_s = time.monotonic() + UP_S
    while True:
        runs = json.loads(podman.inside(name, "paceline", "monitor", "runs", "slow", "--json"))["items"]
        if runs and runs[0]["state"] == state:
            first: dict[str, Any] = runs[0]
            return first
        assert time.monotonic() < until_s, runs
        time.sleep(0.2)


def test_backup_service_makes_a_checked_copy_and_stops_at_once(running: Podman) -> None:
    running.inside("server", "paceline", "user", "add", "root", "--role", "admin")
    running.start("copies", SERVICES["backup"]["command"][0].replace("$$", "$"), service="backup")
    until_s = time.monotonic() + UP_S
    while running("logs", "copies").splitlines()[-1:] != ["OK"]:
        assert time.monotonic() < until_s, running("logs", "copies")
        time.sleep(0.5)
    copies = running.inside("copies", "ls", "/backups").split()
    assert [Path(name).suffix for name in copies] == [".db", ".key"]
    assert running.stop("copies")[0] == 0


def test_image_with_the_extra_speaks_to_aws(podman: Podman, base: str) -> None:
    podman.build(base=base, tag="localhost/paceline-aws", extras="[aws]")
    words = ("--rm", "--entrypoint", "python", "localhost/paceline-aws")
    assert podman.run(*words, "-c", "import boto3, paceline.adapters.aws; print('both')") == "both"
