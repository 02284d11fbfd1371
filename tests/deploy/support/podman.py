"""A container engine in a folder of its own, for the tests that build the image and run it."""

from __future__ import annotations

import json
import os
import resource
import ssl
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
SERVICES: dict[str, Any] = yaml.safe_load((ROOT / "deploy/container/compose.yaml").read_text())["services"]
BASE = os.environ.get("PACELINE_IMAGE_BASE", "")
"""A file with a root file system, or the name of an image."""
UP_S = 60.0
MADE_BY_MAKE = [
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
