"""The container image: built from the real Dockerfile, and run as compose.yaml says. `make image-test` runs this."""

from __future__ import annotations

import json
import os
import resource
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "deploy/container/compose.yaml").read_text())["services"]
BASE = os.environ.get("PACELINE_IMAGE_BASE", "")
SLOW_MS = 14_000
"""Longer than a stop waits for without the setting in compose.yaml."""
UP_S = 60.0

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(not BASE, reason="make image-test builds and runs the image: it takes minutes, and needs root"),
]


class Podman:
    """Images, containers and volumes in a folder of their own: nothing of the machine's is touched."""

    def __init__(self, folder: Path) -> None:
        self._places = ["--root", str(folder / "storage"), "--runroot", str(folder / "run")]

    def __call__(self, *words: str) -> str:
        return self.told("podman", "--runtime", "runc", *self._places, *words)

    def build(self, *, base: str, tag: str, extras: str = "") -> str:
        """Builds as `docker build` would. Docker's format, as that of OCI has no health check."""
        certificates = ssl.get_default_verify_paths().cafile or "/etc/ssl/certs/ca-certificates.crt"
        mounts = [certificates, *(["/etc/pip.conf"] if Path("/etc/pip.conf").exists() else [])]
        words = ["--format", "docker", "--isolation", "chroot", "--network", "host", "--tag", tag]
        words += [word for mount in mounts for word in ("--volume", f"{mount}:{mount}:ro")]
        words += ["--build-arg", f"BASE={base}", "--build-arg", f"EXTRAS={extras}"]
        return self.told("buildah", *self._places, "bud", *words, "-f", "deploy/container/Dockerfile", ".")

    def told(self, *words: str) -> str:
        done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{' '.join(words)}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def start(self, name: str, *words: str, service: str = "paceline", options: tuple[str, ...] = ()) -> None:
        """Starts a service as compose.yaml describes it."""
        self.run("--detach", "--name", name, *options_of(SERVICES[service]), *options, "localhost/paceline", *words)

    def run(self, *words: str) -> str:
        """Without a network, and with no higher limits than ours: raising them takes a capability of its own."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        limits = ["--ulimit", f"nofile={files}:{files}", "--ulimit", "nproc=4096:4096"]
        return self("run", "--network", "none", *limits, *words)

    def inside(self, name: str, *words: str) -> str:
        return self("exec", name, *words)

    def wait_until_healthy(self, name: str) -> None:
        """Asks the image's own health check."""
        until_s = time.monotonic() + UP_S
        while True:
            try:
                self("healthcheck", "run", name)
            except AssertionError:
                assert time.monotonic() < until_s, self("logs", name)
                time.sleep(0.5)
            else:
                return

    def stop(self, name: str) -> tuple[int, float]:
        """Stops as compose.yaml says. Returns the exit code and how many seconds it took."""
        began_s = time.monotonic()
        self("stop", "--time", SERVICES["paceline"]["stop_grace_period"].removesuffix("s"), name)
        return int(self("inspect", name, "--format", "{{.State.ExitCode}}")), time.monotonic() - began_s


def options_of(service: dict[str, Any]) -> list[str]:
    """What `docker run` is given for a service of compose.yaml."""
    words = ["--read-only"] if service["read_only"] else []
    words += [word for place in service["tmpfs"] for word in ("--tmpfs", place)]
    words += [word for capability in service["cap_drop"] for word in ("--cap-drop", capability)]
    words += [word for option in service["security_opt"] for word in ("--security-opt", option.removesuffix(":true"))]
    words += [word for volume in service["volumes"] for word in ("--volume", volume)]
    for name, value in service.get("environment", {}).items():
        words += ["--env", f"{name}={value}"]
    if "entrypoint" in service:
        words += ["--entrypoint", json.dumps(service["entrypoint"])]
    return words


@pytest.fixture(scope="module")
def podman() -> Iterator[Podman]:
    folder = ROOT / "build" / "image"
    engine = Podman(folder)
    base = BASE
    if Path(BASE).is_file():
        base = "localhost/base"
        engine("import", BASE, base)
    engine.build(base=base, tag="localhost/paceline")
    yield engine
    engine("rm", "--all", "--force", "--time", "1")
    engine("volume", "rm", "--all", "--force")
    for place in ("storage", "run"):
        shutil.rmtree(folder / place, ignore_errors=True)


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


def test_image_with_the_extra_speaks_to_aws(podman: Podman) -> None:
    podman.build(base="localhost/base" if Path(BASE).is_file() else BASE, tag="localhost/paceline-aws", extras="[aws]")
    words = ("--rm", "--entrypoint", "python", "localhost/paceline-aws")
    assert podman.run(*words, "-c", "import boto3, paceline.adapters.aws; print('both')") == "both"
