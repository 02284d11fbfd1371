"""What a process must know of the store's engine to use it well: how often to ask, and what may be late."""

from __future__ import annotations

from typing import NamedTuple


class EngineTraits(NamedTuple):
    """The defaults are those of a store on this machine."""

    remote: bool = False
    """Whether the store is asked over a network, and a single request may hang for seconds while others do not."""
    look_ms_min: int = 0
    """How often at most a loop asks whether others have written: a request may be paid for."""
    rest_ms: int = 0
    """How long a loop relies on the store's version alone, and does not look itself, while it stays the same."""
    keep_ms: int = 1_000
    """How old the figures that are read from the store may be."""
    beat_ms: int = 5_000
    """How often a daemon writes its row."""
    apart_ms: int = 0
    """By how much a time in the store may seem to lie ahead: clocks of hosts differ, and answers take time."""
