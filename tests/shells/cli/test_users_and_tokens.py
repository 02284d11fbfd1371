"""``paceline user`` and ``paceline token``."""

from __future__ import annotations

import stat

import pytest

from tests.shells.cli.support.program import Program


def test_a_user_is_added_listed_limited_disabled_and_removed(program: Program) -> None:
    added = program.json("user", "add", "alice", "--role", "admin", "--daily-credits", "5")
    assert added["user"] == "alice"
    assert added["token"].startswith("pl_")
    assert added.keys() == {"user", "token"}

    program.json("user", "add", "root", "--role", "admin")
    assert program.json("user", "limit", "alice", "--daily-credits", "70")["daily_credits"] == 70
    assert program.json("user", "limit", "alice", "80")["daily_credits"] == 80
    assert program.json("user", "disable", "alice")["disabled"] is True
    listed = program.json("user", "list")
    assert [(user["id"], user["role"], user["disabled"]) for user in listed["items"]] == [
        ("alice", "admin", True),
        ("root", "admin", False),
    ]
    assert program.json("user", "enable", "alice")["disabled"] is False
    assert "alice  admin  enabled" in program.ok("user", "list")

    assert program.json("user", "rm", "alice") == {"removed": "alice"}
    assert [user["id"] for user in program.json("user", "list")["items"]] == ["root"]
    assert program.run("user", "rm", "alice").code == 3


@pytest.mark.parametrize("word", ["disable", "rm"])
def test_last_admin_is_kept_by_the_command_line_too(program: Program, word: str) -> None:
    program.ok("user", "add", "root", "--role", "admin")
    refused = program.run("user", word, "root")
    assert refused.code == 1
    assert "'root' is the last admin. Make another user an admin first" in refused.err
    program.ok("user", "add", "alice", "--role", "admin")
    program.ok("user", word, "root")


def test_only_the_token_goes_to_stdout_so_that_a_shell_can_store_it(program: Program) -> None:
    added = program.run("user", "add", "alice")
    assert added.out.startswith("pl_")
    assert added.out.count("\n") == 1
    assert "shown only now" in added.err


def test_the_secret_key_is_made_beside_the_store_for_its_owner_alone(program: Program) -> None:
    program.ok("user", "add", "alice", "--store", "sqlite:///here.db")
    assert stat.S_IMODE((program.folder / "here.key").stat().st_mode) == 0o600
    key = (program.folder / "here.key").read_text()
    program.ok("user", "add", "bob", "--store", "sqlite:///here.db")
    assert (program.folder / "here.key").read_text() == key


def test_tokens_are_made_listed_and_revoked_by_id_or_by_the_token_itself(program: Program) -> None:
    first = program.json("user", "add", "alice")["token"]
    second = program.json("token", "new", "--label", "laptop")
    assert second["user"] == "alice"
    assert second["token"] != first
    assert [token["label"] for token in program.json("token", "list", "alice")["items"]] == ["first", "laptop"]
    assert program.json("token", "revoke", second["id"]) == {"revoked": second["id"]}
    revoked = program.run("token", "revoke", first)
    assert revoked.code == 0
    assert first not in revoked.out
    assert program.json("token", "list")["items"] == []
    assert program.run("token", "revoke", second["id"]).code == 3


def test_no_command_shows_a_stored_token_again(program: Program) -> None:
    token = program.json("user", "add", "alice")["token"]
    secret = token.split("_")[2]
    shown = [program.run(*words) for words in (["user", "list"], ["token", "list"], ["status"], ["check"])]
    shown += [program.run(*words, "--json") for words in (["user", "list"], ["token", "list"], ["status"])]
    assert not any(secret in ended.out + ended.err for ended in shown)
    assert secret.encode() not in (program.folder / "paceline.db").read_bytes()
