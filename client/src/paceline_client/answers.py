"""Answers of the service, read into models; and documents, written as it wants them."""

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
    """An answer as it came. ``response`` is still open if it was asked for as a stream."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    response: httpx.Response


class Model(msgspec.Struct, frozen=True):
    """What the service answers. Fields that this version does not know are passed over."""


class Page(Model, Generic[T], frozen=True):
    """One page of a list; ``next_cursor`` leads to the next."""

    items: list[T]
    next_cursor: str | None = None


class Reader(Protocol[T_co]):
    """Makes of a reply what the operation returns."""

    def read(self, reply: Reply) -> T_co: ...


class Json(Generic[T]):
    """A JSON document of one type. A model with an ``etag`` gets it from the header."""

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
    """The same, or None for 304: it is still as its ETag says."""

    def __init__(self, type_: type[T]) -> None:
        self.type = type_
        self._whole = Json(type_)

    def read(self, reply: Reply) -> T | None:
        return None if reply.status == 304 else self._whole.read(reply)


class IfLeft(Generic[T]):
    """A JSON document, or None for 204: nothing is left of it."""

    def __init__(self, type_: type[T]) -> None:
        self.type = type_
        self._whole = Json(type_)

    def read(self, reply: Reply) -> T | None:
        return None if reply.status == 204 else self._whole.read(reply)


class Nothing:
    """No body, or none that matters."""

    type = None

    def read(self, reply: Reply) -> None:
        del reply


class Text:
    """A text, whole."""

    type = str

    def read(self, reply: Reply) -> str:
        return reply.body.decode()


class Opened:
    """The reply itself, whose body is still to be read. ``type``: what one line of it is."""

    def __init__(self, type_: Any) -> None:
        self.type = type_

    def read(self, reply: Reply) -> Reply:
        return reply


def decode(type_: Any, body: bytes) -> Any:
    """The body as that type; UnexpectedAnswer if it is something else."""
    try:
        return _decoder(type_).decode(body)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise UnexpectedAnswer(
            f"The answer is not what this version of paceline-client reads: {error}. Is the service newer?"
        ) from error


def encode(document: Any) -> bytes:
    """The document as JSON, with durations as texts."""
    return _encode(plain(document))


def plain(value: Any) -> Any:
    """The value as the service wants it: every ``timedelta`` in it as a text, every aware ``datetime`` in UTC."""
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
    """The value with every model in it as a document; times and durations stay what they are."""
    match value:
        case msgspec.Struct():
            return {name: document_of(getattr(value, name)) for name in value.__struct_fields__}
        case list() | tuple():
            return [document_of(one) for one in value]
        case _:
            return value


_duration = lru_cache(maxsize=1_024)(Duration.parse)
"""Few durations are written by people, and each many times by the service."""


@cache
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_, dec_hook=_read_own_type)


def _read_own_type(type_: type, value: Any) -> Any:
    if type_ is Duration:
        return _duration(value)
    raise NotImplementedError(type_)
