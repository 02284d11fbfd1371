"""Work in flight in a function: the daemon's own loops, turned until nothing is left or the time is over."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from paceline import __version__
from paceline.shells.aws_lambda.runtime import Time
from paceline.shells.daemon.in_flight import InFlight
from paceline.shells.daemon.metrics import Metrics

WAIT_MS = 50
SETTLE_S = 1.0
"""How long after its time a function may still settle what has ended: less than ``time_of`` spares."""
SOON_MS = 1_000
"""A provider that is ready so soon is waited for: a message would take longer. Clocks differ by less."""


@cache
def loop_metrics() -> Metrics:
    """Counted for the loops' sake: nobody asks a function for its figures. Its log has them."""
    return Metrics(version=__version__)


def carry_out(loops: Sequence[InFlight[Any, Any]], time: Time, *, claim_s: float) -> list[InFlight[Any, Any]]:
    """Turns the loops until nothing may start and nothing is out. With less than ``claim_s`` left nothing is claimed.

    Returns the loops that were cut short. They are closed, and must not be used for a later event: what can be
    repeated was given back, and the rest waits for the end of its lease.
    """
    for loop in loops:
        loop.settled = 0
        loop.wake()
    while time.left_s > 0:
        claims = time.left_s > claim_s
        busy = [loop for loop in loops if loop.is_busy(soon_ms=SOON_MS if claims else None)]
        if not busy:
            break
        if claims:
            for loop in busy:
                loop.claim()
        for loop in busy:
            loop.go_on(wait_ms_max=WAIT_MS)
    cut_short = [loop for loop in loops if any(loop.drain(wait_s=0, settle_s=SETTLE_S))]
    for loop in cut_short:
        loop.work.edge.close()
    return cut_short
