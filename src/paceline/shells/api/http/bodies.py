"""Reads request bodies: JSON within a size and a time, or any number of JSON lines, a page at a time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple

from starlette.types import Message, Receive

from paceline.errors import BodyTooLarge, BodyTooSlow
from paceline.shells.api.http.problems import UnsupportedMediaType

# curl -d and other plain clients send the last two by themselves; a body that is not JSON is refused all the same.
_TYPES = (
    b"application/json",
    b"application/merge-patch+json",
    b"application/x-www-form-urlencoded",
    b"text/plain",
)
LINES_TYPES = (b"application/x-ndjson", b"application/ndjson", b"application/jsonl", b"application/x-jsonlines")
PAGE_LINES = 1_000
PAGE_BYTES = 1_048_576
PACE_BYTES_MIN = 256
"""Bytes of a body of lines that must arrive in each ``body_timeout``."""


class ClientGone(Exception):
    """The client closed the connection; there is nobody to answer."""


class BodyLine(NamedTuple):
    """A line of the body and its number, from 1. ``text`` is None if the line was too long and was skipped."""

    number: int
    text: bytes | None


def is_lines(headers: Mapping[bytes, bytes]) -> bool:
    return headers.get(b"content-type", b"").partition(b";")[0].strip().lower() in LINES_TYPES


async def read_line_pages(receive: Receive, *, line_bytes_max: int, timeout_s: float) -> AsyncIterator[list[BodyLine]]:
    """Yields the lines that are not blank, a page at a time. Never holds more than a page and a chunk.

    At least ``PACE_BYTES_MIN`` bytes must arrive in each ``timeout_s``: sent byte by byte, a body would never end.
    """
    rest, number, page, size, skipping, more = b"", 0, list[BodyLine](), 0, False, True
    came, waited_s = 0, 0.0
    while more:
        began_s = time.monotonic()
        chunk, more = await _next_chunk(receive, timeout_s, left_s=timeout_s - waited_s)
        came, waited_s = came + len(chunk), waited_s + time.monotonic() - began_s
        if came >= PACE_BYTES_MIN:
            came, waited_s = 0, 0.0
        lines = (rest + chunk).split(b"\n")
        rest = lines.pop() if more else b""
        for text in lines:
            number += 1
            if skipping or len(text) > line_bytes_max:
                page.append(BodyLine(number, None))
            elif text.strip():
                page.append(BodyLine(number, text))
            skipping = False
            size += len(text)
            if len(page) >= PAGE_LINES or size >= PAGE_BYTES:
                yield page
                page, size = [], 0
        if len(rest) > line_bytes_max:
            rest, skipping = b"", True
    if page:
        yield page


async def _next_chunk(receive: Receive, timeout_s: float, *, left_s: float) -> tuple[bytes, bool]:
    try:
        async with asyncio.timeout(left_s):
            message = await receive()
    except TimeoutError:
        raise BodyTooSlow(
            f"Less than {PACE_BYTES_MIN} bytes of the body came within {timeout_s:g} s. Lines before that are kept."
        ) from None
    if message["type"] == "http.disconnect":
        raise ClientGone
    return message.get("body", b""), message.get("more_body", False)


async def read_body(receive: Receive, headers: Mapping[bytes, bytes], *, bytes_max: int, timeout_s: float) -> bytes:
    """Returns the whole body. Never holds more than ``bytes_max`` and a chunk; the server discards the rest."""
    _check_media_type(headers.get(b"content-type"))
    announced = headers.get(b"content-length", b"0")
    if not announced.isdigit() or len(announced) > 15 or int(announced) > bytes_max:
        raise _too_large(bytes_max)
    try:
        async with asyncio.timeout(timeout_s):
            return await _read_chunks(receive, await receive(), bytes_max=bytes_max)
    except TimeoutError:
        raise BodyTooSlow(
            f"The body did not arrive within {timeout_s:g} s. Send it again, faster or smaller."
        ) from None


async def _read_chunks(receive: Receive, message: Message, *, bytes_max: int) -> bytes:
    chunks: list[bytes] = []
    size = 0
    while True:
        if message["type"] == "http.disconnect":
            raise ClientGone
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > bytes_max:
            raise _too_large(bytes_max)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunk if len(chunks) == 1 else b"".join(chunks)
        message = await receive()


def _check_media_type(content_type: bytes | None) -> None:
    if content_type is None or content_type in _TYPES:
        return
    media_type = content_type.partition(b";")[0].strip().lower()
    if media_type not in _TYPES:
        shown = media_type[:100].decode("latin-1")
        raise UnsupportedMediaType(f"Send the body as application/json, not as {shown!r}.")


def _too_large(bytes_max: int) -> BodyTooLarge:
    return BodyTooLarge(f"The body may have at most {bytes_max} bytes. Send less at a time.")
