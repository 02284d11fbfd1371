"""A real worker process, killed with SIGKILL again and again in the middle of its work."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from tests.shells.api.conftest import Client, World, run_path
from tests.shells.api.test_scopes import scoped
from tests.shells.api.test_workers import fill_shop

RUNS, KILLS = 40, 4
PROGRAM = """
import json, sys, time, urllib.error, urllib.parse, urllib.request
url, token, log = sys.argv[1:]

def post(path, body):
    headers = {"Authorization": "Bearer " + token, "Content-Type": "application/json"}
    request = urllib.request.Request(url + path, json.dumps(body).encode(), headers)
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)

def note(*words):
    with open(log, "a") as file:
        file.write(" ".join(map(str, words)) + "\\n")

while True:
    for item in post("/v1/outgoing/claim", {"provider": "shop", "max": 5, "lease": "1s", "wait": "5s"})["items"]:
        note("began", item["run"], item["attempt"])
        time.sleep(0.02)
        run = urllib.parse.quote(item["run"], safe="")
        try:
            post(f"/v1/runs/{run}/outcome", {"lease": item["lease"], "status": "ok"})
            note("told", item["run"], item["attempt"])
        except urllib.error.HTTPError as error:
            note("refused", item["run"], error.code)
"""


def lines_of(log: Path, word: str) -> list[list[str]]:
    text = log.read_text() if log.exists() else ""
    return [line.split() for line in text.splitlines() if line.startswith(word)]


def wait_for(log: Path, word: str, count: int) -> None:
    until_s = time.monotonic() + 60
    while len(lines_of(log, word)) < count:
        assert time.monotonic() < until_s, log.read_text()
        time.sleep(0.005)


def test_promise_10_killed_workers_lose_no_run_and_none_is_settled_twice_or_out_of_order(
    world: World, admin: Client, tmp_path: Path
) -> None:
    runs = fill_shop(world, admin, RUNS, retry={"max_attempts": 100, "base": "1ms", "cap": "1ms"})
    token = scoped(admin, "worker:shop").token
    program, log, chance = tmp_path / "worker.py", tmp_path / "log", random.Random(11)
    program.write_text(PROGRAM)
    command = [sys.executable, str(program), f"http://127.0.0.1:{world.port}", str(token), str(log)]
    for kill in range(KILLS + 1):
        worker = subprocess.Popen(command)
        try:
            last = kill == KILLS
            wait_for(log, "told", RUNS - KILLS if last else len(lines_of(log, "told")) + 2)
            while last and any(admin("GET", run_path(run)).json["state"] != "done" for run in runs):
                time.sleep(0.05)
            time.sleep(chance.uniform(0, 0.03))
        finally:
            worker.kill()
            worker.wait()
    shown = [admin("GET", run_path(run)).json for run in runs]
    assert {run["state"] for run in shown} == {"done"}
    told = Counter(run for _, run, _ in lines_of(log, "told"))
    assert max(told.values()) == 1
    first = list(dict.fromkeys(run for _, run, _ in lines_of(log, "began")))
    assert first == runs
    again = {(run, attempt) for _, run, attempt in lines_of(log, "began")}
    assert len(again) == len(lines_of(log, "began"))  # no attempt was handed out twice
