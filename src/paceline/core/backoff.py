"""Exponential back-off: the pause after the nth failure in a row."""

from __future__ import annotations

from typing import Literal, assert_never

Jitter = Literal["full", "half", "none"]
"""Spread of a pause below its ceiling, so that callers refused together do not come back together.

``full``: anywhere from zero. ``half``: from half of the ceiling. ``none``: the ceiling itself.
"""
_DOUBLINGS_MAX = 40


def pause_ms(failures: int, *, base_ms: int, cap_ms: int, jitter: Jitter, chance: float = 0.0) -> int:
    """Return the pause after this many failures: the base, doubled with each failure up to the cap, with jitter.

    ``chance`` lies in [0, 1).
    """
    assert failures >= 1
    ceiling_ms = min(cap_ms, base_ms << min(failures - 1, _DOUBLINGS_MAX))
    match jitter:
        case "full":
            return int(ceiling_ms * chance)
        case "half":
            return int(ceiling_ms * (1 + chance) / 2)
        case "none":
            return ceiling_ms
        case _:
            assert_never(jitter)
