"""A model HTTP server with the good, slow and hostile answers that checks meet: for demo, tests and benchmarks.

    /ok  /status/N  /slow/MS  /flap?period=MS  /flaky?percent=N  /drip?every=MS  /endless  /gzip-bomb
    /redirect?to=URL&status=N  /echo  /hang

Answers depend on the request, the clock and the seed alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import ssl
import threading
import time
import zlib
from collections import Counter, deque
from collections.abc import AsyncIterator, Callable
from functools import cache
from http import HTTPStatus
from typing import Literal, NamedTuple, Protocol, Self
from urllib.parse import parse_qs, urlsplit

import httptools
import msgspec

from paceline.ports import Clock

REQUESTS_LOGGED_MAX = 1_000
PATHS_COUNTED_MAX = 1_000
BODY_BYTES_MAX = 1_048_576
BOMB_BYTES = 64 * 1_048_576
WAIT_MS_MAX = 600_000
START_TIMEOUT_S = 10.0
OTHER_PATHS = "(other paths)"
Cut = Literal["", "all", "half"]


class ModelRequest(NamedTuple):
    method: str
    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    def parameter(self, name: str, default: str) -> str:
        return parse_qs(urlsplit(self.target).query).get(name, [default])[0]

    def number(self, name: str, default: int) -> int:
        return _number(self.parameter(name, str(default)), default)


class ModelAnswer(NamedTuple):
    """An answer. ``stream`` follows ``body`` and ends with the connection.

    ``cut`` closes the connection: ``all`` before any byte, ``half`` in the middle of the body.
    """

    status: int = 200
    body: bytes = b""
    headers: tuple[tuple[str, str], ...] = (("Content-Type", "text/plain; charset=utf-8"),)
    delay_ms: int = 0
    stream: AsyncIterator[bytes] | None = None
    cut: Cut = ""


class HttpModel(Protocol):
    def answer(self, request: ModelRequest) -> ModelAnswer: ...


class RequestLog:
    """A count of requests for each path, and the latest requests; both bounded. Any thread may read it."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._latest: deque[ModelRequest] = deque(maxlen=REQUESTS_LOGGED_MAX)

    def add(self, request: ModelRequest) -> None:
        path = request.target.partition("?")[0]
        if path not in self._counts and len(self._counts) >= PATHS_COUNTED_MAX:
            path = OTHER_PATHS
        self._counts[path] += 1
        self._latest.append(request)

    def count(self, path: str) -> int:
        return self._counts[path]

    @property
    def total(self) -> int:
        return sum(list(self._counts.values()))

    @property
    def latest(self) -> list[ModelRequest]:
        """The latest requests, oldest first."""
        return list(self._latest)


class ModelHttpServer:
    """Serves on a thread of its own (``start``, ``stop``, or ``with``) or on the caller's (``serve_forever``)."""

    def __init__(
        self,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        seed: int = 0,
        clock: Clock | None = None,
        model: HttpModel | None = None,
        tls: ssl.SSLContext | None = None,
        body_bytes_max: int = BODY_BYTES_MAX,
    ) -> None:
        """Prepare the server. With a TLS context it speaks https."""
        self.log = RequestLog()
        self._host = host
        self._port = port
        self._model = model or _Model(seed, clock or _SystemClock())
        self._tls = tls
        self._body_bytes_max = body_bytes_max
        self._ready = threading.Event()
        self._failure: OSError | None = None
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None

    @property
    def port(self) -> int:
        """The port that the server listens on; with port 0 it is known after ``start``."""
        return self._port

    @property
    def base_url(self) -> str:
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"{'https' if self._tls else 'http'}://{host}:{self._port}"

    def start(self) -> None:
        """Return when the server listens; raises OSError if the address is taken."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._serve_in_thread, name="model-http", daemon=True)
        self._thread.start()
        if not self._ready.wait(START_TIMEOUT_S):
            raise TimeoutError(f"The model HTTP server did not start within {START_TIMEOUT_S:.0f} s.")
        if self._failure is not None:
            raise self._failure

    def stop(self) -> None:
        """Close every connection. May be called from any thread, or from a signal handler."""
        if self._loop is not None and self._stopping is not None:
            with contextlib.suppress(RuntimeError):  # the loop has ended already
                self._loop.call_soon_threadsafe(self._stopping.set)
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(START_TIMEOUT_S)

    def serve_forever(self) -> None:
        """Serve until ``stop`` or KeyboardInterrupt."""
        asyncio.run(self._serve())

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _serve_in_thread(self) -> None:
        try:
            self.serve_forever()
        except OSError as error:
            self._failure = error
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        connections: set[_Connection] = set()

        def connect() -> _Connection:
            return _Connection(self._model, self.log, connections, self._body_bytes_max)

        server = await self._loop.create_server(connect, self._host, self._port, backlog=4_096, ssl=self._tls)
        self._port = server.sockets[0].getsockname()[1]
        self._ready.set()
        try:
            await self._stopping.wait()
        finally:
            server.close()
            for connection in list(connections):
                connection.abort()


class _SystemClock:
    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000


class _Model:
    """Chooses the answer of each path."""

    def __init__(self, seed: int, clock: Clock) -> None:
        self._chance = random.Random(seed)  # noqa: S311 - a model, not a secret
        self._clock = clock
        self._routes: dict[str, Callable[[ModelRequest, str], ModelAnswer]] = {
            "ok": lambda _request, _rest: OK,
            "status": lambda _request, rest: _status(_number(rest, 200)),
            "slow": lambda _request, rest: OK._replace(delay_ms=min(_number(rest, 1_000), WAIT_MS_MAX)),
            "flap": self._flap,
            "flaky": self._flaky,
            "drip": lambda request, _rest: ModelAnswer(stream=_drip(min(request.number("every", 100), WAIT_MS_MAX))),
            "endless": lambda _request, _rest: ModelAnswer(stream=_endless()),
            "gzip-bomb": lambda _request, _rest: ModelAnswer(body=_bomb(), headers=(("Content-Encoding", "gzip"),)),
            "redirect": _redirect,
            "echo": _echo,
            "hang": lambda _request, _rest: OK._replace(delay_ms=WAIT_MS_MAX),
        }

    def answer(self, request: ModelRequest) -> ModelAnswer:
        if request.target == "/ok":
            return OK
        name, _, rest = request.path.removeprefix("/").partition("/")
        route = self._routes.get(name)
        if route is None:
            known = ", ".join(f"/{known}" for known in self._routes)
            return ModelAnswer(404, f"no such path; there are {known}\n".encode())
        return route(request, rest)

    def _flap(self, request: ModelRequest, _rest: str) -> ModelAnswer:
        """Answer 200 for one period and 503 for the next."""
        period_ms = max(1, request.number("period", 10_000))
        return _status(503 if self._clock.now_ms() // period_ms % 2 else 200)

    def _flaky(self, request: ModelRequest, _rest: str) -> ModelAnswer:
        return _status(503 if self._chance.random() * 100 < request.number("percent", 10) else 200)


class _Connection(asyncio.Protocol):
    """The connection of one client. Its requests are answered in order."""

    def __init__(self, model: HttpModel, log: RequestLog, connections: set[_Connection], body_bytes_max: int) -> None:
        self._model = model
        self._body_bytes_max = body_bytes_max
        self._log = log
        self._connections = connections
        self._parser = httptools.HttpRequestParser(self)
        self._transport: asyncio.Transport | None = None
        self._url = b""
        self._headers: dict[str, str] = {}
        self._body: list[bytes] = []
        self._waiting: deque[tuple[ModelRequest, bool]] = deque()
        self._answering: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    # Methods that asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._connections.add(self)

    def connection_lost(self, _error: Exception | None) -> None:
        self._connections.discard(self)
        if self._answering is not None:
            self._answering.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._send(ModelAnswer(400, b"not HTTP\n"), "GET", keep=False)
            self.abort()

    # Methods that the parser calls

    def on_message_begin(self) -> None:
        self._url = b""
        self._headers = {}
        self._body = []

    def on_url(self, url: bytes) -> None:
        self._url += url

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.decode("latin-1")] = value.decode("latin-1")

    def on_body(self, body: bytes) -> None:
        self._body.append(body)
        if sum(map(len, self._body)) > self._body_bytes_max:
            self.abort()

    def on_message_complete(self) -> None:
        method = self._parser.get_method().decode("latin-1")
        request = ModelRequest(method, self._url.decode("latin-1"), self._headers, b"".join(self._body))
        self._log.add(request)
        keep = self._parser.should_keep_alive()
        if self._answering is not None:
            self._waiting.append((request, keep))
            return
        answer = self._model.answer(request)
        if answer.delay_ms or answer.stream is not None:
            self._answering = asyncio.get_running_loop().create_task(self._answer_in_turn(request, answer, keep=keep))
        else:
            self._send(answer, method, keep=keep)

    # Answers

    async def _answer_in_turn(self, request: ModelRequest, answer: ModelAnswer, *, keep: bool) -> None:
        """Send a delayed or streamed answer, then answer the requests that arrived in the meantime."""
        while True:
            await asyncio.sleep(answer.delay_ms / 1_000)
            self._send(answer, request.method, keep=keep)
            if answer.stream is not None:
                await self._send_stream(answer.stream)
            if not self._waiting:
                break
            request, keep = self._waiting.popleft()
            answer = self._model.answer(request)
        self._answering = None

    async def _send_stream(self, stream: AsyncIterator[bytes]) -> None:
        assert self._transport is not None
        async for piece in stream:
            await self._writable.wait()
            self._transport.write(piece)
        self._transport.close()

    def _send(self, answer: ModelAnswer, method: str, *, keep: bool) -> None:
        assert self._transport is not None
        if answer.cut != "all":
            whole = _encode(answer, head_only=method == "HEAD")
            self._transport.write(whole[: len(whole) - (len(answer.body) + 1) // 2] if answer.cut else whole)
        if answer.cut or (not keep and answer.stream is None):
            self._transport.close()


OK = ModelAnswer(body=b"ok\n")


def _number(text: str, default: int) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) <= 9 else default


def _status(status: int) -> ModelAnswer:
    return ModelAnswer(status if 200 <= status <= 599 else 400, f"{status}\n".encode())


def _redirect(request: ModelRequest, _rest: str) -> ModelAnswer:
    target = request.parameter("to", "/ok").replace("\r", "").replace("\n", "")
    return ModelAnswer(request.number("status", 302), headers=(("Location", target),))


def _echo(request: ModelRequest, _rest: str) -> ModelAnswer:
    document = {
        "method": request.method,
        "target": request.target,
        "headers": request.headers,
        "body": request.body.decode("utf-8", "replace"),
    }
    return ModelAnswer(body=msgspec.json.encode(document), headers=(("Content-Type", "application/json"),))


async def _drip(every_ms: int) -> AsyncIterator[bytes]:
    while True:
        yield b"."
        await asyncio.sleep(every_ms / 1_000)


async def _endless() -> AsyncIterator[bytes]:
    while True:
        yield b"on and on and on\n" * 1_024
        await asyncio.sleep(0)


@cache
def _bomb() -> bytes:
    """Return a body that is small on the wire and large when unpacked."""
    packer = zlib.compressobj(9, wbits=31)
    zeros = bytes(1_048_576)
    return b"".join(packer.compress(zeros) for _ in range(BOMB_BYTES // len(zeros))) + packer.flush()


def _encode(answer: ModelAnswer, *, head_only: bool) -> bytes:
    if answer is OK and not head_only:
        return _OK_BYTES
    try:
        phrase = HTTPStatus(answer.status).phrase
    except ValueError:
        phrase = "Status"
    lines = [f"HTTP/1.1 {answer.status} {phrase}", *(f"{name}: {value}" for name, value in answer.headers)]
    if answer.stream is not None:
        lines.append("Connection: close")
    elif answer.status != HTTPStatus.NO_CONTENT:
        lines.append(f"Content-Length: {len(answer.body)}")
    head = ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")
    return head if head_only or answer.status in (204, 304) else head + answer.body


_OK_BYTES = _encode(ModelAnswer(body=b"ok\n"), head_only=False)
