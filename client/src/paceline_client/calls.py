"""Descriptions of operations: each is written once, for both clients.

A method of a resource describes an operation and does nothing else. It returns a ``Call`` (one request), a plan (a
generator that yields calls and pauses, such as ``edit``), or a source of items (pages of a list, lines of a stream).
The decorators ``operation`` and ``listing`` pass the description to the resource's transport. So a method of
``Monitors[SyncTransport]`` returns its answer, and the same method of ``Monitors[AsyncTransport]`` a coroutine; type
checkers see both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from types import MethodType
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Concatenate,
    Generic,
    ParamSpec,
    Protocol,
    Self,
    TypeAlias,
    TypeVar,
    overload,
)
from urllib.parse import quote

from paceline_client.answers import Page, Reader, Reply
from paceline_client.lines import Lines

if TYPE_CHECKING:
    from paceline_client.items import AsyncItems, Items
    from paceline_client.transport import AsyncTransport, SyncTransport

P = ParamSpec("P")
T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_REPEATABLE = frozenset({"GET", "PUT", "DELETE"})


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request, and how its answer is read.

    ``path`` is the template of the route, ``places`` the values for its braces. None in ``query`` and ``headers`` is
    left out. ``repeatable``: doing it twice has the same effect as once, so the request may be sent again if its answer
    is lost.
    """

    method: str
    path: str
    answer: Reader[T]
    places: Mapping[str, str] = field(default_factory=dict)
    query: Mapping[str, str | int | None] = field(default_factory=dict)
    headers: Mapping[str, str | None] = field(default_factory=dict)
    body: Any = None
    lines: Lines | None = None
    streamed: bool = False
    """True if the answer is read while it arrives."""
    repeatable: bool | None = None
    wait_s: float = 0.0
    """How long the service may wait on purpose, in addition to the client's timeout."""

    @property
    def url(self) -> str:
        return self.path.format_map({name: _segment(value) for name, value in self.places.items()})

    @property
    def may_repeat(self) -> bool:
        if self.lines is not None and not self.lines.again:
            return False
        return self.method in _REPEATABLE if self.repeatable is None else self.repeatable

    def __iter__(self) -> Plan[T]:
        """Lets a plan write ``monitor = yield from call``."""
        answer: T = yield self
        return answer


@dataclass(frozen=True, slots=True)
class Sleep:
    """A pause in a plan."""

    seconds: float

    def __iter__(self) -> Plan[None]:
        yield self


@dataclass(frozen=True, slots=True)
class Send:
    """One try of a call. Its result is a Reply or a NoAnswer."""

    call: Call[Any]


Act: TypeAlias = "Call[Any] | Send | Sleep"
Plan: TypeAlias = Generator[Act, Any, T]
"""A generator that yields acts, gets their results, and returns T. It is the same for sync and async."""


class Described(Protocol[T_co]):
    """A call or a plan, as ``operation`` takes it."""

    def __iter__(self) -> Generator[Act, Any, T_co]: ...


Transport = TypeVar("Transport", bound="SyncTransport | AsyncTransport")


class Resource(Generic[Transport]):
    """A group of operations over one transport."""

    def __init__(self, transport: Transport) -> None:
        self._transport: Transport = transport


R = TypeVar("R", bound=Resource[Any])
D = TypeVar("D")


class _Method(Generic[R, P, D]):
    """A method that passes its description to the resource's transport."""

    verb: ClassVar[str]
    """Name of the transport's method that does it."""

    def __init__(self, describe: Callable[Concatenate[R, P], D]) -> None:
        @functools.wraps(describe)
        def do(resource: R, *args: P.args, **kwargs: P.kwargs) -> Any:
            return getattr(resource._transport, self.verb)(describe(resource, *args, **kwargs))  # noqa: SLF001

        self.describe = describe
        self.__doc__ = describe.__doc__
        self._do = do

    def _bound(self, resource: Resource[Any] | None) -> Any:
        return self if resource is None else MethodType(self._do, resource)


class operation(_Method[R, P, Described[T]]):  # noqa: N801  a decorator
    """Decorator: turns the description of a call or a plan into a method that does it."""

    verb = "run"

    @overload
    def __get__(self, resource: None, owner: type) -> Self: ...
    @overload
    def __get__(self, resource: Resource[SyncTransport], owner: type) -> Callable[P, T]: ...
    @overload
    def __get__(self, resource: Resource[AsyncTransport], owner: type) -> Callable[P, Coroutine[Any, Any, T]]: ...
    def __get__(self, resource: Resource[Any] | None, owner: type) -> Any:
        return self._bound(resource)


@dataclass(frozen=True, slots=True)
class Pages(Generic[T]):
    """A list, read page by page as items are needed. ``limit``: the most items; None: all."""

    first: Call[Page[T]]
    limit: int | None = None


@dataclass(frozen=True, slots=True)
class Stream(Generic[T]):
    """Lines of an answer, read as they come. ``read`` turns a line into an item."""

    call: Call[Reply]
    read: Callable[[bytes], T]


Source: TypeAlias = Pages[T] | Stream[T]


class listing(_Method[R, P, Source[T]]):  # noqa: N801  a decorator
    """Decorator: turns the description of a list or a stream into a method that iterates over it."""

    verb = "items"

    @overload
    def __get__(self, resource: None, owner: type) -> Self: ...
    @overload
    def __get__(self, resource: Resource[SyncTransport], owner: type) -> Callable[P, Items[T]]: ...
    @overload
    def __get__(self, resource: Resource[AsyncTransport], owner: type) -> Callable[P, AsyncItems[T]]: ...
    def __get__(self, resource: Resource[Any] | None, owner: type) -> Any:
        return self._bound(resource)


def given(**fields: Any) -> dict[str, Any]:
    """Returns the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def _segment(value: str) -> str:
    """Returns a name as one part of a path.

    Dots alone are escaped: they would lead to another path, such as the batch.
    """
    quoted = quote(value, safe="")
    return quoted if quoted.strip(".") else quoted.replace(".", "%2E")
