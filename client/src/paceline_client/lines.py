"""Reads and writes JSON documents, one per line, in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, TypeAlias

import msgspec

Documents: TypeAlias = Iterable[Mapping[str, Any]] | AsyncIterable[Mapping[str, Any]]
Progress: TypeAlias = Callable[[int], object]
"""Called with how many documents were done so far."""
CHUNK_BYTES = 65_536
MEDIA = "application/x-ndjson"


class Lines:
    """Documents to send as lines, read from their source as fast as the network takes them.

    ``again``: the source can be read again from its beginning, like a list and unlike a generator.
    """

    def __init__(self, documents: Documents, progress: Progress | None = None) -> None:
        self._documents = documents
        self._progress = progress
        self.again = not isinstance(documents, Iterator | AsyncIterator)

    def chunks(self) -> Iterator[bytes]:
        """Yields chunks, for a blocking transport."""
        if not isinstance(self._documents, Iterable):
            raise TypeError("an asynchronous source of documents needs an AsyncClient")
        packer = _Packer(self._progress)
        for document in self._documents:
            if packer.add(document):
                yield packer.take()
        yield packer.take()

    async def achunks(self) -> AsyncIterator[bytes]:
        """Yields chunks, for an asynchronous transport."""
        if not isinstance(self._documents, AsyncIterable):
            for chunk in self.chunks():
                yield chunk
            return
        packer = _Packer(self._progress)
        async for document in self._documents:
            if packer.add(document):
                yield packer.take()
        yield packer.take()


class _Packer:
    """Collects lines until a chunk is full."""

    def __init__(self, progress: Progress | None) -> None:
        self._encoder = msgspec.json.Encoder()
        self._progress = progress
        self._buffer = bytearray()
        self._count = 0

    def add(self, document: Mapping[str, Any]) -> bool:
        """Adds a document. Returns True if the chunk is full."""
        self._encoder.encode_into(document, self._buffer, -1)
        self._buffer += b"\n"
        self._count += 1
        return len(self._buffer) >= CHUNK_BYTES

    def take(self) -> bytes:
        """Returns the chunk. The network has taken all chunks before it."""
        chunk = bytes(self._buffer)
        self._buffer.clear()
        if self._progress is not None:
            self._progress(self._count)
        return chunk


class LineSplitter:
    """Splits the pieces of a body into lines."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, piece: bytes) -> list[bytes]:
        """Adds a piece. Returns the lines that are complete now."""
        *whole, self._rest = (self._rest + piece).split(b"\n")
        return [line for line in whole if line]

    def end(self) -> list[bytes]:
        """Returns the last line, if the body did not end with a line break."""
        return [self._rest] if self._rest.strip() else []
