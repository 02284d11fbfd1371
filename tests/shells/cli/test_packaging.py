"""What a fresh machine installs, and the commands it is told to type."""

from __future__ import annotations

import os
import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[3]
TARGETS = {"browser", "help", "install", "up", "test", "check", "format", "lint", "types", "contracts"}
TARGETS |= {
    "bench",
    "bench-full",
    "functions",
    "lock",
    "clean",
    "pictures",
    "quick",
    "coverage",
    "coverage-core",
    "test-on",
    "image-test",
    "site",
    "licences",
}


def normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def pins(file: str = "lock.txt") -> dict[str, str]:
    lines = (ROOT / "requirements" / file).read_text().splitlines()
    found = [re.fullmatch(r"([A-Za-z0-9._-]+)==([^\s;]+)( ; .+)?", line) for line in lines]
    assert [line for line, match in zip(lines, found, strict=True) if match is None] == []
    return {normal(match[1]): match[2] for match in found if match}


def project(folder: Path = ROOT) -> dict[str, Any]:
    table: dict[str, Any] = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    return table


@pytest.mark.parametrize("folder", [ROOT, ROOT / "client"], ids=["paceline", "paceline-client"])
def test_the_lock_pins_every_dependency_of_every_extra_and_names_nothing_else(folder: Path) -> None:
    wanted = [
        *project(folder)["dependencies"],
        *(name for extra in project(folder)["optional-dependencies"].values() for name in extra),
    ]
    assert names_of(wanted) - pins().keys() - {"paceline-client"} == set()  # it is installed from client/


def names_of(requirements: list[str]) -> set[str]:
    return {normal(re.split(r"[<>=!~;\s\[]", requirement)[0]) for requirement in requirements}


def test_demo_installs_the_product_alone_in_the_versions_of_the_lock() -> None:
    product = pins("product.txt")
    wanted = [*project()["dependencies"], *project(ROOT / "client")["dependencies"]]
    assert names_of(wanted) - product.keys() - {"paceline-client"} == set()
    assert product.items() <= pins().items()
    extras = project()["optional-dependencies"]
    assert names_of([*extras["test"], *extras["bench"], *extras["aws"]]) & product.keys() == set()
    assert "requirements/lock.txt" not in make("--dry-run", "--always-make", "up")


def make(*words: str) -> str:
    """As from a fresh shell: the suite itself may have been started by make."""
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(["make", *words], cwd=ROOT, env=env, capture_output=True, text=True, check=True).stdout


def test_help_lists_every_target() -> None:
    assert {line.split()[0] for line in make("--silent").splitlines()} == TARGETS
    phony = re.search(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    assert phony is not None
    assert set(phony[1].split()) == TARGETS


def test_ci_runs_make_check_and_nothing_else() -> None:
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    commands = [line for line in script.read_text().splitlines() if line and not line.startswith(("#", "set ", "cd "))]
    assert commands == ["exec make check"]


@pytest.mark.parametrize("part", ["ruff format --check", "lint types contracts", "test"])
def test_check_is_format_lint_types_contracts_and_tests(part: str) -> None:
    assert part in make("--dry-run", "check")
