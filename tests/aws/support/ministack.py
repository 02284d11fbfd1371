"""The emulator of AWS: a real server on loopback, one for each process that tests, and a prefix for each test."""

from __future__ import annotations

import atexit
import ctypes
import http.client
import itertools
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from paceline.adapters.aws.client import tables
from paceline.adapters.aws.client.connect import Clients, close_clients, find, open_clients
from tests.aws.support.guard import watch
from tests.shells.support.daemons import free_port

ROOT = Path(__file__).parents[3]
START_S_MAX = 30
SERVER = [
    "--host=127.0.0.1",
    "--loop=uvloop",
    "--http=httptools",
    "--timeout-keep-alive=75",
    "--timeout-graceful-shutdown=1",
    "--log-level=warning",
    "--no-access-log",
    "--no-date-header",
    "--no-server-header",
]
"""The same application under a server in C: its own, hypercorn, takes half of a request's time."""


@dataclass(frozen=True)
class Emulator:
    url: str
    log: Path

    @property
    def environment(self) -> dict[str, str]:
        """The environment in which boto3 finds this emulator and nothing else."""
        return environment(self.url)


def environment(url: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_REGION": "us-east-1",
        "AWS_DEFAULT_REGION": "us-east-1",
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
    }


@contextmanager
def emulator(more: Mapping[str, str] | None = None, *, app: str = "ministack.app:app") -> Iterator[Emulator]:
    """Starts one on a free port and ends it. ``more``: further environment, such as an accelerated clock."""
    with tempfile.TemporaryDirectory(prefix="ministack-") as folder:
        port = free_port()
        log = Path(folder) / "log"
        # Else its IoT listens on every address, whatever BIND_HOST says.
        names = {"BIND_HOST": "127.0.0.1", "IOT_MTLS_ENABLED": "0"}
        names |= {"GATEWAY_PORT": str(port), "TMPDIR": folder, "HOME": folder}
        with log.open("wb") as out:
            process = subprocess.Popen(
                [sys.executable, "-m", "uvicorn", app, f"--app-dir={ROOT}", f"--port={port}", *SERVER],
                env=os.environ | names | dict(more or {}),
                cwd=folder,
                stdout=out,
                stderr=subprocess.STDOUT,
                preexec_fn=_die_with_parent,  # noqa: PLW1509  it takes no lock
            )
        try:
            url = f"http://127.0.0.1:{port}"
            _wait_until_it_answers(url, process, log)
            yield Emulator(url, log)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _die_with_parent() -> None:
    """Ends the emulator with its parent, so that a killed test run leaves none behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _wait_until_it_answers(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end_s = time.monotonic() + START_S_MAX
    while time.monotonic() < end_s:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(f"{url}/_ministack/health", timeout=1):  # noqa: S310  our own URL
                return
        except OSError:
            time.sleep(0.02)
    raise RuntimeError(f"the emulator does not answer: {log.read_text()[-2_000:]}")


@cache
def shared_emulator() -> Emulator:
    """Returns the emulator of this process: it starts with the first test that needs it and ends with the process."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(emulator())


@cache
def shared_clients() -> Clients:
    """Of the shared emulator."""
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(guarded_clients(shared_emulator().url))


_numbers = itertools.count(1)


def fresh_prefix() -> str:
    return f"t{os.getpid()}-{next(_numbers)}"


def make_tables(clients: Clients, prefix: str) -> None:
    """What ``aws init`` makes, at a tenth of its price: nothing is looked at, nothing signed, and nothing expires.

    The emulator would expire items by the real clock, and a scene has its own.
    """
    address = urllib.parse.urlsplit(clients.dynamodb.meta.endpoint_url)
    with closing(http.client.HTTPConnection(str(address.hostname), address.port, timeout=30)) as connection:
        for table in tables.TABLES:
            _ask(connection, "DynamoDB_20120810.CreateTable", tables.table_definition(table, prefix))
        for queue in tables.QUEUES:
            dead_arn = f"arn:aws:sqs:us-east-1:000000000000:{prefix}-{queue.dead}" if queue.dead else None
            attributes = tables.queue_attributes(queue, dead_arn)
            wanted = {"QueueName": f"{prefix}-{queue.name}", "Attributes": attributes}
            _ask(connection, "AmazonSQS.CreateQueue", wanted)


def _ask(connection: http.client.HTTPConnection, target: str, wanted: Mapping[str, Any]) -> None:
    headers = {"X-Amz-Target": target, "Content-Type": "application/x-amz-json-1.0"}
    connection.request("POST", "/", json.dumps(wanted), headers)
    answer = connection.getresponse()
    told = answer.read()
    assert answer.status == 200, told


@contextmanager
def guarded_clients(url: str) -> Iterator[Clients]:
    """The clients of the product, found through the environment as in the field, held to AWS's limits."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment(url).items():
            patch.setenv(name, value)
        clients = open_clients()
    for client in clients:
        watch(client)
    try:
        yield clients
    finally:
        close_clients(clients)


def plain_client(service: str, url: str, config: Config | None = None) -> Any:
    """Returns a client of any service, held to AWS's limits too."""
    client = boto3.session.Session(
        aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1"
    ).client(service, endpoint_url=url, config=config)
    watch(client)
    return client


def delete_tables(clients: Clients, prefix: str) -> None:
    """Deletes all tables and queues of a prefix with what is in them. What is not there is passed over."""
    for table in tables.TABLES:
        find(clients.dynamodb.delete_table, TableName=f"{prefix}-{table.name}")
    for queue in tables.QUEUES:
        answer = find(clients.sqs.get_queue_url, QueueName=f"{prefix}-{queue.name}")
        if answer is not None:
            find(clients.sqs.delete_queue, QueueUrl=answer["QueueUrl"])
