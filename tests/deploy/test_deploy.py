"""Files for running Paceline elsewhere: read by the tools of those places, and compared with the code."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from paceline.core.durations import parse_duration_ms
from paceline.core.monitors.checks import TIMEOUT_MS_MAX

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
COMPOSE = yaml.safe_load((DEPLOY / "container" / "compose.yaml").read_text())
MANIFESTS = list(yaml.safe_load_all((DEPLOY / "kubernetes" / "paceline.yaml").read_text()))


def run(*words: str) -> str:
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def tool(name: str) -> str:
    """Returns the path of a tool from the test extra."""
    return str(Path(sys.executable).parent / name)


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    assert run(tool("hadolint"), "--failure-threshold", "style", "deploy/container/Dockerfile") == ""


def test_dockerfile_copies_only_files_that_exist_and_are_not_ignored() -> None:
    dockerfile = (DEPLOY / "container" / "Dockerfile").read_text()
    sources = [
        word for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, re.MULTILINE) for word in line.split()[:-1]
    ]
    kept = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert [name for name in sources if not (ROOT / name).exists()] == []
    assert set(sources) == kept


def test_image_runs_as_another_user_than_root_and_writes_only_its_volume() -> None:
    assert re.search(r"^USER [1-9]\d+$", (DEPLOY / "container" / "Dockerfile").read_text(), re.MULTILINE)
    for service in COMPOSE["services"].values():
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
    assert COMPOSE["services"]["paceline"]["ports"] == ["127.0.0.1:8080:8080"]


def test_manifests_are_valid_kubernetes() -> None:
    run(tool("kubernetes-validate"), "--strict", "deploy/kubernetes/paceline.yaml")


def stop_times_s() -> dict[str, int]:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment]  # systemd's names are case-sensitive
    unit.read(DEPLOY / "systemd" / "paceline.service")
    pods = {
        manifest["metadata"]["name"]: manifest["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
        for manifest in MANIFESTS
        if manifest["kind"] == "Deployment"
    }
    compose = COMPOSE["services"]["paceline"]["stop_grace_period"]
    return {"systemd": seconds(unit["Service"]["TimeoutStopSec"]), "compose": seconds(compose), **pods}


def seconds(text: str) -> int:
    return int(text.removesuffix("s"))


def drain_times() -> set[str]:
    """What each place sets `drain_timeout` to."""
    unit = re.findall(
        r"^Environment=PACELINE_DRAIN_TIMEOUT=(\w+)$", (DEPLOY / "systemd/paceline.service").read_text(), re.MULTILINE
    )
    settings = [manifest["data"] for manifest in MANIFESTS if manifest["kind"] == "ConfigMap"]
    settings.append(COMPOSE["services"]["paceline"]["environment"])
    return {*unit, *(one["PACELINE_DRAIN_TIMEOUT"] for one in settings)}


def test_every_stop_timeout_covers_the_longest_check_and_the_release_of_runs() -> None:
    times = stop_times_s()
    assert len(times) == 4
    (drain,) = drain_times()
    assert parse_duration_ms(drain) == TIMEOUT_MS_MAX
    assert min(times.values()) * 1_000 >= TIMEOUT_MS_MAX + 30_000


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
def test_systemd_accepts_the_units(tmp_path: Path) -> None:
    for file in (DEPLOY / "systemd").iterdir():
        text = file.read_text().replace("/opt/paceline/bin/paceline", "/bin/true")
        (tmp_path / file.name).write_text(text)
    units = [str(file) for file in sorted(tmp_path.iterdir())]
    assert run("systemd-analyze", "verify", "--man=no", *units) == ""


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed")
@pytest.mark.parametrize("name", ["paceline.service", "paceline-backup.service"])
def test_systemd_finds_little_that_the_units_leave_open(tmp_path: Path, name: str) -> None:
    unit = tmp_path / name
    unit.write_text((DEPLOY / "systemd" / name).read_text().replace("/opt/paceline/bin/paceline", "/bin/true"))
    said = run("systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=15", str(unit))
    assert re.search(r"Overall exposure level for \S+: [01]\.\d ", said)


def test_command_of_the_unit_starts_serves_and_ends_in_time(tmp_path: Path) -> None:
    unit = (DEPLOY / "systemd" / "paceline.service").read_text()
    lines = dict(re.findall(r"^(ExecStart|TimeoutStopSec|KillSignal)=(.+)$", unit, re.MULTILINE))
    words = lines["ExecStart"].replace("/opt/paceline/bin/paceline", tool("paceline")).split()
    env = dict(re.findall(r"^Environment=(\w+)=(.+)$", unit, re.MULTILINE))
    env |= {"PACELINE_STORE": f"sqlite:///{tmp_path}/paceline.db", "PACELINE_PORT": "0", "PATH": "/usr/bin:/bin"}
    with subprocess.Popen(words, cwd=tmp_path, env=env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith(b"Paceline is up: http://127.0.0.1:")
        process.send_signal(signal.Signals[lines["KillSignal"]])
        assert process.wait(seconds(lines["TimeoutStopSec"])) == 0


def backup_script_of_systemd() -> str:
    text = (DEPLOY / "systemd" / "paceline-backup.service").read_text()
    script = re.search(r"^ExecStart=/bin/sh -ec '(.+)'$", text, re.MULTILINE)
    assert script is not None
    return script[1].replace("$$", "$").replace("%%", "%").replace("/opt/paceline/bin/paceline", tool("paceline"))


def backup_script_of_compose(folder: Path) -> str:
    script: str = COMPOSE["services"]["backup"]["command"][0].replace("$$", "$")
    assert "sleep 86400 & wait" in script
    script = script.replace("sleep 86400 & wait", "exit 0").replace("paceline backup", f"{tool('paceline')} backup")
    script = script.replace("paceline check", f"{tool('paceline')} check")
    return script.replace("/backups", str(folder / "backups")).replace("/data", str(folder))


@pytest.mark.parametrize("kind", ["systemd", "compose"])
def test_backup_script_makes_a_checked_copy_with_its_key_and_keeps_fourteen(tmp_path: Path, kind: str) -> None:
    env = {"PATH": "/usr/bin:/bin", "PACELINE_STORE": "sqlite:///paceline.db"}
    backups = tmp_path / "backups"
    backups.mkdir()
    subprocess.run([tool("paceline"), "user", "add", "root"], cwd=tmp_path, env=env, check=True, capture_output=True)
    for number in range(1, 16):
        old = backups / f"paceline-2026-01-{number:02}.db"
        old.touch()
        old.with_suffix(".key").touch()
        os.utime(old, (number, number))
    script = backup_script_of_systemd() if kind == "systemd" else backup_script_of_compose(tmp_path)
    done = subprocess.run(
        ["/bin/sh", "-ec", script], cwd=tmp_path, env=env, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    copies = sorted(backups.glob("*.db"), key=lambda file: file.stat().st_mtime)
    assert [file.name for file in copies[:13]] == [f"paceline-2026-01-{number:02}.db" for number in range(3, 16)]
    assert len(copies) == len(list(backups.glob("*.key"))) == 14
    assert copies[-1].stat().st_mode & 0o777 == 0o600
    assert copies[-1].with_suffix(".key").read_bytes() == (tmp_path / "paceline.key").read_bytes()
