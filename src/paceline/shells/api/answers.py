"""What a handler answers, and how it goes out."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from starlette.types import Send

from paceline.errors import PacelineError, Unauthenticated
from paceline.shells.api.problems import problem_of, retry_after_s

Header = tuple[bytes, bytes]

_JSON: Header = (b"content-type", b"application/json")
_PROBLEM: Header = (b"content-type", b"application/problem+json")
_GUARDED: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)
_CLOSE: Header = (b"connection", b"close")
_encode = msgspec.json.Encoder().encode


class Answer(NamedTuple):
    status: int
    body: bytes = b""
    headers: tuple[Header, ...] = ()


def json_answer(status: int, value: Any, *headers: Header) -> Answer:
    return Answer(status, _encode(value), (_JSON, *_GUARDED, *headers))


def empty_answer(status: int, *headers: Header) -> Answer:
    return Answer(status, b"", (*_GUARDED, *headers))


def text_answer(status: int, body: bytes, content_type: str, *, policy: str | None = None) -> Answer:
    """Anything that is not JSON. ``policy`` is the page's own content security policy."""
    guarded = [header for header in _GUARDED if policy is None or header[0] != b"content-security-policy"]
    own = [(b"content-security-policy", policy.encode())] if policy is not None else []
    return Answer(status, body, ((b"content-type", content_type.encode()), *guarded, *own))


def problem_answer(error: PacelineError, *headers: Header, close: bool = False) -> Answer:
    """``close``: the rest of the request is not worth reading."""
    extra = list(headers)
    if (seconds := retry_after_s(error)) is not None:
        extra.append((b"retry-after", b"%d" % seconds))
    if isinstance(error, Unauthenticated):
        extra.append((b"www-authenticate", b'Bearer realm="paceline"'))
    if close:
        extra.append(_CLOSE)
    return Answer(error.status, _encode(problem_of(error)), (_PROBLEM, *_GUARDED, *extra))


async def send_answer(answer: Answer, send: Send) -> None:
    headers = answer.headers
    if answer.status not in (204, 304):
        headers = (*headers, (b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})
