"""An empty list says what to do next, and what it says can be done."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from paceline.shells.cli.app import main
from tests.shells.cli.support.commands import commands

LISTS = [
    "token list --user alice",
    "monitor list --user alice",
    "monitor list --user alice --tag nothing",
    "monitor list --all-users --health failing",
    "monitor runs later --user alice",
    "channel list --user alice",
    "silence list --user alice",
    "alert list --user alice",
    "provider list",
    "batch list",
    "batch days empty",
    "batch records empty",
    "batch runs --batch planned",
    "dead list",
    "job list",
    "account list",
    "key list",
]


@pytest.fixture
def _store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("PACELINE_STORE", f"sqlite:///{tmp_path}/one.db")
    assert main(["user", "add", "alice"]) == 0
    assert main(["token", "revoke", capsys.readouterr().out.strip()]) == 0


@pytest.mark.usefixtures("_store")
@pytest.mark.parametrize("columns", ["80", ""], ids=["terminal", "pipe"])
def test_every_empty_list_names_a_command_that_exists(
    columns: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    paths = {one.path for one in commands()}
    for line in LISTS:
        if "later" in line:
            words = ["--url", "https://example.org/", "--every", "1h", "--initial-delay", "1h"]
            assert main(["monitor", "set", "later", "--user", "alice", *words]) == 0
        if "batch days" in line:
            assert main(["batch", "set", "empty"]) == 0
        if "planned" in line:
            assert main(["batch", "set", "planned"]) == main(["batch", "plan", "planned"]) == 0
        capsys.readouterr()
        assert main(line.split()) == 0
        said = capsys.readouterr()
        assert said.out.count("\n") == (0 if columns else 1), "only a pipe gets the headings"
        named = re.findall(r"paceline [a-z]+ [a-z]+", said.err)
        assert named, line
        assert set(named) <= paths
        assert main(["monitor", "rm", "later", "--user", "alice"]) == 0 if "later" in line else True


def test_every_list_is_tried_empty() -> None:
    tried = {" ".join(line.split()[:2]) for line in LISTS} | {"user list"}  # there is always a user who asks
    words = {"list", "runs", "days", "records"}
    listing = {one.path.removeprefix("paceline ") for one in commands() if one.path.split()[-1] in words}
    assert listing <= tried
