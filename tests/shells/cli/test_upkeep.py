"""``paceline status``, ``check``, ``backup``, ``migrate`` and ``purge``."""

from __future__ import annotations

import apsw
import pytest

from tests.shells.cli.support.program import Program, free_port


def test_status_counts_users_monitors_batches_and_jobs(program: Program) -> None:
    program.ok("user", "add", "alice")
    program.ok("monitor", "set", "web", "--url", "https://example.org/", "--every", "1h", "--initial-delay", "1d")
    port = str(free_port())
    status = program.json("status", port=port)
    assert (status["users"], status["monitors"], status["entries"], status["changes_pending"]) == (1, 1, 1, 0)
    assert (status["runs_waiting"], status["runs_out"], status["late_s"]) == (0, 0, 0.0)
    assert status["next_due"].endswith("Z")
    assert status["file_bytes"] > 0
    assert status["daemon"] == {"url": f"http://127.0.0.1:{port}", "answering": False}
    text = program.ok("status", port=port)
    assert f"none answers at http://127.0.0.1:{port}; start one: paceline up" in text


def test_check_prints_ok_or_the_problems(program: Program) -> None:
    program.ok("user", "add", "alice")
    assert program.ok("check") == "OK\n"
    with apsw.Connection(str(program.folder / "paceline.db")) as db:
        db.execute("UPDATE user SET monitors = 5")
    wrong = program.run("check")
    assert (wrong.code, wrong.out) == (1, "a user's number of monitors is wrong (user alice)\n")
    told = program.run("check", "--json")
    assert (told.code, told.document["ok"], len(told.document["problems"])) == (1, False, 1)


def test_a_backup_is_a_store_and_replaces_nothing_unasked(program: Program) -> None:
    token = program.json("user", "add", "alice")["token"]
    copied = program.json("backup", "copy.db")
    assert copied["file"] == "copy.db"
    assert copied["bytes"] == (program.folder / "copy.db").stat().st_size
    again = program.run("backup", "copy.db")
    assert (again.code, "--force" in again.err) == (1, True)
    program.ok("user", "add", "bob")
    program.ok("backup", "copy.db", "--force")
    users = program.json("user", "list", "--store", "sqlite:///copy.db")
    assert [user["id"] for user in users["items"]] == ["alice", "bob"]
    assert token.encode() not in (program.folder / "copy.db").read_bytes()
    assert sorted(file.name for file in program.folder.iterdir() if "part" in file.name) == []
    missing = program.run("backup", "no/such/folder/copy.db")
    assert (missing.code, missing.err) == (1, "error: no/such/folder/copy.db: No such file or directory. (failed)\n")


@pytest.mark.parametrize("name", ["paceline.db", "./paceline.db", "paceline.key", "link.db"])
def test_backup_never_replaces_a_file_of_the_store_itself(program: Program, name: str) -> None:
    program.ok("user", "add", "alice")
    (program.folder / "link.db").symlink_to("paceline.db")
    before = {file: (file.stat().st_ino, file.read_bytes()) for file in program.folder.glob("paceline.*")}
    refused = program.run("backup", name, "--force")
    assert (refused.code, refused.err.endswith("(invalid_input)\n")) == (2, True)
    assert "belongs to the store itself" in refused.err
    assert {file: (file.stat().st_ino, file.read_bytes()) for file in program.folder.glob("paceline.*")} == before


def test_migrate_creates_a_new_store_and_keeps_an_existing_one(program: Program) -> None:
    made = program.json("migrate")
    assert made["schema"] >= 1
    assert program.json("migrate") == made
    with apsw.Connection(str(program.folder / "paceline.db")) as db:
        db.pragma("user_version", made["schema"] + 1)
    newer = program.run("migrate")
    assert newer.code == 1
    assert "Upgrade Paceline" in newer.err
    assert "(store_too_new)" in newer.err


def test_purge_prints_how_much_was_deleted(program: Program) -> None:
    program.ok("migrate")
    assert program.json("purge") == {"runs_deleted": 0, "runs_expired": 0, "measurements_deleted": 0}
    assert program.ok("purge", "--keep", "1d") == "0 runs deleted, 0 runs expired, 0 measurements deleted.\n"
    wrong = program.run("purge", "--keep", "soon")
    assert (wrong.code, "--keep" in wrong.err) == (2, True)
