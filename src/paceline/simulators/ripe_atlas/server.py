"""The simulator as a whole: the world, the script of faults, and the HTTP server in front of both."""

from __future__ import annotations

import socket
import ssl
import sys
import threading
import time
import traceback
from collections import Counter, deque
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from paceline.simulators.ripe_atlas import routes
from paceline.simulators.ripe_atlas.accounts import POOL_PERMISSIONS, Account, Grant, Key, Limits
from paceline.simulators.ripe_atlas.audit import audit
from paceline.simulators.ripe_atlas.clock import SimulatorClock
from paceline.simulators.ripe_atlas.control import PREFIX, Control
from paceline.simulators.ripe_atlas.faults import BEFORE, Fault, Faults, answer_after, answer_before
from paceline.simulators.ripe_atlas.messages import Answer, Refused, Request
from paceline.simulators.ripe_atlas.model import Model
from paceline.simulators.ripe_atlas.world import World

BODY_BYTES_MAX = 16 * 1_048_576
REQUESTS_LOGGED_MAX = 1_000
IDLE_S = 120.0
STOP_S = 5.0


class AtlasSimulator:
    """Serves on threads of its own (``start``, ``stop``, or ``with``); ``answer`` serves without a network.

    With a TLS context it speaks https, as the real one.
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
        self.latest: deque[tuple[Request, int]] = deque(maxlen=REQUESTS_LOGGED_MAX)
        self.defects: list[str] = []
        self._counts: Counter[str] = Counter()
        self._counting = threading.Lock()
        self._control = Control(self.world, self.faults, lambda: dict(self._counts))
        self._host, self._port, self._tls = host, port, tls
        self._server: _Server | None = None
        self._thread: threading.Thread | None = None

    def add_account(self, name: str, *, keys: int = 1, limits: Limits | None = None, **more: Any) -> list[str]:
        """An account with keys that may do what a pool needs. Returns the keys."""
        with self.world.lock:
            self.world.registry.add_account(Account(name, limits or Limits(), **more))
        return [self.add_key(name).uuid for _ in range(keys)]

    def add_key(self, account: str, *, grants: tuple[Grant | str, ...] = POOL_PERMISSIONS, secret: str = "") -> Key:
        with self.world.lock:
            now_ms = self.clock.now_ms()
            return self.world.registry.add_key(account, now_ms=now_ms, grants=grants, secret=secret)

    def add_fault(self, fault: Fault) -> None:
        self.faults.add(fault)

    def audit(self, *, marker: str = "") -> dict[str, Any]:
        return audit(self.world, marker=marker) | {"requests": dict(self._counts)}

    def answer(self, request: Request) -> Answer:
        """Carries out a request and returns its answer, whose ``cut`` and ``delay_ms`` are left to the caller."""
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
        """With port 0, known once it has started."""
        return self._port

    @property
    def base_url(self) -> str:
        return f"{'https' if self._tls else 'http'}://{self._host}:{self._port}"

    def start(self) -> None:
        """Returns when it listens; raises OSError if the address is taken."""
        assert self._server is None
        self._server = _Server((self._host, self._port), self)
        self._port = self._server.server_address[1]
        if self._tls is not None:
            # The handshake waits for the connection's own thread: a silent client must not keep others out.
            self._server.socket = self._tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="atlas", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Closes every connection."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.close_all()
        self._thread.join(STOP_S)
        self._server = self._thread = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 1_024

    def __init__(self, address: tuple[str, int], simulator: AtlasSimulator) -> None:
        self.simulator = simulator
        self._open: set[socket.socket] = set()
        self._serving: set[threading.Thread] = set()
        super().__init__(address, _Handler)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        self._open.add(request)
        self._serving.add(threading.current_thread())
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._open.discard(request)
            self._serving.discard(threading.current_thread())

    def close_all(self) -> None:
        self.server_close()
        for connection in list(self._open):
            _shut(connection)
        for thread in list(self._serving):
            thread.join(STOP_S)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away, or spoke no TLS, is its own business; the rest is a defect, and shown."""
        del request, client_address
        if not isinstance(sys.exc_info()[1], OSError):
            self.simulator.defects.append(traceback.format_exc())
            traceback.print_exc()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server_version = "AtlasSimulator"
    disable_nagle_algorithm = True
    timeout = IDLE_S
    server: _Server

    def _serve(self) -> None:
        simulator = self.server.simulator
        length = self.headers.get("Content-Length", "0")
        if (
            not length.isdigit()
            or int(length) > BODY_BYTES_MAX
            or "chunked" in self.headers.get("Transfer-Encoding", "")
        ):
            self._write(Refused(413, "Request body is too large.").answer()._replace(cut=""))
            self.close_connection = True
            return
        body = self.rfile.read(int(length))
        headers = {name.lower(): value for name, value in self.headers.items()}
        scheme = simulator.base_url.partition(":")[0]
        base_url = f"{scheme}://{headers.get('host', '')}" if headers.get("host") else simulator.base_url
        request = Request.of(self.command, self.path, headers=headers, body=body, base_url=base_url)
        answer = simulator.answer(request)
        time.sleep(answer.delay_ms / 1_000)
        self._write(answer)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 - as the base class names them

    def _write(self, answer: Answer) -> None:
        if answer.cut == "all":
            self._cut()
            return
        lines = [f"HTTP/1.1 {answer.status} {HTTPStatus(answer.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in answer.headers]
        lines += [] if answer.status == 204 else [f"Content-Length: {len(answer.body)}"]
        head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
        if answer.cut == "half":
            self.wfile.write(head + answer.body[: len(answer.body) // 2])
            self._cut()
            return
        self.wfile.write(head + answer.body)

    def _cut(self) -> None:
        self.close_connection = True
        _shut(self.connection)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as the base class names it
        """Logs nothing: a line would contain the key."""


def _shut(connection: socket.socket) -> None:
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:  # the other side was first
        return


def _shape(path: str) -> str:
    """The path with its numbers taken out, so that there are few of them to count."""
    parts = ["N" if part.isdigit() else part for part in path.strip("/").split("/")[:6]]
    return "/" + "/".join("KEY" if index and parts[index - 1] == "keys" else part for index, part in enumerate(parts))
