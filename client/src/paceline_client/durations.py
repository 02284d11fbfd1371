"""Durations as Paceline writes them: a whole number and a unit, such as ``500ms``, ``30s``, ``5m``, ``6h``, ``1d``."""

from __future__ import annotations

import re
from datetime import date, timedelta
from typing import Self, TypeAlias

_UNITS_MS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000, "ms": 1}
_DURATION = re.compile(r"(\d{1,12})(ms|s|m|h|d)")
_MS = timedelta(milliseconds=1)


class Duration(timedelta):
    """A ``timedelta`` with Paceline's text: ``str(Duration.parse("30s")) == "30s"``."""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Returns the duration that the text names. Raises ValueError if it names none."""
        if (match := _DURATION.fullmatch(text)) is None:
            raise ValueError(f"{text!r} is no duration; write a whole number and ms, s, m, h or d, such as 30s")
        return cls(milliseconds=int(match[1]) * _UNITS_MS[match[2]])

    def __str__(self) -> str:
        return duration_text(self)


DurationLike: TypeAlias = str | timedelta
"""Type of every argument that is a duration: ``"30s"`` or ``timedelta(seconds=30)``."""
Date: TypeAlias = date
DateLike: TypeAlias = str | date


def duration_text(duration: DurationLike) -> str:
    """Returns the text of a duration, in the largest unit that divides it.

    A text is returned as it is: the service checks it.
    """
    if isinstance(duration, str):
        return duration
    ms, rest = divmod(duration, _MS)
    if rest or ms < 0:
        raise ValueError(f"{duration!r} is no duration of whole milliseconds")
    unit = next(unit for unit, unit_ms in _UNITS_MS.items() if ms % unit_ms == 0 and ms) if ms else "s"
    return f"{ms // _UNITS_MS[unit]}{unit}"


def seconds(duration: DurationLike | float) -> float:
    """Returns the duration in seconds; a bare number already is seconds."""
    if isinstance(duration, str):
        duration = Duration.parse(duration)
    return duration.total_seconds() if isinstance(duration, timedelta) else float(duration)


def date_text(day: DateLike) -> str:
    return day if isinstance(day, str) else day.isoformat()
