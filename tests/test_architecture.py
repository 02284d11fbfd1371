"""The architecture: imports point inward, core is pure, one lifecycle, every promise has named tests."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest

from paceline.core.batches.batch import DayState
from paceline.core.batches.calls import CallState, EndState
from paceline.core.jobs.measurement import MeasurementState
from paceline.core.monitors.outcome import OpenState, RunState, TerminalState

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "paceline"
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

# From the inside out: each may import itself and what stands before it.
LAYERS = (
    {"errors"},
    {"core"},
    {"ports"},
    {"steps", "adapters", "config", "simulators"},
    {"wiring"},
    {"shells"},
    {"testing"},
    {"__main__"},
)
CORE_MAY_IMPORT = {
    "__future__",
    "array",
    "base64",
    "bisect",
    "collections",
    "cronsim",
    "datetime",
    "functools",
    "hashlib",
    "heapq",
    "ipaddress",
    "itertools",
    "math",
    "json",
    "msgspec",
    "paceline",
    "re",
    "re2",
    "typing",
    "unicodedata",
    "urllib",
    "zlib",
    "zoneinfo",
}


def imports(path: Path) -> set[str]:
    """Every module that a file names in an import, in full."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: write imports in full"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def layer_of(part: str) -> int:
    return next(index for index, layer in enumerate(LAYERS) if part in layer)


def part_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def sources(folder: Path = SOURCE) -> list[Path]:
    return sorted(path for path in folder.rglob("*.py") if path != SOURCE / "__init__.py")


def test_the_import_contracts_hold() -> None:
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([tool, "--no-cache"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "0 broken" in done.stdout


def test_the_contracts_have_the_layers_that_are_meant() -> None:
    contracts = PYPROJECT["tool"]["importlinter"]["contracts"]
    (layers,) = [one for one in contracts if one["type"] == "layers" and one["containers"] == ["paceline"]]
    assert layers["exhaustive"]
    assert [set(row.split(" | ")) for row in reversed(layers["layers"])] == list(LAYERS)


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_modules_import_only_lower_layers(path: Path) -> None:
    part = part_of(path)
    for name in imports(path):
        if not name.startswith("paceline."):
            continue
        other = name.split(".")[1]
        if other not in set().union(*LAYERS):
            continue  # a name of the package itself, such as its version
        assert other == part or layer_of(other) < layer_of(part), f"{part} imports {other}"


@pytest.mark.parametrize("path", sources(SOURCE / "core"), ids=lambda path: path.name)
def test_core_imports_no_clock_network_disk_or_chance(path: Path) -> None:
    assert {name.split(".")[0] for name in imports(path)} <= CORE_MAY_IMPORT
    assert not {"urllib.request", "datetime.datetime.now"} & imports(path)


@pytest.mark.parametrize("path", sources(SOURCE / "core") + sources(SOURCE / "steps"), ids=lambda path: path.name)
def test_core_and_steps_never_read_a_clock(path: Path) -> None:
    asked = re.search(
        r"\b(time\(\)|time_ns\(|monotonic\(|now\(\)|utcnow\(|today\(\)|environ|getenv|print\()", path.read_text()
    )
    assert asked is None, asked


def states_in_checks(table: str) -> set[str]:
    """What the newest CHECK constraint of the table's state column allows."""
    found: set[str] = set()
    for migration in sorted((SOURCE / "adapters" / "sqlite" / "migrations").glob("*.sql")):
        for match in re.finditer(rf"CREATE TABLE {table} \((.*?)\n\)", migration.read_text(), re.DOTALL):
            check = re.search(r"\bstate\b[^\n]*CHECK \((state (?:IN|=)[^\n]*)\)", match[1])
            assert check is not None, f"{migration.name}: the state of {table} is not checked"
            found = set(re.findall(r"'(\w+)'", check[1]))
    return found


def test_the_lifecycle_of_core_is_the_one_that_the_schema_allows() -> None:
    assert states_in_checks("open") == set(get_args(OpenState))
    assert states_in_checks("outcome") == set(get_args(TerminalState))
    assert {"waiting", *get_args(OpenState), *get_args(TerminalState)} == set(get_args(RunState))


def test_the_lifecycle_of_core_is_the_one_in_the_docs() -> None:
    text = (ROOT / "docs" / "concepts.md").read_text()
    told = re.search(r"```lifecycle\n(.*?)```", text, re.DOTALL)
    assert told is not None
    assert [line.split(":")[0] for line in told[1].splitlines()] == list(get_args(RunState))
    drawn = re.search(r"## The life of a run\n+```text\n(.*?)```", text, re.DOTALL)
    assert drawn is not None
    assert set(re.findall(r"\w+", drawn[1])) >= set(get_args(RunState))


@pytest.mark.parametrize(
    ("module", "states"),
    [("monitors/outcome", RunState), ("batches/calls", CallState), ("jobs/measurement", MeasurementState)],
)
def test_the_lifecycle_of_core_is_the_one_drawn_beside_it(module: str, states: Any) -> None:
    docstring = ast.get_docstring(ast.parse((SOURCE / "core" / f"{module}.py").read_text()))
    assert docstring is not None
    assert set(re.findall(r"\w+", docstring)) >= set(get_args(states))


def test_the_lifecycle_of_a_batchs_run_is_the_one_that_the_schema_allows() -> None:
    assert states_in_checks("result") == set(get_args(EndState))
    assert states_in_checks("queue") | {"aside"} | set(get_args(EndState)) == set(get_args(CallState))
    assert states_in_checks("day") == set(get_args(DayState))


@pytest.mark.parametrize(
    ("title", "block", "states"),
    [("batch's run", "calls", CallState), ("measurement", "measurements", MeasurementState)],
)
def test_lifecycle_in_the_docs_has_the_states_of_core(title: str, block: str, states: Any) -> None:
    text = (ROOT / "docs" / "concepts.md").read_text()
    told = re.search(rf"```{block}\n(.*?)```", text, re.DOTALL)
    assert told is not None
    assert [line.split(":")[0] for line in told[1].splitlines()] == list(get_args(states))
    drawn = re.search(rf"## The life of a {title}\n+```text\n(.*?)```", text, re.DOTALL)
    assert drawn is not None
    assert set(re.findall(r"\w+", drawn[1])) >= set(get_args(states))


def test_the_lifecycle_of_a_measurement_is_the_one_that_the_schema_allows() -> None:
    schema = (SOURCE / "adapters" / "sqlite" / "migrations" / "0003_jobs.sql").read_text()
    table = re.search(r"CREATE TABLE measurement \((.*?)\n\)", schema, re.DOTALL)
    assert table is not None
    check = re.search(r"CHECK \((state = .*?)\n            AND", table[1], re.DOTALL)
    assert check is not None
    assert set(re.findall(r"'(\w+)'", check[1])) == set(get_args(MeasurementState))


@cache
def names_of_tests() -> set[str]:
    """Every test of the suite, by name."""
    return {
        node.name
        for path in (ROOT / "tests").rglob("test_*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
    }


@pytest.mark.parametrize("promise", range(1, 14))
def test_every_promise_that_holds_is_defended_by_name(promise: int) -> None:
    assert [name for name in names_of_tests() if name.startswith(f"test_promise_{promise}_")]


@pytest.mark.parametrize("page", ["ARCHITECTURE.md", "docs/decisions/0017-drawings-and-aws.md"])
def test_a_page_cites_tests_that_exist(page: str) -> None:
    cited = set(re.findall(r"`(test_\w+)`", (ROOT / page).read_text()))
    assert cited
    assert cited <= names_of_tests()


def test_the_architecture_page_points_to_files_that_exist() -> None:
    pointed = set(re.findall(r"`((?:src|tests|docs)/[\w/.]+)`", (ROOT / "ARCHITECTURE.md").read_text()))
    assert pointed
    assert [name for name in sorted(pointed) if not (ROOT / name).exists()] == []


@pytest.mark.parametrize("path", sources(), ids=lambda path: str(path.relative_to(SOURCE)))
def test_no_file_outgrows_the_screen(path: Path) -> None:
    """About 400 lines; what is longer wants to be split by subject."""
    assert len(path.read_text().splitlines()) <= 460


@pytest.mark.parametrize("top", [SOURCE, ROOT / "tests"], ids=lambda path: path.name)
def test_no_folder_holds_more_modules_than_a_reader_can_survey(top: Path) -> None:
    """About 20; a folder that grows is split by capability."""
    folders = {path.parent for path in top.rglob("*.py")}
    modules = {folder: [path for path in folder.glob("*.py") if path.name != "__init__.py"] for folder in folders}
    assert {str(folder.relative_to(ROOT)): len(held) for folder, held in modules.items() if len(held) > 20} == {}


def test_public_class_names_mean_one_thing() -> None:
    """A reader who meets a name need not look at the imports to know which class it is."""
    modules: dict[str, list[str]] = {}
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                modules.setdefault(node.name, []).append(str(path.relative_to(SOURCE)))
    assert {name: found for name, found in modules.items() if len(found) > 1} == {}


def test_helpers_of_tests_stand_in_support_folders() -> None:
    among = [
        str(path.relative_to(ROOT))
        for path in (ROOT / "tests").rglob("*.py")
        if not path.name.startswith("test_") and path.name not in {"conftest.py", "__init__.py"}
        if path.parent.name != "support"
    ]
    assert among == []
