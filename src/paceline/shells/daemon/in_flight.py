"""Keeps work of one kind in flight: claims it, starts it, takes its results, settles them, gives back the rest."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import structlog

from paceline.core.batches.calls import CallResult
from paceline.core.monitors.values import Finished
from paceline.ports import Clock, Edge
from paceline.shells.daemon.loop import LoopTurn
from paceline.shells.daemon.store_threads import SETTLES_MAX, Fence, Returns, StoreActs

log = structlog.get_logger("paceline")

T = TypeVar("T")
R = TypeVar("R", bound=Finished | CallResult)

LOOK_MS = 500
"""Longest sleep of a loop: another process may have written, and it cannot wake this one."""
SETTLE_MAX = 500
"""Results are settled without waiting for more once there are this many."""
BUSY_MIN = 50
BUSY_MS = 1
"""With ``BUSY_MIN`` in flight, results wait this long for further ones: a turn costs the same for one as for many."""
TOO_LATE = (
    "the store answers too slowly for these leases: look at it, or set a longer PACELINE_CHECK_LEASE or CALL_LEASE"
)


class ClaimedOrders(NamedTuple, Generic[T]):
    """Result of a claim. ``next_ms``: when there may be more; None if nothing is known."""

    orders: list[T]
    next_ms: int | None = None
    more: bool = False
    """True if further orders wait until others have ended."""


class Drained(NamedTuple):
    """How many orders were left after a drain: those given back, and those that wait for the end of their lease."""

    given_back: int
    left_to_lease: int


class InFlightWork(Protocol[T, R]):
    """A kind of work. ``claim``, ``settle`` and ``release`` may run in different threads at the same time."""

    name: str
    """Plural noun for log lines and names of threads."""
    too_late: str = TOO_LATE
    """Hint for the operator in the log, if orders were claimed too late to start."""
    edge: Edge[Any, R]
    orders_max: int
    """Most orders in flight."""
    look_ms: int
    """Longest time without a look into the store."""
    claim_ms: int = 0
    """Pause between claims, unless half the room is free: few claims of many orders each."""
    settle_ms: int = 0
    """Results that come within this time are settled together."""
    settles_with_claim: bool = False
    """True if ``claim`` settles finished orders in the same act, to save a commit. False if the store may hang."""
    claims_when_full: bool = False
    """True if ``claim`` has something to do even without room."""

    def claim(self, room: int, ended: Sequence[tuple[T, R]], *, expected: bool) -> ClaimedOrders[T]:
        """Claims up to ``room`` orders. ``expected``: there may be some; if False, ``claim`` can ask the store first.

        ``ended``: results to be settled in the same act; empty unless ``settles_with_claim``.
        """

    def fences(self, orders: Sequence[T]) -> list[Fence]: ...
    def in_time(self, orders: Sequence[T], *, now_ms: int) -> tuple[list[T], list[T]]:
        """Splits orders into those that end within their lease if they start now, and those that may not."""

    def start(self, orders: list[T], *, now_ms: int) -> None: ...
    def leave(self, orders: Sequence[T]) -> None:
        """Called with orders that have ended, before they are settled."""
        del orders

    def settle(self, ended: Sequence[tuple[T, R]]) -> int:
        """Writes the results and counts them. Returns how many still had their lease."""

    def release(self, fences: Sequence[Fence]) -> None: ...
    def repeatable(self, order: T) -> bool:
        """True if an order that was cut short can be made again without harm."""

    def show_in_flight(self, count: int) -> None:
        """Sets the gauge, if there is one."""
        del count


class InFlight(Generic[T, R]):
    """Orders of one kind that this process has claimed and that are not settled.

    If a request to the store may hang, claims, settlements and returns run in threads of their own: the loop goes on
    reading answers, and finished orders are settled however long a claim takes.
    """

    def __init__(self, work: InFlightWork[T, R], *, clock: Clock, remote: bool) -> None:
        """``remote``: a request to the store may hang for seconds while other requests do not."""
        self.work = work
        self.settled = 0
        self._edge = work.edge
        self._clock = clock
        self._remote = remote
        name, done = work.name, work.edge.wake
        self._claims: StoreActs[list[tuple[T, R]], ClaimedOrders[T]] = StoreActs(
            f"claims-{name}", apart=remote, done=done
        )
        self._settles: StoreActs[list[tuple[T, R]], int] = StoreActs(
            f"settles-{name}", apart=remote, done=done, most=SETTLES_MAX
        )
        self._returns = Returns(f"returns-{name}", self._release, apart=remote, done=done)
        # The key has the attempt, because an order that outlives its lease may be out twice.
        self._out: dict[Fence, T] = {}
        self._ended: list[tuple[T, R]] = []
        self._woken = threading.Event()
        self._freed = False
        """True if orders were settled since the last claim."""
        self._more = False
        self._ended_since = 0
        """How many orders have ended since the last claim."""
        self._next_ms: int | None = 0
        self._looked_ms = 0
        self._settled_ms = 0
        self._hurried = False

    def wake(self) -> None:
        """Says that there may be something to claim. May be called from any thread."""
        self._woken.set()
        self._edge.wake()

    def hurry(self) -> None:
        """Makes a drain not wait for orders in flight. May be called from any thread."""
        self._hurried = True

    def turn(self) -> LoopTurn:
        self.claim()
        return self.go_on(wait_ms_max=self.work.look_ms)

    def claim(self) -> None:
        """Begins a claim if there is room, and a reason to think that there is something to claim."""
        now_ms, in_flight, work = self._clock.now_ms(), self._edge.in_flight, self.work
        room = max(0, work.orders_max - in_flight)
        passed_ms = abs(now_ms - self._looked_ms)
        soon = passed_ms < work.claim_ms and room < in_flight
        if (not room and not work.claims_when_full) or soon or self._claims.busy:
            return
        expected = self._may_claim(by_ms=now_ms)
        settle_ms = self._settle_ms(now_ms)
        ended = self._ended if work.settles_with_claim and 2 * settle_ms <= work.settle_ms else []
        freed = self._freed or self._freed_ms(passed_ms) == 0
        if not (expected or freed or passed_ms >= work.look_ms or (ended and not settle_ms)):
            return
        self._looked_ms = now_ms
        self._woken.clear()
        self._freed, self._more, self._ended_since, self._next_ms = False, False, 0, None
        if ended:
            self._ended, self._settled_ms = [], now_ms
        self._claims.begin(ended, lambda ended: work.claim(room, ended, expected=expected))

    def go_on(self, *, wait_ms_max: int) -> LoopTurn:
        """Starts claimed orders, takes results and settles them. Sleeps in the edge, which can be woken."""
        self._start_found()
        taken = self._take(min(self._wait_ms(), wait_ms_max))
        if not self.work.settles_with_claim:
            self._settle()
        self._returns.turn()
        in_flight = self._edge.in_flight
        self.work.show_in_flight(in_flight)
        return LoopTurn(BUSY_MS if in_flight >= BUSY_MIN and taken < BUSY_MIN else 0)

    def is_busy(self, *, soon_ms: int | None) -> bool:
        """True if anything is out, or may be claimed within ``soon_ms``. None: nothing more is claimed."""
        if self._out or self._claims.busy:
            return True
        return soon_ms is not None and (self._freed or self._may_claim(by_ms=self._clock.now_ms() + soon_ms))

    def drain(self, *, wait_s: float, settle_s: float) -> Drained:
        """Claims nothing more. Settles orders in flight, or gives them back if they can be repeated safely."""
        until_s = time.monotonic() + wait_s
        while (self._edge.in_flight or self._claims.busy) and not self._hurried and time.monotonic() < until_s:
            self._take(100)
            self._settle()
            self._returns.add(self.work.fences(self._found()))
        self._take(0)
        while (self._ended or self._settles.busy) and time.monotonic() < until_s + settle_s:
            self._settle(at_once=True)
            self._note_settled(wait_s=0.1)
        self._returns.turn(wait_s=settle_s)
        left = [fence for fence, order in self._out.items() if self.work.repeatable(order)]
        if left:
            self.work.release(left)
        return Drained(len(left), len(self._out) - len(left))

    def _may_claim(self, *, by_ms: int) -> bool:
        return self._woken.is_set() or (self._next_ms is not None and self._next_ms <= by_ms)

    def _freed_ms(self, passed_ms: int) -> int | None:
        """Returns how much longer orders wait that may start because others have ended; None: there are none.

        The others' results may wait longer until they are settled.
        """
        if not (self._more and self._ended_since):
            return None
        return 0 if 2 * self._ended_since >= self.work.orders_max else max(0, self.work.claim_ms - passed_ms)

    def _wait_ms(self) -> int:
        """Returns the time until something must be settled or may be claimed."""
        now_ms, work = self._clock.now_ms(), self.work
        wait_ms = work.look_ms
        if (self._edge.in_flight < work.orders_max or work.claims_when_full) and not self._claims.busy:
            if (freed_ms := self._freed_ms(abs(now_ms - self._looked_ms))) is not None:
                wait_ms = min(wait_ms, freed_ms)
            next_ms = now_ms if self._freed or self._woken.is_set() else self._next_ms
            if next_ms is not None:
                wait_ms = min(wait_ms, max(0, next_ms - now_ms, work.claim_ms - abs(now_ms - self._looked_ms)))
        if self._ended and not self._settles.full:
            soonest_ms = work.claim_ms - abs(now_ms - self._looked_ms) if work.settles_with_claim else 0
            wait_ms = min(wait_ms, max(soonest_ms, self._settle_ms(now_ms)))
        return wait_ms

    def _settle_ms(self, now_ms: int) -> int:
        """Returns how much longer results wait for further ones."""
        if len(self._ended) >= SETTLE_MAX:
            return 0
        return max(0, self.work.settle_ms - abs(now_ms - self._settled_ms))

    def _found(self) -> list[T]:
        """Returns the orders of the current claim, if it has ended."""
        orders: list[T] = []
        for ended, found, error in self._claims.fetch():
            if found is None:
                self._ended = ended + self._ended  # the store was unavailable: settled with the next claim
                assert error is not None
                raise error
            self._forget(ended)
            self._next_ms, self._more = found.next_ms, found.more
            orders = found.orders
        return orders

    def _start_found(self) -> None:
        """Starts orders that end within their lease, even if the claim took long. Gives the others back."""
        orders = self._found()
        if not orders:
            return
        now_ms = self._clock.now_ms()
        start, late = self.work.in_time(orders, now_ms=now_ms)
        self._out.update(zip(self.work.fences(start), start, strict=True))
        self.work.start(start, now_ms=now_ms)
        if late:
            log.warning("claimed_too_late", **{self.work.name: len(late)}, hint=self.work.too_late)
            self._returns.add(self.work.fences(late))

    def _take(self, wait_ms: int) -> int:
        results = self._edge.finished(wait_ms=wait_ms)
        orders = [self._out[result.handle, result.attempt] for result in results]
        self.work.leave(orders)
        self._ended += zip(orders, results, strict=True)
        self._ended_since += len(results)
        return len(results)

    def _settle(self, *, at_once: bool = False) -> None:
        self._note_settled()
        now_ms = self._clock.now_ms()
        if not self._ended or self._settles.full or not (at_once or self._settle_ms(now_ms) == 0):
            return
        batch, self._ended = self._ended, []
        self._settled_ms = now_ms
        self._settles.begin(batch, self.work.settle)
        self._note_settled()

    def _note_settled(self, *, wait_s: float = 0.0) -> None:
        failed: Exception | None = None
        for batch, settled, error in self._settles.fetch(wait_s=wait_s):
            if settled is None:
                self._ended = batch + self._ended  # the store was unavailable: settled again later
                failed = error
                continue
            self.settled += settled
            self._forget(batch)
            self._note_freed()
        if failed is not None:
            raise failed

    def _forget(self, settled: Sequence[tuple[T, R]]) -> None:
        for _, result in settled:
            del self._out[result.handle, result.attempt]

    def _note_freed(self) -> None:
        """Notes that orders have ended: orders parked behind them, or waiting for a place, may start.

        Mostly there are none. A store that is near is asked first, which costs less than a claim.
        """
        if self._remote:
            self._woken.set()
        else:
            self._freed = True

    def _release(self, late: list[Fence]) -> None:
        self.work.release(late)
        self._woken.set()
