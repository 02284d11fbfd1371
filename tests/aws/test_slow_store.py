"""A remote store that answers slowly delays the requests that ask it, and no others."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from paceline.adapters.aws.store import AwsStore
from tests.aws.support.fault_proxy import Answer, FaultProxy, fault_proxy
from tests.aws.support.ministack import Emulator, environment
from tests.shells.api.conftest import OUTGOING, Client, Reply, World, serving
from tests.shells.support.daemons import SECRET

pytestmark = pytest.mark.aws

WAIT_S_MAX = 60
READS = frozenset({"GetItem", "BatchGetItem", "TransactGetItems", "Query"})
WRITES = frozenset({"PutItem", "UpdateItem", "TransactWriteItems", "BatchWriteItem"})
USERS = ("ann", "bob", "cleo", "dora", "emil", "finn")


class Stage(NamedTuple):
    world: World
    proxy: FaultProxy
    admin: Client
    users: list[Client]


@pytest.fixture
def stage(
    aws: Emulator, aws_store: AwsStore, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Stage]:
    """The API on a store behind a proxy; each user has the monitor ``m``."""
    del aws_store
    with fault_proxy(aws.url) as proxy:
        for name, value in environment(proxy.url).items():
            monkeypatch.setenv(name, value)
        with serving(tmp_path, store=f"aws://?prefix={prefix}", secret_key=SECRET) as world:
            admin = world.add("root", "admin")
            users = [world.add(name) for name in USERS]
            for user in users:
                assert user("PUT", "/v1/users/me/monitors/m", OUTGOING).status == 201
            yield Stage(world, proxy, admin, users)


def test_slow_reads_do_not_delay_other_requests(stage: Stage) -> None:
    paths = [
        "/v1/users/me",
        "/v1/users/me/tokens",
        "/v1/users/ann/monitors/m",
        "/v1/users/ann/monitors/m/runs",
        "/v1/users/me/budget",
        "/v1/batches",
        "/v1/batches/none/records",
        "/v1/batches/none/days/2026-11-17",
        "/v1/providers/none",
        "/v1/accounts/none/keys/k1",
        "/v1/jobs/none",
        "/v1/runs/ann%2Fm%231@1",
        "/api/v2/measurements/1",
        "/api/v2/credits",
    ]
    for path in paths:
        with held(stage.proxy, READS) as gate:
            reader = _Asker(stage.admin, "GET", path)
            while (count := gate.held_or_ended(reader)) is not None:
                assert stage.world.client()("GET", "/healthz").status == 200
                gate.let_pass(count)
            assert gate.passed, f"{path} did not ask the store"
            assert reader.result().status in {200, 404}


def test_writes_of_several_users_overlap(stage: Stage) -> None:
    with held(stage.proxy, WRITES) as gate:
        askers = [_Asker(user, "POST", "/v1/users/me/monitors/m/pause") for user in stage.users]
        gate.wait_for(len(USERS))
    assert {asker.result().status for asker in askers} == {200}


def test_concurrent_puts_of_one_monitor_all_take_effect(stage: Stage) -> None:
    ann = stage.users[0]
    bodies = [OUTGOING | {"tags": [f"t{number}"]} for number in range(12)]
    putters = [_Asker(ann, "PUT", "/v1/users/me/monitors/m", body) for body in bodies]
    assert {putter.result().status for putter in putters} == {200}
    shown = ann("GET", "/v1/users/me/monitors/m").json
    assert shown["revision"] == 1 + len(bodies)
    assert stage.world.system.store.verify() == []


class Gate:
    """Holds requests at the proxy until the test lets them pass."""

    def __init__(self) -> None:
        self.passed: float = 0
        """Requests come and pass in order: those up to this number may."""
        self._came = 0
        self._changed = threading.Condition()

    def hold(self) -> None:
        with self._changed:
            self._came += 1
            mine = self._came
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self.passed >= mine, WAIT_S_MAX)

    def wait_for(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: self._came >= count, WAIT_S_MAX), f"{self._came} at the same time"

    def held_or_ended(self, asker: threading.Thread) -> int | None:
        """Returns how many requests have come once one of them is held; None if the client has ended."""
        while asker.is_alive():
            with self._changed:
                if self._changed.wait_for(lambda: self._came > self.passed, 0.05):
                    return self._came
        return None

    def let_pass(self, count: float) -> None:
        with self._changed:
            self.passed = max(self.passed, count)
            self._changed.notify_all()


@contextmanager
def held(proxy: FaultProxy, operations: frozenset[str]) -> Iterator[Gate]:
    """Hold these operations at the proxy; at the end all of them pass."""
    gate, answer = Gate(), proxy.answer

    def hold(request: BaseHTTPRequestHandler, body: bytes) -> Answer | None:
        if (request.headers.get("X-Amz-Target") or "").rpartition(".")[2] in operations:
            gate.hold()
        return answer(request, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(proxy, "answer", hold)
        try:
            yield gate
        finally:
            gate.let_pass(float("inf"))


class _Asker(threading.Thread):
    """One request in a thread of its own."""

    reply: Reply

    def __init__(self, client: Callable[..., Reply], *request: Any) -> None:
        super().__init__(daemon=True)
        self._client, self._request = client, request
        self.start()

    def run(self) -> None:
        self.reply = self._client(*self._request)

    def result(self) -> Reply:
        self.join(WAIT_S_MAX)
        return self.reply
