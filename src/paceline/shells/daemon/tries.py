"""Tries to tell somebody something, kept in flight: calls of webhooks, and messages to channels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from paceline.core.batches.calls import CallResult
from paceline.core.leases import Leased, sort_out
from paceline.ports import Edge
from paceline.shells.daemon.in_flight import InFlightWork
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.daemon.store_threads import Fence
from paceline.wiring import System


class TryOrder(Protocol):
    @property
    def timeout_ms(self) -> int: ...


class Try(Protocol):
    """A try that is stored together with the time of the next one, and must be made now."""

    @property
    def fence(self) -> Fence: ...
    @property
    def order(self) -> TryOrder: ...
    @property
    def next_ms(self) -> int: ...


T = TypeVar("T", bound=Try)


class Tries(InFlightWork[T, CallResult]):
    """Tries of one kind. None has to be given back: each is due again at the time that was stored with it."""

    too_late = "the store answers too slowly; each is tried again"
    orders_max = 50
    look_ms = 1_000

    def __init__(
        self, system: System, edge: Edge[Any, CallResult], metrics: Metrics, *, chance: Callable[[], float]
    ) -> None:
        self.edge = edge
        self._system = system
        self._metrics = metrics
        self._chance = chance

    def fences(self, orders: Sequence[T]) -> list[Fence]:
        return [one.fence for one in orders]

    def in_time(self, orders: Sequence[T], *, now_ms: int) -> tuple[list[T], list[T]]:
        """Splits tries into those to make now, and those left for next time because storing them took too long."""
        return sort_out(orders, lambda one: Leased(one.next_ms, one.order.timeout_ms), now_ms=now_ms)

    def start(self, orders: list[T], *, now_ms: int) -> None:
        del now_ms
        self.edge.start([one.order for one in orders])

    def release(self, fences: Sequence[Fence]) -> None:
        """Does nothing: a try that is not made comes again at its next time."""

    def repeatable(self, order: T) -> bool:
        del order
        return False
