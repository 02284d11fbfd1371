"""Instants are whole milliseconds since 1970 UTC; text and zones exist only at the edge."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_ms(moment: datetime) -> int:
    """Whole milliseconds; the moment must be aware."""
    return (moment - EPOCH) // timedelta(milliseconds=1)


def to_datetime(ms: int) -> datetime:
    return EPOCH + timedelta(milliseconds=ms)


def to_text(ms: int) -> str:
    """ISO 8601 in UTC with Z, to the millisecond."""
    return to_datetime(ms).strftime("%Y-%m-%dT%H:%M:%S.") + f"{ms % 1000:03d}Z"


def to_text_or_none(ms: int | None) -> str | None:
    return None if ms is None else to_text(ms)
