"""Receipt of a file of lines: a chain of hashes, which shows later, without a store, that no line was changed.

Each link is the hash of the link before it and of the line. After every ``MARK_EVERY`` lines a link is kept as a mark,
so that a check can say where the file differs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

FORMAT = 1
MARK_EVERY = 1_000
_FIRST = hashlib.sha256(b"paceline receipt 1").digest()


class Receipt(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``chain``: the last link. ``marks``: the link after each ``mark_every``-th line. All in hexadecimal digits."""

    paceline_receipt: int
    file: str
    lines: int
    bytes: int
    mark_every: int
    chain: str
    marks: tuple[str, ...] = ()


class Difference(NamedTuple):
    """Place where a file differs from its receipt: one of these lines, counted from 1."""

    first: int
    last: int
    says: str


def make_receipt(file: str, lines: Iterable[bytes]) -> Receipt:
    """Return the receipt of a file of this name."""
    link, count, size = _FIRST, 0, 0
    marks: list[str] = []
    for line in lines:
        link = _next(link, line)
        count, size = count + 1, size + len(line)
        if count % MARK_EVERY == 0:
            marks.append(link.hex())
    return Receipt(FORMAT, file, count, size, MARK_EVERY, link.hex(), tuple(marks))


def compare(receipt: Receipt, lines: Iterable[bytes]) -> Difference | None:
    """Return where the lines differ from those of the receipt; None if they do not."""
    link, count, every = _FIRST, 0, max(receipt.mark_every, 1)
    for line in lines:
        link = _next(link, line)
        count += 1
        mark = count // every - 1
        if count % every == 0 and (mark >= len(receipt.marks) or receipt.marks[mark] != link.hex()):
            return Difference(count - every + 1, count, "one of these lines was changed, added or removed")
    if count != receipt.lines:
        return Difference(min(count, receipt.lines) + 1, max(count, receipt.lines), f"there are {count} lines")
    if link.hex() != receipt.chain:
        return Difference(count - count % every + 1, count, "one of these lines was changed")
    return None


def _next(link: bytes, line: bytes) -> bytes:
    return hashlib.sha256(link + hashlib.sha256(line).digest()).digest()
