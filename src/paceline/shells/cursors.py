"""Cursors of lists, the same in REST and on the command line: opaque, and valid for one list only."""

from __future__ import annotations

import base64
import binascii
from typing import TypeVar

import msgspec

from paceline.errors import FieldProblem, InvalidInput

CURSOR_CHARS_MAX = 2_000
Position = str | int
P = TypeVar("P", str, int)
_Mark = tuple[str, Position]
_MARK = msgspec.json.Decoder(_Mark)


def make_cursor(scope: str, position: Position) -> str:
    """Makes a cursor. ``scope`` names the list, so that a cursor of another list is refused instead of misread."""
    return base64.urlsafe_b64encode(msgspec.json.encode((scope, position))).decode().rstrip("=")


def next_cursor(scope: str, position: Position | None) -> str | None:
    """Returns the cursor of the position where the next page begins; None if this page is the last."""
    return None if position is None else make_cursor(scope, position)


def position_of(cursor: str | None, scope: str, start: P) -> P:
    """Returns the position where the page begins: that of the cursor, or ``start`` if there is no cursor."""
    if not cursor:
        return start
    mark = _decode(cursor)
    if mark is None or mark[0] != scope or not isinstance(mark[1], type(start)):
        raise InvalidInput.of(FieldProblem("/query/cursor", "not a cursor of this list; begin again without one"))
    return mark[1]


def _decode(cursor: str) -> _Mark | None:
    if len(cursor) > CURSOR_CHARS_MAX or not cursor.isascii():
        return None
    try:
        mark = _MARK.decode(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
    except (binascii.Error, ValueError, msgspec.DecodeError):
        return None
    return mark if not isinstance(mark[1], int) or abs(mark[1]) < 2**63 else None
