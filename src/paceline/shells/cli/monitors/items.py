"""Reads items of a file of any size, one at a time: a JSON array, ``{"items": [...]}`` or NDJSON."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

ITEM_BYTES_MAX = 1_048_576
CHUNK_CHARS = 65_536
LOOK_AHEAD_CHARS = 1_024
_WRAPPED = re.compile(r'\{\s*"items"\s*:\s*\[')
# Only the end of a value is searched here; the parser of definitions checks its meaning.
_ENDS = json.JSONDecoder(parse_int=len, parse_float=len)


class Item(NamedTuple):
    """A definition as it is in the file, and the line where it begins."""

    line: int
    body: bytes


class Broken(NamedTuple):
    """The line where the file is no longer JSON, so that the rest cannot be read."""

    line: int
    reason: str


def read_items(stream: BinaryIO, *, chunk_chars: int = CHUNK_CHARS) -> Iterator[Item | Broken]:
    """Yields every item of the file, in order. If the file cannot be read to its end, the last item is Broken."""
    text = io.TextIOWrapper(stream, encoding="utf-8-sig", errors="surrogateescape", newline="\n")
    window = _Window(text, chunk_chars)
    try:
        window.skip_space()
        if window.take("["):
            yield from _array_items(window)
        elif wrapped := window.match(_WRAPPED):
            window.advance(wrapped)
            yield from _array_items(window)
        else:
            yield from _line_items(window)
    except _Lost as error:
        yield Broken(window.line, str(error))
    finally:
        text.detach()  # the caller closes the stream


class _Lost(Exception):
    """Raised if the next item cannot be found: the file is no longer JSON."""


class _Window:
    """The part of the text in memory: never more than one item and a chunk."""

    def __init__(self, text: io.TextIOWrapper, chunk_chars: int) -> None:
        self._text = text
        self._chunk_chars = chunk_chars
        self._buffer = ""
        self._at = 0
        self.line = 1
        self.ended = False
        self.refill()

    def refill(self) -> None:
        chunk = self._text.read(self._chunk_chars)
        self.ended = not chunk
        self._buffer = self._buffer[self._at :] + chunk
        self._at = 0

    def advance(self, count: int) -> str:
        taken = self._buffer[self._at : self._at + count]
        self._at += count
        self.line += taken.count("\n")
        return taken

    def skip_space(self) -> None:
        while True:
            rest = self._buffer[self._at :]
            self.advance(len(rest) - len(rest.lstrip(" \t\r\n")))
            if self._at < len(self._buffer) or self.ended:
                return
            self.refill()

    def take(self, char: str) -> bool:
        """Returns True and skips the character if it comes next."""
        found = self._buffer.startswith(char, self._at)
        if found:
            self.advance(1)
        return found

    def match(self, pattern: re.Pattern[str]) -> int | None:
        """Returns how many characters the pattern matches here, or None if it does not match."""
        while len(self._buffer) - self._at < LOOK_AHEAD_CHARS and not self.ended:
            self.refill()
        match = pattern.match(self._buffer, self._at)
        return match.end() - match.start() if match else None

    def value_chars(self) -> int:
        """Returns the length of the JSON value that begins here."""
        while True:
            try:
                return _ENDS.raw_decode(self._buffer, self._at)[1] - self._at
            except ValueError as error:
                if self.ended or len(self._buffer) - self._at > ITEM_BYTES_MAX:
                    raise _Lost(f"Not valid JSON: {_reason(error)}") from None
            except RecursionError:
                raise _Lost("Nested too deeply") from None
            self.refill()

    def line_chars(self) -> int | None:
        """Returns the length of the line that begins here, without its end; None at the end of the file."""
        while (end := self._buffer.find("\n", self._at)) < 0 and not self.ended:
            if len(self._buffer) - self._at > ITEM_BYTES_MAX:
                raise _Lost(f"Longer than {ITEM_BYTES_MAX} bytes")
            self.refill()
        if end < 0:
            return len(self._buffer) - self._at or None
        return end - self._at


def _array_items(window: _Window) -> Iterator[Item]:
    window.skip_space()
    if window.take("]"):
        return
    while True:
        line = window.line
        yield Item(line, _bytes(window.advance(window.value_chars())))
        window.skip_space()
        if window.take("]"):
            return
        if not window.take(","):
            raise _Lost("A comma or the end of the array should follow")
        window.skip_space()


def _line_items(window: _Window) -> Iterator[Item]:
    while (count := window.line_chars()) is not None:
        line = window.line
        body = _bytes(window.advance(count)).strip()
        window.take("\n")
        if body:
            yield Item(line, body)


def _bytes(text: str) -> bytes:
    """Returns the file's own bytes, so that text that is not UTF-8 is refused with its item."""
    return text.encode("utf-8", "surrogateescape")


def _reason(error: ValueError) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error)
