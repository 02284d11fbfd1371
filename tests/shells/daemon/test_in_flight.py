"""The in-flight loop, with a store and an edge that the test controls."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import pytest
from structlog.testing import capture_logs

from paceline.core.batches.calls import CallResult
from paceline.core.leases import Leased, sort_out
from paceline.errors import StoreUnavailable
from paceline.shells.daemon.in_flight import ClaimedOrders, Drained, InFlight, InFlightWork
from paceline.shells.daemon.store_threads import SETTLES_MAX, Fence

T0_MS = 1_800_000_000_000
LEASE_MS, TAKES_MS = 10_000, 4_000
WAIT_S_MAX = 20


class Errand(NamedTuple):
    """An order. Those with an even number can be repeated."""

    handle: int
    attempt: int = 1
    until_ms: int = T0_MS + LEASE_MS


class Edge:
    """Ends the errands that the test names. Time passes only when the test says so."""

    def __init__(self) -> None:
        self.started: list[int] = []
        self.in_flight = 0
        self.waited_ms = 0
        self._ends: list[CallResult] = []
        self._woken = threading.Event()

    def start(self, orders: Sequence[Errand]) -> None:
        self.started += [order.handle for order in orders]
        self.in_flight += len(orders)

    def end(self, *handles: int) -> None:
        self._ends += [CallResult(handle, 1, T0_MS, T0_MS) for handle in handles]

    def finished(self, *, wait_ms: int) -> list[CallResult]:
        self.waited_ms = wait_ms
        if not self._ends:
            self._woken.wait(min(wait_ms, 20) / 1_000)
        self._woken.clear()
        ended, self._ends = self._ends, []
        self.in_flight -= len(ended)
        return ended

    def wake(self) -> None:
        self._woken.set()

    def close(self) -> None: ...


class Store:
    """Runs an act at once, unless the test holds it or makes it fail."""

    def __init__(self) -> None:
        self.failing = False
        self.held: dict[str, threading.Event] = {}
        self.asked: list[str] = []

    def hold(self, act: str) -> Callable[[], None]:
        """Makes this act hang until the returned function is called."""
        self.held[act] = gate = threading.Event()
        return gate.set

    def act(self, name: str) -> None:
        self.asked.append(name)
        if (gate := self.held.get(name)) is not None:
            assert gate.wait(WAIT_S_MAX)
        if self.failing:
            raise StoreUnavailable("it is full")


class Errands(InFlightWork[Errand, CallResult]):
    """``waiting`` can be claimed; ``settled`` and ``released`` are the calls that the store received."""

    name = "errands"
    orders_max = 4
    most_at_once = 1_000
    """A ceiling that the loop does not know, like that of a target."""
    look_ms = 200

    def __init__(self, *waiting: int) -> None:
        self.edge = Edge()
        self.store = Store()
        self.ms = T0_MS
        self.waiting = [Errand(handle) for handle in waiting]
        self.settled: list[int] = []
        self.released: list[int] = []
        self.in_flight = 0

    def now_ms(self) -> int:
        return self.ms

    def claim(self, room: int, ended: Sequence[tuple[Errand, CallResult]], *, expected: bool) -> ClaimedOrders[Errand]:
        del expected
        room = min(room, self.most_at_once - self.edge.in_flight)
        claimed, self.waiting = self.waiting[:room], self.waiting[room:]
        self.store.act("claim")
        self.settled += [order.handle for order, _ in ended]
        if self.waiting and self.most_at_once < self.orders_max:
            return ClaimedOrders(claimed, more=True)
        return ClaimedOrders(claimed, self.ms if self.waiting else None)

    def fences(self, orders: Sequence[Errand]) -> list[Fence]:
        return [(order.handle, order.attempt) for order in orders]

    def in_time(self, orders: Sequence[Errand], *, now_ms: int) -> tuple[list[Errand], list[Errand]]:
        return sort_out(orders, lambda order: Leased(order.until_ms, TAKES_MS), now_ms=now_ms)

    def start(self, orders: list[Errand], *, now_ms: int) -> None:
        assert now_ms == self.ms
        self.edge.start(orders)

    def settle(self, ended: Sequence[tuple[Errand, CallResult]]) -> int:
        handles = [order.handle for order, _ in ended]
        self.store.act("settle " + " ".join(map(str, handles)))
        self.settled += handles
        return len(ended)

    def release(self, fences: Sequence[Fence]) -> None:
        self.store.act("release")
        self.released += [handle for handle, _ in fences]

    def repeatable(self, order: Errand) -> bool:
        return order.handle % 2 == 0

    def show_in_flight(self, count: int) -> None:
        self.in_flight = count


def loop_of(errands: Errands, *, remote: bool = False) -> InFlight[Errand, CallResult]:
    return InFlight(errands, clock=errands, remote=remote)


def turn_until(loop: InFlight[Errand, CallResult], reached: Callable[[], Any]) -> None:
    until_s = time.monotonic() + WAIT_S_MAX
    while not reached():
        assert time.monotonic() < until_s
        loop.turn()


@pytest.mark.parametrize("remote", [False, True])
def test_all_work_is_claimed_started_and_settled_once_within_its_places(*, remote: bool) -> None:
    errands = Errands(*range(10))
    loop = loop_of(errands, remote=remote)
    turn_until(loop, lambda: errands.edge.in_flight == 4)
    assert (errands.edge.started, errands.in_flight) == ([0, 1, 2, 3], 4)
    for handle in range(10):
        turn_until(loop, partial(errands.edge.started.count, handle))
        errands.edge.end(handle)
        turn_until(loop, partial(errands.settled.count, handle))
        assert errands.edge.in_flight <= 4
    assert (errands.edge.started, errands.settled) == (list(range(10)), list(range(10)))
    assert loop.settled == 10
    turn_until(loop, lambda: not loop.is_busy(soon_ms=1_000))


def test_results_are_settled_while_the_reply_to_a_claim_hangs() -> None:
    errands = Errands(1, 2)
    loop = loop_of(errands, remote=True)
    turn_until(loop, lambda: errands.edge.started == [1, 2])
    reply = errands.store.hold("claim")
    errands.waiting = [Errand(3)]
    loop.wake()
    turn_until(loop, lambda: errands.store.asked[-1] == "claim")
    errands.edge.end(1, 2)
    turn_until(loop, lambda: sorted(errands.settled) == [1, 2])
    reply()
    turn_until(loop, lambda: 3 in errands.edge.started)


def test_loop_sleeps_while_the_reply_to_a_claim_hangs_although_there_may_be_more() -> None:
    errands = Errands(1)
    loop = loop_of(errands, remote=True)
    reply = errands.store.hold("claim")
    turn_until(loop, lambda: errands.store.asked == ["claim"])
    loop.wake()
    loop.turn()
    assert errands.edge.waited_ms == errands.look_ms
    reply()
    turn_until(loop, lambda: errands.store.asked == ["claim"] * 2)


def test_results_are_settled_while_the_reply_to_another_settlement_hangs() -> None:
    errands = Errands(1, 2, 3)
    loop = loop_of(errands, remote=True)
    turn_until(loop, lambda: errands.edge.in_flight == 3)
    reply = errands.store.hold("settle 1")
    errands.edge.end(1)
    turn_until(loop, lambda: "settle 1" in errands.store.asked)
    errands.edge.end(2)
    turn_until(loop, lambda: errands.settled == [2])
    errands.edge.end(3)
    turn_until(loop, lambda: errands.settled == [2, 3])
    assert loop.is_busy(soon_ms=None), "the first is not settled"
    reply()
    turn_until(loop, lambda: errands.settled == [2, 3, 1])


def test_settlements_that_hang_are_bounded_and_the_next_results_wait_for_them() -> None:
    errands = Errands(*range(SETTLES_MAX + 2))
    errands.orders_max = SETTLES_MAX + 2
    loop = loop_of(errands, remote=True)
    turn_until(loop, lambda: errands.edge.in_flight == SETTLES_MAX + 2)
    replies = [errands.store.hold(f"settle {handle}") for handle in range(SETTLES_MAX)]
    for handle in range(SETTLES_MAX):
        errands.edge.end(handle)
        turn_until(loop, partial(errands.store.asked.count, f"settle {handle}"))
    errands.edge.end(SETTLES_MAX, SETTLES_MAX + 1)
    for _ in range(5):
        loop.turn()
    assert errands.settled == []
    replies.pop()()
    turn_until(loop, lambda: len(errands.settled) == 3)
    assert f"settle {SETTLES_MAX} {SETTLES_MAX + 1}" in errands.store.asked, "both waited, and go together"
    for reply in replies:
        reply()
    turn_until(loop, lambda: len(errands.settled) == SETTLES_MAX + 2)


@pytest.mark.parametrize(("took_ms", "in_time"), [(LEASE_MS - TAKES_MS, True), (LEASE_MS - TAKES_MS + 1, False)])
def test_order_that_could_outlive_its_lease_is_given_back_and_not_started(*, took_ms: int, in_time: bool) -> None:
    errands = Errands(1, 2)
    errands.waiting[1] = Errand(2, until_ms=T0_MS + 10 * LEASE_MS)
    loop = loop_of(errands, remote=True)
    reply = errands.store.hold("claim")
    turn_until(loop, lambda: errands.store.asked == ["claim"])
    errands.ms += took_ms
    reply()
    with capture_logs() as logs:
        turn_until(loop, lambda: 2 in errands.edge.started)
        turn_until(loop, lambda: in_time or errands.released)
    assert errands.edge.started == ([1, 2] if in_time else [2])
    assert errands.released == ([] if in_time else [1])
    assert [line["errands"] for line in logs if line["event"] == "claimed_too_late"] == ([] if in_time else [1])


def test_order_that_cannot_be_given_back_yet_is_given_back_when_the_store_is_available() -> None:
    errands = Errands()
    errands.waiting = [Errand(1, until_ms=T0_MS)]
    loop = loop_of(errands)
    loop.claim()
    errands.store.failing = True
    with pytest.raises(StoreUnavailable):
        loop.go_on(wait_ms_max=0)
    errands.store.failing = False
    loop.turn()
    assert (errands.released, errands.edge.started) == ([1], [])


@pytest.mark.parametrize("with_claim", [False, True])
def test_results_that_could_not_be_settled_are_kept_and_settled_in_order(*, with_claim: bool) -> None:
    errands = Errands(1, 2, 3)
    errands.settles_with_claim = with_claim
    loop = loop_of(errands)
    turn_until(loop, lambda: errands.edge.in_flight == 3)
    errands.store.failing = True
    errands.edge.end(1)
    with pytest.raises(StoreUnavailable):
        turn_until(loop, lambda: False)
    errands.store.failing = False
    errands.edge.end(2)
    turn_until(loop, lambda: len(errands.settled) == 2)
    assert errands.settled == [1, 2]
    assert any(act.startswith("settle") for act in errands.store.asked) is not with_claim


def test_results_are_collected_and_settled_with_the_next_claim() -> None:
    errands = Errands(1, 2, 3)
    errands.settles_with_claim, errands.settle_ms = True, 50
    loop = loop_of(errands)
    loop.turn()
    errands.ms += 1_000
    errands.edge.end(1)
    loop.turn()
    loop.turn()
    assert (errands.settled, errands.edge.waited_ms) == ([1], 200), "nothing was settled for long"
    errands.edge.end(2)
    loop.turn()
    errands.ms += 10
    loop.turn()
    assert (errands.settled, errands.edge.waited_ms) == ([1], 40)
    loop.wake()
    loop.turn()
    assert errands.settled == [1], "a claim so soon does not take them along"
    errands.ms += 20
    loop.wake()
    loop.turn()
    assert errands.settled == [1, 2]
    errands.edge.end(3)
    loop.turn()
    errands.ms += 50
    loop.turn()
    assert errands.settled == [1, 2, 3], "nothing is to be claimed, and they have waited long enough"


def test_results_that_may_not_be_settled_yet_do_not_keep_the_loop_awake() -> None:
    errands = Errands(*range(9))
    errands.settles_with_claim, errands.settle_ms, errands.claim_ms, errands.orders_max = True, 50, 20, 12
    loop = loop_of(errands)
    loop.turn()
    errands.edge.end(0)
    loop.turn()
    errands.ms += 20
    loop.turn()
    assert errands.settled == [0]
    errands.ms += 45
    loop.wake()
    loop.turn()
    errands.edge.end(1)
    loop.turn()
    errands.ms += 10
    loop.turn()
    assert (errands.settled, errands.edge.waited_ms) == ([0], 10), "the next claim comes 20 ms after the last"
    errands.ms += 10
    loop.turn()
    assert errands.settled == [0, 1]


def test_orders_that_wait_for_others_to_end_are_claimed_before_results_are_settled() -> None:
    errands = Errands(*range(20))
    errands.settles_with_claim, errands.settle_ms, errands.claim_ms = True, 1_000, 20
    errands.orders_max, errands.most_at_once = 10, 8
    loop = loop_of(errands)
    loop.turn()
    errands.edge.end(0)
    errands.ms += 20
    loop.turn()
    loop.turn()
    assert (errands.edge.in_flight, errands.settled) == (8, [0])
    loop.turn()
    assert errands.edge.waited_ms == 200, "nothing has ended"
    errands.ms += 5
    errands.edge.end(1)
    loop.turn()
    loop.turn()
    assert (errands.edge.in_flight, errands.edge.waited_ms) == (7, 15), "few have ended: the next claim is 20 ms later"
    errands.ms += 15
    loop.turn()
    assert (errands.edge.in_flight, errands.settled) == (8, [0])
    errands.edge.end(2, 3, 4, 5, 6)
    loop.turn()
    assert errands.edge.in_flight == 3
    loop.turn()
    assert (errands.edge.in_flight, errands.settled) == (8, [0]), "half of all have ended: the next claim is at once"


def test_drain_settles_finished_runs_and_claims_nothing() -> None:
    errands = Errands(1, 2)
    loop = loop_of(errands)
    turn_until(loop, lambda: errands.edge.in_flight == 2)
    errands.waiting = [Errand(3)]
    errands.edge.end(2)
    timer = threading.Timer(0.2, errands.edge.end, [1])
    timer.start()
    assert loop.drain(wait_s=WAIT_S_MAX, settle_s=WAIT_S_MAX) == Drained(0, 0)
    timer.join()
    assert (errands.settled, errands.waiting) == ([2, 1], [Errand(3)])


def test_drain_releases_repeatable_runs_and_leaves_the_others_to_their_lease() -> None:
    errands = Errands(1, 2, 3)
    loop = loop_of(errands)
    turn_until(loop, lambda: errands.edge.in_flight == 3)
    errands.edge.end(3)
    assert loop.drain(wait_s=0.1, settle_s=WAIT_S_MAX) == Drained(given_back=1, left_to_lease=1)
    assert (errands.settled, errands.released) == ([3], [2])


def test_drain_releases_runs_of_a_claim_that_answers_late() -> None:
    errands = Errands(1, 2)
    loop = loop_of(errands, remote=True)
    reply = errands.store.hold("claim")
    turn_until(loop, lambda: errands.store.asked == ["claim"])
    timer = threading.Timer(0.2, reply)
    timer.start()
    assert loop.drain(wait_s=WAIT_S_MAX, settle_s=WAIT_S_MAX) == Drained(0, 0)
    timer.join()
    assert (errands.released, errands.edge.started) == ([1, 2], [])


def test_hurried_drain_does_not_wait_for_runs_in_flight() -> None:
    errands = Errands(1, 2)
    loop = loop_of(errands)
    turn_until(loop, lambda: errands.edge.in_flight == 2)
    errands.edge.end(1)
    threading.Timer(0.2, loop.hurry).start()
    began_s = time.monotonic()
    assert loop.drain(wait_s=10 * WAIT_S_MAX, settle_s=WAIT_S_MAX) == Drained(given_back=1, left_to_lease=0)
    assert time.monotonic() - began_s < WAIT_S_MAX
    assert (errands.settled, errands.released) == ([1], [2])


def test_drain_does_not_wait_for_ever_for_a_settlement_that_hangs() -> None:
    errands = Errands(2)
    loop = loop_of(errands, remote=True)
    turn_until(loop, lambda: errands.edge.in_flight == 1)
    reply = errands.store.hold("settle 2")
    errands.edge.end(2)
    assert loop.drain(wait_s=0.1, settle_s=0.2) == Drained(given_back=1, left_to_lease=0)
    reply()


def test_store_is_not_polled_again_before_its_interval_or_a_signal() -> None:
    errands = Errands()
    loop = loop_of(errands)
    for _ in range(3):
        loop.turn()
    assert errands.store.asked == ["claim"], "nothing was found, and no more is expected"
    errands.ms += errands.look_ms - 1
    loop.turn()
    assert errands.store.asked == ["claim"]
    errands.ms += 1
    loop.turn()
    assert errands.store.asked == ["claim"] * 2, "another process may have written"
    loop.wake()
    loop.turn()
    assert errands.store.asked == ["claim"] * 3


def test_results_that_come_soon_after_a_settlement_are_settled_together() -> None:
    errands = Errands(1, 2, 3)
    errands.settle_ms = 50
    loop = loop_of(errands)
    turn_until(loop, lambda: errands.edge.in_flight == 3)
    for handle in (1, 2, 3):
        errands.edge.end(handle)
        loop.turn()
    assert errands.settled == [1]
    errands.ms += 50
    loop.turn()
    assert errands.settled == [1, 2, 3]
