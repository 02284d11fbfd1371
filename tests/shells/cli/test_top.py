"""``paceline top``: live on a terminal of any size, once elsewhere, and with a message when no daemon runs."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from paceline.shells.cli.text.form import Form
from paceline.shells.cli.top.facts import CachedRead, NextHour, TopFacts, Wrong
from paceline.shells.cli.top.frame import bar, draw
from paceline.steps.views.report import MonitorView
from tests.shells.cli.support.program import Program, eventually
from tests.shells.cli.support.terminal import Terminal

NOW_MS = 1_795_000_000_000
SCREEN_ON, SCREEN_OFF, CURSOR_ON = "\x1b[?1049h", "\x1b[?1049l", "\x1b[?25h"


@pytest.fixture
def alice(program: Program) -> Program:
    program.ok("user", "add", "alice", "--role", "admin")
    later = ("--every", "1h", "--initial-delay", "1h")  # not due, and so not late, however slow the machine is
    program.ok("monitor", "set", "later", "--url", "http://127.0.0.1:9/", *later, "--user", "alice")
    return program


def set_failing(program: Program, name: str, user: str) -> None:
    program.ok("monitor", "set", name, "--url", "http://127.0.0.1:9/", "--every", "1s", "--user", user)


def test_top_leaves_the_terminal_clean_after_q_a_resize_and_a_small_terminal(alice: Program) -> None:
    with Terminal(alice, "top", columns=100, lines=30) as terminal:
        terminal.wait_for("No daemon runs on this store")
        terminal.wait_for("Everything is on time.")
        assert SCREEN_ON in terminal.raw
        for columns, lines in ((30, 4), (120, 40)):
            terminal.forget()
            terminal.resize(columns, lines)
            terminal.wait_for("Paceline  ")
        terminal.press("q")
        assert terminal.ended() == 0
        eventually(lambda: terminal.raw.rstrip().endswith((SCREEN_OFF, CURSOR_ON)))
        assert terminal.raw.rindex(SCREEN_OFF) > terminal.raw.rfind(SCREEN_ON)
        assert terminal.is_as_before


@pytest.mark.parametrize("how", ["Ctrl-C", "SIGTERM"])
def test_top_is_left_by_control_c_and_by_a_signal(alice: Program, how: str) -> None:
    with Terminal(alice, "top") as terminal:
        terminal.wait_for("Paceline  ")
        if how == "Ctrl-C":
            terminal.press("\x03")
        else:
            terminal.process.send_signal(signal.SIGTERM)
        assert terminal.ended() == 0
        eventually(lambda: SCREEN_OFF in terminal.raw)
        assert terminal.is_as_before
        assert "Traceback" not in terminal.text


def test_top_shows_a_failure_as_it_happens_and_says_when_the_service_is_gone(alice: Program) -> None:
    token = json.loads(alice.ok("token", "new", "alice", "--json"))["token"]
    set_failing(alice, "home", "alice")
    with alice.running("up", "--port", "0", outbound_allow="127.0.0.0/8") as up:
        remote = {"url": up.said["url"], "token": token}
        with Terminal(alice, "top", **remote) as terminal:
            terminal.wait_for("1 monitor failing")
            terminal.wait_for("home")
            up.process.send_signal(signal.SIGTERM)
            terminal.wait_for("No news: ")
            terminal.press("q")
            assert terminal.ended() == 0


def test_top_once_prints_one_picture_and_so_does_a_pipe(alice: Program) -> None:
    for words in (["top", "--once"], ["top"]):
        told = alice.ok(*words)
        assert "No daemon runs on this store: nothing fires and nothing is sent. Start one: paceline up" in told
        assert "\x1b" not in told
    document = alice.json("top")
    assert document["status"]["monitors"] == 1
    assert document["wrong"] == []


def test_top_shows_users_only_their_own_things(alice: Program) -> None:
    bob = alice.json("user", "add", "bob")["token"]
    set_failing(alice, "home", "alice")
    set_failing(alice, "bobs", "bob")
    with alice.running("up", "--port", "0", outbound_allow="127.0.0.0/8") as up:
        remote = {"url": up.said["url"], "token": bob}
        shown = eventually(lambda: alice.json("top", **remote)["wrong"])
        assert {one["monitor"]["user"] for one in shown} == {"bob"}
        document = alice.json("top", **remote)
        assert (document["status"], document["providers"], document["accounts"]) == (None, [], [])
        assert "home" not in alice.ok("top", "--once", **remote)


def test_top_without_a_store_says_where_it_looked(tmp_path: Path) -> None:
    ended = Program(tmp_path).run("top")
    assert (ended.code, ended.out) == (3, "")


def monitor(name: str, health: str) -> MonitorView:
    return msgspec.convert(
        {
            "id": name,
            "user": "alice",
            "check": {"kind": "http", "url": "https://example.org/"},
            "jitter": "0s",
            "missed": "skip",
            "overlap": "skip",
            "paused": False,
            "tags": [],
            "alert": {"after": 1, "recover": 1, "channels": []},
            "attempts": 1,
            "schedule": {"key": "alice/x", "generation": 1, "counter": 1, "next_due": None},
            "revision": 1,
            "health": health,
            "failures": 3,
            "created_at": "2026-11-18T00:00:00.000Z",
            "updated_at": "2026-11-18T00:00:00.000Z",
        },
        MonitorView,
    )


@given(
    names=st.lists(st.text("abc-1", min_size=1, max_size=12), max_size=12),
    width=st.integers(20, 150),
    height=st.integers(1, 40),
)
def test_top_is_never_larger_than_the_terminal(names: list[str], width: int, height: int) -> None:
    wrong = [Wrong(monitor(name, "failing"), "例え " * 20) for name in names]
    lines = draw(TopFacts(wrong, False, [], NextHour(0, 0, 0)), Form(width, NOW_MS), height=height)
    assert len(lines) <= height
    assert all(sum(cell_len(one.text) for one in line) <= width for line in lines)


def test_section_that_is_shortened_says_how_much_there_is() -> None:
    wrong = [Wrong(monitor(f"m{number}", "failing"), "no answer") for number in range(9)]
    lines = draw(TopFacts(wrong, True, [], NextHour(0, 0, 0)), Form(80, NOW_MS), height=9)
    text = ["".join(one.text for one in line) for line in lines]
    assert "9+ monitors failing" in text
    assert "Failing and late monitors (first 3 of 9+)" in text
    assert len(text) == 9


def test_progress_bar_is_full_only_when_everything_is_done() -> None:
    assert bar(0, 0) == bar(0, 9) == "░" * 12
    assert bar(999, 1_000) == "█" * 11 + "░"
    assert bar(9, 9) == "█" * 12


def test_slow_part_of_top_is_not_read_at_every_refresh() -> None:
    reads = []

    def read() -> int:
        time.sleep(0.2)
        reads.append(1)
        return len(reads)

    part = CachedRead(read)
    began_s = time.monotonic()
    while time.monotonic() - began_s < 0.5:
        part.get()
    assert len(reads) == 1
