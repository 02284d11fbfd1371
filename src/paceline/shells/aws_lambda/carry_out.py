"""Work in flight in a function: turns the daemon's own loops until nothing is left or the time is over."""

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
"""How long after its time a function may still settle results: less than ``time_of`` spares."""
SOON_MS = 1_000
"""If a provider is ready this soon, it is waited for, because a message would take longer. Clocks differ by less."""


@cache
def loop_metrics() -> Metrics:
    """Returns metrics for the loops, which need some. Nobody reads a function's metrics; its log has the figures."""
    return Metrics(version=__version__)


def carry_out(loops: Sequence[InFlight[Any, Any]], time: Time, *, claim_s: float) -> list[InFlight[Any, Any]]:
    """Turns the loops until nothing may start and nothing is out. Claims nothing once less than ``claim_s`` is left.

    Returns the loops that were cut short. They are closed and must not be used for a later event: repeatable work was
    given back, and the rest waits for the end of its lease.
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
