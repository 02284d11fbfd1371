"""An httpx transport that calls the API in this process: a test's client talks to the real routes."""

from __future__ import annotations

import asyncio
from collections.abc import MutableMapping
from typing import Any

import httpx
from starlette.types import ASGIApp


class ApiTransport(httpx.BaseTransport):
    """Answers each request in the caller's own thread, so that a test does everything in the same order each time."""

    def __init__(self, app: ASGIApp, runner: asyncio.Runner) -> None:
        self._app = app
        self._runner = runner

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        return self._runner.run(_ask(self._app, request, request.read()))


async def _ask(app: ASGIApp, request: httpx.Request, body: bytes) -> httpx.Response:
    status, headers, pieces = 500, [], []
    asked = False

    async def receive() -> MutableMapping[str, Any]:
        nonlocal asked
        if asked:
            await asyncio.Event().wait()  # the client stays connected until it has its answer
        asked = True
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        nonlocal status, headers
        if message["type"] == "http.response.start":
            status, headers = message["status"], message["headers"]
        else:
            pieces.append(message.get("body", b""))

    url = request.url
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": request.method,
        "scheme": url.scheme,
        "path": url.path,
        "raw_path": url.raw_path.partition(b"?")[0],
        "query_string": url.query,
        "root_path": "",
        "headers": [(name.lower(), value) for name, value in request.headers.raw],
        "client": ("127.0.0.1", 0),
        "server": (url.host, url.port or 80),
    }
    await app(scope, receive, send)
    return httpx.Response(status, headers=headers, content=b"".join(pieces), request=request)
