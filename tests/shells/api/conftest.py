"""The real app on a real SQLite file, served by a real uvicorn on loopback."""

from __future__ import annotations

import http.client
import io
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pytest
import structlog
import uvicorn

from paceline.config import Settings
from paceline.core.users import Role
from paceline.shells.api.http.app import build_app
from paceline.shells.api.http.context import ApiHooks, LoopHealth
from paceline.shells.api.http.serving import BoundedProtocol, server_config
from paceline.steps.access import TOKEN_BYTES, add_user
from paceline.steps.monitors.tick import tick
from paceline.wiring import System, open_system

OUTGOING: dict[str, Any] = {"check": {"kind": "outgoing", "what": "look"}, "every": "1h"}
NO_ATLAS = "http://127.0.0.1:9"
"""A port without a listener: a test that needs RIPE starts a simulator."""
HTTP: dict[str, Any] = {"check": {"kind": "http", "url": "https://example.org/"}, "every": "60s"}


class Reply(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The stable code of a problem."""
        assert self.headers["content-type"] == "application/problem+json"
        problem = self.json
        figures = {"cost", "credits_left", "resets_at"} if self.status == 402 else set()
        refusal = {"refusal"} if self.status == 402 else set()  # if two are refused at once, one may have none
        assert set(problem) - refusal == {"type", "title", "status", "detail", "code", "errors"} | figures
        assert problem["status"] == self.status
        return str(problem["code"])

    @property
    def pointers(self) -> list[str]:
        return [error["pointer"] for error in self.json["errors"]]


@dataclass
class Client:
    """One user's requests, each on its own connection."""

    port: int
    token: str | None = None

    def __call__(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        headers: Mapping[str, str] | None = None,
        raw: bytes | Iterator[bytes] | None = None,
    ) -> Reply:
        sent = {"Authorization": f"Bearer {self.token}"} if self.token is not None else {}
        data: Any = raw if raw is not None else None if body is None else json.dumps(body).encode()
        if data is not None:
            sent["Content-Type"] = "application/json"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, data, {**sent, **(headers or {})})
            answer = connection.getresponse()
            return Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()


@dataclass
class World:
    """A running API and its users."""

    system: System
    hooks: ApiHooks
    port: int
    log: io.StringIO
    loops: list[LoopHealth]
    wakes: list[int] = field(default_factory=list)
    tokens: dict[str, str] = field(default_factory=dict)
    job_wakes: list[int] = field(default_factory=list)

    def add(self, user: str, role: Role = "user") -> Client:
        number = len(self.tokens) + 1
        _, made = add_user(
            self.system.store,
            user,
            role=role,
            daily_credits=1_000,
            token_bytes=number.to_bytes(TOKEN_BYTES),
            secret_key=self.system.secret_key,
            now_ms=self.system.clock.now_ms(),
        )
        self.tokens[user] = made.secret
        return Client(self.port, made.secret)

    def client(self, token: str | None = None) -> Client:
        return Client(self.port, token)

    def fire(self) -> int:
        """Ticks once and wakes waiting claims, as the daemon does."""
        report = tick(self.system.store, now_ms=self.system.clock.now_ms(), catch_up=self.system.catch_up)
        if report.runs:
            self.hooks.arrivals.notify()
        return report.runs


def run_path(run: str) -> str:
    return f"/v1/runs/{quote(run, safe='')}"


@contextmanager
def serving(folder: Path, protocol: type[BoundedProtocol] = BoundedProtocol, **settings: Any) -> Iterator[World]:
    file = folder / "api.db"
    # What is tested here does not depend on surviving a power cut.
    defaults: dict[str, Any] = {
        "store": f"sqlite:///{file}",
        "port": 0,
        "synchronous": "normal",
        "atlas_url": NO_ATLAS,
    }
    system = open_system(Settings(**(defaults | settings)))
    log, loops = io.StringIO(), [LoopHealth("tick", turning=True, age_s=0.1)]
    wakes, job_wakes = list[int](), list[int]()
    structlog.configure(
        processors=[structlog.processors.add_log_level, structlog.processors.JSONRenderer()],
        logger_factory=structlog.PrintLoggerFactory(log),
    )
    hooks = ApiHooks(wake=lambda: wakes.append(1), wake_jobs=lambda: job_wakes.append(1), loops=lambda: loops)
    server = uvicorn.Server(server_config(build_app(system, hooks), system.settings, tls=system.tls, http=protocol))
    thread = threading.Thread(target=server.run, name="api")
    thread.start()
    try:
        port = _port_of(server, thread)
        yield World(system, hooks, port, log, loops, wakes, job_wakes=job_wakes)
    finally:
        hooks.arrivals.close()
        server.should_exit = True
        thread.join(timeout=30)
        system.store.close()
        structlog.reset_defaults()
    assert not thread.is_alive()


def _port_of(server: uvicorn.Server, thread: threading.Thread) -> int:
    started = threading.Event()
    for _ in range(1_000):
        if server.started:
            port: int = server.servers[0].sockets[0].getsockname()[1]
            return port
        assert thread.is_alive()
        started.wait(0.01)
    raise AssertionError("the server did not start")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with serving(tmp_path) as running:
        yield running


@pytest.fixture
def admin(world: World) -> Client:
    return world.add("root", "admin")


@pytest.fixture
def alice(world: World) -> Client:
    return world.add("alice")


@pytest.fixture
def bob(world: World) -> Client:
    return world.add("bob")


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One server for all tests of a module that can share it."""
    with serving(tmp_path_factory.mktemp("house"), wrong_tokens_max=1_000) as running:
        yield running


@pytest.fixture
def guest(house: World) -> Client:
    """A new user of the shared server."""
    return house.add(f"guest{len(house.tokens)}")


@pytest.fixture
def chief(house: World) -> Client:
    """A new admin of the shared server."""
    return house.add(f"chief{len(house.tokens)}", "admin")
