"""Match of a time against a cron expression, parsed independently of the code that makes firings."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

MINUTE_MS = 60_000
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_RANGES = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
_NAMES: tuple[dict[str, int], ...] = (
    *({}, {}, {}),
    {name: number for number, name in enumerate(_MONTHS, 1)},
    {name: number for number, name in enumerate(_WEEKDAYS)},
)
_MINUTE = timedelta(minutes=1)
_GAP_MINUTES_MAX = 180
"""Largest step by which a zone's clocks go forward."""


def is_cron_time(expression: str, timezone: str, at_ms: int) -> bool:
    """Return whether an entry of the expression may be due at that time.

    Forms of cron that are not parsed here always fit.
    """
    return at_ms % MINUTE_MS == 0 and _fits(expression, timezone, at_ms // MINUTE_MS)


@lru_cache(maxsize=65_536)
def _fits(expression: str, timezone: str, minute: int) -> bool:
    at = datetime.fromtimestamp(minute * 60, tz=UTC).astimezone(ZoneInfo(timezone))
    try:
        fields = _fields(expression)
    except ValueError:
        return True  # a form of cron that is not parsed here: no judgement
    return _matches(fields, at) or _ends_gap(fields, at)


def _matches(fields: _Fields, at: datetime) -> bool:
    minutes, hours, days, months, weekdays = fields.allowed
    if at.minute not in minutes or at.hour not in hours or at.month not in months:
        return False
    weekday = at.isoweekday() % 7 in weekdays
    day = at.day in days
    return (day or weekday) if fields.either else (day and weekday)


def _ends_gap(fields: _Fields, at: datetime) -> bool:
    """Return whether clocks have just gone forward, and a time that they left out fits."""
    before = (at.astimezone(UTC) - _MINUTE).astimezone(at.tzinfo)
    left_out = int((at.replace(tzinfo=None) - before.replace(tzinfo=None)) / _MINUTE) - 1
    walls = (at - _MINUTE * number for number in range(1, min(left_out, _GAP_MINUTES_MAX) + 1))
    return any(_matches(fields, wall) for wall in walls)


class _Fields:
    """``allowed``: the numbers that each field takes. ``either``: day of month and day of week are both restricted."""

    def __init__(self, texts: list[str]) -> None:
        if len(texts) != len(_RANGES):
            raise ValueError(texts)
        self.allowed = [_numbers(text, index) for index, text in enumerate(texts)]
        self.allowed[4] = {number % 7 for number in self.allowed[4]}
        self.either = not texts[2].startswith("*") and not texts[4].startswith("*")


@lru_cache(maxsize=4_096)
def _fields(expression: str) -> _Fields:
    return _Fields(expression.lower().split())


def _numbers(text: str, index: int) -> set[int]:
    found: set[int] = set()
    first, last = _RANGES[index]
    for part in text.split(","):
        span, _, step = part.partition("/")
        if span == "*":
            low, high = first, last
        elif "-" in span:
            low, high = (_number(one, index) for one in span.split("-", 1))
        else:
            low = _number(span, index)
            high = last if step else low
        found |= set(range(low, high + 1, int(step or 1)))
    if not found:
        raise ValueError(text)
    return found


def _number(text: str, index: int) -> int:
    if text[:1].isalpha():
        number = _NAMES[index].get(text)
        if number is None:
            raise ValueError(text)
        return number
    return int(text)
