"""The rule of cron in its simplest form: look at every minute, one after the other.

It shares nothing with the code under test: no cronsim, no search, no jump. A wall clock is walked minute by real
minute; a firing is a minute that the rule names. The rule, where it is not obvious:

* A time is *fixed* if neither the minute nor the hour field begins with ``*``. Fixed times belong to the wall clock:
  a minute that the clock shows twice counts the first time only, and minutes that it skips count together, once, in
  the first minute after the gap (02:30 becomes 03:00; 02:15 and 02:45 become one 03:00; a gap need not be an hour).
* All else follows real minutes: it fires whenever the clock shows a matching minute, twice in a doubled hour, and not
  at all for what a gap would have held. So ``*/30 2 * * *`` does not run on the day that has no 02 o'clock.
* If day of month or day of week begins with ``*`` both must match; else one of the two suffices.
* ``a/n`` is every n-th from a to the end of the range. What ``a-a/n`` means is left open: crons differ, and cronsim
  reads it as ``a/n``.
"""

from __future__ import annotations

import calendar
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

MINUTE = timedelta(minutes=1)
BOUNDS = ((0, 59), (0, 23), (1, 31), (1, 12), (0, 7))
NAMES: tuple[dict[str, int], ...] = (
    {},
    {},
    {},
    {name.upper(): index for index, name in enumerate(calendar.month_abbr) if name},
    {name: index for index, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))},
)


@lru_cache(maxsize=64)
def walk(zone: str, start: datetime, minutes: int) -> tuple[tuple[datetime, datetime], ...]:
    """Each real minute with what the wall clock shows in it."""
    moments = [start + index * MINUTE for index in range(minutes)]
    return tuple((moment, moment.astimezone(ZoneInfo(zone)).replace(tzinfo=None)) for moment in moments)


def firings(expression: str, zone: str, *, start: datetime, minutes: int) -> list[datetime]:
    """Every firing from ``start`` on, in UTC. Begin well before a change of the clock: the walk has no memory."""
    fields = expression.upper().split()
    fixed = fields[0][0] != "*" and fields[1][0] != "*"
    found: list[datetime] = []
    latest: datetime | None = None
    for moment, wall in walk(zone, start, minutes):
        shown_before = latest is not None and wall <= latest
        skipped = _between(latest, wall) if fixed else []
        if not (fixed and shown_before) and any(matches(fields, minute) for minute in [*skipped, wall]):
            found.append(moment)
        latest = wall if latest is None else max(latest, wall)
    return found


def changes(zone: str, year: int) -> list[datetime]:
    """The first hour after each change of the offset in the year, or the hour in which it lies."""
    moments = [datetime(year, 1, 1, tzinfo=UTC) + timedelta(hours=hour) for hour in range(366 * 24)]
    offsets = [moment.astimezone(ZoneInfo(zone)).utcoffset() for moment in moments]
    return [moments[index] for index in range(1, len(moments)) if offsets[index] != offsets[index - 1]]


def matches(fields: list[str], wall: datetime) -> bool:
    if wall.minute not in _numbers(fields[0], 0) or wall.hour not in _numbers(fields[1], 1):
        return False
    return _matches_date(*fields[2:], day=wall.date())


@lru_cache(maxsize=4096)
def _matches_date(day_field: str, month_field: str, weekday_field: str, *, day: date) -> bool:
    if day.month not in _numbers(month_field, 3):
        return False
    by_day = any(_is_day(term, day) for term in day_field.split(","))
    by_weekday = any(_is_weekday(term, day) for term in weekday_field.split(","))
    if day_field[0] == "*" or weekday_field[0] == "*":
        return by_day and by_weekday
    return by_day or by_weekday


def _between(latest: datetime | None, wall: datetime) -> list[datetime]:
    """The wall minutes that the clock has just skipped."""
    if latest is None:
        return []
    return [latest + index * MINUTE for index in range(1, (wall - latest) // MINUTE)]


@lru_cache(maxsize=4096)
def _numbers(field: str, place: int) -> frozenset[int]:
    return frozenset().union(*(_values(term, place) for term in field.split(",")))


def _values(term: str, place: int) -> frozenset[int]:
    low, high = BOUNDS[place]
    span, _, step = term.partition("/")
    first, dash, last = span.partition("-")
    if span == "*":
        numbers = range(low, high + 1)
    elif dash:
        numbers = range(_number(first, place), _number(last, place) + 1)
    else:
        numbers = range(_number(first, place), (high if step else _number(first, place)) + 1)
    return frozenset(numbers[:: int(step or 1)])


def _number(text: str, place: int) -> int:
    names = NAMES[place]
    return names[text] if text in names else int(text)


def _is_day(term: str, day: date) -> bool:
    last = calendar.monthrange(day.year, day.month)[1]
    if term == "L":
        return day.day == last
    if term == "LW":
        return day.day == max(number for number in range(1, last + 1) if day.replace(day=number).weekday() < 5)
    return day.day in _values(term, 2)


def _is_weekday(term: str, day: date) -> bool:
    if term.endswith("L"):
        next_week_is_another_month = (day + timedelta(days=7)).month != day.month
        return _is_weekday(term[:-1], day) and next_week_is_another_month
    name, hash_, nth = term.partition("#")
    if hash_:
        return _is_weekday(name, day) and (day.day + 6) // 7 == int(nth)
    sunday_first = day.isoweekday() % 7
    wanted = _values(term, 4)
    return sunday_first in wanted or (sunday_first == 0 and 7 in wanted)
