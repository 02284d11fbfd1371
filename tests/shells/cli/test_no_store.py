"""Commands never make a store by looking for one: they say where they looked, and where one might be."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import apsw
import pytest
import typer

from paceline.shells.cli.app import app, main
from tests.aws.support.ministack import fresh_prefix, shared_emulator
from tests.shells.cli.support.program import Program

SETTERS = {("provider", "set"), ("batch", "set"), ("account", "set")}
MAKERS = {("up",), ("worker",), ("migrate",), ("import",), ("user", "add"), *SETTERS}
"""They begin a store."""
WITHOUT = {("simulator", "http"), ("simulator", "atlas"), ("aws", "init")}
"""They open none, or make one on AWS."""
READERS = [
    ["status"],
    ["check"],
    ["backup", "copy.db"],
    ["export", "out.ndjson"],
    ["purge"],
    ["user", "list"],
    ["token", "list"],
    ["monitor", "list"],
    ["monitor", "show", "web"],
    ["monitor", "pause", "web"],
    ["provider", "list"],
    ["provider", "pause", "p"],
    ["batch", "list"],
    ["batch", "show"],
    ["job", "list"],
    ["job", "show", "j1"],
    ["account", "list"],
    ["key", "list"],
    ["dead", "list"],
    ["run", "show", "alice/web#1@1"],
]


def commands() -> Iterator[tuple[tuple[str, ...], Any]]:
    def walk(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
        below = getattr(command, "commands", None)
        if not below:
            yield path, command
        for name, inner in (below or {}).items():
            yield from walk(inner, (*path, name))

    return walk(typer.main.get_command(app), ())


@pytest.fixture
def empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, in which no store is configured."""
    folder = tmp_path / "empty"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in ("PACELINE_STORE", "PACELINE_USER"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.mark.parametrize("words", READERS, ids=" ".join)
def test_a_command_that_finds_no_store_says_where_it_looked(
    words: list[str], empty: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 3
    told = capsys.readouterr().err
    assert f"There is no store at sqlite:///paceline.db, which is {empty / 'paceline.db'}." in told
    assert told.endswith("(no_store)\n")
    assert told.count("\n") == 1
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize(
    ("path", "command"),
    [one for one in commands() if one[0] not in MAKERS | WITHOUT],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)
def test_command_without_a_store_creates_no_file(path: tuple[str, ...], command: Any, empty: Path) -> None:
    arguments = [one for one in command.params if not one.opts[0].startswith("-") and one.required]
    main([*path, *("x" for _ in arguments), "--store", "sqlite:///typo.db"])
    assert list(empty.iterdir()) == []


def test_error_for_a_misspelled_store_names_the_existing_one(program: Program) -> None:
    program.ok("user", "add", "alice", store="sqlite:///shop.db")
    (program.folder / "notes.db").write_text("no database")
    apsw.Connection(str(program.folder / "theirs.db")).execute("CREATE TABLE theirs (x)").fetchall()
    before = sorted(file.name for file in program.folder.iterdir())
    ended = program.run("monitor", "list", "--store", "sqlite:///shpo.db", "--json")
    assert (ended.code, ended.problem["code"]) == (3, "no_store")
    assert "There is one at sqlite:///shop.db: name it with --store or PACELINE_STORE." in ended.problem["detail"]
    assert sorted(file.name for file in program.folder.iterdir()) == before


def test_error_for_a_missing_store_names_one_in_a_parent_folder(program: Program) -> None:
    below = program.folder / "a" / "b"
    below.mkdir(parents=True)
    program.ok("user", "add", "alice", store="sqlite:///data.store")
    (program.folder / "paceline.toml").write_text('store = "sqlite:///data.store"\n')
    ended = Program(below).run("status")
    assert ended.code == 3
    assert f"There is one at sqlite:///{program.folder}/data.store" in ended.err


def test_store_that_a_daemon_has_just_created_is_found(program: Program) -> None:
    with program.running("up", "--port", "0"):
        assert "no store" in program.run("user", "list", "--store", "sqlite:///x.db").err
        assert "sqlite:///paceline.db" in program.run("user", "list", "--store", "sqlite:///x.db").err
        assert program.json("user", "list")["items"] == []


@pytest.mark.parametrize("words", [("status",), ("user", "add", "alice")])
def test_database_of_another_program_is_not_changed(program: Program, words: tuple[str, ...]) -> None:
    file = program.folder / "theirs.db"
    other = apsw.Connection(str(file))
    other.execute("CREATE TABLE theirs (x)").fetchall()
    other.close()
    before = file.read_bytes()
    ended = program.run(*words, store="sqlite:///theirs.db")
    assert ended.code in (1, 3)
    assert "no store of Paceline" in ended.err or "another program" in ended.err
    assert file.read_bytes() == before


@pytest.mark.aws
def test_error_about_missing_tables_names_the_command_that_creates_them(tmp_path: Path) -> None:
    program = Program(tmp_path, secret_key="a secret for every process")
    program.env |= shared_emulator().environment
    store = f"aws://?prefix={fresh_prefix()}"
    ended = program.run("monitor", "list", "--user", "alice", "--json", store=store)
    assert (ended.code, ended.problem["code"]) == (3, "no_store")
    assert f"There is no store at {store}: its tables are missing." in ended.problem["detail"]
    assert f"paceline aws init --store '{store}'" in ended.problem["detail"]
    made = program.json("aws", "init", store=store)
    again = program.run("monitor", "list", "--user", "alice", "--json", store=f"{store}x")
    assert json.dumps(made["prefix"]).strip('"') in again.problem["detail"]


@pytest.mark.skipif(os.geteuid() == 0 and shutil.which("setpriv") is None, reason="root may read every file")
def test_store_that_cannot_be_read_is_not_called_missing(program: Program) -> None:
    program.ok("user", "add", "alice")
    (program.folder / "paceline.db").chmod(0)
    as_others = ["setpriv", "--inh-caps=-all", "--bounding-set=-all"] if os.geteuid() == 0 else []
    command = [*as_others, sys.executable, "-m", "paceline", "status"]
    ended = subprocess.run(command, cwd=program.folder, env=program.env, capture_output=True, text=True, check=False)
    told = "error: paceline.db cannot be read: check its permissions, or run this as its owner. (store_unavailable)\n"
    assert (ended.returncode, ended.stderr) == (1, told)
