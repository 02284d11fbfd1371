"""``paceline export | paceline import``: what one process writes another takes in."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from tests.shells.cli.support.program import Program, free_port

SECRET = "a secret of both installations"


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path, secret_key=SECRET, port=str(free_port()))


def fill(program: Program) -> str:
    """A user with a monitor, a provider with a secret, a batch with a record; the user's token."""
    token: str = program.json("user", "add", "ann")["token"]
    program.ok("monitor", "set", "web", "--url", "https://example.org/", "--every", "1h", "--initial-delay", "1d")
    program.ok("provider", "set", "shop", "--base-url", "https://example.org/", "--header", "X-Key: hunter-two")
    program.ok("batch", "set", "daily")
    record = json.dumps({"id": "r1", "provider": "shop", "endpoint": "/x", "body": {"a": 1}})
    program.ok("batch", "import", "-", stdin=record + "\n")
    return token


def test_export_piped_into_import_gives_an_equal_store(program: Program) -> None:
    token = fill(program)
    stream = program.ok("export")
    assert token not in stream
    assert "hunter-two" not in stream
    imported = program.run("import", "--json", stdin=stream, store="sqlite:///other.db")
    assert imported.code == 0, imported.err
    assert imported.document["counts"]["monitors"] == {"created": 1}
    for words in (("monitor", "show", "web"), ("provider", "list"), ("user", "list")):
        here, there = program.json(*words), program.json(*words, store="sqlite:///other.db")
        assert _without_own(here) == _without_own(there)
    text = program.ok("import", stdin=stream, store="sqlite:///other.db")
    assert text.splitlines()[0].split() == ["KIND", "CREATED", "REPLACED", "UNCHANGED", "PASSED", "OVER"]
    assert ["records", "0", "0", "1", "0"] in [line.split() for line in text.splitlines()]


def _without_own(document: object) -> object:
    """Without what each store counts for itself, and when it was written there."""
    own = {"generation", "revision", "counter", "key", "created_at", "updated_at", "number"}
    if isinstance(document, dict):
        return {name: _without_own(value) for name, value in document.items() if name not in own}
    return [_without_own(one) for one in document] if isinstance(document, list) else document


def test_export_file_is_complete_or_absent_and_readable_only_by_its_owner(program: Program) -> None:
    fill(program)
    told = program.json("export", "moved.ndjson")
    file = program.folder / "moved.ndjson"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (told["file"], told["monitors"], told["records"], told["runs_left"]) == ("moved.ndjson", 1, 1, 0)
    assert json.loads(file.read_bytes().splitlines()[-1]) == {"kind": "end", "lines": 6}
    again = program.run("export", "moved.ndjson")
    assert (again.code, "exists already" in again.err) == (1, True)
    assert [one.name for one in program.folder.iterdir() if "part" in one.name] == []
    assert program.run("import", "moved.ndjson", store="sqlite:///other.db").code == 0


def test_truncated_export_and_export_under_another_secret_are_refused(program: Program) -> None:
    fill(program)
    program.ok("export", "moved.ndjson")
    lines = (program.folder / "moved.ndjson").read_text().splitlines(keepends=True)
    half = program.run("import", stdin="".join(lines[:4]), store="sqlite:///other.db")
    assert (half.code, "breaks off after line 4" in half.err) == (2, True)
    other = program.run("import", "moved.ndjson", store="sqlite:///third.db", secret_key="the secret of another user")
    assert (other.code, "sealed with another secret" in other.err) == (2, True)
    assert program.json("user", "list", store="sqlite:///third.db")["items"] == []


def test_move_is_refused_while_a_daemon_runs_unless_live_is_given(program: Program) -> None:
    fill(program)
    program.ok("export", "before.ndjson")
    with program.running("up", "--port", "0"):
        for words in (("export", "now.ndjson"), ("import", "before.ndjson")):
            ended = program.run(*words)
            assert (ended.code, "a Paceline answers at" in ended.err) == (2, True)
        assert not (program.folder / "now.ndjson").exists()
        assert program.json("export", "now.ndjson", "--live")["monitors"] == 1
    assert program.run("export", "after.ndjson").code == 0
