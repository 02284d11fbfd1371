"""Whether work that was claimed may still start: it must be over before its lease is, or another may do it as well."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, TypeVar

T = TypeVar("T")


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
