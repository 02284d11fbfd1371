"""Calls the API for a page, with the rights of the signed-in user: the same routes and checks, but not over HTTP.

So a page can show nothing that the API does not expose, and nobody sees more on a page than over REST.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any
from urllib.parse import urlencode

import msgspec

from paceline.core.users import TokenUser
from paceline.errors import NotFound
from paceline.shells.api.http.answers import ApiAnswer, Stream
from paceline.shells.api.http.app import admit
from paceline.shells.api.http.context import ApiCall
from paceline.shells.api.http.route import Route
from paceline.shells.api.routes import ROUTES

_GETS: dict[str, Route] = {route.path: route for route in ROUTES if route.method == "GET"}
Query = Mapping[str, str | int]


class Api:
    """The API, as one page uses it."""

    def __init__(self, call: ApiCall) -> None:
        self._call = call

    @property
    def user(self) -> TokenUser:
        return self._call.user

    @property
    def now_ms(self) -> int:
        return self._call.api.now_ms()

    async def get(self, path: str, query: Query | None = None, /, **params: str) -> Any:
        """Returns the decoded JSON of ``GET path``. ``path`` is the route's own, with its placeholders."""
        route = _GETS[path]
        admit(self.user, route, params)
        asked = urlencode({name: value for name, value in (query or {}).items() if value != ""}).encode()
        answer = await route.handler(self._call._replace(params=params, query_string=asked, headers={}, body=None))
        assert isinstance(answer, ApiAnswer)
        return msgspec.json.decode(answer.body)

    async def lines(self, path: str, /, *, bytes_max: int, within_s: float, **params: str) -> tuple[list[bytes], bool]:
        """Returns the first whole lines that ``GET path`` streams, and whether there are more.

        The stream is ended after ``bytes_max`` bytes, or after ``within_s`` seconds.
        """
        route = _GETS[path]
        admit(self.user, route, params)
        stream = await route.handler(self._call._replace(params=params, query_string=b"", headers={}, body=None))
        assert isinstance(stream, Stream)
        read, loop = b"", asyncio.get_running_loop()
        until_s = loop.time() + within_s
        page: bytes | None = b""
        late = loop.call_later(within_s, stream.close)
        try:
            while page is not None and len(read) < bytes_max and loop.time() < until_s:
                page = await loop.run_in_executor(stream.threads, next, stream.pages, None)
                read += page or b""
        finally:
            late.cancel()
            stream.close()
        whole, _, rest = read.rpartition(b"\n")
        more = page is not None or bool(rest) or loop.time() >= until_s
        return whole.splitlines(), more

    async def find(self, path: str, query: Query | None = None, /, **params: str) -> Any | None:
        """Like ``get``, but returns None if there is no such thing."""
        try:
            return await self.get(path, query, **params)
        except NotFound:
            return None


async def together(*asked: Awaitable[Any]) -> list[Any]:
    """Returns all answers, in the order of the questions."""
    return list(await asyncio.gather(*asked))
