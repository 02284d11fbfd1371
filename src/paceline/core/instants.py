"""Instants: whole milliseconds since 1970 UTC; text and zones exist only at the edge."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

_INSTANT = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?Z", re.ASCII)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_ms(moment: datetime) -> int:
    """Return whole milliseconds; the moment must be aware."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def to_datetime(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def to_text(ms: int) -> str:
    """Return the instant in ISO 8601 in UTC with Z, to the millisecond."""
    return f"{_second_text(ms // 1000)}.{ms % 1000:03d}Z"


def parse_instant_ms(text: str) -> int | None:
    """Return the milliseconds of a text as ``to_text`` writes it; None if it is no instant in UTC with Z.

    Seconds and fractions of seconds may be left out.
    """
    if not _INSTANT.fullmatch(text):
        return None
    try:
        return to_ms(datetime.fromisoformat(text))
    except ValueError:
        return None


def to_text_or_none(ms: int | None) -> str | None:
    return None if ms is None else to_text(ms)


@lru_cache(maxsize=4_096)
def _second_text(second: int) -> str:
    """Return the text of a whole second. Memoised: instants that are shown together are often of the same second."""
    return to_datetime(second * 1000).strftime("%Y-%m-%dT%H:%M:%S")
