"""Durations as people write them: 500ms, 30s, 5m, 6h, 1d."""

from __future__ import annotations

import re
from functools import lru_cache

MS_PER_UNIT = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
DURATION_RULE = 'a whole number and a unit (ms, s, m, h, d), for example "30s"'
_DURATION = re.compile(r"(\d{1,12})(ms|s|m|h|d)")


@lru_cache(maxsize=4_096)
def parse_duration_ms(text: str) -> int | None:
    """Return the milliseconds; None if the text is not a duration."""
    match = _DURATION.fullmatch(text)
    return int(match[1]) * MS_PER_UNIT[match[2]] if match and match[1].isascii() else None


def format_duration(ms: int) -> str:
    """Return the shortest exact spelling."""
    for unit in ("d", "h", "m", "s"):
        if ms and ms % MS_PER_UNIT[unit] == 0:
            return f"{ms // MS_PER_UNIT[unit]}{unit}"
    return f"{ms}ms" if ms else "0s"
