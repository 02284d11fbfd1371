"""Rule for starting claimed work: it must end before its lease does, or somebody else may do it as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

T = TypeVar("T")

POST_MS_MAX = 30_000
"""Time limit of the one POST of a send to RIPE."""
SEND_MS_MAX = 50_000
"""Longest time of a send from the start of its POST until its answer is written, with clocks that differ a little."""
SEND_LEASE_MS = 60_000
"""Time after its intent was written at which a send without an answer is given up: its sender died."""


class Leased(NamedTuple):
    """End of a lease, and the longest time that the work can take."""

    until_ms: int
    takes_ms: int


def fits_lease(lease: Leased, *, now_ms: int) -> bool:
    """Return whether work that starts now ends before its lease does, even if it takes its longest time."""
    return now_ms + lease.takes_ms <= lease.until_ms


def write_time_ms(asked_ms: int, now_ms: int | None) -> int:
    """Return when a lease begins: when it is written, which may be long after it was asked for.

    ``now_ms`` None: the time of asking is the best that is known. A lease never begins before it was asked for: a clock
    that was set back in between would make it shorter than it is meant to be.
    """
    return asked_ms if now_ms is None else max(asked_ms, now_ms)


def sort_out(items: Iterable[T], lease_of: Callable[[T], Leased], *, now_ms: int) -> tuple[list[T], list[T]]:
    """Divide the items into those that may start now, and those to give back because they could outlive their lease."""
    start: list[T] = []
    give_back: list[T] = []
    for item in items:
        (start if fits_lease(lease_of(item), now_ms=now_ms) else give_back).append(item)
    return start, give_back


def check_lease(until_ms: int, *, timeout_ms: int, lease_ms: int) -> Leased:
    """Return the lease of a check.

    If the operator's lease is shorter than twice the check's time-out, half of the lease must be left. Such a lease
    cannot hold a check that uses all of its time; but a check that answers soon is still made once.
    """
    return Leased(until_ms, min(timeout_ms, lease_ms // 2))


def may_send(intent_ms: int, *, now_ms: int) -> bool:
    """Return whether a send to RIPE may still start its POST: it must have its answer before anybody may give it up.

    If the clock shows a time well before the intent, it was set back: the age of the intent is unknown, so the send may
    not start.
    """
    late_ms_max = SEND_LEASE_MS - SEND_MS_MAX
    lease = Leased(intent_ms + SEND_LEASE_MS, SEND_MS_MAX)
    return intent_ms - now_ms <= late_ms_max and fits_lease(lease, now_ms=now_ms)


def given_up_before_ms(now_ms: int) -> int:
    """Return the time before which a send's intent must have been written for the send to be given up.

    This is not the end of an ordinary lease, after which anybody may do the work again. RIPE runs and charges
    everything that it is sent twice, and nobody knows whether this POST arrived. So a send that is given up is unknown:
    it is looked up at RIPE, and sent again only once RIPE has shown that it does not have it.
    """
    return now_ms - SEND_LEASE_MS
