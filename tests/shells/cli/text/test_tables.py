"""Every list and every ``show`` fits the terminal, breaks no id, and loses nothing in pipes and with ``--json``."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from rich.cells import cell_len

from paceline.core.alerts.alert import Alert
from paceline.shells.cli.app import main
from tests.shells.api.conftest import OUTGOING, World, serving
from tests.shells.api.support.day import PROVIDER, end_all
from tests.shells.api.support.job_stage import job
from tests.shells.cli.support.commands import commands

DAY = "2026-11-15"
LIST_WORDS = {"list", "show", "runs", "days", "records", "status", "uptime", "next", "budget"}
WIDE = "例え・テスト"
LONG_URL = "https://example.org/" + "path/" * 40 + "end"
ENDPOINT = "/orders?number=" + "7" * 150
INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}")


class Stage(NamedTuple):
    """A store with names of one length."""

    world: World
    names: dict[str, str]

    @property
    def store(self) -> str:
        return self.world.system.settings.store

    def lines(self) -> list[str]:
        """Every command that shows something, with the names of this stage."""
        return [line.format(**self.names) for line in LINES]


LINES = [
    "status",
    "user list",
    "user budget {user}",
    "token list --user {user}",
    "monitor list --user {user}",
    "monitor list --all-users",
    "monitor show {monitor} --user {user}",
    "monitor show {own} --user {user}",
    "monitor runs {own} --user {user}",
    "monitor next {monitor} --user {user}",
    "monitor uptime {own} --user {user}",
    "channel list --user {user}",
    "silence list --user {user}",
    "alert list --user {user}",
    "provider list",
    "provider show {provider}",
    "batch list",
    "batch days {batch}",
    f"batch show {DAY} --batch {{batch}}",
    f"batch runs {DAY} --batch {{batch}}",
    "batch records {batch}",
    "dead list",
    "job list",
    "job show {job}",
    "account list",
    "key list",
    "run show {run}",
    "why {run}",
    "ahead",
    "top --once",
    f"run show {{batch}}/{{record}}@{DAY}",
]


def stage(folder: Path, chars: int) -> Iterator[Stage]:
    def name(kind: str) -> str:
        return f"{kind}-{'0123456789' * 13}"[:chars]

    kinds = ("user", "monitor", "own", "provider", "batch", "record", "account", "tag", "channel")
    names = {kind: name(kind) for kind in kinds}
    with serving(folder) as world:
        root, user = world.add("root", "admin"), world.add(names["user"])
        check = {"kind": "http", "url": LONG_URL}
        put = {"check": check, "every": "1h", "tags": [names["tag"][:50], "b"]}
        assert user("PUT", f"/v1/users/me/monitors/{names['monitor']}", put).status == 201
        assert user("PUT", f"/v1/users/me/monitors/{names['own']}", {**OUTGOING, "every": "1d"}).status == 201
        while not (runs := user("GET", f"/v1/users/me/monitors/{names['own']}/runs").json["items"]):
            world.fire()
        names["run"] = runs[0]["run"]
        hook = {"kind": "webhook", "url": "https://example.org/secret"}
        assert user("PUT", f"/v1/users/me/channels/{names['channel']}", hook).status == 201
        silence = {"for": "2h", "reason": f"{WIDE} " * 9}
        assert user("POST", f"/v1/users/me/monitors/{names['monitor']}/silence", silence).status == 201
        assert user("POST", "/v1/users/me/tokens", {"label": WIDE * 4}).status == 201
        now_ms = world.system.clock.now_ms()
        told = [Alert(f"al_{n}", "monitor.failing", now_ms, names["user"], names["monitor"]) for n in range(3)]
        world.system.store.add_alerts(told)
        assert root("PUT", f"/v1/providers/{names['provider']}", {**PROVIDER, "rate": "5/1s"}).status == 201
        assert root("PUT", f"/v1/batches/{names['batch']}", {"missed": "all"}).status == 201
        record = {"id": names["record"], "provider": names["provider"], "endpoint": ENDPOINT}
        assert root("PUT", f"/v1/batches/{names['batch']}/records", {"items": [record]}).status == 200
        assert root("POST", f"/v1/batches/{names['batch']}/plan", {"date": DAY}).status == 200
        assert end_all(world, "failed", provider=names["provider"], reason=f"status 400 {WIDE} " * 9) == 1
        assert root("PUT", f"/v1/accounts/{names['account']}", {}).status == 201
        key = {"key": "the-key-of-the-lab", "label": WIDE * 6}
        assert root("POST", f"/v1/accounts/{names['account']}/keys?check=false", key).status == 201
        made = user("POST", "/v1/jobs", job(3, title=f"{WIDE} " * 10))
        names["job"] = made.json["job"]
        yield Stage(world, names)


@pytest.fixture(scope="module", params=[20, 128], ids=["usual ids", "the longest ids"])
def staged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    yield from stage(tmp_path_factory.mktemp("tables"), request.param)


class Said(NamedTuple):
    out: str
    err: str


class Teller:
    """Runs commands in this process, with stdout in a file or on a terminal of some width."""

    def __init__(self, patch: pytest.MonkeyPatch, capture: pytest.CaptureFixture[str], stage: Stage) -> None:
        self.patch, self.capture = patch, capture
        patch.setenv("PACELINE_STORE", stage.store)

    def __call__(self, line: str, *options: str, columns: int | None = None) -> Said:
        with self.patch.context() as patch:
            if columns is not None:
                patch.setenv("COLUMNS", str(columns))
            self.capture.readouterr()
            assert main([*line.split(), *options]) == 0, line
            return Said(*self.capture.readouterr())


@pytest.fixture
def tell(staged: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Teller:
    return Teller(monkeypatch, capsys, staged)


def test_every_command_that_lists_or_shows_is_tried() -> None:
    tried = {line.split()[0] for line in LINES} | {" ".join(line.split()[:2]) for line in LINES}
    shown = {one.path.removeprefix("paceline ") for one in commands()}
    assert {path for path in shown if path.split()[-1] in LIST_WORDS} <= tried


def too_wide(stage: Stage, text: str, columns: int) -> list[str]:
    """Lines that are wider than the terminal, but for ids that no line of it could hold."""
    names = tuple(stage.names.values())
    wide = [line.strip() for line in text.splitlines() if cell_len(line) > columns]
    return [line for line in wide if " " in line or not line.startswith(names)]


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_no_line_is_wider_than_the_terminal_and_no_id_is_broken(staged: Stage, tell: Teller, columns: int) -> None:
    for line in staged.lines():
        out = tell(line, columns=columns).out
        assert too_wide(staged, out, columns) == [], line
        assert out.strip(), line
        for part in re.findall(r"[a-z]+-01234567\S*", out):  # each name that is shown is shown whole
            kind = part.partition("-")[0]
            assert kind == "tag" or part.startswith(staged.names[kind]), (line, part)


def test_every_first_column_of_a_list_is_shown_at_80_columns(staged: Stage, tell: Teller) -> None:
    for line, kind in (
        ("user list", "user"),
        ("monitor list --user {user}", "monitor"),
        ("monitor list --all-users", "user"),
        ("monitor runs {own} --user {user}", "run"),
        ("provider list", "provider"),
        ("batch list", "batch"),
        ("batch records {batch}", "record"),
        ("job list", "job"),
        ("account list", "account"),
        ("key list", "account"),
        ("alert list --user {user}", "monitor"),
    ):
        assert staged.names[kind] in tell(line.format(**staged.names), columns=80).out, line


def test_piped_output_has_full_values_and_exact_times(staged: Stage, tell: Teller) -> None:
    monitors = tell(f"monitor list --user {staged.names['user']}").out
    assert f"http {LONG_URL}" in monitors
    assert INSTANT.search(monitors)
    assert "…" not in monitors
    assert ENDPOINT in tell(f"batch records {staged.names['batch']}").out
    assert f"status 400 {WIDE} " * 8 in tell("dead list").out


def test_json_has_everything_at_any_width(staged: Stage, tell: Teller) -> None:
    for line in staged.lines():
        document = json.loads(tell(line, "--json", columns=60).out)
        assert "…" not in json.dumps(document), line


def test_times_are_relative_on_a_terminal_and_exact_with_utc(staged: Stage, tell: Teller) -> None:
    line = f"monitor list --user {staged.names['user']}"
    narrow = tell(line, columns=80).out
    assert re.search(r"\bin \d+ (s|min|h)\b", narrow)
    assert not INSTANT.search(narrow)
    for form in ([line, "--utc"], [f"--utc {line}"]):
        exact = tell(*form, columns=80).out
        assert INSTANT.search(exact)
        assert not re.search(r"\bin \d+ s\b", exact)
    shown = tell(f"run show {staged.names['run']}", columns=80).out
    assert re.search(r"due +\d{4}-\S+Z \((now|.* ago)\)", shown)


def test_table_says_which_columns_were_left_out(staged: Stage, tell: Teller) -> None:
    narrow, wide = tell("provider list", columns=60), tell("provider list", columns=200)
    if len(staged.names["provider"]) > 60:  # rows this wide are stacked, and have room for everything
        assert narrow.err == ""
        return
    assert narrow.err.startswith("A wider terminal or --json shows: ")
    assert wide.err == ""
    left_out = narrow.err.strip().partition(": ")[2].split(", ")
    heading = narrow.out.splitlines()[0]
    assert [name for name in left_out if name in heading] == []
    assert all(name in wide.out.splitlines()[0] for name in left_out)


@pytest.mark.parametrize("columns", [60, 200])
def test_real_terminal_of_any_width_is_fitted(staged: Stage, columns: int) -> None:
    for line in (f"monitor list --user {staged.names['user']}", "dead list"):
        seen = on_terminal(staged, line, columns)
        assert "\x1b[" in seen, "headings are bold"
        plain = re.sub(r"\x1b\[[0-9;]*m", "", seen)
        assert too_wide(staged, plain, columns) == []
        assert staged.names["batch" if line == "dead list" else "monitor"] in plain


def on_terminal(stage: Stage, line: str, columns: int) -> str:
    """What a command writes to a real terminal of this width."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    env = {**os.environ, "PACELINE_STORE": stage.store, "TERM": "xterm"}
    command = [sys.executable, "-m", "paceline", *line.split()]
    with subprocess.Popen(command, env=env, stdin=slave, stdout=slave, stderr=slave) as process:
        os.close(slave)
        seen = b""
        try:
            while piece := os.read(master, 4_096):
                seen += piece
        except OSError:  # how Linux says that the other side is closed
            pass
        os.close(master)
    assert process.returncode == 0, seen
    return seen.decode().replace("\r\n", "\n")
