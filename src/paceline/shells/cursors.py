"""Cursors of lists, the same over REST and on the command line: opaque, and valid for one list only."""

from __future__ import annotations

import base64
import binascii

import msgspec

from paceline.core.monitors.lists.query import MonitorQuery
from paceline.errors import FieldProblem, InvalidInput

CURSOR_CHARS_MAX = 2_000
Position = str | int
_Mark = tuple[str, Position]
_MARK = msgspec.json.Decoder(_Mark)

PROVIDERS, BATCHES, RUNNING_DAYS = "providers", "batches", "running days"


def monitors_of(query: MonitorQuery) -> str:
    """A list of monitors. This and those below name lists: ``make_cursor`` and ``position_of`` take them."""
    return f"monitors {query.scope}"


def runs_of(generation: int) -> str:
    """The runs of a monitor."""
    return f"runs {generation}"


def days_of(batch_number: int) -> str:
    return f"days {batch_number}"


def records_of(batch_number: int, *, provider: str | None, active: bool | None) -> str:
    return f"records {batch_number} {provider} {active}"


def providers_of_day(day_number: int) -> str:
    return f"day providers {day_number}"


def runs_of_day(day_number: int, *, state: str | None, provider: str | None) -> str:
    return f"day runs {day_number} {state} {provider}"


def dead_letters(*, provider: str | None, batch: str | None, date: str | None) -> str:
    return f"dead {provider} {batch} {date}"


def jobs_of(owner: str | None) -> str:
    """The jobs of a user; None: everybody's."""
    return "jobs" if owner is None else f"jobs {owner}"


def channels_of(owner: str) -> str:
    return f"channels {owner}"


def silences_of(owner: str) -> str:
    return f"silences {owner}"


def alerts_of(owner: str) -> str:
    return f"alerts {owner}"


def make_cursor(scope: str, position: Position) -> str:
    """``scope`` names the list, so that a cursor of another list is refused instead of misread."""
    return base64.urlsafe_b64encode(msgspec.json.encode((scope, position))).decode().rstrip("=")


def position_of(cursor: str, scope: str, start: Position) -> Position:
    """Where the page begins; ``start`` without a cursor, and of the same type as ``start``."""
    if not cursor:
        return start
    mark = _decode(cursor)
    if mark is None or mark[0] != scope or type(mark[1]) is not type(start):
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
