"""Serves the app with uvicorn on uvloop and httptools, and limits heads, unread bodies and slow readers."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from paceline.config import Settings
from paceline.core.monitors.definition import duration_ms
from paceline.shells.api.http.connection_limits import ConnectionLimits
from paceline.wiring import Tls

KEEP_ALIVE_S = 75
DRAIN_S = 25
BODY_HEADERS = (b"content-length", b"transfer-encoding")


class BoundedProtocol(HttpToolsProtocol):
    """Limits every wait for a client: for its head, for a body that is not read, and for it to take the answer."""

    head_timeout_s = 15.0
    head_bytes_max = 65_536
    unread_bytes_max = 256 * 1024 * 1024
    """Bytes of a body that are discarded, after an early answer (401, 413), before the connection is closed."""
    linger_s = 2.0
    """Seconds for which they are discarded. If the connection closed at once, the client might lose the answer."""
    answer_timeout_s = 30.0
    """The connection is cut if the client takes nothing of its answer for this long."""
    door = ConnectionLimits(connections_max=1_000, per_address_max=500)

    _running: RequestResponseCycle | None = None
    """The request that is being answered. ``cycle`` is the newest, which may still wait behind it (pipelining)."""
    _entered = False
    _deaf = False
    """True once further data is discarded without an answer."""
    _in_head = False
    _head_bytes = 0
    _unread_bytes = 0
    _head_timer: asyncio.TimerHandle | None = None
    _end_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn itself
        super().connection_made(transport)
        if reason := self.door.enter(self._address):
            self._turn_away(reason)
            return
        self._entered = True
        self._head_timer = self.loop.call_later(self.head_timeout_s, self._give_up)

    def connection_lost(self, exc: Exception | None) -> None:
        self._mark_cut()
        self._stop_head_timer()
        for timer in (self._end_timer, self._stall_timer):
            if timer is not None:
                timer.cancel()
        if self._entered:
            self.door.leave(self._address)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._deaf:
            self._throw_away(data)
            return
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
        if self._head_bytes > self.head_bytes_max:
            self._give_up()
        elif self._head_timer is None and self._awaits_request:
            # Any data, even a line break, has stopped uvicorn's own timer.
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
            self._throw_away(body)
            return
        super().on_body(body)

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.transport.is_closing():
            self._abort_later(self.answer_timeout_s)  # the client may never take the rest of the answer

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stall_timer = self.loop.call_later(self.answer_timeout_s, self._cut)

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def timeout_keep_alive_handler(self) -> None:
        self._give_up()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if any(name in BODY_HEADERS for name, _ in cycle.scope["headers"]):
            cycle.transport = cast("asyncio.Transport", _Lingering(self, cycle))
            app = _closing_early_answers(app, cycle)
        app = _ending_when_cut(app, cycle)
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    @property
    def _awaits_request(self) -> bool:
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        return self._in_head or cycle is None or (cycle.response_complete and not cycle.more_body)

    def _turn_away(self, reason: str) -> None:
        """Refuses the connection with a 503, before anything is read."""
        if len(self.connections) > 2 * self.door.connections_max:
            self.transport.abort()  # even answering would take too many connections
            return
        body = f"{reason} Try again later.\n".encode()
        self.transport.write(
            b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: text/plain; charset=utf-8\r\nretry-after: 5\r\n"
            b"connection: close\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)
        )
        self.linger()

    def linger(self) -> None:
        """Stops answering. The client may still read its answer; the rest of its data is discarded."""
        self._deaf = True
        if self.transport.is_closing() or self._end_timer is not None:
            return
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self._end_timer = self.loop.call_later(self.linger_s, self._give_up)

    def _throw_away(self, data: bytes) -> None:
        self._unread_bytes += len(data)
        if self._unread_bytes > self.unread_bytes_max:
            self._give_up()

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = self._end_timer = None
        if not self.transport.is_closing():
            self.transport.close()
        self._abort_later(self.linger_s)

    def _cut(self) -> None:
        self._mark_cut()
        self.transport.abort()

    def _mark_cut(self) -> None:
        """Keeps an answer that is under way from being written to a connection that is gone."""
        if self._running is not None:
            self._running.disconnected = True

    def _abort_later(self, seconds: float) -> None:
        """Aborts after a while: a closing transport would wait for ever for a client that reads nothing."""
        if self._end_timer is None:
            self._end_timer = self.loop.call_later(seconds, self._cut)


class _Lingering:
    """The transport of a request whose body may still be arriving when the answer is complete."""

    def __init__(self, protocol: BoundedProtocol, cycle: RequestResponseCycle) -> None:
        self._protocol = protocol
        self._cycle = cycle
        self._transport = protocol.transport
        self.write = self._transport.write
        self.is_closing = self._transport.is_closing

    def close(self) -> None:
        if self._cycle.more_body:
            self._protocol.linger()
        else:
            self._transport.close()


def _closing_early_answers(app: ASGI3Application, cycle: RequestResponseCycle) -> ASGI3Application:
    """Adds ``Connection: close`` to answers that are sent before the body has ended."""

    async def bounded(scope: Any, receive: Any, send: Any) -> None:
        async def send_on(message: Any) -> None:
            if message["type"] == "http.response.start" and cycle.more_body:
                cycle.keep_alive = False
            await send(message)

        await app(scope, receive, send_on)

    return bounded


def _ending_when_cut(app: ASGI3Application, cycle: RequestResponseCycle) -> ASGI3Application:
    """Closes the connection of a cancelled request. Requests are cancelled only when the server ends."""

    async def ended(scope: Any, receive: Any, send: Any) -> None:
        try:
            await app(scope, receive, send)
        except asyncio.CancelledError:
            cycle.disconnected = True
            cycle.transport.close()

    return ended


def _protocol(settings: Settings) -> type[BoundedProtocol]:
    class Protocol(BoundedProtocol):
        answer_timeout_s = duration_ms(settings.answer_timeout) / 1_000
        door = ConnectionLimits(
            connections_max=settings.connections_max, per_address_max=settings.connections_per_address_max
        )

    return Protocol


def server_config(app: ASGIApp, settings: Settings, *, tls: Tls | None = None, **overrides: Any) -> uvicorn.Config:
    """Returns the configuration for ``uvicorn.Server``. Paceline logs itself, so uvicorn's logs are off."""
    options: dict[str, Any] = {
        "host": settings.host,
        "port": settings.port,
        "loop": "uvloop",
        "http": _protocol(settings),
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
