"""Clients that never come to an end: real sockets that send half, or byte by byte, or do not read their answers."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.shells.api.http.connection_limits import ConnectionLimits
from paceline.shells.api.http.serving import BoundedProtocol
from tests.shells.api.conftest import HTTP, World, serving

MONITORS = "/v1/users/me/monitors"
LATE_S = 10.0
"""Generous: the machine may be busy, and a connection that never ends lasts longer than any of it."""


class Hasty(BoundedProtocol):
    """The same bounds, reached within a test."""

    head_timeout_s = 0.4
    linger_s = 0.3
    answer_timeout_s = 0.5
    door = ConnectionLimits(connections_max=1_000, per_address_max=1_000)


class Narrow(Hasty):
    door = ConnectionLimits(connections_max=5, per_address_max=3)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with serving(tmp_path, protocol=Hasty, body_timeout="400ms") as world:
        world.add("alice")
        yield world


def connect(world: World) -> socket.socket:
    return socket.create_connection(("127.0.0.1", world.port), timeout=LATE_S)


def request(world: World, line: str, *lines: str, token: str | None = None) -> bytes:
    start = [f"{line} HTTP/1.1", "Host: x", f"Authorization: Bearer {token or world.tokens['alice']}", *lines]
    return ("\r\n".join(start) + "\r\n\r\n").encode()


def end_of(connection: socket.socket, more: bytes = b"x") -> bytes:
    """All that comes until the server has closed for good: what is sent then is refused."""
    received, until_s = b"", time.monotonic() + LATE_S
    connection.settimeout(0.05)
    while True:
        assert time.monotonic() < until_s, f"still open: {received!r}"
        with contextlib.suppress(TimeoutError, ConnectionResetError):
            received += connection.recv(65_536)
        try:
            connection.sendall(more)
        except OSError:
            return received


@pytest.mark.parametrize(
    ("line", "token", "status"),
    [
        (f"PUT {MONITORS}/a", "wrong", 401),
        ("GET /healthz", None, 200),
        (f"PUT {MONITORS}/a", None, 408),
        ("GET /nothing", None, 404),
    ],
)
def test_body_that_arrives_byte_by_byte_is_answered_and_closed(
    world: World, line: str, token: str | None, status: int
) -> None:
    with connect(world) as connection:
        connection.sendall(request(world, line, "Content-Length: 100000", token=token) + b'{"che')
        answer = end_of(connection)
    assert answer.startswith(f"HTTP/1.1 {status}".encode())
    assert b"connection: close" in answer.lower()


def test_a_body_of_lines_that_comes_byte_by_byte_is_closed(world: World) -> None:
    with connect(world) as connection:
        lines = ("Content-Type: application/x-ndjson", "Transfer-Encoding: chunked")
        root = world.add("root", role="admin")
        assert root("PUT", "/v1/providers/p", {"base_url": "http://127.0.0.1:9"}).status in (200, 201)
        assert root("PUT", "/v1/batches/b", {}).status in (200, 201)
        connection.sendall(request(world, "PUT /v1/batches/b/records", *lines, token=world.tokens["root"]))
        answer = end_of(connection, more=b"1\r\n \r\n")
    assert answer.startswith(b"HTTP/1.1 408"), answer


def test_line_breaks_between_requests_do_not_keep_a_connection(world: World) -> None:
    with connect(world) as connection:
        connection.sendall(request(world, "GET /healthz"))
        assert connection.recv(65_536).startswith(b"HTTP/1.1 200")
        connection.sendall(b"\r\n")
        connection.settimeout(LATE_S)
        assert connection.recv(1) == b""


def test_a_client_that_does_not_read_its_answer_is_cut(world: World, caplog: pytest.LogCaptureFixture) -> None:
    alice = world.client(world.tokens["alice"])
    tags = [f"{'t' * 40}{number}" for number in range(10)]
    for number in range(40):
        assert alice("PUT", f"{MONITORS}/m{number}", HTTP | {"tags": tags}).status == 201
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        connection.settimeout(LATE_S)
        connection.connect(("127.0.0.1", world.port))
        with contextlib.suppress(OSError):  # it is cut while it asks, or when it looks
            for _ in range(2_000):
                connection.sendall(request(world, f"GET {MONITORS}"))
            time.sleep(1.0)
            while connection.recv(65_536):
                pass
        until_s = time.monotonic() + LATE_S
        while time.monotonic() < until_s:
            try:
                connection.sendall(b"x")
            except OSError:
                break
            time.sleep(0.05)
        else:
            pytest.fail("a connection whose answers nobody reads is still open")
    assert [line.getMessage() for line in caplog.records if line.levelname == "ERROR"] == []
    assert "Traceback" not in world.log.getvalue()


def test_connection_beyond_the_limit_per_address_is_refused_with_a_reason(tmp_path: Path) -> None:
    with serving(tmp_path, protocol=Narrow) as world, contextlib.ExitStack() as stack:
        world.add("alice")
        kept = [stack.enter_context(connect(world)) for _ in range(3)]
        for connection in kept:
            connection.sendall(b"GET /healthz HTTP/1.1\r\n")  # they are in, and stay a moment
        with connect(world) as refused:
            refused.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = end_of(refused)
        assert answer.startswith(b"HTTP/1.1 503")
        assert b"connections_per_address_max" in answer
        assert b"retry-after" in answer
        for connection in kept:
            connection.close()
        until_s = time.monotonic() + LATE_S
        while b" 200 " not in ask(world):
            assert time.monotonic() < until_s, "places that were given back are not used again"
            time.sleep(0.05)
    lines = [json.loads(line) for line in world.log.getvalue().splitlines()]
    assert [line["level"] for line in lines if line["event"] == "connections_refused"] == ["warning"]


def ask(world: World) -> bytes:
    with connect(world) as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        with contextlib.suppress(OSError):
            return connection.recv(65_536)
        return b""


def test_connection_limits_count_in_all_and_per_address() -> None:
    door = ConnectionLimits(connections_max=3, per_address_max=2)
    assert [door.enter("a"), door.enter("a"), door.enter("b")] == [None, None, None]
    assert "connections_max" in (door.enter("c") or "")
    door.leave("b")
    assert "connections_per_address_max" in (door.enter("a") or "")
    assert door.enter("c") is None
