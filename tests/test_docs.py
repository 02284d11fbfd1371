"""Documents that tell the truth: what they link to, name, count and show is there."""

from __future__ import annotations

import json
import os
import re
import shlex
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

import pytest
import typer

from paceline import __version__
from paceline.adapters.sqlite.database import SqliteDatabase
from paceline.adapters.sqlite.migrate import migrate
from paceline.config import Settings
from paceline.core.batches.batch import parse_batch, parse_record
from paceline.core.batches.provider import parse_provider
from paceline.core.jobs.job import JobLimits, parse_job
from paceline.core.monitors.definition import SpecLimits, parse_spec
from paceline.core.monitors.health import Health
from paceline.shells.api.http.problems import CODES
from paceline.shells.api.routes import ROUTES
from paceline.shells.cli.app import app

ROOT = Path(__file__).resolve().parent.parent
DECISION_LINES_MAX = 40


class Block(NamedTuple):
    """A fenced code block: where it stands, what its fence says, and what is in it."""

    file: Path
    line: int
    info: str
    text: str

    def __str__(self) -> str:
        return f"{name_of(self.file)}:{self.line}"


def documents() -> list[Path]:
    """Every Markdown file of the project; hidden folders hold other people's."""
    found: list[Path] = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [name for name in folders if not name.startswith(".")]
        found += [Path(folder) / file for file in files if file.endswith(".md")]
    return sorted(found)


def name_of(file: Path) -> str:
    return str(file.relative_to(ROOT))


def blocks_of(file: Path) -> Iterator[Block]:
    fence, info, start, lines = "", "", 0, list[str]()
    for number, line in enumerate(file.read_text().splitlines(), start=1):
        if fence and line.strip() == fence:
            yield Block(file, start, info, "\n".join(lines) + "\n")
            fence, lines = "", []
        elif fence:
            lines.append(line)
        elif match := re.match(r"(`{3,})(.*)", line):
            fence, info, start = match[1], match[2].strip(), number
    assert not fence, f"{name_of(file)}:{start}: the code block does not end"


def prose_of(file: Path) -> str:
    """The text without its fenced blocks."""
    return re.sub(r"^(`{3,}).*?^\1$", "", file.read_text(), flags=re.MULTILINE | re.DOTALL)


DOCUMENTS = documents()
OWN_BESIDE = {f"docs/{name}.md" for name in ("README", "comparison", "concepts", "faq", "troubleshooting")}
OWN = [
    file
    for file in DOCUMENTS
    if file.parent in (ROOT, ROOT / "docs/guides", ROOT / "docs/recipes") or name_of(file) in OWN_BESIDE
]
BLOCKS = [block for file in DOCUMENTS for block in blocks_of(file)]
every_document = pytest.mark.parametrize("file", DOCUMENTS, ids=name_of)
every_own = pytest.mark.parametrize("file", OWN, ids=name_of)


# -- links


def anchors_of(file: Path) -> set[str]:
    """The anchors of a file's headings, as GitHub and most renderers make them."""
    headings = re.findall(r"^#{1,6} +(.+?) *$", prose_of(file), flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(file: Path) -> list[str]:
    broken = []
    prose = re.sub(r"`[^`\n]*`", "", prose_of(file))
    for link in re.findall(r"\]\(([^)\s]+)\)", prose):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (file.parent / path).resolve() if path else file
        if not target.exists() or (anchor and target.suffix == ".md" and anchor not in anchors_of(target)):
            broken.append(link)
    return broken


@every_document
def test_every_relative_link_leads_somewhere(file: Path) -> None:
    assert broken_links(file) == []


def test_every_document_under_docs_can_be_reached_from_the_index() -> None:
    seen, ahead = set[Path](), [ROOT / "docs/README.md"]
    while ahead:
        file = ahead.pop()
        if file in seen or file.suffix != ".md" or not file.exists():
            continue
        seen.add(file)
        links = re.findall(r"\]\(([^)#\s]+)[^)\s]*\)", prose_of(file))
        ahead += [(file.parent / link).resolve() for link in links if not re.match(r"[a-z]+:", link)]
    assert [name_of(file) for file in DOCUMENTS if ROOT / "docs" in file.parents and file not in seen] == []


# -- words


FORBIDDEN = re.compile(
    r"(?<![\w.~-])/(?:work|root|home)(?=[/\s`'\")]|$)|\s--(?:extra-)?index-url|https?://\S+/simple\b", re.MULTILINE
)
PICTOGRAMS = re.compile("[\U0001f000-\U0001faff\u2600-\u26ff\u2700-\u27bf\ufe0f]")


def written_files() -> list[Path]:
    loose = [
        ROOT / name
        for name in ("Makefile", "pyproject.toml", "requirements/lock.txt", "requirements/product.txt", ".ci/run")
    ]
    code = [*(ROOT / "src").rglob("*.py"), *(ROOT / "src").rglob("*.sql")]
    return [file for file in [*DOCUMENTS, *loose, *code] if file.is_file()]


def test_no_file_names_a_local_path_or_a_package_registry() -> None:
    found = {name_of(file): FORBIDDEN.findall(file.read_text()) for file in written_files()}
    assert {name: words for name, words in found.items() if words} == {}


@every_document
def test_a_document_does_without_pictograms(file: Path) -> None:
    assert PICTOGRAMS.findall(file.read_text()) == []


# -- project files


def project() -> dict[str, Any]:
    parsed: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return parsed


def make_targets() -> set[str]:
    return set(re.findall(r"^([a-z][\w-]*):(?!=)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE))


def test_the_changelog_has_the_version() -> None:
    assert project()["version"] == __version__
    assert re.search(rf"^## {re.escape(__version__)}\b", (ROOT / "CHANGELOG.md").read_text(), flags=re.MULTILINE)


@every_document
def test_every_make_command_is_a_target(file: Path) -> None:
    named = set(re.findall(r"(?:`|^\s*(?:\$ )?)make ([a-z][\w-]*)", file.read_text(), flags=re.MULTILINE))
    assert named - make_targets() == set()


def test_the_readme_has_the_two_commands_and_the_contributing_guide_all() -> None:
    assert {"up", "test"} <= set(re.findall(r"\bmake (\w+)", (ROOT / "README.md").read_text()))
    assert set(re.findall(r"`make ([\w-]+)(?: \w+=\S+)?`", (ROOT / "CONTRIBUTING.md").read_text())) == make_targets()


@every_document
def test_document_installs_from_the_clone_as_nothing_is_published(file: Path) -> None:
    named = re.findall(r"pipx? install (?:-r \S+ |--preinstall )?([^\s`]+)", file.read_text())
    assert [one for one in named if one.startswith("paceline")] == []


def test_every_dependency_has_a_line_in_its_decision_record() -> None:
    wanted: list[str] = []
    for one in (project(), tomllib.loads((ROOT / "client/pyproject.toml").read_text())["project"]):
        wanted += one["dependencies"]
        wanted += [item for extra in one["optional-dependencies"].values() for item in extra]
    names = {re.split(r"[^A-Za-z0-9._-]", requirement)[0] for requirement in wanted}
    text = (ROOT / "docs/decisions/0002-dependencies.md").read_text()
    listed = set(re.findall(r"^\| ([a-z][a-z0-9._-]*)(?: \(\w+\))? \|", text, flags=re.MULTILINE)) - {"dependency"}
    assert listed == names


def test_page_of_licences_is_made_from_the_lock() -> None:
    from docsite.licences import page

    assert (ROOT / "docs/licences.md").read_text() == page()


def test_nothing_that_users_install_is_under_the_gpl() -> None:
    from docsite.licences import installed_with_paceline, is_gpl, licence_of, locked

    product = installed_with_paceline() & locked().keys()
    names = (ROOT / "requirements/product.txt").read_text().splitlines()
    built_with = {"editables", "hatchling", "packaging", "pathspec", "pluggy", "tomlkit", "trove-classifiers"}
    assert {name.partition("==")[0] for name in names} - product == built_with - product
    assert [name for name in product if is_gpl(licence_of(name))] == []
    assert is_gpl("GPLv3")
    assert is_gpl("AGPL-3.0-only")
    assert not is_gpl("LGPL-2.1-or-later OR MIT")


@pytest.mark.parametrize("file", sorted((ROOT / "docs/decisions").glob("0*.md")), ids=name_of)
def test_a_decision_record_is_short_and_listed(file: Path) -> None:
    text = file.read_text()
    prose = [line for line in text.splitlines() if not line.startswith("|")]
    assert len(prose) <= DECISION_LINES_MAX
    assert text.startswith(f"# {file.name[:4]}")
    for part in ("context", "choice", "price", "what would change our mind"):
        assert part in text.lower(), f"{file.name} does not say: {part}"
    assert f"]({file.name})" in (ROOT / "docs/decisions/README.md").read_text()


# -- what the text names


def test_every_path_and_test_in_the_architecture_exists() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text()
    paths = set(re.findall(r"`((?:src|tests|docs|bench)/[\w./-]+)`", text))
    assert paths
    assert {path for path in paths if not (ROOT / path).exists()} == set()
    code = "\n".join(file.read_text() for file in (ROOT / "tests").rglob("test_*.py"))
    cited = set(re.findall(r"`(test_\w+)`", text))
    assert cited
    assert {name for name in cited if f"def {name}(" not in code} == set()


def test_every_module_in_the_contributing_guide_exists() -> None:
    paths = re.findall(r"`((?:src|tests|docs|bench)/[\w./-]+)`", (ROOT / "CONTRIBUTING.md").read_text())
    assert paths
    assert [path for path in paths if "NNNN" not in path and not (ROOT / path).exists()] == []


@pytest.mark.parametrize("capability", ["monitors", "batches", "jobs"])
def test_walk_for_a_newcomer_names_rule_promise_store_and_tests_of_a_claim(capability: str) -> None:
    walk = (ROOT / "CONTRIBUTING.md").read_text().split("## A walk for a newcomer")[1].split("\n## ")[0]
    rows = [re.findall(r"`([\w./-]+)`", line) for line in walk.splitlines() if f"core/{capability}/" in line]
    assert len(rows) == 1
    rule, promise, store, tests = rows[0]
    assert promise == f"src/paceline/ports/{capability}.py"
    assert store.startswith(f"src/paceline/adapters/sqlite/{capability}/")
    assert tests.startswith(f"tests/contract/{capability}/")
    assert all((ROOT / path).is_file() for path in (rule, promise, store, tests))


def test_glossary_of_concepts_is_sorted_and_defines_each_word_once() -> None:
    text = (ROOT / "docs/concepts.md").read_text()
    glossary = re.findall(r"^\| \*\*([\w -]+)\*\*", text.split("## Glossary")[1], flags=re.MULTILINE)
    words = re.findall(r"^\| \*\*([\w -]+)\*\*", text, flags=re.MULTILINE)
    assert glossary == sorted(glossary)
    assert len(words) == len(set(words)) > 80


def test_the_store_record_lists_the_tables_that_there_are() -> None:
    text = (ROOT / "docs/decisions/0003-store-shape.md").read_text()
    cells = re.findall(r"^\| (`[^|]+`) \|", text, flags=re.MULTILINE)
    listed = {name for cell in cells for name in re.findall(r"`(\w+)`", cell)}
    database = SqliteDatabase(":memory:", synchronous="full")
    migrate(database)
    with database.read() as connection:
        rows = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite%'")
        tables = {row[0] for row in rows}
    database.close()
    assert listed == tables - {"user", "token"}


def test_the_concepts_list_every_health() -> None:
    text = (ROOT / "docs/concepts.md").read_text()
    table = text[text.index("\n## Health") : text.index("\n## Durability")]
    assert set(re.findall(r"^\| `(\w+)` \|", table, flags=re.MULTILINE)) == set(get_args(Health))


def spoken_default(text: str) -> str:
    """30 s, 7 days, 10,000 as a setting would have them."""
    text = text.replace(",", "").removesuffix(" by default")
    match = re.fullmatch(r"(\d+) ?(ms|seconds?|minutes?|hours?|days?|s|m|h|d)", text)
    return f"{match[1]}{match[2] if match[2] == 'ms' else match[2][0]}" if match else text


@every_own
def test_a_default_in_the_text_is_the_default_in_the_code(file: Path) -> None:
    told = re.findall(r"`(\w+)` \(([^)`]+)\)", file.read_text())
    wrong = {
        name: value
        for name, value in told
        if (field := Settings.model_fields.get(name)) and spoken_default(value) != str(field.default)
    }
    assert wrong == {}


@every_document
def test_every_environment_variable_is_a_setting(file: Path) -> None:
    # Of commands, of the guide's checker, of tests.
    also = {"USER", "URL", "TOKEN", "CA_FILE", "WORLD_SEEDS", "WORLD_STEPS", "KILL_SEED"}
    also |= {"DIFFERENTIAL_EXAMPLES", "DIFFERENTIAL_STEPS"}
    named = set(re.findall(r"\bPACELINE_([A-Z_]+)\b", file.read_text()))
    assert {name for name in named if name.lower() not in Settings.model_fields} - also == set()


@every_own
def test_every_metric_is_in_the_reference(file: Path) -> None:
    reference = (ROOT / "docs/reference/metrics.md").read_text()
    named = set(re.findall(r"\bpaceline_[a-z][a-z_]+\b", file.read_text()))
    assert {name for name in named if name not in reference} - {"paceline_client"} == set()


@every_own
def test_every_error_code_goes_with_its_status(file: Path) -> None:
    told = re.findall(r"`([45]\d\d) ([a-z]+_[a-z_]+)`", file.read_text())
    assert {code: status for status, code in told if str(CODES[code].status) != status} == {}


@every_own
def test_every_route_exists(file: Path) -> None:
    known = [(route.method, re.sub(r"\\{[^}]*\\}", "[^/]+", re.escape(route.path))) for route in ROUTES]
    told = re.findall(r"\b(GET|PUT|POST|PATCH|DELETE) (/[\w/{}.-]+)", file.read_text())
    unknown = [
        (method, path) for method, path in told if not any(m == method and re.fullmatch(p, path) for m, p in known)
    ]
    assert unknown == []


def test_the_readme_claims_no_more_speed_than_was_measured() -> None:
    page = (ROOT / "docs/benchmarks.md").read_text()
    claim = re.search(r"more than (\d+) times the rate", " ".join((ROOT / "README.md").read_text().split()))
    measured = re.findall(
        r"^\| Paceline, due to settled: times the best peer \| [\d,]+ \| ([\d.,]+) \|", page, re.MULTILINE
    )
    assert claim
    assert measured
    assert float(measured[-1].replace(",", "")) > int(claim[1])
    load = page[page.index("### Load of 5,000/s") :].partition("\n\n|")[2].partition("\n\n")[0]
    on_time = {line.split("|")[1].partition(",")[0].strip() for line in load.splitlines() if "| yes |" in line}
    assert on_time == {"Paceline"}


def test_every_benchmark_has_its_place_on_the_page() -> None:
    from bench.__main__ import BENCHES
    from bench.page import NOTES, TITLES

    assert TITLES.keys() == NOTES.keys() == BENCHES.keys()
    page = (ROOT / "docs/benchmarks.md").read_text()
    assert [title for title in TITLES.values() if f"\n## {title}\n" not in page] == []


def test_the_page_of_benchmarks_is_made_from_the_recorded_results_and_nothing_else() -> None:
    from bench.page import RECORD, TITLES, text

    known = json.loads(RECORD.read_text())
    assert known.keys() == TITLES.keys()
    assert (ROOT / "docs/benchmarks.md").read_text() == text(known)


# -- what the text shows


PARSERS: dict[str, Callable[[bytes], object]] = {
    "monitor": lambda body: parse_spec(body, SpecLimits()),
    "provider": parse_provider,
    "batch": parse_batch,
    "record": parse_record,
    "job": lambda body: parse_job(body, JobLimits(), now_ms=0),
}


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.info.startswith("python")], ids=str)
def test_a_python_block_compiles(block: Block) -> None:
    compile(block.text, str(block), "exec")


@pytest.mark.parametrize("block", [b for b in BLOCKS if b.info.split()[:1] == ["json"]], ids=str)
def test_a_json_block_is_json_and_a_monitor_is_a_monitor(block: Block) -> None:
    json.loads(block.text)
    for word, parse in PARSERS.items():
        if word in block.info.split():
            parse(block.text.encode())


def shown_commands(file: Path) -> Iterator[list[str]]:
    """The words of each ``paceline`` command in the console blocks."""
    for block in blocks_of(file):
        if block.info.split()[:1] != ["console"]:
            continue
        for line in block.text.replace("\\\n", " ").splitlines():
            if line.startswith("$ paceline "):
                yield shlex.split(line.removeprefix("$ paceline ").partition(" | ")[0])


@every_own
def test_every_shown_command_and_option_exists(file: Path) -> None:
    program = typer.main.get_command(app)
    before = {option.opts[0] for option in program.params}
    for words in shown_commands(file):
        command: Any = program
        while words[0] in before:  # options of all commands, each with its value
            words = words[2:]  # noqa: PLW2901  what is left of the command
        for word in words:
            if below := getattr(command, "commands", None):
                assert word in below, words
                command = below[word]
        assert not getattr(command, "commands", None), f"{words}: which of them?"
        known = {"--help"}.union(*([*option.opts, *option.secondary_opts] for option in command.params))
        assert {word for word in words if word.startswith("--")} <= known, words
