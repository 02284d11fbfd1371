"""``paceline account`` and ``paceline key``: the pool as its operator sees and changes it."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.shells.cli import main
from paceline.simulators.ripe_atlas import AtlasSimulator, Fault
from tests.shells.cli.support.program import TIMEOUT_S, Program

CANARY = "c0ffee00-cafe-4711-beef-c0ffee004711"


@pytest.fixture
def ripe() -> Iterator[AtlasSimulator]:
    with AtlasSimulator() as simulator:
        simulator.add_account("lab", keys=0)
        yield simulator


@pytest.fixture
def lab(tmp_path: Path, ripe: AtlasSimulator) -> Program:
    """A program whose RIPE is the simulator, with an account that has no key yet."""
    program = Program(tmp_path, atlas_url=ripe.base_url)
    program.ok("account", "set", "lab")
    return program


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where an account is, and no key."""
    folder = tmp_path_factory.mktemp("accounts")
    Program(folder).ok("account", "set", "lab")
    return folder


def everything(program: Program) -> str:
    """All that lies in its folder, as text."""
    return "".join(file.read_bytes().decode("latin-1") for file in program.folder.iterdir() if file.is_file())


def test_an_account_is_created_with_ripes_limits_and_edited_field_by_field(program: Program) -> None:
    made = program.json("account", "set", "lab", "--concurrent", "7")
    limits = ("concurrent", "daily_results", "daily_credits", "enabled")
    assert [made[name] for name in limits] == [7, 100_000, 1_000_000, True]
    edited = program.json("account", "set", "lab", "--daily-credits", "5000")
    assert [edited[name] for name in limits] == [7, 100_000, 5_000, True]
    assert program.json("account", "set", "lab", "--disabled")["enabled"] is False
    untouched = program.json("account", "set", "lab", "--daily-results", "10")
    assert [untouched[name] for name in limits] == [7, 10, 5_000, False]
    assert program.json("account", "set", "lab", "--enabled")["enabled"] is True
    assert program.ok("account", "set", "lab").startswith("lab unchanged: 7 at once")


def test_account_list_shows_each_meter_and_why_an_account_is_not_used(program: Program) -> None:
    program.ok("account", "set", "lab", "--concurrent", "7")
    program.ok("account", "set", "other", "--disabled")
    items = program.json("account", "list")["items"]
    assert [(one["id"], one["state"], one["reason"]) for one in items] == [
        ("lab", "no_key", "it has no key"),
        ("other", "disabled", "disabled"),
    ]
    assert {name: items[0]["usage"]["concurrent"][name] for name in ("spent", "held", "limit")} == {
        "spent": 0,
        "held": 0,
        "limit": 7,
    }
    head, *rows = program.ok("account", "list").splitlines()
    assert head.split() == ["ACCOUNT", "STATE", "METER", "SPENT", "HELD", "ELSEWHERE", "LIMIT", "REASON"]
    assert [row.split()[:3] for row in (rows[0], rows[3])] == [["lab", "no_key", "at"], ["other", "disabled", "at"]]
    assert (rows[1].split(), rows[2].split()) == (
        ["results", "0", "0", "0", "100000"],
        ["credits", "0", "0", "0", "1000000"],
    )


def test_status_counts_accounts_and_says_why_an_account_is_not_used(program: Program) -> None:
    program.ok("account", "set", "lab")
    said = program.json("status")
    assert (said["accounts"], said["jobs_open"], said["measurements"]["queued"]) == (1, 0, 0)
    assert said["accounts_aside"] == [{"id": "lab", "state": "no_key", "reason": "it has no key"}]
    assert re.search(r"account lab +it has no key", program.ok("status"))


@pytest.mark.parametrize(
    ("words", "code", "named"),
    [
        (["account", "set", "a/b"], 2, "/id"),
        (["account", "set", "lab", "--concurrent", "-1"], 2, "/concurrent"),
        (["account", "set", "lab", "--daily-results", "many"], 2, "--daily-results"),
        (["key", "add", "nobody", CANARY, "--no-check"], 3, "nobody"),
        (["key", "list", "nobody"], 3, "nobody"),
        (["key", "enable", "lab", "k99"], 3, "k99"),
        (["key", "disable", "lab", "x"], 3, "'x'"),
        (["key", "rm", "lab", "k99"], 3, "k99"),
        (["key", "add", "lab", "short", "--no-check"], 2, "/key"),
        (["key", "add", "lab", CANARY, "--label", "x" * 101, "--no-check"], 2, "/label"),
    ],
    ids=lambda value: " ".join(value)[:40] if isinstance(value, list) else "",
)
def test_impossible_account_limits_are_refused_with_their_names(
    words: list[str],
    code: int,
    named: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    assert main(words) == code
    told = capsys.readouterr()
    assert told.out == ""
    assert named in told.err
    assert CANARY not in told.err


def test_key_add_with_empty_stdin_says_where_the_key_belongs(lab: Program) -> None:
    ended = lab.run("key", "add", "lab")
    assert (ended.code, ended.out) == (2, "")
    assert ended.err.startswith("error: /key: stdin was empty")


def test_a_key_is_tried_at_ripe_and_its_secret_is_never_shown_or_stored(lab: Program, ripe: AtlasSimulator) -> None:
    ripe.add_key("lab", secret=CANARY)
    told = lab.run("key", "add", "lab", "--label", "mine", stdin=f"{CANARY}\n")
    assert (told.code, told.err) == (0, "Not verified: that it may download results of non-public measurements.\n")
    assert told.out == "k1 (…4711) added to lab; tried at RIPE.\n"
    assert {request.path.split("?")[0] for request, _ in ripe.latest} >= {
        "/api/v2/credits/",
        "/api/v2/measurements/my/",
    }
    listed = lab.json("key", "list", "lab")["items"][0]
    assert {name: listed[name] for name in ("id", "account", "label", "last_four", "state")} == {
        "id": "k1",
        "account": "lab",
        "label": "mine",
        "last_four": "4711",
        "state": "ready",
    }
    outputs = [lab.ok("key", "list"), lab.ok("account", "list", "--json"), lab.ok("status", "--json")]
    assert CANARY not in "".join(outputs) + everything(lab)
    assert lab.json("account", "list")["items"][0]["state"] == "ready"
    again = lab.run("key", "add", "lab", CANARY)
    assert (again.code, "k1" in again.err, CANARY in again.err) == (1, True, False)


def test_key_without_needed_permissions_is_refused_with_their_names(lab: Program, ripe: AtlasSimulator) -> None:
    ripe.add_key("lab", secret=CANARY, grants=("measurements.create_measurement",))
    ended = lab.run("key", "add", "lab", CANARY)
    assert (ended.code, ended.out) == (2, "")
    assert "it may not get information about your credits" in ended.err
    assert "it may not list your measurements" in ended.err
    unknown = lab.run("key", "add", "lab", CANARY.replace("c0ffee", "decade"), "--json")
    assert (unknown.code, unknown.problem["errors"][0]["pointer"]) == (2, "/key")
    assert "RIPE does not know this key" in unknown.problem["detail"]
    assert lab.json("key", "list")["items"] == []
    assert (
        lab.ok("key", "add", "lab", CANARY, "--no-check")
        == "k1 (…4711) added to lab; RIPE was not asked what it may do.\n"
    )


def test_key_is_not_added_without_an_answer_of_ripe_and_the_error_says_what_to_do(
    lab: Program, ripe: AtlasSimulator
) -> None:
    ripe.add_key("lab", secret=CANARY)
    ripe.add_fault(Fault(kind="error_before", status=503, times=20))
    ended = lab.run("key", "add", "lab", CANARY)
    assert (ended.code, ended.out) == (1, "")
    assert "--no-check" in ended.err
    assert "(atlas_unavailable)" in ended.err
    assert lab.json("key", "list")["items"] == []


def test_key_is_prompted_for_on_a_terminal_without_echo(lab: Program, ripe: AtlasSimulator) -> None:
    ripe.add_key("lab", secret=CANARY)
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline", "key", "add", "lab"],
        cwd=lab.folder,
        env=lab.env,
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
    )
    os.close(slave)
    seen = b""
    while b"not shown" not in seen:
        seen += os.read(master, 1_024)
    os.write(master, f"{CANARY}\n".encode())
    assert process.wait(TIMEOUT_S) == 0
    seen += os.read(master, 4_096)
    os.close(master)
    assert "added to lab; tried at RIPE" in seen.decode()
    assert CANARY.encode() not in seen


def test_keys_are_disabled_enabled_and_removed(lab: Program) -> None:
    lab.ok("key", "add", "lab", CANARY, "--no-check")
    assert lab.ok("key", "disable", "lab", "k1") == "k1 (…4711) disabled.\n"
    aside = lab.json("account", "list")["items"][0]
    assert (aside["state"], aside["reason"]) == ("no_key", "all its keys are disabled")
    assert lab.json("key", "enable", "lab", "k1")["state"] == "ready"
    assert lab.json("key", "rm", "lab", "k1") == {"removed": "k1"}
    assert lab.run("key", "rm", "lab", "k1").code == 3
    assert lab.json("account", "list")["items"][0]["reason"] == "it has no key"


def test_key_on_the_command_line_causes_a_warning_and_key_from_stdin_does_not(lab: Program) -> None:
    given = lab.run("key", "add", "lab", CANARY, "--no-check")
    assert (given.code, "Warning: a key on the command line" in given.err) == (0, True)
    read = lab.run("key", "add", "lab", "-", "--no-check", stdin=f"{CANARY}-two\n")
    assert (read.code, "Warning" in read.err) == (0, False)
