"""Every example, run as it stands beside a real daemon with the RIPE Atlas simulator."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

import pytest

from paceline.simulators.http import ModelHttpServer
from paceline.simulators.ripe_atlas import AtlasSimulator
from paceline_client import Client
from tests.shells.support.daemons import free_port, new_user, start_daemon
from tests.shells.support.job_daemons import QUICK, Stage, stop, wait_for

EXAMPLES = Path(__file__).parents[2] / "examples"
YESTERDAY = (datetime.now(UTC) - timedelta(days=1)).date()


class House(NamedTuple):
    folder: Path
    ann: Client
    root: Client

    def environment(self, client: Client) -> dict[str, str]:
        return os.environ | {"PACELINE_URL": client.connection.url, "PACELINE_TOKEN": client.connection.token}


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    with AtlasSimulator(model=QUICK) as atlas:
        stage, port = Stage(tmp_path, atlas), free_port()
        stage.accounts("lab")
        admin = new_user(tmp_path, "root", role="admin")
        daemon, url = start_daemon(tmp_path, port, **stage.settings), f"http://127.0.0.1:{port}"
        try:
            with Client(url, stage.token) as ann, Client(url, admin) as root:
                yield House(tmp_path, ann, root)
        finally:
            stop(daemon)


def test_every_example_is_run_here() -> None:
    assert {file.name for file in EXAMPLES.iterdir() if file.is_file()} == {
        "checker.py",
        "checker.pl",
        "batch_worker.py",
        "job_notebook.py",
    }


@pytest.mark.slow
@pytest.mark.parametrize(("program", "queue"), [("checker.py", "pages"), ("checker.pl", "pages-perl")])
def test_checker_of_the_examples_serves_its_queue_and_drains(house: House, program: str, queue: str) -> None:
    language = [sys.executable] if program.endswith(".py") else ["perl"]
    with ModelHttpServer() as model:
        pages = {"good": (f"{model.base_url}/ok", "ok"), "bad": (f"{model.base_url}/ok", "no such text")}
        pages["gone"] = (f"http://127.0.0.1:{free_port()}/", "ok")
        for name, (url, text) in pages.items():
            check = {"kind": "outgoing", "queue": queue, "url": url, "text": text}
            house.ann.monitors.put(name, check=check, every="1h")
        command = [*language, str(EXAMPLES / program)]
        checker = subprocess.Popen(command, env=house.environment(house.ann), stdout=subprocess.DEVNULL)
        try:
            wait_for(lambda: states(house.ann, "good", "bad") == ["ok", "failed"], lambda: states(house.ann, *pages))
            wait_for(lambda: attempts(house.ann, "gone") >= 2, lambda: states(house.ann, "gone"))
            checker.send_signal(signal.SIGTERM)
            assert checker.wait(60) == 0
        finally:
            checker.kill()
            checker.wait()
    (good,), (bad,), (gone,) = (house.ann.monitors.runs(name).to_list() for name in pages)
    assert good.detail["bytes"] > 0
    assert good.latency_ms is not None
    assert "no such text" in bad.reason
    assert gone.outcome in (None, "dead"), "a page that does not answer is looked at again, not called failed"


def states(client: Client, *monitors: str) -> list[str]:
    return [run.state for name in monitors for run in client.monitors.runs(name)]


def attempts(client: Client, monitor: str) -> int:
    return max((run.attempt for run in client.monitors.runs(monitor)), default=0)


@pytest.mark.slow
def test_batch_worker_of_the_examples_writes_orders_in_order_and_drains(house: House) -> None:
    root, book = house.root, house.folder / "orders.txt"
    root.providers.put("shop", kind="outgoing", retry={"base": "1ms", "cap": "1ms"})
    root.batches.put("daily", window="4s", missed="all")
    orders = {"a": {"pieces": 3}, "b": {"pieces": 1, "sold_out": True}, "c": {"pieces": 0}}
    root.records.load(
        "daily", ({"id": name, "provider": "shop", "endpoint": "north", "body": body} for name, body in orders.items())
    )
    root.days.plan("daily", YESTERDAY)
    command = [sys.executable, str(EXAMPLES / "batch_worker.py"), str(book)]
    worker = subprocess.Popen(command, env=house.environment(root), stdout=subprocess.DEVNULL)
    try:
        wait_for(lambda: root.days.get("daily", YESTERDAY).totals.get("done") == 2, book.exists)
        wait_for(lambda: len(root.dead.list().to_list()) == 1, lambda: root.dead.list().to_list())
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
    finally:
        worker.kill()
        worker.wait()
    runs = sorted(root.days.runs("daily", YESTERDAY), key=lambda run: run.due)
    written = [line.split() for line in book.read_text().splitlines()]
    assert [line[0] for line in written] == [run.run for run in runs if run.state == "done"]
    assert {run.record: run.attempt for run in runs} == {"a": 1, "b": 2, "c": 1}
    assert [run.reason for run in root.dead.list()] == ["ValueError: an order of nothing"]


@pytest.mark.slow
def test_notebook_of_the_examples_makes_a_table_of_a_job(house: House) -> None:
    command = [sys.executable, str(EXAMPLES / "job_notebook.py")]
    done = subprocess.run(
        command, env=house.environment(house.ann), capture_output=True, text=True, timeout=200, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "fits: True" in done.stdout
    assert "3 of 3 done" in done.stdout
    assert all(target in done.stdout for target in ("192.0.2.1", "192.0.2.2", "192.0.2.3"))
    assert done.stderr == "", "no progress bar without a terminal"
