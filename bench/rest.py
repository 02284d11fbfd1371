"""Single monitor PUTs over 64 keep-alive connections at FULL, beside the same server answering without a store."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import uvicorn
import uvloop
from starlette import routing

from bench.harness import Context, Result, in_turns, result
from paceline.config import load_settings
from paceline.core.monitors.definition import spec_document
from paceline.shells.api.http.answers import ApiAnswer, json_answer
from paceline.shells.api.http.app import Endpoint, build_app
from paceline.shells.api.http.context import ApiCall, ApiContext, ApiHooks
from paceline.shells.api.http.route import Route, RouteGroup
from paceline.shells.api.http.serving import server_config
from paceline.steps.access import TOKEN_BYTES, add_user
from paceline.steps.monitors.define import parse_put
from paceline.steps.views.report import MonitorView, ScheduleView
from paceline.wiring import System, open_system

CONNECTIONS = 64
RATIO_MIN = 0.4
BULK_ITEMS = 1_000
MONITORS_MAX = 10_000_000
FLOOR_PATH = "/floor/users/{user}/monitors/{id}"
CHECK = {"kind": "http", "url": "https://example.org/health", "expect": {"status": [200], "body_contains": "ok"}}


def run(context: Context) -> list[Result]:
    requests, rounds = (10_000, 9) if context.full else (3_000, 5)
    with server(context.folder) as (port, token):
        load = Load(port, token)
        contestants = {
            "floor": partial(load.single, "floor", requests),
            "create": partial(load.single, "create", requests),
            "replace": partial(load.single, "replace", requests),
            "bulk": partial(load.bulk, requests * 2),
        }
        rates = in_turns(rounds, contestants)
    floor = rates["floor"]
    shared = {"connections": CONNECTIONS, "synchronous": "full"}
    return [
        result("no store", requests, rates=floor, floor=floor, connections=CONNECTIONS),
        result("PUT, create", requests, rates=rates["create"], floor=floor, target=RATIO_MIN, **shared),
        result("PUT, replace", requests, rates=rates["replace"], floor=floor, target=RATIO_MIN, **shared),
        result("bulk PUT, per item", BULK_ITEMS, rates=rates["bulk"], floor=floor, synchronous="full"),
    ]


# -- the load


class Load:
    """Makes requests from this process, so that the server has a process of its own."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token
        self._made = self._rounds = 0

    def single(self, subject: str, requests: int) -> float:
        """Sends requests one by one; each is another monitor, new or changed."""
        first, self._made = self._made, self._made + requests
        self._rounds += 1
        prefix = "/floor" if subject == "floor" else "/v1"
        numbers = range(requests) if subject == "replace" else range(first, first + requests)
        every = f"{60 + self._rounds}s" if subject == "replace" else "60s"
        body = json.dumps({"check": CHECK, "every": every, "tags": ["bench"]}).encode()
        heads = [self._head("PUT", f"{prefix}/users/me/monitors/{subject}-{number}", len(body)) for number in numbers]
        return uvloop.run(_measure(self._port, [head + body for head in heads], connections=CONNECTIONS))

    def bulk(self, items: int) -> float:
        requests = []
        for start in range(self._made, self._made + items, BULK_ITEMS):
            documents = [
                {"id": f"bulk-{number}", "check": CHECK, "every": "60s", "tags": ["bench"]}
                for number in range(start, start + BULK_ITEMS)
            ]
            body = json.dumps({"items": documents}).encode()
            requests.append(self._head("PUT", "/v1/users/me/monitors", len(body)) + body)
        self._made += items
        per_s = uvloop.run(_measure(self._port, requests, connections=1))
        return per_s * BULK_ITEMS

    def _head(self, method: str, path: str, length: int) -> bytes:
        lines = [
            f"{method} {path} HTTP/1.1",
            "Host: 127.0.0.1",
            f"Authorization: Bearer {self._token}",
            "Content-Type: application/json",
            f"Content-Length: {length}",
        ]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


class _Connection(asyncio.Protocol):
    """Sends the next request as soon as the answer to the one before is complete."""

    def __init__(self, requests: Iterator[bytes], done: asyncio.Future[None]) -> None:
        self._requests = requests
        self._done = done
        self._buffer = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def start(self) -> None:
        request = next(self._requests, None)
        if request is None:
            self._transport.close()
            self._done.set_result(None)
        else:
            self._transport.write(request)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end]
        if not head.startswith(b"HTTP/1.1 20"):
            self._done.set_exception(RuntimeError(self._buffer[:500].decode()))
            self._transport.close()
            return
        start = head.index(b"content-length: ") + 16
        length = int(head[start:].split(b"\r\n", 1)[0])
        if len(self._buffer) < end + 4 + length:
            return
        self._buffer = b""
        self.start()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._done.done():
            self._done.set_exception(exc or ConnectionError("the server closed the connection"))


async def _measure(port: int, requests: Sequence[bytes], *, connections: int) -> float:
    """Returns requests per second, from the first sent to the last answered."""
    loop = asyncio.get_running_loop()
    left = iter(requests)
    ends: list[asyncio.Future[None]] = [loop.create_future() for _ in range(connections)]
    opened = [await loop.create_connection(partial(_Connection, left, end), "127.0.0.1", port) for end in ends]
    start_s = time.perf_counter()
    for _, protocol in opened:
        protocol.start()
    await asyncio.gather(*ends)
    return len(requests) / (time.perf_counter() - start_s)


# -- the server


@contextmanager
def server(folder: Path) -> Iterator[tuple[int, str]]:
    """Starts the API in a separate process. Yields its port, and a token."""
    command = [sys.executable, "-m", "bench.rest", str(folder / "rest.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            started = json.loads(process.stdout.readline())
            yield started["port"], started["token"]
        finally:
            process.terminate()


def serve(file: str) -> None:
    settings = load_settings(
        store=f"sqlite:///{file}", port=0, synchronous="full", monitors_max=MONITORS_MAX, log_level="warning"
    )
    system = open_system(settings)
    _, token = add_user(
        system.store,
        "bench",
        role="user",
        daily_credits=0,
        token_bytes=bytes(TOKEN_BYTES),
        secret_key=system.secret_key,
        now_ms=system.clock.now_ms(),
    )
    config = server_config(app_with_floor(system), settings)
    socket = config.bind_socket()
    socket.listen(2 * CONNECTIONS)
    print(msgspec.json.encode({"port": socket.getsockname()[1], "token": token.secret}).decode(), flush=True)
    uvicorn.Server(config).run(sockets=[socket])


def app_with_floor(system: System) -> routing.Router:
    """Returns the same app with one more route, which parses and renders the same without a store."""
    hooks = ApiHooks()
    app = build_app(system, hooks)
    bare = Route(
        RouteGroup("Bench"),
        "PUT",
        FLOOR_PATH,
        {200: MonitorView},
        access="open",
        document="MonitorBody",
        handler=answer_without_store,
    )
    app.routes.insert(1, routing.Route(FLOOR_PATH, Endpoint(ApiContext.of(system, hooks), [bare])))
    return app


async def answer_without_store(call: ApiCall) -> ApiAnswer:
    put = parse_put("bench", call.params["id"], call.body, call.api.limits)
    view = MonitorView(
        id=put.id,
        user=put.owner,
        schedule=ScheduleView(f"bench/{put.id}", 1, 0, "2030-01-01T00:00:00.000Z"),
        revision=1,
        health="new",
        failures=0,
        created_at="2030-01-01T00:00:00.000Z",
        updated_at="2030-01-01T00:00:00.000Z",
        **spec_document(put.spec),
    )
    return json_answer(200, view, (b"etag", b'"1-1"'))


if __name__ == "__main__":
    import structlog

    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    serve(sys.argv[1])
