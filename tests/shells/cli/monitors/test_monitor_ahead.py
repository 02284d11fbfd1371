"""``monitor run --wait`` against a daemon, and a file of ``monitor export`` taken in again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paceline.shells.cli.app import main


def run(folder: Path, *words: str) -> int:
    return main(["--store", f"sqlite:///{folder / 'one.db'}", *words])


@pytest.fixture
def folder(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> Path:
    assert run(tmp_path, "user", "add", "alice") == 0
    capfdbinary.readouterr()
    return tmp_path


def test_exported_monitors_are_unchanged_when_they_are_imported_again(
    folder: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    lines = [
        {"id": "a", "check": {"kind": "http", "url": "https://example.org/"}, "every": "5m", "tags": ["x"]},
        {"id": "b", "check": {"kind": "outgoing", "page": "/"}, "cron": "0 6 * * *", "timezone": "Europe/Berlin"},
    ]
    (folder / "in.ndjson").write_text("\n".join(map(json.dumps, lines)))
    assert run(folder, "monitor", "import", str(folder / "in.ndjson")) == 0
    out = folder / "out.ndjson"
    assert run(folder, "monitor", "export", str(out)) == 0
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["a", "b"]
    capfdbinary.readouterr()
    assert run(folder, "monitor", "import", str(out), "--json") == 0
    told = json.loads(capfdbinary.readouterr().out)
    assert (told["unchanged"], told["created"], told["replaced"]) == (2, 0, 0)
    assert run(folder, "monitor", "export", str(out)) == 1
    assert b"exists already" in capfdbinary.readouterr().err


def test_run_that_does_not_end_in_time_fails_the_wait(folder: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(folder, "monitor", "set", "own", "--outgoing", "{}", "--every", "1h") == 0
    capfdbinary.readouterr()
    assert run(folder, "monitor", "run", "own", "--wait", "--wait-for", "0.1", "--json") == 1
    told = json.loads(capfdbinary.readouterr().out)
    assert (told["monitor"], told["state"], told["outcome"]) == ("own", "waiting", None)
