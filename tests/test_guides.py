"""The tutorial and the guides, run as they stand, one after the other, on one store beside one daemon.

How a page is read: ``tests/terminals.py``. Addresses of the Internet are those of a model server on this machine, ports
are free ones, and the day is tomorrow. Nothing leaves the machine: the settings file that the tutorial writes names the
model of RIPE Atlas, AWS is an emulator, and the test looks at both before anything runs.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tomllib
from pathlib import Path

import pytest

from paceline.simulators.http import ModelHttpServer
from tests.aws.support.ministack import emulator
from tests.support.terminals import Terminals, as_pattern, blocks, on_this_machine, ports_of_the_docs

DOCS = Path(__file__).parents[1] / "docs"
NOT_RUN = re.compile(r"^<!-- not run: (.+) -->\n```sh$", re.MULTILINE)
NOT_RUN_MAX = 5
RUN = {"console", "console background"}
READ = {"json", "json monitor", "json provider", "json batch", "json record", "toml", "text"}
"""Documents and drawings; what is marked is parsed by the tests of documents."""
PROGRAMS = re.compile(r"^(\$ )?(export|paceline|curl|pip|make|sam|aws|python3?|ripe-atlas|blaeu\S*)\b", re.MULTILINE)


def pages() -> list[Path]:
    """The tutorial, then the guides in the order of the index."""
    index = (DOCS / "README.md").read_text()
    return [
        DOCS / "tutorial.md",
        *(DOCS / name for name in re.findall(r"^- \[.+?\]\((guides/.+?)\)", index, re.MULTILINE)),
    ]


@pytest.mark.aws
@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(shutil.which("curl") is None, reason="the tutorial asks for curl")
def test_the_tutorial_and_the_guides_do_what_they_say_in_order_on_one_store(tmp_path: Path) -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("PACELINE_", "AWS_"))}
    env |= {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}", "HOME": str(tmp_path)}
    ports = ports_of_the_docs()
    env["PACELINE_PORT"] = ports["8080"]
    with ModelHttpServer() as model, emulator() as aws, Terminals(tmp_path, env | aws.environment) as terminals:
        read = [(page.name, on_this_machine(page.read_text(), ports, model.base_url)) for page in pages()]
        assert_nothing_leaves(read[0][1], aws.url)
        for name, text in read:
            try:
                terminals.read(text)
            except AssertionError as wrong:
                wrong.add_note(f"in {name}")
                raise


def assert_nothing_leaves(tutorial: str, aws_url: str) -> None:
    (settings,) = [body for info, body in blocks(tutorial) if info == "toml file=paceline.toml"]
    assert tomllib.loads(settings)["atlas_url"].startswith("http://127.0.0.1:")
    assert aws_url.startswith("http://127.0.0.1:")


def test_every_guide_is_run_by_these_tests() -> None:
    assert sorted(pages()) == sorted([DOCS / "tutorial.md", *(DOCS / "guides").glob("*.md")])


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.stem)
def test_a_page_leaves_out_no_block(page: Path) -> None:
    text = page.read_text()
    found = blocks(text)
    assert len(re.findall(r"^```", text, flags=re.MULTILINE)) == 2 * len(found)
    assert [info for info, _ in found if info not in RUN | READ | {"sh"} and "file=" not in info] == []
    assert [body for info, body in found if info in READ and PROGRAMS.search(body)] == []


def test_few_blocks_are_not_run_and_each_says_why() -> None:
    texts = [page.read_text() for page in pages()]
    reasons = [reason for text in texts for reason in NOT_RUN.findall(text)]
    assert sum(len(re.findall(r"^```sh$", text, re.MULTILINE)) for text in texts) == len(reasons) <= NOT_RUN_MAX


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        (["a …  b"], "a x y b\n", True),
        (["a …  b"], "a x y c\n", False),
        (["a", "…", "z"], "a\n1\n2\nz\n", True),
        (["a", "…"], "a\n", True),
        (["health …  ok"], "health   failing\n", False),
        (["pl_…"], "pl_0123\n", True),
        (["OK"], "OK\nand more\n", False),
        ([], "something\n", False),
    ],
)
def test_expected_output_of_guides_is_compared_strictly(expected: list[str], printed: str, *, same: bool) -> None:
    assert bool(as_pattern(expected).fullmatch(printed)) is same
