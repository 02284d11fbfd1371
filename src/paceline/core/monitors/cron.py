"""Cron expressions with a time zone.

A fixed time (neither minute nor hour begins with ``*``) belongs to the wall clock: where clocks go forward, a firing in
the missing time comes once, when that time is over; where they go back, it comes once, the first time. Anything else
follows real minutes: it runs through both doubled hours, and firings of a missing hour are not made up for. That is
Debian cron's rule. cronsim parses the expressions and walks the wall clock; the zone's changes are handled here,
because cronsim itself answers with the past in a doubled hour and skips minutes where a change is not a whole hour.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

from cronsim import CronSim, CronSimError

from paceline.core.instants import to_datetime, to_ms

CRON_CHARS_MAX = 256
_MACHINE_ZONES = frozenset({"localtime", "posixrules", "Factory"})
"""Names among the zone files that mean another thing on each machine, or nothing."""
_FIELDS = ("minute", "hour", "day of month", "month", "day of week")


def timezone_problem(name: str) -> str | None:
    """Return why this is not a time zone, or None."""
    if name in _zones():
        return None
    return f"unknown time zone {name[:64]!r}; use a name of the IANA database, for example Europe/Berlin"


def cron_problem(expression: str) -> str | None:
    """Return why this expression can never fire, with the position if that is known; None if it is valid."""
    if len(expression) > CRON_CHARS_MAX:
        return f"position {CRON_CHARS_MAX + 1}: at most {CRON_CHARS_MAX} characters"
    if expression.startswith("@"):
        return f"position 1: {expression[:16]!r} is not supported; write five fields, for example '0 3 * * *'"
    fields = expression.split()
    if len(fields) != len(_FIELDS):
        position = _positions(fields, expression)[len(_FIELDS)] if len(fields) > len(_FIELDS) else len(expression)
        return f"position {position + 1}: {len(fields)} fields where five are needed: {', '.join(_FIELDS)}"
    try:
        next(CronSim(expression, to_datetime(0)))
    except (CronSimError, StopIteration, ValueError) as error:
        return _locate(fields, expression, str(error) or "it never fires")
    return None


@lru_cache(maxsize=65_536)
def next_cron_ms(expression: str, timezone: str, after_ms: int) -> int:
    """Return the first firing strictly after the instant. Memoised: many entries share an expression and a minute."""
    after = to_datetime(after_ms).replace(microsecond=0)
    minute, hour, *_ = expression.split()
    follow = _next_running if minute.startswith("*") or hour.startswith("*") else _next_fixed
    return to_ms(follow(expression, _zone(timezone), after))


@lru_cache(maxsize=1)
def _zones() -> frozenset[str]:
    return frozenset(available_timezones()) - _MACHINE_ZONES


@lru_cache(maxsize=1024)
def _zone(name: str) -> ZoneInfo:
    return ZoneInfo(name)


def _next_fixed(expression: str, zone: ZoneInfo, after: datetime) -> datetime:
    """Return the next moment of a fixed time.

    Several wall times may stand for one moment, and in a doubled hour the next ones for moments that are over.
    """
    walls = CronSim(expression, _wall(zone, after))
    return next(moment for wall in walls if (moment := _first_moment(zone, wall)) > after)


def _first_moment(zone: ZoneInfo, wall: datetime) -> datetime:
    """Return when the clock shows this for the first time; if it never does, when the missing time is over."""
    while _wall(zone, moment := wall.replace(tzinfo=zone, fold=0).astimezone(UTC)) != wall:
        wall += timedelta(minutes=1)
    return moment


def _next_running(expression: str, zone: ZoneInfo, after: datetime) -> datetime:
    """Return the next moment of an expression that follows real time.

    Between two changes of the offset, wall and real time run alike; at each change the walk begins again.
    """
    since, wall = after, _wall(zone, after)
    while True:
        found = (next(CronSim(expression, wall)) - _offset(zone, since)).replace(tzinfo=UTC)
        change = _offset_change(zone, since=since, until=found)
        if change is None:
            return found
        since, wall = change, _wall(zone, change) - timedelta(seconds=1)


def _offset_change(zone: ZoneInfo, *, since: datetime, until: datetime) -> datetime | None:
    """Return the first moment after ``since`` and up to ``until`` that has another offset, to the second."""
    low, before = since, _offset(zone, since)
    while low < until:
        high = min(low + timedelta(days=1), until)
        if _offset(zone, high) != before:
            while high - low > timedelta(seconds=1):
                middle = low + timedelta(seconds=(high - low) // timedelta(seconds=2))
                low, high = (middle, high) if _offset(zone, middle) == before else (low, middle)
            return high
        low = high
    return None


def _wall(zone: ZoneInfo, moment: datetime) -> datetime:
    return moment.astimezone(zone).replace(tzinfo=None)


def _offset(zone: ZoneInfo, moment: datetime) -> timedelta:
    offset = moment.astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _locate(fields: list[str], expression: str, reason: str) -> str:
    """Name the first field that is wrong by itself; if none is, the day fields contradict each other."""
    positions = _positions(fields, expression)
    for index, field in enumerate(fields):
        alone = ["*"] * len(fields)
        alone[index] = field
        try:
            CronSim(" ".join(alone), to_datetime(0))
        except (CronSimError, ValueError):
            return f"position {positions[index] + 1}: {field[:32]!r} is not a {_FIELDS[index]}"
    return f"position {positions[2] + 1}: no such day exists in any year ({reason})"


def _positions(fields: list[str], expression: str) -> list[int]:
    positions: list[int] = []
    end = 0
    for field in fields:
        positions.append(expression.index(field, end))
        end = positions[-1] + len(field)
    return positions
