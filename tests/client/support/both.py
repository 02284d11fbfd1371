"""Both clients behind one face, so that each test covers both."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

from paceline_client import AsyncClient, AsyncItems, Client
from paceline_client.calls import Resource


class Blocking:
    """An AsyncClient, or a part of it, whose methods block as those of a Client do."""

    def __init__(self, part: Any, runner: asyncio.Runner) -> None:
        self._part, self._runner = part, runner

    def __getattr__(self, name: str) -> Any:
        return self._as_blocking(getattr(self._part, name))

    def __iter__(self) -> Iterator[Any]:
        iterator = aiter(self._part)
        while (item := self._runner.run(_next(iterator))) is not _END:
            yield item

    def _as_blocking(self, value: Any) -> Any:
        if inspect.iscoroutine(value):
            return self._as_blocking(self._runner.run(value))
        if isinstance(value, Resource | AsyncItems):
            return Blocking(value, self._runner)
        if inspect.ismethod(value):
            return lambda *args, **kwargs: self._as_blocking(value(*args, **kwargs))
        return value


_END = object()
Connect = Callable[..., Any]


async def _next(iterator: Any) -> Any:
    return await anext(iterator, _END)


def connecting(kind: str) -> Iterator[Connect]:
    """A function that makes clients of one kind, and closes them at the end."""
    made: list[Any] = []
    with asyncio.Runner() as runner:

        def connect(url: str, token: str, **options: Any) -> Any:
            client = (
                Client(url, token, **options)
                if kind == "Client"
                else Blocking(AsyncClient(url, token, **options), runner)
            )
            made.append(client)
            return client

        yield connect
        for client in made:
            client.close()
