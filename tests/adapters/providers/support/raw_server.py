"""A server that sends fixed bytes, whatever it is asked."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


@contextmanager
def raw_server(answer: bytes) -> Iterator[str]:
    """Sends these bytes to the first client, whatever it asks, and closes; yields the URL."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            connection, _ = listener.accept()
            with connection, suppress(ConnectionError):  # the client may have read enough
                connection.recv(4_096)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/"
        thread.join()


def page(body: bytes, content_type: str = "application/json") -> bytes:
    """An answer with status 200 and this body."""
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
