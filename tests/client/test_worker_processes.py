"""Workers as processes beside a real daemon: killed, and stopped in the middle of their work."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from paceline_client import ClaimedRecord, Client, Retry, Worker
from tests.shells.support.daemons import free_port, new_user, start_daemon
from tests.shells.support.job_daemons import stop, wait_for

ROOT = Path(__file__).parents[2]
MONITORS, KILLS, CONCURRENCY = 8, 6, 3
ENDED = ("ok", "failed", "dead", "unknown")


@pytest.fixture
def ann(tmp_path: Path) -> Iterator[Client]:
    """A user of a real daemon."""
    token, port = new_user(tmp_path, "ann"), free_port()
    daemon = start_daemon(tmp_path, port)
    try:
        with Client(f"http://127.0.0.1:{port}", token) as client:
            yield client
    finally:
        stop(daemon)


@pytest.fixture
def root(ann: Client, tmp_path: Path) -> Iterator[Client]:
    """An admin of the same daemon."""
    with Client(ann.connection.url, new_user(tmp_path, "root", role="admin")) as client:
        yield client


def start_worker(client: Client, diary: Path, seconds: float, *words: str) -> subprocess.Popen[str]:
    """Returns when it is about to claim."""
    environment = os.environ | {"PACELINE_URL": client.connection.url, "PACELINE_TOKEN": client.connection.token}
    command = [sys.executable, "-m", "tests.client.support.checker_program", str(diary), str(seconds), *words]
    worker = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)
    assert worker.stdout is not None
    assert worker.stdout.readline() == "ready\n"
    return worker


def end(worker: subprocess.Popen[str], how: signal.Signals) -> int:
    worker.send_signal(how)
    code = worker.wait(60)
    assert worker.stdout is not None
    worker.stdout.close()
    return code


def notes(diary: Path) -> list[list[str]]:
    return [line.split() for line in diary.read_text().splitlines()] if diary.exists() else []


@pytest.mark.slow
def test_promise_10_workers_killed_with_kill_minus_nine_lose_no_run_and_repeat_only_unfinished_runs(
    ann: Client, tmp_path: Path
) -> None:
    diary, chance = tmp_path / "diary", random.Random(7)
    for number in range(MONITORS):
        ann.monitors.put(f"m{number}", check={"kind": "outgoing"}, every="1s", overlap="queue")
    workers = [start_worker(ann, diary, 0.2) for _ in range(2)]
    for _ in range(KILLS):
        time.sleep(0.5 + chance.random())
        assert end(workers.pop(0), signal.SIGKILL) == -signal.SIGKILL
        workers.append(start_worker(ann, diary, 0.2))
    for number in range(MONITORS):
        ann.monitors.pause(f"m{number}")
    runs = [f"m{number}" for number in range(MONITORS)]
    wait_for(lambda: all(one.state in ENDED for name in runs for one in ann.monitors.runs(name)), lambda: notes(diary))
    assert [end(worker, signal.SIGTERM) for worker in workers] == [0, 0]

    ended = {one.run: one for name in runs for one in ann.monitors.runs(name)}
    assert len(ended) >= MONITORS * 3
    assert {one.state for one in ended.values()} == {"ok"}, "no run is lost, and none is reported as failed"
    begun = Counter(run for word, run, *_ in notes(diary) if word == "begin")
    assert set(begun) == set(ended)
    assert {run: one.attempt for run, one in ended.items() if begun[run] > one.attempt} == {}, "each under a lease"
    repeated = sum(begun.values()) - len(begun)
    assert repeated <= KILLS * CONCURRENCY, "only runs in progress when their process was killed"


@pytest.mark.slow
def test_promise_10_workers_of_a_batch_killed_with_kill_minus_nine_lose_no_record_and_keep_the_order(
    root: Client, tmp_path: Path
) -> None:
    """One place, records in order, and a worker that is killed in the middle of some of them."""
    diary, date = tmp_path / "diary", (datetime.now(UTC) - timedelta(days=1)).date()
    root.providers.put("shop", kind="outgoing", max_in_flight=1, retry={"base": "100ms", "cap": "1s"})
    root.batches.put("nightly", window="4s", missed="all")
    root.records.put("nightly", [{"id": f"r{number:02}", "provider": "shop", "body": number} for number in range(12)])
    assert root.days.plan("nightly", date).enqueued == 12
    worker = start_worker(root, diary, 0.1, "--batch")
    for _ in range(2):
        seen = len(notes(diary))
        wait_for(lambda seen=seen: len(notes(diary)) > seen + 3, lambda: notes(diary))  # type: ignore[misc]
        assert end(worker, signal.SIGKILL) == -signal.SIGKILL
        worker = start_worker(root, diary, 0.1, "--batch")
    wait_for(lambda: root.days.get("nightly", date).totals.get("done") == 12, lambda: notes(diary))
    assert end(worker, signal.SIGTERM) == 0
    runs = root.days.runs("nightly", date).to_list()
    assert {one.state for one in runs} == {"done"}
    due = [one.run for one in sorted(runs, key=lambda one: one.due)]
    begun = [run for word, run, *_ in notes(diary) if word == "begin"]
    assert list(dict.fromkeys(begun)) == due, "in order, a repeated one in its old place"
    assert len(begun) - len(due) <= 2, "only runs in progress when their process was killed"
    assert root.dead.list().to_list() == []


@pytest.mark.slow
def test_worker_retries_and_fails_records_as_its_function_says(root: Client) -> None:
    date = (datetime.now(UTC) - timedelta(days=1)).date()
    root.providers.put("shop", kind="outgoing", max_in_flight=1, retry={"base": "1ms", "cap": "1ms"})
    root.batches.put("nightly", window="4s", missed="all")
    root.records.put("nightly", [{"id": name, "provider": "shop"} for name in ("good", "hard", "bad")])
    root.days.plan("nightly", date)
    worker, began_s = Worker(root), dict[str, list[float]]()

    @worker.batch("shop")
    def order(record: ClaimedRecord) -> dict[str, int]:
        began_s.setdefault(record.id, []).append(time.monotonic())
        if sum(len(times) for times in began_s.values()) == 4:
            worker.stop()
        if record.id == "hard" and record.attempt == 1:
            raise Retry("not yet", after="1s")
        if record.id == "bad":
            raise ValueError("no such order")
        return {"length": len(record.id)}

    worker.run()
    ended = {one.record: one for one in root.days.runs("nightly", date)}
    assert {name: one.state for name, one in ended.items()} == {"good": "done", "hard": "done", "bad": "failed"}
    assert (ended["hard"].attempt, ended["bad"].reason) == (2, "ValueError: no such order")
    assert began_s["hard"][1] - began_s["hard"][0] >= 1.0
    assert ended["good"].payload is not None
    assert '"length":4' in ended["good"].payload
    assert [one.record for one in root.dead.list(provider="shop")] == ["bad"]


@pytest.mark.slow
def test_sigterm_lets_the_open_run_finish_and_repeats_nothing(ann: Client, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    ann.monitors.put("slow", check={"kind": "outgoing"}, every="1h")
    worker = start_worker(ann, diary, 3.0)
    wait_for(lambda: len(notes(diary)) == 1, lambda: notes(diary))
    assert end(worker, signal.SIGTERM) == 0
    (run,) = ann.monitors.runs("slow")
    assert (run.state, run.attempt, run.detail["pid"]) == ("ok", 1, worker.pid)
    assert [word for word, *_ in notes(diary)] == ["begin", "end"]
    assert run.ended_at is not None
    assert run.started_at is not None
    assert (run.ended_at - run.started_at).total_seconds() >= 3.0, "its lease of two seconds was extended"


@pytest.mark.slow
def test_frozen_worker_drops_its_result_when_another_has_the_run(ann: Client, tmp_path: Path) -> None:
    diary = tmp_path / "diary"
    ann.monitors.put("slow", check={"kind": "outgoing"}, every="1h")
    frozen = start_worker(ann, diary, 0.5)
    wait_for(lambda: len(notes(diary)) == 1, lambda: notes(diary))
    frozen.send_signal(signal.SIGSTOP)
    other = start_worker(ann, diary, 0.5)
    wait_for(lambda: [one.state for one in ann.monitors.runs("slow")] == ["ok"], lambda: notes(diary))
    frozen.send_signal(signal.SIGCONT)
    assert frozen.stdout is not None
    line = ""
    while "result_dropped" not in line:
        line = frozen.stdout.readline()
        assert line, "it ended without output"
    assert [end(worker, signal.SIGTERM) for worker in (frozen, other)] == [0, 0]
    (run,) = ann.monitors.runs("slow")
    assert run.attempt >= 2, "the claim of the frozen worker may have taken it once more"
    assert run.detail["pid"] == other.pid
