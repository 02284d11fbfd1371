"""Traits of the store's engine that its users depend on: how often to ask, and what may be late."""

from __future__ import annotations

from typing import NamedTuple


class EngineTraits(NamedTuple):
    """Traits of an engine. The defaults are those of a store on this machine."""

    remote: bool = False
    """True if the store is asked over a network, where one request may hang for seconds while others do not."""
    look_ms_min: int = 0
    """Shortest time between two looks of a loop at whether others have written: a request may cost money."""
    rest_ms: int = 0
    """Time for which a loop relies on the store's version alone while it stays the same, without looking itself."""
    keep_ms: int = 1_000
    """Maximum age of figures that are read from the store."""
    beat_ms: int = 5_000
    """Interval at which a daemon writes its row."""
    apart_ms: int = 0
    """Time by which a stored time may seem to lie ahead: clocks of hosts differ, and answers take time."""
