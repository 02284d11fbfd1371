"""Tries to tell somebody something, kept in flight: calls of webhooks, and messages to channels."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from paceline.core.batches.calls import CallResult
from paceline.core.leases import Leased, sort_out
from paceline.core.try_turns import PLACES, TryPlaces, TryQueue
from paceline.ports import Edge
from paceline.shells.daemon.in_flight import ClaimedOrders, InFlightWork
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.daemon.store_threads import Fence
from paceline.steps.tries import TriesToMake
from paceline.wiring import System

K = TypeVar("K", str, int)


class TryOrder(Protocol):
    @property
    def timeout_ms(self) -> int: ...


class Try(Protocol):
    """A try that is stored together with the time of the next one, and must be made now."""

    @property
    def fence(self) -> Fence: ...
    @property
    def user(self) -> str: ...
    @property
    def order(self) -> TryOrder: ...
    @property
    def next_ms(self) -> int: ...


T = TypeVar("T", bound=Try)


class Tries(InFlightWork[T, CallResult], Generic[T, K]):
    """Tries of one kind, for which users take turns.

    None has to be given back: each is due again at the time that was stored with it.
    """

    too_late = "the store answers too slowly; each is tried again"
    orders_max = PLACES
    claims_when_full = True
    look_ms = 1_000

    def __init__(
        self, system: System, edge: Edge[Any, CallResult], metrics: Metrics, *, chance: Callable[[], float]
    ) -> None:
        self.edge = edge
        self._system = system
        self._metrics = metrics
        self._chance = chance
        self._queue: TryQueue[K] = TryQueue()
        self._held: dict[str, int] = {}
        """Number of tries in flight, by user."""

    def claim(self, room: int, ended: Sequence[tuple[T, CallResult]], *, expected: bool) -> ClaimedOrders[T]:
        del ended, expected
        now_ms = self._system.clock.now_ms()
        begun = self.begin(self._queue, TryPlaces(room, dict(self._held)), now_ms=now_ms)
        return ClaimedOrders(begun.tries, now_ms if begun.more else None, more=begun.waiting)

    @abstractmethod
    def begin(self, queue: TryQueue[K], places: TryPlaces, *, now_ms: int) -> TriesToMake[T]:
        """Writes the tries that have a place, and returns them."""

    def fences(self, orders: Sequence[T]) -> list[Fence]:
        return [one.fence for one in orders]

    def in_time(self, orders: Sequence[T], *, now_ms: int) -> tuple[list[T], list[T]]:
        """Splits tries into those to make now, and those left for next time because storing them took too long."""
        return sort_out(orders, lambda one: Leased(one.next_ms, one.order.timeout_ms), now_ms=now_ms)

    def start(self, orders: list[T], *, now_ms: int) -> None:
        del now_ms
        for one in orders:
            self._held[one.user] = self._held.get(one.user, 0) + 1
        self.edge.start([one.order for one in orders])

    def leave(self, orders: Sequence[T]) -> None:
        for one in orders:
            self._held[one.user] -= 1
            if not self._held[one.user]:
                del self._held[one.user]

    def release(self, fences: Sequence[Fence]) -> None:
        """Does nothing: a try that is not made comes again at its next time."""

    def repeatable(self, order: T) -> bool:
        del order
        return False
