"""The two transports, one blocking, one asynchronous: they send, pause and iterate as plans say. The rest is shared."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Generic, Self, TypeVar, assert_never

import httpx

from paceline_client.answers import Page, Reply, encode
from paceline_client.calls import Act, Call, Described, Pages, Send, Sleep, Source, Stream
from paceline_client.items import AsyncItems, Items
from paceline_client.lines import MEDIA, LineSplitter
from paceline_client.problems import ClientError, NoAnswer
from paceline_client.retries import Retries, deliver

T = TypeVar("T")
PAGE_ITEMS = 100
"""Items that the service puts on a page by default; the operator may allow no more."""
_NOT_SENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout, httpx.UnsupportedProtocol)
_JSON = {"content-type": "application/json"}
_LINES = {"content-type": MEDIA}


@dataclass(frozen=True, slots=True)
class Connection:
    """Address of the service, token, timeout and retries."""

    url: str
    token: str = field(repr=False)
    timeout_s: float
    verify: ssl.SSLContext | bool = True
    retries: Retries = field(default_factory=Retries)

    def with_options(self, timeout_s: float | None, tries_max: int | None) -> Connection:
        """Returns the connection with another timeout or number of tries. None keeps the current one."""
        retries = self.retries if tries_max is None else replace(self.retries, tries_max=tries_max)
        return replace(self, timeout_s=self.timeout_s if timeout_s is None else timeout_s, retries=retries)

    @property
    def options(self) -> dict[str, Any]:
        """Arguments for both clients of httpx."""
        return {
            "base_url": self.url,
            "headers": {"authorization": f"Bearer {self.token}", "user-agent": "paceline-client"},
            "timeout": self.timeout_s,
            "verify": self.verify,
            "follow_redirects": False,
        }

    def request(self, http: httpx.Client | httpx.AsyncClient, call: Call[Any]) -> httpx.Request:
        """Returns the httpx request of a call."""
        headers = {name: value for name, value in call.headers.items() if value is not None}
        content: Any = None
        if call.body is not None:
            content, headers = encode(call.body), headers | _JSON
        elif call.lines is not None:
            content = call.lines.chunks() if isinstance(http, httpx.Client) else call.lines.achunks()
            headers |= _LINES
        query = {name: value for name, value in call.query.items() if value is not None}
        return http.build_request(
            call.method,
            call.url,
            params=query or None,
            headers=headers,
            content=content,
            timeout=httpx.Timeout(self.timeout_s, read=self.timeout_s + call.wait_s),
        )


class SyncTransport:
    """Blocks until the answer has come. May be shared by threads."""

    def __init__(self, connection: Connection, http: httpx.Client | None = None) -> None:
        self.connection = connection
        self._http = http or httpx.Client(**connection.options)

    def over(self, connection: Connection) -> Self:
        """Returns a transport on the same connections with other options."""
        return type(self)(connection, self._http)

    def run(self, described: Described[T]) -> T:
        """Runs the call or plan and returns its result. An error of an act is raised inside the plan."""
        plan = iter(described)
        try:
            act = next(plan)
            while True:
                try:
                    got = self._do(act)
                except ClientError as error:
                    act = plan.throw(error)
                else:
                    act = plan.send(got)
        except StopIteration as end:
            answer: T = end.value
            return answer
        finally:
            plan.close()

    def items(self, source: Source[T]) -> Items[T]:
        if isinstance(source, Pages):
            return Items(lambda: self._pages(source))
        return Items(lambda: self._lines(source))

    def close(self) -> None:
        self._http.close()

    def _do(self, act: Act) -> Any:
        match act:
            case Send(call):
                return self._send(call)
            case Call():
                return self.run(deliver(act, self.connection.retries))
            case Sleep(seconds):
                return time.sleep(seconds)
            case _:
                assert_never(act)

    def _send(self, call: Call[Any]) -> Reply | NoAnswer:
        try:
            response = self._http.send(self.connection.request(self._http, call), stream=call.streamed)
            if call.streamed and response.status_code >= 400:
                response.read()
        except httpx.RequestError as error:
            return _no_answer(call, error)
        return _reply(response, call)

    def _pages(self, pages: Pages[T]) -> Iterator[T]:
        walk = _PageWalk(pages)
        while (call := walk.next_call()) is not None:
            yield from walk.take(self.run(call))

    def _lines(self, stream: Stream[T]) -> Iterator[T]:
        response, splitter = self.run(stream.call).response, LineSplitter()
        try:
            for piece in response.iter_bytes():
                for line in splitter.feed(piece):
                    yield stream.read(line)
        except httpx.RequestError as error:
            raise _broken_off(stream.call, error) from error
        finally:
            response.close()
        for line in splitter.end():
            yield stream.read(line)


class AsyncTransport:
    """Returns coroutines. Belongs to one event loop."""

    def __init__(self, connection: Connection, http: httpx.AsyncClient | None = None) -> None:
        self.connection = connection
        self._http = http or httpx.AsyncClient(**connection.options)

    def over(self, connection: Connection) -> Self:
        """Returns a transport on the same connections with other options."""
        return type(self)(connection, self._http)

    async def run(self, described: Described[T]) -> T:
        """Runs the call or plan and returns its result. An error of an act is raised inside the plan."""
        plan = iter(described)
        try:
            act = next(plan)
            while True:
                try:
                    got = await self._do(act)
                except ClientError as error:
                    act = plan.throw(error)
                else:
                    act = plan.send(got)
        except StopIteration as end:
            answer: T = end.value
            return answer
        finally:
            plan.close()

    def items(self, source: Source[T]) -> AsyncItems[T]:
        if isinstance(source, Pages):
            return AsyncItems(lambda: self._pages(source))
        return AsyncItems(lambda: self._lines(source))

    async def close(self) -> None:
        await self._http.aclose()

    async def _do(self, act: Act) -> Any:
        match act:
            case Send(call):
                return await self._send(call)
            case Call():
                return await self.run(deliver(act, self.connection.retries))
            case Sleep(seconds):
                return await asyncio.sleep(seconds)
            case _:
                assert_never(act)

    async def _send(self, call: Call[Any]) -> Reply | NoAnswer:
        try:
            response = await self._http.send(self.connection.request(self._http, call), stream=call.streamed)
            if call.streamed and response.status_code >= 400:
                await response.aread()
        except httpx.RequestError as error:
            return _no_answer(call, error)
        return _reply(response, call)

    async def _pages(self, pages: Pages[T]) -> AsyncIterator[T]:
        walk = _PageWalk(pages)
        while (call := walk.next_call()) is not None:
            for item in walk.take(await self.run(call)):
                yield item

    async def _lines(self, stream: Stream[T]) -> AsyncIterator[T]:
        response, splitter = (await self.run(stream.call)).response, LineSplitter()
        try:
            async for piece in response.aiter_bytes():
                for line in splitter.feed(piece):
                    yield stream.read(line)
        except httpx.RequestError as error:
            raise _broken_off(stream.call, error) from error
        finally:
            await response.aclose()
        for line in splitter.end():
            yield stream.read(line)


class _PageWalk(Generic[T]):
    """Position in a list: the next page, and how many items are still wanted."""

    def __init__(self, pages: Pages[T]) -> None:
        self._pages = pages
        self._left = pages.limit
        self._cursor: str | None = None
        self._ended = False

    def next_call(self) -> Call[Page[T]] | None:
        """Returns the call for the next page; None if the list has ended, or enough items were taken."""
        if self._ended or self._left == 0:
            return None
        size = None if self._left is None else min(self._left, PAGE_ITEMS)
        first = self._pages.first
        return replace(first, query={**first.query, "limit": size, "cursor": self._cursor})

    def take(self, page: Page[T]) -> list[T]:
        self._cursor = page.next_cursor
        self._ended = page.next_cursor is None
        taken = page.items if self._left is None else page.items[: self._left]
        if self._left is not None:
            self._left -= len(taken)
        return taken


def _reply(response: httpx.Response, call: Call[Any]) -> Reply:
    is_open = call.streamed and response.status_code < 400
    return Reply(response.status_code, response.headers, b"" if is_open else response.content, response)


def _no_answer(call: Call[Any], error: httpx.RequestError) -> NoAnswer:
    not_sent = isinstance(error, _NOT_SENT)
    what = "The service cannot be reached" if not_sent else "The connection ended before the answer"
    detail = f"{what}: {call.method} {call.path}: {type(error).__name__} {error}".rstrip()
    no_answer = NoAnswer(detail, may_have_counted=not not_sent)
    no_answer.__cause__ = error
    return no_answer


def _broken_off(call: Call[Any], error: httpx.RequestError) -> NoAnswer:
    detail = f"The answer broke off: {call.method} {call.path}: {type(error).__name__} {error}".rstrip()
    return NoAnswer(detail, may_have_counted=True)
