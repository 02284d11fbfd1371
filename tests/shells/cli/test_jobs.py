"""``paceline job``: from the price to the results, against a RIPE Atlas that is simulated."""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from paceline.config import load_settings
from paceline.core.jobs.values import AccountSpec
from paceline.simulators.ripe_atlas import AtlasSimulator, SimulatorClock
from paceline.steps import access
from paceline.steps.jobs import accounts
from paceline.steps.jobs.dispatch import DispatchSettings, dispatch_next
from paceline.steps.jobs.follow import Watch, finish, follow
from paceline.wiring import open_atlas, open_system
from tests.shells.cli.support.program import TIMEOUT_S, Program, free_port

MINUTE_MS = 60_000
HOUR_MS = 3_600_000


def job(*targets: str, requested: int = 10, **more: Any) -> str:
    """A one-off ping to each target: six credits a probe."""
    measurements = [
        {
            "definitions": [{"type": "ping", "af": 4, "target": target, "description": "d"}],
            "probes": [{"requested": requested, "type": "area", "value": "WW"}],
            "is_oneoff": True,
        }
        for target in targets
    ]
    return json.dumps({"title": "a job", "measurements": measurements} | more)


class Hands:
    """What a daemon would do, when the test says so: the real steps on the same file and the same simulator."""

    def __init__(self, program: Program, ripe: AtlasSimulator) -> None:
        store = f"sqlite:///{program.folder}/paceline.db"
        self.system = open_system(load_settings(store=store, atlas_url=ripe.base_url))
        self.ripe = ripe
        self._watch = Watch()
        self._desk = DispatchSettings("site1", b"secret", 1, MINUTE_MS)

    def send(self) -> list[str]:
        """Until there is nothing to send now."""
        outcomes: list[str] = []
        with closing(open_atlas(self.system.settings)) as atlas:
            while True:
                done = dispatch_next(
                    self.system.store,
                    atlas,
                    self.system.vault,
                    self._desk,
                    clock=self.system.clock,
                    chance=lambda: 0.5,
                )
                outcomes.append(done.outcome)
                if done.outcome == "idle":
                    return outcomes

    def end(self) -> None:
        """Lets RIPE's hour pass, then reads and settles the results of sent measurements."""
        self.ripe.clock.advance(HOUR_MS)
        with closing(open_atlas(self.system.settings)) as atlas:
            follow(self.system.store, atlas, self.system.vault, self._watch, clock=self.system.clock)
        finish(self.system.store, now_ms=self.system.clock.now_ms())


@pytest.fixture
def ripe() -> Iterator[AtlasSimulator]:
    with AtlasSimulator(clock=SimulatorClock(speed=0)) as simulator:
        yield simulator


@pytest.fixture
def lab(tmp_path: Path, ripe: AtlasSimulator) -> Program:
    """One user with a thousand credits a day, and one account with a key. Nobody listens at its port."""
    system = open_system(load_settings(store=f"sqlite:///{tmp_path}/paceline.db"))
    store, now_ms = system.store, system.clock.now_ms()
    access.add_user(
        store,
        "ann",
        role="user",
        daily_credits=1_000,
        token_bytes=bytes(access.TOKEN_BYTES),
        secret_key=system.secret_key,
        now_ms=now_ms,
    )
    accounts.put_account_spec(store, "pool", AccountSpec())
    accounts.add_key(store, system.vault, "pool", ripe.add_account("pool")[0], now_ms=now_ms)
    store.close()
    return Program(tmp_path, atlas_url=ripe.base_url, port=str(free_port()))


@pytest.fixture
def hands(lab: Program, ripe: AtlasSimulator) -> Iterator[Hands]:
    driver = Hands(lab, ripe)
    yield driver
    driver.system.store.close()


def submitted(program: Program, *targets: str) -> str:
    return str(json.loads(program.ok("job", "submit", "-", "--json", stdin=job(*targets)))["job"])


def line_where(process: subprocess.Popen[str], fits: Callable[[Any], bool]) -> Any:
    """The first JSON line that fits; the process is killed if there is none in time."""
    assert process.stdout is not None
    watchdog = threading.Timer(TIMEOUT_S, process.kill)
    watchdog.start()
    try:
        for line in process.stdout:
            if fits(document := json.loads(line)):
                return document
    finally:
        watchdog.cancel()
    raise AssertionError("it ended without such a line")


def test_a_dry_run_prices_each_type_and_changes_nothing(lab: Program) -> None:
    document = json.loads(job("192.0.2.1", "192.0.2.2"))
    trace = {"type": "traceroute", "af": 4, "target": "192.0.2.1", "description": "d", "protocol": "ICMP"}
    document["measurements"][0]["definitions"].append(trace)
    (lab.folder / "job.json").write_text(json.dumps(document))
    quote = lab.json("job", "submit", "job.json", "--dry-run")
    assert quote["types"] == [
        {"type": "traceroute", "definitions": 1, "results": 10, "credits": 600},
        {"type": "ping", "definitions": 2, "results": 20, "credits": 120},
    ]
    assert (quote["cost"], quote["credits_left"], quote["fits"], quote["measurements"]) == (720, 1_000, True, 2)
    told = lab.ok("job", "submit", "job.json", "--dry-run")
    assert "720 credits at most" in told
    assert "yes, 280 would be left" in told
    assert lab.json("job", "list")["items"] == []
    lab.ok("user", "limit", "ann", "719")
    over = lab.run("job", "submit", "job.json", "--dry-run")
    assert (over.code, "no, 1 too many" in over.out) == (0, True)


def test_a_job_is_submitted_listed_shown_and_counted(lab: Program) -> None:
    done = json.loads(lab.ok("job", "submit", "-", "--json", stdin=job("192.0.2.1", "192.0.2.2")))
    assert {name: done[name] for name in ("cost", "credits_left", "measurements")} == {
        "cost": 120,
        "credits_left": 880,
        "measurements": 2,
    }
    listed = lab.json("job", "list", "--user", "ann")["items"]
    assert [(one["job"], one["state"], one["title"]) for one in listed] == [(done["job"], "queued", "a job")]
    assert "2: 2 queued   120 reserved, 0 settled, 0 refunded" in lab.ok("job", "list")
    shown = lab.json("job", "show", done["job"])
    assert [(one["index"], one["state"], one["targets"]) for one in shown["measurements"]] == [
        (0, "queued", ["192.0.2.1"]),
        (1, "queued", ["192.0.2.2"]),
    ]
    assert "120 reserved, 0 settled, 0 refunded" in lab.ok("job", "show", done["job"])
    status = lab.json("status")
    assert (status["jobs_open"], status["measurements"]["queued"]) == (1, 2)
    run = lab.json("run", "show", f"{done['job']}/1")
    assert (run["run"], run["user"], run["targets"], run["cost"]) == (f"{done['job']}/1", "ann", ["192.0.2.2"], 60)
    assert lab.run("run", "show", f"{done['job']}/2").code == 3
    assert lab.ok("check") == "OK\n"


def test_job_over_the_daily_credits_is_refused_with_the_figures(lab: Program) -> None:
    lab.ok("user", "limit", "ann", "100")
    submitted(lab, "192.0.2.1")
    over = lab.run("job", "submit", "-", "--json", stdin=job("192.0.2.1"))
    assert (over.code, over.out) == (4, "")
    assert {name: over.problem[name] for name in ("code", "cost", "credits_left")} == {
        "code": "over_daily_credits",
        "cost": 60,
        "credits_left": 40,
    }
    assert over.problem["resets_at"].endswith("T00:00:00.000Z")
    told = lab.run("job", "submit", "-", stdin=job("192.0.2.1"))
    assert (told.code, told.err.splitlines()[1:]) == (4, ["  Why, also later: paceline why ann/refused#2"])
    assert over.problem["refusal"] == "ann/refused#1"
    assert "was refused whole" in lab.ok("why", "ann/refused#1")
    assert "60 credits and 40 of 100 are left" in told.err
    assert over.problem["resets_at"] in told.err
    assert len(lab.json("job", "list")["items"]) == 1


def test_errors_in_a_job_are_named_by_json_pointer(lab: Program) -> None:
    document = json.loads(job("192.0.2.1", "192.0.2.2"))
    document["measurements"][1]["definitions"][0]["type"] = "wifi"
    document["measurements"][0]["probes"][0]["requested"] = 0
    ended = lab.run("job", "submit", "-", "--json", stdin=json.dumps(document))
    assert (ended.code, ended.out) == (2, "")
    assert {error["pointer"] for error in ended.problem["errors"]} == {
        "/measurements/0/probes/0/requested",
        "/measurements/1/definitions/0/type",
    }
    assert lab.run("job", "submit", "-", stdin="{").code == 2
    assert lab.run("job", "submit", "no-such-file").code == 2
    assert lab.run("job", "submit", "-", stdin=" " * 2_000 + job("192.0.2.1"), body_bytes_max="1024").code == 2
    for words in (["show"], ["show", "--watch"], ["cancel"], ["results"]):
        missing = lab.run("job", words[0], "nope", *words[1:])
        assert (missing.code, "no job 'nope'" in missing.err) == (3, True)


def test_job_submit_requires_a_user_if_there_are_several(lab: Program) -> None:
    lab.ok("user", "add", "bob")
    several = lab.run("job", "submit", "-", stdin=job("192.0.2.1"))
    assert (several.code, "--user" in several.err) == (2, True)
    lab.ok("job", "submit", "-", "--user", "bob", stdin=job("192.0.2.1"))
    lab.ok("job", "submit", "-", stdin=job("192.0.2.1"), user="ann")
    assert [one["user"] for one in lab.json("job", "list")["items"]] == ["ann", "bob"]
    assert [one["user"] for one in lab.json("job", "list", "--user", "bob")["items"]] == ["bob"]
    assert [one["user"] for one in lab.json("job", "list", user="ann")["items"]] == ["ann"]
    first = lab.json("job", "list", "--limit", "1")
    rest = lab.json("job", "list", "--cursor", first["next_cursor"])
    assert [one["user"] for one in [*first["items"], *rest["items"]]] == ["ann", "bob"]
    assert lab.run("job", "submit", "-", "--user", "eve", stdin=job("192.0.2.1")).code == 3
    assert lab.run("job", "list", "--user", "eve").code == 3


def test_job_submitted_twice_under_one_idempotency_key_is_one_job(lab: Program) -> None:
    words = ("job", "submit", "-", "--idempotency-key", "monday", "--json")
    first = json.loads(lab.ok(*words, stdin=job("192.0.2.1")))
    second = json.loads(lab.ok(*words, stdin=job("192.0.2.1")))
    assert (first["again"], second["again"], second["job"]) == (False, True, first["job"])
    assert second["credits_left"] == first["credits_left"]
    other = lab.run(*words, stdin=job("192.0.2.9"))
    assert (other.code, other.problem["code"]) == (1, "already_exists")


def test_a_cancelled_job_gives_its_credits_back_and_has_nothing_left_to_cancel(lab: Program) -> None:
    name = submitted(lab, "192.0.2.1", "192.0.2.2")
    assert lab.ok("job", "cancel", name) == f"{name}: 2 measurements cancelled, 120 credits refunded.\n"
    shown = lab.json("job", "show", name)
    assert (shown["counts"]["cancelled"], shown["cost"]["refunded"], shown["success"]) == (2, 120, False)
    again = lab.run("job", "cancel", name, "--json")
    assert (again.code, again.problem["code"]) == (1, "job_finished")


def test_watch_prints_each_change_and_exits_with_0_after_success(lab: Program, hands: Hands) -> None:
    name = submitted(lab, "192.0.2.1", "192.0.2.2")
    process = lab.begin("job", "show", name, "--watch", "--json")
    first = line_where(process, lambda _: True)
    assert (first["state"], first["counts"]["queued"], first["cost"]["reserved"]) == ("queued", 2, 120)
    assert "measurements" not in first
    assert hands.send() == ["sent", "sent", "idle"]
    ongoing = line_where(process, lambda seen: seen["counts"]["ongoing"] == 2)
    assert ongoing["state"] == "running"
    hands.end()
    last = line_where(process, lambda seen: seen["finished"])
    assert (last["success"], last["counts"]["done"]) == (True, 2)
    assert last["cost"]["settled"] + last["cost"]["refunded"] == 120
    assert 0 < last["cost"]["settled"] <= 120
    assert (process.wait(TIMEOUT_S), process.communicate()) == (0, ("", ""))
    told = lab.run("job", "show", name, "--watch")
    assert told.code == 0
    assert told.out.splitlines()[0].startswith(
        f"{name} finished: 0 queued, 0 sent, 0 ongoing, 2 done, 0 failed; credits"
    )
    assert told.out.splitlines()[1].startswith(f"{name} finished: all measurements are done.")
    assert lab.ok("check") == "OK\n"


def test_watch_of_a_failed_job_exits_with_1_and_names_the_failures(lab: Program, hands: Hands) -> None:
    name = submitted(lab, "no-such-host.invalid", "192.0.2.1")
    assert "rejected" in hands.send()
    hands.end()
    told = lab.run("job", "show", name, "--watch")
    assert told.code == 1
    assert "finished without success: 1 failed, 0 cancelled" in told.out
    assert f"  {name}/0: " in told.out
    assert "This target cannot be resolved" in told.out


def test_watch_shows_full_accounts_and_the_next_try(lab: Program, hands: Hands) -> None:
    lab.ok("account", "set", "pool", "--concurrent", "1")
    name = submitted(lab, "192.0.2.1", "192.0.2.2")
    assert hands.send() == ["sent", "idle"]
    shown = lab.ok("job", "show", name)
    assert re.search(r"waits +every account is full", shown)
    assert re.search(r"next try +20", shown)
    process = lab.begin("job", "show", name, "--watch")
    assert process.stdout is not None
    line = process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=TIMEOUT_S)
    assert "1 queued, 0 sent, 1 ongoing" in line
    assert "waits: every account is full" in line
    assert "; room expected at 20" in line
    assert f"paceline job show {name} --watch" in err
    assert process.returncode == 1
    assert lab.json("job", "show", name)["state"] == "running"
    meter = lab.json("account", "list")["items"][0]
    assert (meter["state"], meter["usage"]["concurrent"]["held"]) == ("full", 1)


@pytest.mark.slow
def test_watch_without_a_running_daemon_says_how_to_start_one(lab: Program) -> None:
    (lab.folder / "job.json").write_text(job("192.0.2.1"))
    process = lab.begin("job", "submit", "job.json", "--watch")
    assert process.stderr is not None
    watchdog = threading.Timer(TIMEOUT_S, process.kill)
    watchdog.start()
    note = process.stderr.readline()
    watchdog.cancel()
    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=TIMEOUT_S)
    assert "no daemon runs" in note
    assert "paceline up" in note
    assert out.splitlines()[0].endswith("1 measurements, 60 credits reserved, 940 left today.")
    assert "1 queued, 0 sent" in out.splitlines()[1]


def test_watch_draws_bars_on_a_terminal(lab: Program, hands: Hands) -> None:
    name = submitted(lab, "192.0.2.1")
    hands.send()
    hands.end()
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline", "job", "show", name, "--watch"],
        cwd=lab.folder,
        env=lab.env | {"TERM": "xterm", "COLUMNS": "120", "LINES": "40"},
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    seen = _all_of(master)
    assert process.wait(TIMEOUT_S) == 0
    for word in ("queued", "sent", "ongoing", "done", "failed", "reserved", "settled", "refunded", "━"):
        assert word in seen
    assert "all measurements are done" in seen


def _all_of(master: int) -> str:
    """Returns what was written to a terminal until it is closed."""
    seen = b""
    try:
        while piece := os.read(master, 4_096):
            seen += piece
    except OSError:  # how Linux says that the other side is closed
        pass
    finally:
        os.close(master)
    return seen.decode()


@pytest.mark.slow
def test_watched_job_finishes_beside_a_real_worker(lab: Program, ripe: AtlasSimulator) -> None:
    ripe.clock.set_speed(300)
    (lab.folder / "job.json").write_text(job("192.0.2.1", "192.0.2.2", "192.0.2.3"))
    with lab.running("worker", atlas_every="1s"):
        ended = lab.run("job", "submit", "job.json", "--watch", "--json")
    first, *lines = [json.loads(line) for line in ended.out.splitlines()]
    assert (ended.code, first["cost"], lines[-1]["success"]) == (0, 180, True)
    assert all(line["job"] == first["job"] for line in lines)
    assert lines[-1]["counts"]["done"] == 3
    assert len(ripe.audit()["measurements"]) == 3
    assert lab.ok("check") == "OK\n"


def test_check_recounts_credits_from_the_jobs(lab: Program) -> None:
    submitted(lab, "192.0.2.1")
    with closing(sqlite3.connect(lab.folder / "paceline.db")) as db:
        db.execute("UPDATE meter SET held = held + 1 WHERE held > 0")
        db.commit()
    broken = lab.run("check")
    assert (broken.code, "promise 8: the postings do not add up" in broken.out) == (1, True)


def test_budget_shows_credits_held_and_left(lab: Program) -> None:
    submitted(lab, "192.0.2.1")
    budget = lab.json("user", "budget", "ann")
    assert {name: budget[name] for name in ("limit", "spent", "held", "left")} == {
        "limit": 1_000,
        "spent": 0,
        "held": 60,
        "left": 940,
    }
    assert lab.run("user", "budget", "eve").code == 3


def test_purge_deletes_finished_jobs(lab: Program, hands: Hands) -> None:
    name = submitted(lab, "192.0.2.1")
    hands.send()
    hands.end()
    assert lab.json("purge")["measurements_deleted"] == 0
    assert lab.json("purge", "--keep-jobs", "1ms")["measurements_deleted"] == 1
    assert lab.run("job", "show", name).code == 3
    assert lab.ok("check") == "OK\n"


def test_results_are_lines_a_file_or_merged_by_target(lab: Program, hands: Hands) -> None:
    name = submitted(lab, "192.0.2.1", "192.0.2.2", "192.0.2.1")
    unsent = lab.run("job", "results", name)
    assert (unsent.code, unsent.out.count("it is not sent yet")) == (1, 3)
    hands.send()
    hands.end()
    ended = lab.run("job", "results", name)
    lines = [json.loads(line) for line in ended.out.splitlines()]
    assert (ended.code, ended.err) == (0, "")
    assert {line["measurement"] for line in lines} == {0, 1, 2}
    assert {line["result"]["type"] for line in lines} == {"ping"}
    settled = lab.json("job", "show", name)["cost"]["settled"]
    assert settled == 6 * len(lines)
    merged = [json.loads(line) for line in lab.ok("job", "results", name, "--merged").splitlines()]
    assert [one["target"] for one in merged] == ["192.0.2.1", "192.0.2.2"]
    assert sum(len(one["results"]) for one in merged) == len(lines)
    said = lab.json("job", "results", name, "--output", "out.ndjson")
    written = (lab.folder / "out.ndjson").read_bytes()
    assert (said["file"], said["bytes"], said["results"]) == ("out.ndjson", len(written), len(lines))
    assert written.decode() == ended.out
    assert [file.name for file in lab.folder.glob("*.part")] == []


def test_results_that_ripe_does_not_hand_out_are_errors_and_not_left_out(
    lab: Program, hands: Hands, ripe: AtlasSimulator
) -> None:
    name = submitted(lab, "192.0.2.1")
    hands.send()
    hands.end()
    ripe.stop()
    ended = lab.run("job", "results", name)
    assert (ended.code, "1 definitions" in ended.err) == (1, True)
    assert "error" in json.loads(ended.out)


def test_webhook_secret_of_a_user_is_stable_and_unlike_that_of_others(lab: Program) -> None:
    lab.ok("user", "add", "bob")
    anns = lab.ok("user", "webhook-secret", "ann")
    assert lab.json("user", "webhook-secret", "ann") == {"user": "ann", "webhook_secret": anns.strip()}
    assert len(anns.strip()) == 64
    assert lab.ok("user", "webhook-secret", "bob") != anns
    assert lab.run("user", "webhook-secret", "eve").code == 3
