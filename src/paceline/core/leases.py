"""Whether work that was claimed may still start: it must be over before its lease is, or another may do it as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

T = TypeVar("T")

POST_MS_MAX = 30_000
"""The one POST of a send to RIPE ends after this time at the latest."""
SEND_MS_MAX = 50_000
"""A send at its longest, from the start of its POST: until its answer is written, on clocks that differ a little."""
SEND_LEASE_MS = 60_000
"""So long after its intent was written, a send without an answer is given up: its sender died."""


class Leased(NamedTuple):
    """How long work is ours, and how long it may take at most."""

    until_ms: int
    takes_ms: int


def fits_lease(lease: Leased, *, now_ms: int) -> bool:
    """Whether work that starts now ends before its lease does, however long it takes."""
    return now_ms + lease.takes_ms <= lease.until_ms


def write_time_ms(asked_ms: int, now_ms: int | None) -> int:
    """When a lease begins: when it is written, which may be long after it was asked for. None: nobody knows better.

    Never before it was asked for: a clock that was set back in between would make the lease shorter than it is meant.
    """
    return asked_ms if now_ms is None else max(asked_ms, now_ms)


def sort_out(items: Iterable[T], lease_of: Callable[[T], Leased], *, now_ms: int) -> tuple[list[T], list[T]]:
    """What may start now, and what is to be given back, because it could outlive its lease."""
    start: list[T] = []
    give_back: list[T] = []
    for item in items:
        (start if fits_lease(lease_of(item), now_ms=now_ms) else give_back).append(item)
    return start, give_back


def check_lease(until_ms: int, *, timeout_ms: int, lease_ms: int) -> Leased:
    """Of a check. Where the operator's lease is shorter than twice the check's time-out, half of it must be left.

    Such a lease cannot hold a check that uses all of its time; but one that answers soon is still made once.
    """
    return Leased(until_ms, min(timeout_ms, lease_ms // 2))


def may_send(intent_ms: int, *, now_ms: int) -> bool:
    """Whether a send to RIPE may still start its POST: it must have its answer before anybody may give it up.

    A clock that shows a time well before the intent was set back: the age of the intent is unknown, so it may not.
    """
    late_ms_max = SEND_LEASE_MS - SEND_MS_MAX
    lease = Leased(intent_ms + SEND_LEASE_MS, SEND_MS_MAX)
    return intent_ms - now_ms <= late_ms_max and fits_lease(lease, now_ms=now_ms)


def given_up_before_ms(now_ms: int) -> int:
    """Sends whose intent was written before are given up, if they have no answer yet.

    This is not the end of an ordinary lease, after which anybody may do the work again. RIPE runs and charges whatever
    it is sent twice, and nobody knows whether this POST arrived. So what is given up is unknown: it is looked up at
    RIPE, and is sent again only once RIPE was seen not to have it.
    """
    return now_ms - SEND_LEASE_MS
