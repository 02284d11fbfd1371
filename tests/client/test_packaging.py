"""The distribution: what it needs, what it exports, and what it stays away from."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import paceline_client
from paceline_client import AsyncClient, Client, Duration, problems
from paceline_client.durations import duration_text

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "client"
SOURCES = sorted((CLIENT / "src").rglob("*.py"))
PROJECT = tomllib.loads((CLIENT / "pyproject.toml").read_text())["project"]


def test_client_needs_two_packages_at_most() -> None:
    assert len(PROJECT["dependencies"]) <= 2
    allowed = {re.split(r"[<>=]", name)[0] for name in PROJECT["dependencies"]}
    optional = {re.split(r"[<>=]", name)[0] for names in PROJECT["optional-dependencies"].values() for name in names}
    named = {
        name.split(".")[0]
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        for name in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    assert named - set(sys.stdlib_module_names) - allowed - optional == {"paceline_client"}


def test_client_runs_without_its_extras_and_without_the_server() -> None:
    program = (
        "import sys\n"
        "for name in ('paceline', 'pandas', 'tqdm', 'structlog'): sys.modules[name] = None\n"
        "import paceline_client\n"
        "paceline_client.Client('http://127.0.0.1:9', 't').close()\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": str(CLIENT / "src")})


def test_client_ships_its_types_and_its_version() -> None:
    assert (CLIENT / "src" / "paceline_client" / "py.typed").is_file()
    assert paceline_client.__version__ == PROJECT["version"]
    assert all(hasattr(paceline_client, name) for name in paceline_client.__all__)
    assert sorted(paceline_client.__all__) == list(paceline_client.__all__)


def test_tree_of_errors_is_the_one_in_the_docstring() -> None:
    drawn = set(re.findall(r"[─ ] ?([A-Z]\w+)", str(problems.__doc__).partition("\n\n")[2]))
    there = {name for name, one in vars(problems).items() if isinstance(one, type) and issubclass(one, Exception)}
    assert there == drawn | {"ClientError"}
    assert there <= set(paceline_client.__all__)


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(CLIENT / "src" / "paceline_client")))
def test_no_file_of_the_client_outgrows_the_screen(path: Path) -> None:
    assert len(path.read_text().splitlines()) <= 400


def test_address_and_token_come_from_the_environment_when_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACELINE_URL", "http://127.0.0.1:9999/")
    monkeypatch.setenv("PACELINE_TOKEN", "pl_secret")
    with Client() as client:
        assert (client.connection.url, client.connection.token) == ("http://127.0.0.1:9999", "pl_secret")
        assert "pl_secret" not in repr(client.connection)
    monkeypatch.delenv("PACELINE_TOKEN")
    with pytest.raises(ValueError, match="PACELINE_TOKEN"):
        AsyncClient()
    with pytest.raises(ValueError, match="http"):
        Client("127.0.0.1:8080", "t")


@pytest.mark.parametrize(
    ("text", "seconds"), [("500ms", 0.5), ("30s", 30), ("5m", 300), ("6h", 21_600), ("1d", 86_400), ("0s", 0)]
)
def test_durations_are_read_and_written_in_the_form_of_paceline(text: str, seconds: float) -> None:
    assert Duration.parse(text).total_seconds() == seconds
    assert str(Duration.parse(text)) == text == duration_text(Duration.parse(text))
    for wrong in ("30", "s", "1.5s", "-1s", "1w"):
        with pytest.raises(ValueError, match="duration"):
            Duration.parse(wrong)
    with pytest.raises(ValueError, match="duration"):
        duration_text(Duration(microseconds=1))
