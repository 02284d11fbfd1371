"""A wrong secret key stops the start, and files that carry secrets are for their owner alone."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path

import pytest

from tests.shells.cli.support.program import Program

RIGHT, WRONG = "the secret that the store was made with", "another secret, mistyped somewhere"


@pytest.mark.parametrize("words", [("up", "--port", "0"), ("worker",)])
def test_start_with_another_secret_key_is_refused_in_one_line(program: Program, words: tuple[str, ...]) -> None:
    program.ok("user", "add", "alice", secret_key=RIGHT)
    refused = program.run(*words, secret_key=WRONG)
    assert refused.code == 2
    assert "PACELINE_SECRET_KEY" in refused.err
    assert "--adopt-key" in refused.err
    assert WRONG not in refused.err + refused.out
    with program.running("up", "--port", "0", secret_key=RIGHT):
        pass


def test_command_that_needs_the_key_is_refused_and_one_that_needs_none_works(program: Program) -> None:
    program.ok("user", "add", "alice", secret_key=RIGHT)
    refused = program.run("token", "new", "--json", secret_key=WRONG)
    assert refused.code == 2
    assert refused.problem["code"] == "wrong_secret_key"
    assert program.json("token", "list", secret_key=WRONG)["items"][0]["label"] == "first"


def test_check_names_a_key_that_is_not_the_stores(program: Program) -> None:
    program.ok("user", "add", "alice", secret_key=RIGHT)
    assert program.json("check", secret_key=RIGHT) == {"ok": True, "problems": [], "notes": []}
    found = program.run("check", "--json", secret_key=WRONG)
    assert found.code == 1
    assert "PACELINE_SECRET_KEY" in found.document["problems"][0]
    program.ok("check")  # without a key there is nothing to compare


def test_missing_key_file_is_named_and_not_created_again(program: Program) -> None:
    program.ok("user", "add", "alice")
    program.ok("backup", "copy.db")
    refused = program.run("token", "new", "--store", "sqlite:///copy.db", "--json")
    assert refused.problem["code"] == "wrong_secret_key"
    assert "copy.key" in refused.problem["detail"]
    assert not (program.folder / "copy.key").exists()
    (program.folder / "copy.key").write_text((program.folder / "paceline.key").read_text())
    program.ok("token", "new", "--store", "sqlite:///copy.db")


def test_lost_key_is_replaced_when_asked_for(program: Program) -> None:
    program.ok("user", "add", "alice")
    (program.folder / "paceline.key").unlink()
    assert program.run("token", "new").code == 2
    assert program.json("migrate", "--adopt-key")["adopted_key"] is True
    assert program.json("migrate", "--adopt-key")["adopted_key"] is False
    program.ok("token", "new")


def test_store_of_an_older_version_gets_its_check_value_at_the_first_start(program: Program) -> None:
    program.ok("user", "add", "alice")
    program.ok("provider", "set", "shop", "--base-url", "http://127.0.0.1:9", "--header", "X-Key: s3cret")
    with sqlite3.connect(program.folder / "paceline.db") as db:
        db.execute("DELETE FROM item WHERE kind = 'secret'")
    db.close()
    assert program.run("token", "new", secret_key=WRONG).code == 2
    program.ok("token", "new")
    assert program.run("token", "new", secret_key=WRONG).code == 2


def test_backup_is_for_its_owner_alone_from_the_first_byte(program: Program) -> None:
    program.ok("user", "add", "alice")
    program.ok("backup", "copy.db")
    assert _mode(program.folder / "copy.db") == 0o600
    (program.folder / "copy.db").chmod(0o644)
    program.ok("backup", "copy.db", "--force")
    assert _mode(program.folder / "copy.db") == 0o600


def test_new_store_is_private_to_its_owner_and_a_readable_one_causes_a_warning(program: Program) -> None:
    program.ok("user", "add", "alice")
    assert _mode(program.folder / "paceline.db") == 0o600
    with program.running("up", "--port", "0"):
        assert _mode(program.folder / "paceline.db-wal") == 0o600
    log = program.folder / "daemon.log"
    assert "readable_by_others" not in log.read_text()
    for name in ("paceline.db", "paceline.key"):
        (program.folder / name).chmod(0o644)
    with program.running("up", "--port", "0"):
        pass
    lines = [line for line in log.read_text().splitlines() if "readable_by_others" in line]
    for name in ("paceline.db", "paceline.key"):
        assert any(f"chmod 600 {name}" in line for line in lines), lines


def _mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)
