"""Wheels and source distributions, built and installed where nothing of the checkout can be seen."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HATCHLING = str(Path(sys.executable).parent / "hatchling")
VERSION = "0.1.0"
SIZE_BYTES_MAX = 150_000_000
"""What `make up` may install: the environment with all packages of requirements/product.txt."""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    for project in (ROOT, ROOT / "client"):
        subprocess.run([HATCHLING, "build", "--directory", str(folder)], cwd=project, check=True, capture_output=True)
    return folder


def test_each_distribution_has_a_wheel_and_a_source(built: Path) -> None:
    names = [f"{project}-{VERSION}" for project in ("paceline", "paceline_client")]
    assert {file.name for file in built.iterdir()} == {
        *(f"{name}.tar.gz" for name in names),
        *(f"{name}-py3-none-any.whl" for name in names),
    }


def test_wheel_holds_the_whole_package_and_nothing_else(built: Path) -> None:
    with zipfile.ZipFile(built / f"paceline-{VERSION}-py3-none-any.whl") as wheel:
        names = set(wheel.namelist())
    wanted = {
        str(file.relative_to(ROOT / "src"))
        for file in (ROOT / "src" / "paceline").rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert wanted - names == set()
    assert {name.split("/")[0] for name in names} == {"paceline", f"paceline-{VERSION}.dist-info"}


def test_source_distribution_can_be_built_and_tested(built: Path) -> None:
    with tarfile.open(built / f"paceline-{VERSION}.tar.gz") as source:
        names = {name.partition("/")[2] for name in source.getnames()}
    wanted = {"LICENSE", "README.md", "pyproject.toml", "Makefile", "src/paceline/wiring.py"}
    assert wanted - names == set()
    assert [name for name in names if name.startswith((".venv", "build/")) or name.endswith((".db", ".key"))] == []


@pytest.mark.slow
def test_wheels_work_in_a_clean_environment(built: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "clean", with_pip=True)
    python = tmp_path / "clean" / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "-r", str(ROOT / "requirements" / "product.txt")], check=True, capture_output=True)
    size = sum(file.lstat().st_size for file in (tmp_path / "clean").rglob("*") if file.is_file())
    assert size < SIZE_BYTES_MAX
    wheels = [str(file) for file in built.glob("*.whl")]
    subprocess.run([*pip, "--no-deps", *wheels], check=True, capture_output=True)

    def paceline(*words: str) -> str:
        command = [str(tmp_path / "clean" / "bin" / "paceline"), *words]
        return subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True).stdout

    assert VERSION in paceline("--version")
    assert json.loads(paceline("user", "add", "root", "--role", "admin", "--json"))["token"].startswith("pl_")
    paceline("monitor", "set", "home", "--user", "root", "--url", "https://example.org/", "--every", "60s")
    assert paceline("check").strip() == "OK"
    where = subprocess.run(
        [str(python), "-c", "import paceline; print(paceline.__file__)"], cwd=tmp_path, check=True, capture_output=True
    )
    assert str(tmp_path) in where.stdout.decode()
