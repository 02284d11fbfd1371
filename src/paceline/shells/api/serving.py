"""How the app is served: uvicorn on uvloop and httptools, with bounds on what comes before and after a request."""

from __future__ import annotations

import asyncio
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from paceline.config import Settings
from paceline.wiring import Tls

KEEP_ALIVE_S = 75
DRAIN_S = 25


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose request line and headers do not come to an end, or whose refused body does not."""

    head_timeout_s = 15.0
    head_bytes_max = 65_536
    unread_bytes_max = 256 * 1024 * 1024
    """So much of a body that was answered early (401, 413) is thrown away before the connection is closed."""

    _in_head = False
    _head_bytes = 0
    _unread_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn itself
        super().connection_made(transport)
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if not self._in_head:
            return
        self._head_bytes += len(data)
        if self._head_bytes > self.head_bytes_max:
            self._give_up()
        elif self._head_timer is None:
            self._head_timer = self.loop.call_later(self.head_timeout_s, self._give_up)

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._in_head = False
        self._head_bytes = self._unread_bytes = 0
        self._stop_head_timer()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        if self.cycle.response_complete:
            self._unread_bytes += len(body)
            if self._unread_bytes > self.unread_bytes_max:
                self._give_up()
            return
        super().on_body(body)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()


def server_config(app: ASGIApp, settings: Settings, *, tls: Tls | None = None, **overrides: Any) -> uvicorn.Config:
    """For ``uvicorn.Server``. Logging is ours, so uvicorn configures none and writes no access log."""
    options: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "loop": "uvloop",
        "http": BoundedProtocol,
        "ws": "none",
        "lifespan": "on",
        "interface": "asgi3",
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "proxy_headers": False,
        "backlog": 1_024,
        "timeout_keep_alive": KEEP_ALIVE_S,
        "timeout_graceful_shutdown": DRAIN_S,
    }
    if tls is not None:
        options |= {"ssl_certfile": tls.cert, "ssl_keyfile": tls.key}
    return uvicorn.Config(app, **(options | overrides))
