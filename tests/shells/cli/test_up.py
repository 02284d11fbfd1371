"""``paceline up``, ``worker`` and ``simulator``, and the commands beside them."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import time
import urllib.request
from typing import Any

import pytest

from tests.shells.cli.support.program import Program, eventually, free_port
from tests.shells.support.daemons import wait_until_it_minds_signals


def get(url: str, token: str | None = None) -> Any:
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310  # loopback
    with urllib.request.urlopen(request, timeout=10) as answer:  # noqa: S310
        return json.load(answer)


def test_demo_monitors_fire_and_all_views_show_their_runs(program: Program) -> None:
    port = str(free_port())
    with program.running("up", "--demo", "--port", port) as up:
        url, token = up.said["url"], up.said["token"]
        # Measurements run for seconds only: asked first, and over HTTP, where an answer takes milliseconds.
        assert eventually(lambda: get(f"{url}/v1/jobs/{up.said['job']}", token)["counts"]["ongoing"])
        monitors = {item["id"]: item for item in program.json("monitor", "list")["items"]}
        assert monitors.keys() == {"web", "flapping", "slow", "broken", "port", "each-minute", "by-hand"}

        def settled() -> Any:
            shown = {item["id"]: item["health"] for item in get(f"{url}/v1/users/me/monitors", token)["items"]}
            return shown if all(shown[name] == "ok" for name in ("web", "port", "slow")) else None

        assert eventually(settled, within_s=60)["broken"] == "failing"
        assert eventually(lambda: program.json("batch", "show")["totals"].get("done"), within_s=60)
        shown = program.json("monitor", "show", "web")
        assert shown["runs"][0]["outcome"] == "ok"
        assert program.json("run", "show", shown["runs"][0]["run"])["monitor"] == "web"
        assert program.json("status", port=port)["daemon"] == {"url": url, "answering": True}
        with urllib.request.urlopen(f"{url}/metrics", timeout=10) as answer:  # noqa: S310  # loopback
            assert 'paceline_runs_total{kind="http",outcome="ok"}' in answer.read().decode()
        job = eventually(lambda: ended(program, up.said["job"]), within_s=60)
        assert (job["success"], job["counts"]["done"]) == (True, 12)
        kinds = {kind for one in job["measurements"] for kind in one["types"]}
        assert kinds == {"ping", "traceroute", "dns", "sslcert", "ntp", "http"}
        assert {one["account"] for one in job["measurements"]} == {"demo-1", "demo-2"}
        log = program.folder / up.said["log"]
        assert '"event": "job_finished"' in eventually(lambda: "job_finished" in log.read_text() and log.read_text())
        assert token not in log.read_text()
        assert log.stat().st_mode & 0o777 == 0o600
        assert (program.folder / "daemon.log").read_text() == "", "the terminal stays readable"
    # Opened without the simulator, this store does not try the simulator's keys at RIPE.
    assert {key["state"] for key in program.json("key", "list")["items"]} == {"disabled"}
    assert program.ok("check") == "OK\n"


def ended(program: Program, job: str) -> Any:
    shown = program.json("job", "show", job)
    return shown if shown["finished"] else None


def test_next_demo_ends_measurements_that_a_killed_demo_left_running(program: Program) -> None:
    process = program.begin("up", "--demo", "--port", "0", "--json")
    try:
        assert process.stdout is not None
        said = json.loads(process.stdout.readline())
        first = said["job"]
        eventually(lambda: get(f"{said['url']}/v1/jobs/{first}", said["token"])["counts"]["ongoing"])
    finally:
        process.kill()
        process.communicate(timeout=30)
    with program.running("up", "--demo", "--port", "0") as up:
        assert up.said["job"] != first
        left = eventually(lambda: ended(program, first))
        assert not left["success"]
        reasons = {one["reason"] for one in left["measurements"] if one["state"] == "failed"}
        assert reasons == {"the simulator that it ran on was stopped"}
        job = eventually(lambda: ended(program, up.said["job"]))
        assert job["success"]
    assert program.ok("check") == "OK\n"


def test_second_demo_reuses_the_demo_store_with_a_new_token(program: Program) -> None:
    with program.running("up", "--demo", "--port", "0") as up:
        first = up.said
        taken = program.run("up", "--demo", "--port", first["url"].rpartition(":")[2])
        assert taken.code == 2
        assert "--port" in taken.err
        # The start that failed has not touched what runs.
        before = get(f"{first['url']}/v1/users/me/monitors/web", first["token"])
        assert before["check"]["url"].startswith(first["model"])
    with program.running("up", "--demo", "--port", "0") as up:
        assert up.said["token"] != first["token"]
        assert len(program.json("monitor", "list")["items"]) == 7
        assert len(program.json("token", "list")["items"]) == 1
        web = get(f"{up.said['url']}/v1/users/me/monitors/web", up.said["token"])
        assert web["check"]["url"] == f"{up.said['model']}/ok"
        assert web["schedule"]["generation"] == before["schedule"]["generation"]


@pytest.mark.parametrize("how", ["default", "environment", "flag"])
def test_demo_never_changes_an_existing_store(program: Program, how: str) -> None:
    name = "paceline" if how == "default" else "real"
    url = f"sqlite:///{name}.db"
    settings = {"store": url} if how == "environment" else {}
    flag = ["--store", url] if how == "flag" else []
    program.ok("user", "add", "alice", store=url)
    with program.running("up", "--demo", "--port", "0", *flag, **settings) as up:
        assert up.said["store"] == f"sqlite:///{name}-demo.db"
        assert [user["id"] for user in program.json("user", "list", store=url)["items"]] == ["alice"]
        assert [user["id"] for user in program.json("user", "list", store=up.said["store"])["items"]] == ["demo"]
        assert program.json("monitor", "list", store=url)["items"] == []
        assert program.json("status", store=url)["daemons"] == []
    with program.running("up", "--demo", "--port", "0", store=up.said["store"]) as again:
        assert again.said["store"] == up.said["store"]


def test_commands_use_the_demo_store_if_there_is_no_other_and_say_so(program: Program) -> None:
    with program.running("up", "--demo", "--port", "0"):
        ended = program.run("monitor", "list", "--json")
        assert (ended.code, len(ended.document["items"])) == (0, 7)
        assert "Using the store of the demo (sqlite:///paceline-demo.db)" in ended.err
        named = program.run("monitor", "list", "--store", "sqlite:///paceline.db")
        assert named.code == 3
        assert "There is one at sqlite:///paceline-demo.db" in named.err
        assert program.ok("provider", "set", "mine", "--base-url", "http://127.0.0.1:9")
        program.ok("user", "add", "alice")
        assert [user["id"] for user in program.json("user", "list")["items"]] == ["alice"]


def test_commands_that_the_demo_suggests_work(program: Program) -> None:
    with program.running("simulator", "http", "--port", "0") as model:
        assert get_text(f"{model.said['url']}/ok") == "ok\n"
    process = program.begin("up", "--demo", "--port", "0")
    try:
        assert process.stdout is not None
        told = []
        while (line := process.stdout.readline()) and " job results" not in line:
            told.append(line)
        told.append(line)
        commands = "".join(line.removeprefix("     ") for line in told if line.startswith("     "))
        tried = subprocess.run(
            ["bash", "-ec", commands], cwd=program.folder, env=program.env, capture_output=True, text=True, check=False
        )
        assert tried.returncode == 0, tried
        assert "by-hand" in tried.stdout
        assert "mine" in tried.stdout
        assert "Is the coffee machine full?" in tried.stdout
        assert "steady" in tried.stdout, "the batch's day tells of its providers"
        assert "demo-2" in tried.stdout, "the accounts are listed"
        assert '"msm_name":"Ping"' in tried.stdout, "the results of the demo's own job"
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 0


def get_text(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310  # loopback
        text: str = answer.read().decode()
        return text


def test_a_command_beside_a_running_daemon_takes_effect_at_once(program: Program) -> None:
    token = program.json("user", "add", "alice", "--role", "admin")["token"]
    with (
        program.running("simulator", "http", "--port", "0") as model,
        program.running("up", "--port", "0", outbound_allow="127.0.0.0/8") as up,
    ):
        program.ok("monitor", "set", "web", "--url", f"{model.said['url']}/ok", "--every", "1s", "--contains", "ok")
        url = f"{up.said['url']}/v1/users/me/monitors/web"
        eventually(lambda: get(url, token)["health"] == "ok")
        program.ok("monitor", "set", "web", "--contains", "something else")
        eventually(lambda: get(url, token)["health"] == "failing")
        paused = program.json("monitor", "pause", "web")["schedule"]["counter"]
        assert get(url, token)["schedule"]["counter"] == paused
        program.ok("monitor", "rm", "web")
        assert get(f"{up.said['url']}/v1/users/me/monitors", token)["items"] == []
        assert program.ok("check") == "OK\n"


def test_a_worker_fires_without_an_api(program: Program) -> None:
    program.ok("user", "add", "alice")
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        program.running("worker", outbound_allow="127.0.0.0/8") as worker,
    ):
        assert worker.said["url"] is None
        port = server.getsockname()[1]
        program.ok("monitor", "set", "port", "--tcp", f"127.0.0.1:{port}", "--every", "1s")
        eventually(lambda: program.json("monitor", "show", "port")["health"] == "ok")


def test_concurrent_commands_wait_for_each_other(program: Program) -> None:
    program.ok("user", "add", "alice")
    words = ["--url", "https://example.org/", "--every", "1h"]
    started = [program.begin("monitor", "set", f"m{number}", *words) for number in range(6)]
    ended = [process.communicate(timeout=60) for process in started]
    assert [process.returncode for process in started] == [0] * 6, ended
    assert len(program.json("monitor", "list")["items"]) == 6
    assert program.ok("check") == "OK\n"


def test_two_first_starts_at_once_agree_on_store_and_key(program: Program) -> None:
    started = [program.begin("user", "add", f"u{number}", "--json") for number in range(3)]
    tokens = [json.loads(process.communicate(timeout=60)[0])["token"] for process in started]
    with program.running("up", "--port", "0") as up:
        for number, token in enumerate(tokens):
            assert get(f"{up.said['url']}/v1/users/me", token)["id"] == f"u{number}"
    assert sorted(file.name for file in program.folder.iterdir() if "key" in file.name) == ["paceline.key"]


def test_a_start_without_users_says_what_to_do_next(program: Program) -> None:
    process = program.begin("up", "--port", "0")
    try:
        assert process.stdout is not None
        first, second = process.stdout.readline(), process.stdout.readline()
        assert first.startswith("Paceline is up: http://127.0.0.1:")
        assert "user add NAME --role admin" in second
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_plain_start_logs_to_stderr_and_to_no_file(program: Program) -> None:
    program.ok("user", "add", "alice")
    with program.running("up", "--port", "0"):
        eventually(lambda: '"event": "serving"' in (program.folder / "daemon.log").read_text())
    assert list(program.folder.glob("paceline*.log")) == []


def test_a_port_that_is_taken_is_named(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        for words in (["up", "--port", port], ["simulator", "http", "--port", port]):
            ended = program.run(*words)
            assert ended.code == 2
            assert "--port" in ended.err
            assert ended.err.count("\n") == 1


@pytest.mark.parametrize(
    "words", [("up", "--port", "0"), ("worker",), ("simulator", "http", "--port", "0")], ids=" ".join
)
def test_a_signal_at_any_moment_of_the_start_ends_it_cleanly(program: Program, words: tuple[str, ...]) -> None:
    program.ok("user", "add", "alice")
    for number, wait_s in ((signal.SIGTERM, 0.0), (signal.SIGINT, 0.05), (signal.SIGTERM, 0.2), (signal.SIGTERM, 0.6)):
        process = program.begin(*words)
        wait_until_it_minds_signals(process)
        time.sleep(wait_s)
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, (wait_s, out, err)
        assert "Traceback" not in err
    assert program.json("status")["daemons"] == []
    assert program.ok("check") == "OK\n"
