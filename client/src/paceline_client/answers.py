"""Reads answers of the service into models, and writes documents in the form that the service takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import httpx
import msgspec

from paceline_client.durations import Duration, duration_text
from paceline_client.problems import UnexpectedAnswer

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
_encode = msgspec.json.Encoder().encode


class Reply(NamedTuple):
    """An answer as it came. ``response`` is still open if a stream was asked for."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    response: httpx.Response


class Model(msgspec.Struct, frozen=True):
    """An answer of the service. Fields that this version does not know are ignored."""


class Page(Model, Generic[T], frozen=True):
    """One page of a list; ``next_cursor`` leads to the next page."""

    items: list[T]
    next_cursor: str | None = None


class Reader(Protocol[T_co]):
    """Turns a reply into the result of the operation."""

    def read(self, reply: Reply) -> T_co: ...


class Json(Generic[T]):
    """Reads a JSON document of one type. A model with an ``etag`` gets it from the header."""

    def __init__(self, type_: type[T]) -> None:
        self.type = type_
        self._tagged = "etag" in getattr(type_, "__struct_fields__", ())

    def read(self, reply: Reply) -> T:
        value: T = decode(self.type, reply.body)
        if self._tagged:
            assert isinstance(value, msgspec.Struct)
            msgspec.structs.force_setattr(value, "etag", reply.headers.get("etag"))
        return value


class IfChanged(Generic[T]):
    """Reads a JSON document, or returns None for 304: it still has the ETag of the request."""

    def __init__(self, type_: type[T]) -> None:
        self.type = type_
        self._whole = Json(type_)

    def read(self, reply: Reply) -> T | None:
        return None if reply.status == 304 else self._whole.read(reply)


class IfLeft(Generic[T]):
    """Reads a JSON document, or returns None for 204: nothing is left of it."""

    def __init__(self, type_: type[T]) -> None:
        self.type = type_
        self._whole = Json(type_)

    def read(self, reply: Reply) -> T | None:
        return None if reply.status == 204 else self._whole.read(reply)


class Nothing:
    """Reads nothing: there is no body, or it does not matter."""

    type = None

    def read(self, reply: Reply) -> None:
        del reply


class Text:
    """Reads the whole body as text."""

    type = str

    def read(self, reply: Reply) -> str:
        return reply.body.decode()


class Opened:
    """Returns the reply itself, to read its body later. ``type`` is the type of one line."""

    def __init__(self, type_: Any) -> None:
        self.type = type_

    def read(self, reply: Reply) -> Reply:
        return reply


def decode(type_: Any, body: bytes) -> Any:
    """Returns the body as that type. Raises UnexpectedAnswer if it is something else."""
    try:
        return _decoder(type_).decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UnexpectedAnswer(
            f"The answer is not what this version of paceline-client reads: {error}. Is the service newer?"
        ) from error


def encode(document: Any) -> bytes:
    """Returns the document as JSON, with durations as texts."""
    return _encode(plain(document))


def plain(value: Any) -> Any:
    """Returns the value in the service's form: every ``timedelta`` as a text, every aware ``datetime`` in UTC."""
    match value:
        case str() | int() | float() | None:
            return value
        case timedelta():
            return duration_text(value)
        case datetime() if value.tzinfo is not None:
            return value.astimezone(UTC)
        case Mapping():
            return {name: plain(one) for name, one in value.items()}
        case Sequence() | set() | frozenset() if not isinstance(value, bytes | bytearray):
            return [plain(one) for one in value]
        case _:
            return value


def document_of(value: Any) -> Any:
    """Returns the value with every model in it as a document; times and durations stay as they are."""
    match value:
        case msgspec.Struct():
            return {name: document_of(getattr(value, name)) for name in value.__struct_fields__}
        case list() | tuple():
            return [document_of(one) for one in value]
        case _:
            return value


_duration = lru_cache(maxsize=1_024)(Duration.parse)
"""Cached, because people use few different durations, and the service repeats each many times."""


@cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_, dec_hook=_read_own_type)


def _read_own_type(type_: type, value: Any) -> Any:
    if type_ is Duration:
        return _duration(value)
    raise NotImplementedError(type_)
