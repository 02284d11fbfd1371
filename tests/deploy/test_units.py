"""The systemd units, run by a systemd of their own in a container of the image. `make image-test` runs this."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.deploy.support.podman import BASE, MADE_BY_MAKE, ROOT, UP_S, Podman

SLOW_MS = 14_000
"""Longer than a stop waits for without the setting in the unit."""
STORE = "PACELINE_STORE=sqlite:////var/lib/paceline/paceline.db"

pytestmark = [
    *MADE_BY_MAKE,
    pytest.mark.skipif(not BASE.endswith(".tar"), reason="only the base that make image-test makes has systemd"),
]


class Machine:
    """A container whose first process is systemd."""

    def __init__(self, podman: Podman) -> None:
        self._podman = podman

    def __call__(self, *words: str) -> str:
        return self._podman.inside("machine", *words)

    def paceline(self, *words: str) -> str:
        """Runs a command as the guide says: as the user of the service, on its store."""
        return self("runuser", "-u", "paceline", "--", "env", STORE, "/opt/paceline/bin/paceline", *words)

    def shown(self, unit: str, name: str) -> str:
        return self("systemctl", "show", unit, "--property", name, "--value")

    def wait_until_started(self) -> None:
        until_s = time.monotonic() + UP_S
        while (state := self("sh", "-c", "systemctl is-system-running 2>&1 || true")) not in ("running", "degraded"):
            assert time.monotonic() < until_s, state
            time.sleep(0.3)

    def start(self) -> None:
        self("systemctl", "start", "paceline.service")
        self.wait_for("serving")

    def wait_for(self, event: str) -> None:
        until_s = time.monotonic() + UP_S
        invocation = self.shown("paceline.service", "InvocationID")
        while f'"event": "{event}"' not in (log := self("journalctl", f"_SYSTEMD_INVOCATION_ID={invocation}")):
            assert time.monotonic() < until_s, log
            time.sleep(0.3)


@pytest.fixture
def machine(podman: Podman) -> Iterator[Machine]:
    words = ["--privileged", "--systemd=always", "--user", "0", "--entrypoint", "/sbin/init"]
    units = f"{ROOT / 'deploy/systemd'}:/units:ro"
    podman.run("--detach", "--name", "machine", *words, "--volume", units, "localhost/paceline")
    made = Machine(podman)
    try:
        made.wait_until_started()
        made("sh", "-c", "cp /units/* /etc/systemd/system && mkdir /etc/paceline")
        made("sh", "-c", "echo PACELINE_OUTBOUND_ALLOW=127.0.0.0/8 > /etc/paceline/environment")
        made("systemctl", "daemon-reload")
        yield made
    finally:
        podman("rm", "--all", "--force", "--time", "1")


def test_service_runs_with_its_hardening_and_comes_back_after_a_kill(machine: Machine) -> None:
    machine.start()
    pid = machine.shown("paceline.service", "MainPID")
    status = dict(line.split(":", 1) for line in machine("cat", f"/proc/{pid}/status").splitlines())
    assert {status[name].strip() for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {"0" * 16}
    assert (status["NoNewPrivs"].strip(), status["Seccomp"].strip()) == ("1", "2")
    assert "0" not in status["Uid"].split()
    mounts = machine("cat", f"/proc/{pid}/mountinfo").splitlines()
    writable = {line.split()[4] for line in mounts if line.split()[5].startswith("rw")}
    assert "/" not in writable
    assert "/var/lib/paceline" in writable
    machine("systemctl", "kill", "--signal", "KILL", "paceline.service")
    time.sleep(2.5)  # RestartSec
    machine.wait_for("serving")
    assert machine.shown("paceline.service", "NRestarts") == "1"


def test_stop_of_the_service_waits_for_a_check_in_flight(machine: Machine) -> None:
    machine.start()
    machine.paceline("user", "add", "root", "--role", "admin")
    machine("systemd-run", "/opt/paceline/bin/paceline", "simulator", "http", "--port", "8090")
    address = f"http://127.0.0.1:8090/slow/{SLOW_MS}"
    machine.paceline("monitor", "set", "slow", "--url", address, "--every", "1h", "--timeout", "60s")
    until_s = time.monotonic() + UP_S
    while '"state":"out"' not in (runs := machine.paceline("monitor", "runs", "slow", "--json")):
        assert time.monotonic() < until_s, runs
        time.sleep(0.2)
    machine("systemctl", "stop", "paceline.service")
    assert machine.shown("paceline.service", "Result") == "success"
    assert machine.shown("paceline.service", "ExecMainStatus") == "0"
    assert '"state":"ok"' in machine.paceline("monitor", "runs", "slow", "--json")


def test_timer_s_service_makes_a_checked_copy_with_its_key(machine: Machine) -> None:
    machine.start()
    machine("systemctl", "enable", "--now", "paceline-backup.timer")
    assert machine.shown("paceline-backup.timer", "ActiveState") == "active"
    machine("systemctl", "start", "paceline-backup.service")
    assert machine.shown("paceline-backup.service", "Result") == "success"
    copies = machine("ls", "/var/lib/paceline/backups").split()
    assert [name.rpartition(".")[2] for name in copies] == ["db", "key"]
