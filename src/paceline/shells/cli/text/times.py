"""Times relative to now: in 3 s, 5 min ago."""

from __future__ import annotations

from paceline.core.instants import parse_instant_ms

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"))
DAYS_MAX = 60
"""Further away than this, the date is shown."""


def relative(then_ms: int, now_ms: int) -> str:
    """Returns how far away a moment is, in one unit that is large enough: in 3 s, 5 min ago, now."""
    away_ms = abs(then_ms - now_ms)
    for unit_ms, unit in _UNITS:
        if away_ms >= 2 * unit_ms:
            amount = f"{away_ms // unit_ms} {unit}"
            break
    else:
        seconds = away_ms // 1_000
        if not seconds:
            return "now"
        amount = f"{seconds} s"
    return f"in {amount}" if then_ms > now_ms else f"{amount} ago"


def short_time(text: str, now_ms: int) -> str:
    """Returns a time relative to now, or its date if it is far away. Any other text is returned as it is."""
    then_ms = parse_instant_ms(text)
    if then_ms is None:
        return text
    if abs(then_ms - now_ms) > DAYS_MAX * _UNITS[0][0]:
        return text[:10]
    return relative(then_ms, now_ms)


def long_time(text: str, now_ms: int) -> str:
    """Returns a time followed by how far away it is. Any other text is returned as it is."""
    then_ms = parse_instant_ms(text)
    return text if then_ms is None else f"{text} ({relative(then_ms, now_ms)})"
