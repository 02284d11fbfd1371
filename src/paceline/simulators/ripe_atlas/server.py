"""The whole simulator: the world, the scripted faults, and the HTTP server in front of both."""

from __future__ import annotations

import ssl
import threading
import traceback
from collections import Counter, deque
from typing import Any, Self

from paceline.simulators import http
from paceline.simulators.http import ModelHttpServer
from paceline.simulators.ripe_atlas import routes
from paceline.simulators.ripe_atlas.accounts import (
    POOL_PERMISSIONS,
    Limits,
    SimulatedAccount,
    SimulatedGrant,
    SimulatedKey,
)
from paceline.simulators.ripe_atlas.audit import audit
from paceline.simulators.ripe_atlas.clock import SimulatorClock
from paceline.simulators.ripe_atlas.control import PREFIX, Control
from paceline.simulators.ripe_atlas.faults import BEFORE, Fault, Faults, answer_after, answer_before
from paceline.simulators.ripe_atlas.messages import AtlasAnswer, AtlasRequest
from paceline.simulators.ripe_atlas.model import Model
from paceline.simulators.ripe_atlas.world import World

BODY_BYTES_MAX = 16 * 1_048_576
REQUESTS_LOGGED_MAX = 1_000


class AtlasSimulator:
    """Serves on a thread of its own (``start``, ``stop``, or ``with``); ``answer`` serves without a network.

    With a TLS context it speaks https, like the real API.
    """

    def __init__(
        self,
        model: Model | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        clock: SimulatorClock | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self.model = model or Model()
        self.clock = clock or SimulatorClock()
        self.world = World(self.model, self.clock)
        self.faults = Faults(self.model.seed)
        self.latest: deque[tuple[AtlasRequest, int]] = deque(maxlen=REQUESTS_LOGGED_MAX)
        self.defects: list[str] = []
        self._counts: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._control = Control(self.world, self.faults, lambda: dict(self._counts))
        self._host, self._port, self._tls = host, port, tls
        self._server: ModelHttpServer | None = None

    def add_account(self, name: str, *, keys: int = 1, limits: Limits | None = None, **more: Any) -> list[str]:
        """Add an account with keys that have the permissions of a pool. Return the keys."""
        with self.world.lock:
            self.world.registry.add_account(SimulatedAccount(name, limits or Limits(), **more))
        return [self.add_key(name).uuid for _ in range(keys)]

    def add_key(
        self, account: str, *, grants: tuple[SimulatedGrant | str, ...] = POOL_PERMISSIONS, secret: str = ""
    ) -> SimulatedKey:
        with self.world.lock:
            now_ms = self.clock.now_ms()
            return self.world.registry.add_key(account, now_ms=now_ms, grants=grants, secret=secret)

    def add_fault(self, fault: Fault) -> None:
        self.faults.add(fault)

    def audit(self, *, marker: str = "") -> dict[str, Any]:
        return audit(self.world, marker=marker) | {"requests": dict(self._counts)}

    def answer(self, request: AtlasRequest) -> AtlasAnswer:
        """Carry out a request and return its answer, whose ``cut`` and ``delay_ms`` are left to the caller."""
        if request.path.startswith(PREFIX):
            return self._control.answer(request)
        fault = self.faults.striking(request)
        if fault is not None and fault.kind in BEFORE:
            given = answer_before(fault)
        else:
            done = routes.answer(self.world, request)
            given = done if fault is None else answer_after(fault, done)
        with self._counting:
            self.latest.append((request, given.status))
            sent = "cut" if given.cut else str(given.status)
            self._counts[f"{request.method} {_shape(request.path)} {sent}"] += 1
        return given

    @property
    def port(self) -> int:
        """The port of the server; with port 0 it is known after ``start``."""
        return self._port

    @property
    def base_url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self._host}:{self._port}"

    def start(self) -> None:
        """Start the server and return when it listens; raises OSError if the address is taken."""
        assert self._server is None
        served = _Served(self)
        server = ModelHttpServer(self._host, self._port, model=served, tls=self._tls, body_bytes_max=BODY_BYTES_MAX)
        server.start()
        self._server, self._port = server, server.port

    def stop(self) -> None:
        """Close every connection."""
        if self._server is not None:
            self._server.stop()
            self._server = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Served:
    """The simulator as the model of an HTTP server."""

    def __init__(self, simulator: AtlasSimulator) -> None:
        self._simulator = simulator

    def answer(self, request: http.ModelRequest) -> http.ModelAnswer:
        simulator = self._simulator
        host = next((value for name, value in request.headers.items() if name.lower() == "host"), "")
        base_url = f"{simulator.base_url.partition(':')[0]}://{host}" if host else simulator.base_url
        asked = AtlasRequest.of(
            request.method, request.target, headers=request.headers, body=request.body, base_url=base_url
        )
        try:
            given = simulator.answer(asked)
        except Exception:  # noqa: BLE001  a defect of the simulator is kept, and shown
            simulator.defects.append(traceback.format_exc())
            traceback.print_exc()
            return http.ModelAnswer(cut="all")
        return http.ModelAnswer(given.status, given.body, given.headers, given.delay_ms, cut=given.cut)


def _shape(path: str) -> str:
    """Return the path without its numbers and keys, so that few different paths are counted."""
    parts = ["N" if part.isdigit() else part for part in path.strip("/").split("/")[:6]]
    return "/" + "/".join("KEY" if index and parts[index - 1] == "keys" else part for index, part in enumerate(parts))
