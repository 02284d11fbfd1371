"""Large answers are compressed with gzip for clients that take it."""

from __future__ import annotations

import asyncio
import gzip
import zlib
from collections.abc import Iterator, Mapping

from paceline.shells.api.http.answers import Answer, Header, Stream

BYTES_MIN = 16_384
"""Smaller answers fit into a few packets anyway."""
THREAD_BYTES_MIN = 262_144
"""Larger ones are compressed in a thread: other requests go on meanwhile."""
LEVEL = 1
"""Lists of JSON shrink to a tenth at the fastest level; higher ones cost several times as much for little more."""
GZIP_FORM = 16 + zlib.MAX_WBITS
_ENCODED: Header = (b"content-encoding", b"gzip")
_VARIES: Header = (b"vary", b"accept-encoding")


def takes_gzip(headers: Mapping[bytes, bytes]) -> bool:
    """Whether the client names gzip and does not rule it out (``q=0``)."""
    for part in headers.get(b"accept-encoding", b"").lower().split(b","):
        name, _, weight = part.partition(b";")
        if name.strip() == b"gzip":
            return weight.replace(b" ", b"") not in (b"q=0", b"q=0.0", b"q=0.00", b"q=0.000")
    return False


async def compressed(answer: Answer | Stream, headers: Mapping[bytes, bytes]) -> Answer | Stream:
    """The answer as this client gets it."""
    if isinstance(answer, Stream):
        if not takes_gzip(headers):
            return answer
        return answer._replace(pages=_pages(answer.pages), headers=(*answer.headers, _ENCODED, _VARIES))
    if len(answer.body) < BYTES_MIN:
        return answer
    if not takes_gzip(headers):
        return answer._replace(headers=(*answer.headers, _VARIES))
    if len(answer.body) < THREAD_BYTES_MIN:
        body = gzip.compress(answer.body, LEVEL, mtime=0)
    else:
        body = await asyncio.to_thread(gzip.compress, answer.body, LEVEL, mtime=0)
    return Answer(answer.status, body, (*answer.headers, _ENCODED, _VARIES))


def _pages(pages: Iterator[bytes]) -> Iterator[bytes]:
    """Each page is flushed, so that a client sees it when it is made."""
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP_FORM)
    for page in pages:
        yield packer.compress(page) + packer.flush(zlib.Z_SYNC_FLUSH)
    yield packer.flush()
