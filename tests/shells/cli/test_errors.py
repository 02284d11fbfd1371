"""Exit codes and error messages."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from paceline.shells.cli import main
from tests.shells.cli.support.program import Program
from tests.shells.cli.support.terminal import Terminal

MONITOR = ("monitor", "set", "web", "--url", "https://example.org/", "--every", "1h")

CASES = [
    (["--help"], 0, ""),
    (["--version"], 0, ""),
    (["monitor", "list"], 0, ""),
    (["user", "add", "alice"], 1, "already_exists"),
    (["backup", "paceline.db"], 1, "already_exists"),
    (["backup", "-"], 2, "invalid_input"),
    (["nonsense"], 2, "usage"),
    (["monitor"], 2, "usage"),
    (["monitor", "set"], 2, "usage"),
    (["monitor", "set", "web"], 2, "invalid_input"),
    (["monitor", "list", "--limit", "0"], 2, "usage"),
    (["monitor", "list", "--nope"], 2, "usage"),
    (["monitor", "set", "a/b", "--url", "https://example.org/", "--every", "1h"], 2, "invalid_input"),
    (["monitor", "set", "w", "--url", "https://example.org/", "--every", "1ms"], 2, "invalid_input"),
    (["monitor", "set", "w", "--url", "https://example.org/", "--tcp", "a:1", "--every", "1s"], 2, "invalid_input"),
    (["monitor", "set", "w", "--outgoing", "{", "--every", "1s"], 2, "invalid_input"),
    (["monitor", "set", "w", "--file", "no-such-file"], 2, "invalid_input"),
    (["monitor", "import", "no-such-file"], 2, "invalid_input"),
    (["monitor", "runs", "web", "--cursor", "x"], 2, "invalid_input"),
    (["user", "add", "me"], 2, "invalid_input"),
    (["user", "limit", "alice"], 2, "invalid_input"),
    (["--config", "no-such-file", "status"], 2, "wrong_setting"),
    (["--store", "mysql://x", "status"], 2, "wrong_setting"),
    (["--store", "sqlite:///.", "status"], 2, "wrong_setting"),
    (["--store", "sqlite:////", "status"], 2, "wrong_setting"),
    (["user", "limit", "alice", "5", "--daily-credits", "6"], 2, "invalid_input"),
    (["--url", "http://127.0.0.1:1", "--token-file", "no-such-file", "status"], 2, "invalid_input"),
    (["monitor", "show", "\udcff"], 2, "usage"),
    (["monitor", "list", "--tag", "caf\udce9"], 2, "usage"),
    (["monitor", "show", "nope"], 3, "not_found"),
    (["monitor", "set", "nope", "--every", "5s"], 3, "not_found"),
    (["monitor", "rm", "nope"], 3, "not_found"),
    (["monitor", "pause", "nope"], 3, "not_found"),
    (["monitor", "list", "--user", "nobody"], 3, "not_found"),
    (["user", "limit", "nobody", "5"], 3, "not_found"),
    (["token", "revoke", "nope"], 3, "not_found"),
    (["run", "show", "alice/web#1@99"], 3, "not_found"),
    (["run", "show", "nonsense"], 3, "not_found"),
    (["monitor", "set", "second", "--url", "https://example.org/", "--every", "1h"], 4, "limit_reached"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("errors")
    program = Program(folder)
    program.ok("user", "add", "alice")
    program.ok(*MONITOR)
    return folder


@pytest.mark.parametrize(
    ("words", "code", "name"), CASES, ids=lambda value: " ".join(value) if isinstance(value, list) else ""
)
def test_every_error_has_its_exit_code_and_one_clear_line(
    words: list[str],
    code: int,
    name: str,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PACELINE_MONITORS_MAX", "1")
    monkeypatch.delenv("PACELINE_USER", raising=False)
    assert main(words) == code
    told = capsys.readouterr().err
    assert (told == "") == (code == 0)
    if code:
        assert told.startswith("error: ")
        assert told.endswith(f"({name})\n")
        assert told.count("\n") == 1


def test_several_wrong_fields_are_each_named(program: Program) -> None:
    program.ok("user", "add", "alice")
    words = (
        "monitor",
        "set",
        "w",
        "--url",
        "ftp://x/",
        "--cron",
        "99 * * * *",
        "--timezone",
        "Mars/Base",
        "--jitter",
        "x",
    )
    ended = program.run(*words)
    first, *fields = ended.err.splitlines()
    assert (ended.code, first) == (2, "error: The input is not valid (invalid_input)")
    assert [field.split(":")[0].strip() for field in fields] == ["/check/url", "/cron", "/timezone", "/jitter"]
    problem = program.run(*words, "--json").problem
    assert problem["code"] == "invalid_input"
    assert [error["pointer"] for error in problem["errors"]] == ["/check/url", "/cron", "/timezone", "/jitter"]


@pytest.mark.parametrize("words", [("status",), ("status", "--json"), ("export", "--live"), ("--help",)], ids=" ".join)
def test_output_to_a_full_disk_is_told_and_is_no_defect(program: Program, words: tuple[str, ...]) -> None:
    program.ok("user", "add", "alice")
    command = [sys.executable, "-m", "paceline", *words]
    with Path("/dev/full").open("wb") as full:
        ended = subprocess.run(
            command, cwd=program.folder, env=program.env, stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert ended.returncode == 1, ended.stderr
    assert "The output cannot be written: No space left on device." in ended.stderr
    assert "defect" not in ended.stderr
    assert "Traceback" not in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_command_works_with_closed_streams(program: Program, closed: str) -> None:
    program.ok("user", "add", "alice")
    command = ["sh", "-c", f'"{sys.executable}" -m paceline user add bob {closed}']
    assert subprocess.run(command, cwd=program.folder, env=program.env, check=False).returncode == 0
    assert [user["id"] for user in program.json("user", "list")["items"]] == ["alice", "bob"]
    assert program.ok("check") == "OK\n"


def test_characters_that_stdout_cannot_show_are_shown_by_their_numbers(program: Program) -> None:
    program.ok("user", "add", "alice")
    program.ok("token", "new", "alice", "--label", "\u65e5\u672c")
    program.env["PYTHONIOENCODING"] = "ascii"
    assert "\\u65e5\\u672c" in program.ok("token", "list", "alice")
    assert [one["label"] for one in program.json("token", "list", "alice")["items"]] == ["first", "\u65e5\u672c"]


def test_ctrl_d_at_a_question_is_told_and_is_no_defect(program: Program) -> None:
    with Terminal(program, "login") as terminal:
        terminal.wait_for("Address")
        terminal.press("\x04")
        terminal.wait_for("nothing was done. (usage)")
        assert terminal.ended() == 2


INTERRUPTED_IMPORT = """
import sys
from paceline.shells import cli

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == "paceline.shells.cli.app":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
sys.exit(cli.main(["status"]))
"""


def test_ctrl_c_before_a_command_begins_prints_no_traceback(program: Program) -> None:
    command = [sys.executable, "-c", INTERRUPTED_IMPORT]
    ended = subprocess.run(command, env=program.env, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")


def test_json_option_may_stand_before_or_after_the_command(program: Program) -> None:
    program.ok("user", "add", "alice")
    assert program.ok("--json", "user", "list") == program.ok("user", "list", "--json")
    before = program.run("--json", "monitor", "show", "nope")
    after = program.run("monitor", "show", "nope", "--json")
    assert (before.code, before.out, before.problem) == (3, "", after.problem)
    assert before.problem.keys() == {"title", "detail", "code", "errors"}


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"port": "eighty"}, "PACELINE_PORT"),
        ({"port": "70000"}, "PACELINE_PORT"),
        ({"store": "postgres://x"}, "PACELINE_STORE"),
        ({"outbound_allow": "10.0.0.0/99"}, "PACELINE_OUTBOUND_ALLOW"),
        ({"secret_key": "short"}, "PACELINE_SECRET_KEY"),
        ({"every_min": "0s"}, "PACELINE_EVERY_MIN"),
    ],
)
def test_a_wrong_setting_stops_the_start_with_one_line_that_names_it(
    program: Program, settings: dict[str, str], named: str
) -> None:
    ended = program.run("up", **settings)
    assert ended.code == 2
    assert ended.err.startswith(f"error: {named}")
    assert ended.err.count("\n") == 1


@pytest.mark.parametrize("host", ["no-such-host.invalid", "203.0.113.1"])
def test_host_that_cannot_be_listened_on_is_named_and_not_the_port(program: Program, host: str) -> None:
    ended = program.run("up", "--port", "0", "--host", host)
    assert ended.code == 2
    assert ended.err.splitlines()[-1].startswith(f"error: PACELINE_HOST (or --host): cannot listen on {host}:0: ")


def test_token_file_that_cannot_be_read_is_told_in_words(program: Program) -> None:
    elsewhere = ("--url", "http://127.0.0.1:1", "--token-file")
    missing = program.run(*elsewhere, "nope", "status")
    assert missing.err == "error: --token-file nope cannot be read: No such file or directory. (invalid_input)\n"
    (program.folder / "latin").write_bytes(b"caf\xe9")
    other = program.run(*elsewhere, "latin", "status")
    assert other.err == "error: --token-file latin cannot be read: it is not text in UTF-8. (invalid_input)\n"


def test_the_file_is_overridden_by_the_environment_and_that_by_flags(program: Program) -> None:
    (program.folder / "paceline.toml").write_text('store = "sqlite:///file.db"\n')
    for name in ("file", "env", "flag"):
        program.ok("migrate", "--store", f"sqlite:///{name}.db")
    assert program.json("status")["store"] == "sqlite:///file.db"
    assert program.json("status", store="sqlite:///env.db")["store"] == "sqlite:///env.db"
    flagged = program.json("status", "--store", "sqlite:///flag.db", store="sqlite:///env.db")
    assert flagged["store"] == "sqlite:///flag.db"
    (program.folder / "paceline.toml").write_text("colour = 'red'\n")
    wrong = program.run("status")
    assert (wrong.code, "colour" in wrong.err.lower(), wrong.err.count("\n")) == (2, True, 1)


def test_help_starts_fast_because_it_loads_nothing_heavy() -> None:
    script = (
        "import sys; from paceline.shells.cli import main; main(['--help']);"
        "sys.exit(sorted({'pydantic', 'apsw', 'pycurl', 'rich', 'uvicorn', 'structlog'} & set(sys.modules)))"
    )
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "Commands:" in ended.stdout
    assert ended.stderr.strip() in ("", "[]")


def test_closed_pipe_causes_no_error_message(program: Program) -> None:
    command = f"{sys.executable} -m paceline monitor set --help | true"
    ended = subprocess.run(
        ["bash", "-c", command], cwd=program.folder, env=program.env, capture_output=True, text=True, check=False
    )
    assert ended.stderr == ""
