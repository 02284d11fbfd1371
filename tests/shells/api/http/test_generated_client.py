"""A client that openapi-python-client makes from the document: whole, well typed, and good for a put and a list."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.shells.api.conftest import World, serving

pytestmark = pytest.mark.slow
GENERATOR = Path(sys.prefix) / "generator" / "bin"
"""An environment of its own, made by `make install` from requirements/generator.txt."""
LINES = ("put_records", "stream_job_results")
"""The generator knows no JSON lines: it leaves them out, and keeps the rest of these operations."""
USE = """
import sys
from importlib import import_module
from pkgutil import walk_packages

import paceline_api
from paceline_api import AuthenticatedClient
from paceline_api.api.monitors import list_monitors, put_monitor
from paceline_api.models import HttpCheck, HttpCheckMethod, IntervalMonitor, Missed, MonitorPage, MonitorView, Problem

for module in walk_packages(paceline_api.__path__, "paceline_api."):
    import_module(module.name)
client = AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2])
check = HttpCheck(kind="http", url="https://example.org/", method=HttpCheckMethod.HEAD)
body = IntervalMonitor(check=check, every="60s", missed=Missed.ONCE, tags=["web"])
made = put_monitor.sync("me", "home", client=client, body=body)
assert isinstance(made, MonitorView), made
assert made.created_at.tzinfo is not None
page = list_monitors.sync("me", client=client, limit=10)
assert isinstance(page, MonitorPage), page
(monitor,) = page.items
assert isinstance(monitor.check, HttpCheck)
assert monitor.check.method is HttpCheckMethod.HEAD
assert monitor.missed is Missed.ONCE
refused = put_monitor.sync("me", "home", client=client, body=IntervalMonitor(check=check, every="1ms"))
assert isinstance(refused, Problem), refused
print(monitor.id, refused.code, refused.errors[0].pointer)
"""


def run(*words: str | Path, cwd: Path, code: int = 0) -> str:
    path = f"{GENERATOR}{os.pathsep}{os.environ['PATH']}"  # it formats what it makes with the ruff beside it
    done = subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode in (0, code), done.stdout + done.stderr
    return done.stdout + done.stderr


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serving(tmp_path_factory.mktemp("generated")) as running:
        yield running


@pytest.fixture(scope="module")
def generated(world: World, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """The folder with the package, and what the generator said."""
    assert GENERATOR.is_dir(), "run make install: it makes the generator's environment"
    folder = tmp_path_factory.mktemp("client")
    (folder / "openapi.json").write_bytes(world.client()("GET", "/openapi.json").body)
    (folder / "use.py").write_text(USE)
    words = ("generate", "--path", "openapi.json", "--output-path", "paceline_api", "--meta", "none")
    told = run(GENERATOR / "openapi-python-client", *words, cwd=folder)
    return folder, told


def test_the_generator_makes_every_operation_and_warns_of_json_lines_alone(
    generated: tuple[Path, str], world: World
) -> None:
    folder, told = generated
    assert told.count("WARNING parsing") == len(LINES)
    assert len(re.findall(r"Unsupported content.type application/x-ndjson", told)) == len(LINES)
    document = world.client()("GET", "/openapi.json").json
    wanted = {operation["operationId"] for ones in document["paths"].values() for operation in ones.values()}
    made = {file.stem for file in (folder / "paceline_api" / "api").glob("*/*.py")} - {"__init__"}
    assert made == wanted


@pytest.mark.timeout(300)
def test_the_generated_client_and_a_program_that_uses_it_are_well_typed(generated: tuple[Path, str]) -> None:
    folder, _ = generated
    python = GENERATOR / "python"
    words = ("-m", "mypy", "--strict", "--no-error-summary", "--python-executable", python, "paceline_api", "use.py")
    told = run(sys.executable, *words, cwd=folder, code=1)
    # client.py is the same for every document.
    assert [line for line in told.splitlines() if not line.startswith("paceline_api/client.py:")] == []


def test_the_generated_client_puts_and_lists_monitors(generated: tuple[Path, str], world: World) -> None:
    folder, _ = generated
    world.add("alice")
    told = run(GENERATOR / "python", "use.py", f"http://127.0.0.1:{world.port}", world.tokens["alice"], cwd=folder)
    assert told == "home invalid_input /every\n"
