"""A proxy on loopback for clients whose host name is fixed. Nothing that goes through it leaves."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

CHUNK = 65_536
HEAD_BYTES_MAX = 65_536
QUIET_S = 60.0


class RipeProxy(NamedTuple):
    """``asked``: the places that its clients wanted to reach."""

    url: str
    asked: list[str]


@contextmanager
def ripe_proxy(server: str) -> Iterator[RipeProxy]:
    """Answers every request for a tunnel, to any host, with one to ``server``."""
    host, _, port = server.rpartition(":")
    asked: list[str] = []

    def serve(client: socket.socket) -> None:
        with client, contextlib.suppress(OSError):
            asked.append(_tunnel_wanted(client))
            with socket.create_connection((host, int(port)), timeout=QUIET_S) as behind:
                client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
                _pass_on(client, behind)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        accepting = threading.Thread(target=_accept, args=(listener, serve))
        accepting.start()
        try:
            yield RipeProxy(f"http://127.0.0.1:{listener.getsockname()[1]}", asked)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
            accepting.join()


def _accept(listener: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        client.settimeout(QUIET_S)
        threading.Thread(target=serve, args=(client,), daemon=True).start()


def _tunnel_wanted(client: socket.socket) -> str:
    head = b""
    while b"\r\n\r\n" not in head and len(head) < HEAD_BYTES_MAX:
        head += client.recv(1)
    method, place, _ = head.split(b" ", 2)
    assert method == b"CONNECT", head
    return place.decode()


def _pass_on(client: socket.socket, behind: socket.socket) -> None:
    """Both ways; each side is told when the other has said all."""

    def forward(source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK):
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    up = threading.Thread(target=forward, args=(client, behind), daemon=True)
    up.start()
    forward(behind, client)
    up.join(QUIET_S)
