"""Answers of handlers, and the functions that send them."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from hashlib import blake2b
from typing import Any, NamedTuple

import msgspec
from starlette.types import Receive, Send

from paceline.errors import PacelineError, Unauthenticated
from paceline.shells.api.http.problems import problem_of, retry_after_s

Header = tuple[bytes, bytes]

_JSON: Header = (b"content-type", b"application/json")
_PROBLEM: Header = (b"content-type", b"application/problem+json")
_HTML: Header = (b"content-type", b"text/html; charset=utf-8")
_GUARDED: tuple[Header, ...] = (
    (b"x-content-type-options", b"nosniff"),
    (b"cache-control", b"no-store"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"referrer-policy", b"no-referrer"),
)
_CLOSE: Header = (b"connection", b"close")
_encode = msgspec.json.Encoder().encode
GZIP_BYTES_MIN = 16_384
"""Smaller answers, pages of HTML aside, are not compressed: they fit into a few packets anyway."""
GZIP_PAGE_BYTES_MIN = 1_024
"""Smaller pages of HTML are not compressed. The limit is low because pages are polled."""
GZIP_THREAD_BYTES_MIN = 262_144
"""Larger answers are compressed in a thread, so that other requests go on meanwhile."""
GZIP_LEVEL = 1
"""At the fastest level lists of JSON shrink to a tenth; higher levels cost several times as much for little more."""
GZIP_FORM = 16 + zlib.MAX_WBITS
_ENCODED: Header = (b"content-encoding", b"gzip")
_VARIES: Header = (b"vary", b"accept-encoding")


class ApiAnswer(NamedTuple):
    status: int
    body: bytes = b""
    headers: tuple[Header, ...] = ()


class Stream(NamedTuple):
    """A streamed answer. Each page is made in a thread, once the page before it has been sent."""

    status: int
    pages: Iterator[bytes]
    headers: tuple[Header, ...]
    threads: Executor
    """Threads that make the pages."""
    close: Callable[[], None] = lambda: None
    """Called when no further page is needed, also while one is being made."""


def json_answer(status: int, value: Any, *headers: Header) -> ApiAnswer:
    return ApiAnswer(status, _encode(value), (_JSON, *_GUARDED, *headers))


def tagged_answer(value: Any, headers: Mapping[bytes, bytes]) -> ApiAnswer:
    """Returns JSON with an ETag of its bytes, or 304 if the client already has these bytes."""
    body = _encode(value)
    tag = b'W/"%s"' % blake2b(body, digest_size=12).hexdigest().encode()
    seen = headers.get(b"if-none-match", b"")
    if tag in [part.strip() for part in seen.split(b",")]:
        return empty_answer(304, (b"etag", tag))
    return ApiAnswer(200, body, (_JSON, *_GUARDED, (b"etag", tag)))


def empty_answer(status: int, *headers: Header) -> ApiAnswer:
    return ApiAnswer(status, b"", (*_GUARDED, *headers))


def text_answer(status: int, body: bytes, content_type: str, *, policy: str | None = None) -> ApiAnswer:
    """Returns an answer that is not JSON. ``policy`` is the page's own content security policy."""
    guarded = [header for header in _GUARDED if policy is None or header[0] != b"content-security-policy"]
    own = [(b"content-security-policy", policy.encode())] if policy is not None else []
    return ApiAnswer(status, body, ((b"content-type", content_type.encode()), *guarded, *own))


def stream_answer(
    pages: Iterator[bytes],
    content_type: str,
    *headers: Header,
    threads: Executor,
    close: Callable[[], None] = lambda: None,
) -> Stream:
    return Stream(200, pages, ((b"content-type", content_type.encode()), *_GUARDED, *headers), threads, close)


def problem_answer(error: PacelineError, *headers: Header, close: bool = False) -> ApiAnswer:
    """Returns the error as a problem document.

    ``close``: closes the connection without reading the rest of the request.
    """
    extra = list(headers)
    if (seconds := retry_after_s(error)) is not None:
        extra.append((b"retry-after", b"%d" % seconds))
    if isinstance(error, Unauthenticated):
        extra.append((b"www-authenticate", b'Bearer realm="paceline"'))
    if close:
        extra.append(_CLOSE)
    return ApiAnswer(error.status, _encode(problem_of(error)), (_PROBLEM, *_GUARDED, *extra))


async def send_answer(answer: ApiAnswer, send: Send) -> None:
    headers = answer.headers
    if answer.status not in (204, 304):
        headers = (*headers, (b"content-length", b"%d" % len(answer.body)))
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


async def send_stream(answer: Stream, receive: Receive, send: Send, *, head_only: bool) -> None:
    """Sends the pages, until the client goes away.

    If a page cannot be made, cuts the connection: half must not look whole.
    """
    gone = asyncio.get_running_loop().create_task(disconnected(receive))
    try:
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        while not head_only and not gone.done():
            page = await _next_page(answer, gone)
            if page is None:
                break
            await send({"type": "http.response.body", "body": page, "more_body": True})
        await send({"type": "http.response.body", "body": b""})
    finally:
        gone.cancel()
        answer.close()


async def _next_page(answer: Stream, gone: asyncio.Task[None]) -> bytes | None:
    """Returns the next page, or None at the end. If the client leaves, the work on the page is interrupted."""
    making = asyncio.get_running_loop().run_in_executor(answer.threads, next, answer.pages, None)
    either: set[asyncio.Future[Any]] = {making, gone}
    await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
    if not making.done():
        answer.close()
    return await making


async def disconnected(receive: Receive) -> None:
    """Returns when the client has disconnected."""
    while (await receive())["type"] != "http.disconnect":
        pass


def takes_gzip(headers: Mapping[bytes, bytes]) -> bool:
    """True if the client accepts gzip: it names gzip, and not with ``q=0``."""
    for part in headers.get(b"accept-encoding", b"").lower().split(b","):
        name, _, weight = part.partition(b";")
        if name.strip() == b"gzip":
            return weight.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False


async def compressed(answer: ApiAnswer | Stream, headers: Mapping[bytes, bytes]) -> ApiAnswer | Stream:
    """Returns the answer, compressed if it is large enough and the client accepts gzip."""
    if isinstance(answer, Stream):
        if not takes_gzip(headers):
            return answer
        return answer._replace(pages=_pages(answer.pages), headers=(*answer.headers, _ENCODED, _VARIES))
    if len(answer.body) < (GZIP_PAGE_BYTES_MIN if _HTML in answer.headers else GZIP_BYTES_MIN):
        return answer
    if not takes_gzip(headers):
        return answer._replace(headers=(*answer.headers, _VARIES))
    if len(answer.body) < GZIP_THREAD_BYTES_MIN:
        body = gzip.compress(answer.body, GZIP_LEVEL, mtime=0)
    else:
        body = await asyncio.to_thread(gzip.compress, answer.body, GZIP_LEVEL, mtime=0)
    return ApiAnswer(answer.status, body, (*answer.headers, _ENCODED, _VARIES))


def _pages(pages: Iterator[bytes]) -> Iterator[bytes]:
    """Compresses the pages. Each is flushed, so that the client sees it as soon as it is made."""
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, GZIP_FORM)
    for page in pages:
        yield packer.compress(page) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()
