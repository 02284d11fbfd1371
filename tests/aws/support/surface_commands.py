"""One script that runs every command of the command line, on a store that the script of the routes has filled."""

from __future__ import annotations

import contextlib
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from paceline.config import load_settings
from paceline.core.daemons import Daemon
from paceline.shells.cli.app import app, main
from paceline.steps.upkeep import daemons
from paceline.wiring import SystemClock, open_system
from tests.aws.support.surface_stage import RECORDS, Told, shape
from tests.shells.api.support.day import TOMORROW
from tests.shells.api.support.job_stage import AtlasWorld, job
from tests.shells.cli.support.program import free_port

LEASED = re.compile(r"\d+ runs of monitors are out \([^)]*\); ")
"""Whether a lease has ended by then depends on the speed of the machine."""
LONG_RUNNING = frozenset({"up", "worker", "simulator http", "simulator atlas"})
"""They run until they are stopped."""
OF_THE_ENGINE = frozenset({"aws init", "backup"})
"""They are for one engine, and say so on the other."""
APART = frozenset({"batch rm", "channel test", "login", "logout", "top", "verify"})
"""An engine deletes in passes of its own, and says how far it is; a login is about a server, not about a store; a
message to an address that is not allowed fails on both; what ``top`` shows hangs on the moment; and ``verify`` finds
that this story starts runs before they are due, and judges more on a file."""


def commands() -> Iterator[str]:
    """All there are."""

    def walk(command: Any, path: tuple[str, ...]) -> Iterator[str]:
        below = getattr(command, "commands", None)
        if not below:
            yield " ".join(path)
        for name, inner in (below or {}).items():
            yield from walk(inner, (*path, name))

    return walk(typer.main.get_command(app), ())


class Line(NamedTuple):
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        return json.loads(self.out)


class Terminal:
    """Runs commands in this process, with the settings of its environment, and remembers how each ended."""

    def __init__(self) -> None:
        self.told: list[Told] = []
        self._names = sorted(commands(), key=len, reverse=True)
        self._masks: list[str] = []

    @property
    def walked(self) -> set[str]:
        """Those that did something well at least once."""
        return {told.what for told in self.told if told.status == 0}

    def run(self, *words: str, stdin: str = "") -> Line:
        """With ``--json``: what is printed for people is made of the same documents."""
        line = run_command(*words, "--json", stdin=stdin)
        name = next(name for name in self._names if " ".join(words).startswith(name))
        text = LEASED.sub("", line.out or line.err)
        for mask in self._masks:
            text = text.replace(mask, "MASKED")
        self.told.append(Told(name, line.code, shape([json.loads(one) for one in text.splitlines()])))
        return line

    def mask(self, word: str) -> str:
        """Returns a name that differs between two runs of the script."""
        self._masks.append(word)
        return word


def run_command(*words: str, stdin: str = "") -> Line:
    out, err = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin.encode())))
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = main(list(words))
    return Line(code, *(stream.buffer.getvalue().decode() for stream in (out, err)))


def tell_commands(stage: AtlasWorld, folder: Path, store: str, secret: str) -> Terminal:
    """Right and wrong ones, in a folder and an environment of their own."""
    terminal = Terminal()
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("PACELINE_STORE", store)
        patch.setenv("PACELINE_SECRET_KEY", secret)
        patch.setenv("PACELINE_ATLAS_URL", stage.simulator.base_url)
        patch.setenv("PACELINE_PORT", str(free_port()))
        with contextlib.closing(open_system(load_settings()).store) as there:
            now_ms = SystemClock().now_ms()
            daemons.beat(
                there, Daemon("d1", "up", "another-host", 1, "http://10.0.0.7:8080", now_ms, now_ms, 3_600_000)
            )
            terminal.run("export", "moved.ndjson")  # a Paceline runs on it
            daemons.forget_daemon(there, "d1")
        for part in (_users, _monitors, _batches, _jobs, _upkeep):
            part(terminal, stage)
    return terminal


def _users(at: Terminal, stage: AtlasWorld) -> None:
    del stage
    at.run("user", "add", "carol", "--daily-credits", "300")
    at.run("user", "add", "carol")
    at.run("user", "list")
    at.run("user", "limit", "carol", "1000")
    at.run("user", "disable", "carol")
    at.run("user", "enable", "carol")
    at.run("user", "budget", "carol")
    at.run("user", "webhook-secret", "carol")
    made = at.run("token", "new", "carol", "--label", "second").document
    at.run("token", "list", "carol")
    at.run("token", "revoke", made["id"], "--user", "carol")
    at.run("user", "add", "dave")
    at.run("user", "rm", "dave")


def _monitors(at: Terminal, stage: AtlasWorld) -> None:
    del stage
    mine = ("--user", "carol")
    at.run("monitor", "set", "site", "--url", "https://example.org/", "--every", "1h", "--initial-delay", "1d", *mine)
    at.run("monitor", "set", "site", "--every", "2h", *mine)
    at.run("monitor", "set", "late", "--tcp", "example.org:25", "--cron", "0 0 1 1 *")
    at.run("monitor", "list", *mine)
    at.run("monitor", "show", "site", *mine)
    at.run("monitor", "show", "none", *mine)
    at.run("monitor", "runs", "out1", "--user", "alice")
    at.run("monitor", "pause", "site", *mine)
    at.run("monitor", "resume", "site", *mine)
    many = [{"id": name, "check": {"kind": "dns", "name": "example.org"}, "cron": "0 0 1 1 *"} for name in ("x", "y")]
    at.run("monitor", "import", "-", *mine, stdin="\n".join(map(json.dumps, many)))
    at.run("monitor", "rm", "y", *mine)
    at.run("monitor", "uptime", "x", *mine)
    at.run("monitor", "next", "x", "--count", "2", *mine)
    at.run("monitor", "export", "monitors.ndjson", *mine)
    declared = {"users": {"carol": {"monitors": {"hand": {"check": {"kind": "outgoing"}, "cron": "0 0 1 1 *"}}}}}
    at.run("apply", "-f", "-", "--dry-run", stdin=json.dumps(declared))
    at.run("apply", "-f", "-", stdin=json.dumps(declared))
    at.run("monitor", "run", "hand", *mine)
    at.run("monitor", "run", "hand", *mine)
    at.run("monitor", "rm", "hand", *mine)
    at.run("channel", "set", "ops", "--url", "http://10.255.255.1/", "--default", *mine)
    at.run("channel", "list", *mine)
    at.run("channel", "test", "ops", *mine)
    at.run("monitor", "silence", "x", "--for", "1h", *mine)
    made = at.run("silence", "add", "web", "--for", "1h", "--reason", "moves", *mine).document
    at.run("silence", "list", *mine)
    at.run("silence", "end", made["id"], *mine)
    at.run("alert", "list", *mine)
    at.run("channel", "rm", "ops", *mine)


def _batches(at: Terminal, stage: AtlasWorld) -> None:
    del stage
    at.run("provider", "set", "mill", "--base-url", "http://127.0.0.1:9", "--rate", "5/1s")
    for verb in ("list", "show mill", "pause mill", "resume mill", "rm mill"):
        at.run("provider", *verb.split())
    at.run("batch", "set", "nightly", "--start", "03:00", "--window", "1h")
    for verb in ("list", "pause nightly", "resume nightly"):
        at.run("batch", *verb.split())
    at.run("batch", "import", "-", "--batch", "nightly", stdin="\n".join(map(json.dumps, RECORDS)))
    at.run("batch", "plan", "nightly", "--date", TOMORROW)
    at.run("batch", "days", "daily")
    at.run("batch", "show", TOMORROW, "--batch", "daily")
    at.run("batch", "show", "2026-01-01", "--batch", "daily")
    at.run("batch", "runs", TOMORROW, "--batch", "daily", "--limit", "2")
    at.run("batch", "export", TOMORROW, "--batch", "daily", "--output", "day.ndjson")
    at.run("batch", "records", "daily", "--limit", "2")
    at.run("batch", "rerun", TOMORROW, "--batch", "daily", "--state", "done")
    at.run("batch", "rm", "none")
    run = f"daily/r0@{TOMORROW}"
    at.run("run", "show", run)
    at.run("run", "show", "alice/out1#9@9")
    at.run("why", "--record", "daily/r1")
    at.run("why", "alice/out1#9@9")
    at.run("ahead", "--hours", "1")
    for verb in ("list", "redrive", "discard"):
        at.run("dead", verb, "--provider", "shop")


def _jobs(at: Terminal, stage: AtlasWorld) -> None:
    at.run("account", "set", "third", "--daily-credits", "700")
    at.run("account", "list")
    secret = stage.simulator.add_account("third")[0]
    made = at.run("key", "add", "third", "--label", "mine", stdin=secret).document["id"]
    for verb in ("disable", "enable"):
        at.run("key", verb, "third", made)
    at.run("key", "list", "third")
    at.run("key", "rm", "third", made)
    at.run("job", "submit", "-", "--user", "carol", stdin=json.dumps(job(100)))
    sent, cancelled = _submit(at, "a"), _submit(at, "b")
    while (item := stage.send()).job != sent:
        stage.done(item)
    at.run("job", "results", cancelled)
    stage.done(item)
    at.run("job", "list", "--user", "carol")
    at.run("job", "show", sent)
    at.run("job", "results", sent)
    at.run("job", "cancel", cancelled)
    at.run("job", "cancel", sent)


def _submit(at: Terminal, key: str) -> str:
    words = ("job", "submit", "-", "--user", "carol", "--idempotency-key", key)
    name = at.mask(run_command(*words, "--json", stdin=json.dumps(job())).document["job"])
    at.run(*words, stdin=json.dumps(job()))
    return name


def _upkeep(at: Terminal, stage: AtlasWorld) -> None:
    del stage
    for command in ("status", "check", "migrate", "purge"):
        at.run(command)
    at.run("export", "moved.ndjson")  # something is under way
    at.run("export", "moved.ndjson", "--live")
    at.run("import", "moved.ndjson")  # a Paceline runs on it
    at.run("import", "moved.ndjson", "--live")
    at.run("import", "-", stdin="{}\n")
