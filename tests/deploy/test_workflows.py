"""The workflows of GitHub: read by a linter, and held to what the project says of itself. None of them is run here."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
WORKFLOWS = {file.stem: yaml.safe_load(file.read_text()) for file in (ROOT / ".github/workflows").glob("*.yml")}
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def commands(workflow: str) -> list[str]:
    jobs = WORKFLOWS[workflow]["jobs"].values()
    return [line for job in jobs for step in job["steps"] for line in step.get("run", "").splitlines()]


def test_zizmor_finds_nothing_in_the_workflows() -> None:
    zizmor = str(Path(sys.executable).parent / "zizmor")
    words = [zizmor, "--offline", "--no-progress", "--color", "never", "--config", ".github/zizmor.yml", ".github"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_check_runs_on_every_python_that_the_project_names() -> None:
    named = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert WORKFLOWS["check"]["jobs"]["check"]["strategy"]["matrix"]["python"] == named
    assert PROJECT["requires-python"] == f">={named[0]}"


@pytest.mark.parametrize("workflow", sorted(WORKFLOWS))
def test_workflow_may_only_read_and_runs_targets_that_exist(workflow: str) -> None:
    assert WORKFLOWS[workflow]["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {word for line in commands(workflow) for word in re.findall(r"^make ([a-z-]+)", line)}
    assert named - targets == set()
    assert named


def test_release_publishes_by_trust_and_holds_no_token() -> None:
    publish = WORKFLOWS["release"]["jobs"]["publish"]
    assert publish["permissions"] == {"id-token": "write"}
    assert publish["steps"][-1] == {"uses": "pypa/gh-action-pypi-publish@release/v1"}
    assert "secrets." not in (ROOT / ".github/workflows/release.yml").read_text()
