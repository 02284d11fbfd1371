"""Checkers that read the outgoing queue of a running Paceline with plain boto3, among them the one of the guide."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from paceline.adapters.aws.client.connect import Clients
from tests.aws.support.ministack import Emulator, plain_client
from tests.aws.support.world_stage import Stage, open_stage
from tests.shells.support.daemons import Api, free_port
from tests.shells.support.job_daemons import wait_for

pytestmark = [pytest.mark.aws, pytest.mark.slow]

GUIDE = Path(__file__).parents[3] / "docs" / "guides" / "own-checker.md"


class Running:
    """A Paceline that is up, an admin's token, and the queue as any program of boto3 sees it."""

    def __init__(self, stage: Stage, aws: Emulator, prefix: str) -> None:
        self.port, self.token = free_port(), stage.user("root", role="admin")
        self.api = Api(self.port, self.token)
        self.sqs = plain_client("sqs", aws.url)
        self.queue = self.sqs.get_queue_url(QueueName=f"{prefix}-outgoing")["QueueUrl"]
        self.stage = stage

    def asked(self, status: int, method: str, path: str, body: Any = None) -> Any:
        found = self.api(method, path, body)
        assert found is not None, self.stage.log()
        assert found[0] == status, found
        return found[1]

    def put(self, name: str, **check: Any) -> None:
        body = {"check": {"kind": "outgoing", **check}, "every": "1h"}
        self.asked(201, "PUT", f"/v1/users/me/monitors/{name}", body)

    def receive(self) -> dict[str, Any]:
        """The next message, deleted as it is read."""
        for _ in range(3):
            for message in self.sqs.receive_message(QueueUrl=self.queue, WaitTimeSeconds=10).get("Messages", []):
                self.sqs.delete_message(QueueUrl=self.queue, ReceiptHandle=message["ReceiptHandle"])
                told: dict[str, Any] = json.loads(message["Body"])
                return told
        raise AssertionError(f"no message came: {self.stage.log()}")

    def runs(self, name: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.asked(200, "GET", f"/v1/users/me/monitors/{name}/runs")["items"]
        return found

    def run(self, name: str) -> dict[str, Any]:
        (found,) = self.runs(name)
        return found


@pytest.fixture
def running(tmp_path: Path, aws: Emulator, clients: Clients, prefix: str) -> Iterator[Running]:
    with open_stage(tmp_path, aws.url, clients, prefix) as stage:
        up = Running(stage, aws, prefix)
        process = stage.start("up", PACELINE_PORT=str(up.port))
        try:
            wait_for(lambda: (found := up.api("GET", "/readyz")) is not None and found[0] == 200, stage.log)
            yield up
            process.terminate()
            assert process.wait(30) == 0, stage.log()
        finally:
            process.kill()
            process.wait()


def test_run_is_announced_in_the_queue_claimed_by_its_message_and_settled(
    running: Running, aws: Emulator, tmp_path: Path
) -> None:
    follow_by_hand(running)
    follow_the_guide(running, aws, tmp_path)
    assert running.stage.run("check") == (0, "OK\n")


def follow_by_hand(running: Running) -> None:
    """A retry on the way, and the first message twice."""
    running.put("home", text="hello")
    told = running.receive()
    assert set(told) == {"run", "generation", "counter", "due", "attempt", "check"}
    assert told["check"] == {"kind": "outgoing", "text": "hello"}
    path = f"/v1/runs/{quote(told['run'], safe='')}"
    claim = {"attempt": told["attempt"], "lease": "60s"}
    first = running.asked(200, "POST", f"{path}/claim", claim)
    assert (first["run"], first["due"], first["attempt"]) == (told["run"], told["due"], 1)
    assert first["check"] == {"kind": "outgoing", "text": "hello"}
    assert running.asked(409, "POST", f"{path}/claim", claim)["code"] == "not_claimable"
    running.asked(200, "POST", f"{path}/outcome", {"lease": first["lease"], "status": "retry"})
    again = running.receive()
    assert (again["run"], again["attempt"]) == (told["run"], 2)
    assert running.asked(409, "POST", f"{path}/claim", claim)["code"] == "not_claimable"
    second = running.asked(200, "POST", f"{path}/claim", {"attempt": 2})
    running.asked(200, "POST", f"{path}/outcome", {"lease": second["lease"], "status": "ok"})
    assert running.asked(409, "POST", f"{path}/claim")["code"] == "not_claimable"
    assert (running.run("home")["state"], running.run("home")["attempt"]) == ("ok", 2)


def follow_the_guide(running: Running, aws: Emulator, folder: Path) -> None:
    (program,) = re.findall(r"```python with boto3 file=queue_checker.py\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    script = folder / "checker.py"
    script.write_text(program)
    own = {"PACELINE_URL": f"http://127.0.0.1:{running.port}", "PACELINE_TOKEN": running.token, "ROUNDS": "1"}
    environment = os.environ | aws.environment | own | {"QUEUE_URL": running.queue}
    running.put("good", text="hello")
    running.put("bad")
    wait_for(lambda: running.runs("good") and running.runs("bad"), running.stage.log)
    for _ in range(5):
        if all(running.run(name)["outcome"] for name in ("good", "bad")):
            break
        subprocess.run([sys.executable, str(script)], env=environment, check=True, timeout=60)
    assert (running.run("good")["state"], running.run("good")["detail"]) == ("ok", {"length": 5})
    assert (running.run("bad")["state"], running.run("bad")["reason"]) == ("failed", "the monitor gives no text")
    seen = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
    left = running.sqs.get_queue_attributes(QueueUrl=running.queue, AttributeNames=seen)["Attributes"]
    assert {int(count) for count in left.values()} == {0}, "a message was left behind"
