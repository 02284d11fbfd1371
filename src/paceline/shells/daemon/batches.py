"""Loops of batches: the planner plans days when they begin, and calls to providers are kept in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import structlog

from paceline.core.batches.calls import CallResult
from paceline.core.batches.provider import SAFE_METHODS
from paceline.core.monitors.definition import duration_ms
from paceline.ports import Caller
from paceline.shells.daemon.in_flight import LOOK_MS, ClaimedOrders, InFlightWork
from paceline.shells.daemon.loop import LoopTurn
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.daemon.polling import PollTimer
from paceline.shells.daemon.store_threads import Fence
from paceline.steps.batches import call
from paceline.steps.batches.plan import plan_due
from paceline.wiring import System

log = structlog.get_logger("paceline")

PLAN_LOOK_MS = 1_000
"""Longest sleep of the planner: another process may have written, and it cannot wake this one."""
NEVER_MS = 1 << 60
IN_VAIN_MS = 5
"""Pause after a claim that found nothing although something seemed ready."""


class Planner:
    """Plans each batch's day when its window begins, goes on with plans that were cut short, and plans late records."""

    def __init__(
        self, system: System, metrics: Metrics, *, planned: Callable[[], None], keep_on: Callable[[], bool]
    ) -> None:
        self._system = system
        self._metrics = metrics
        self._planned = planned
        self._keep_on = keep_on
        self._poll = PollTimer(system)
        self._next_ms = 0

    def tell(self) -> None:
        """Says that a batch or a record changed."""
        self._poll.wake()

    def turn(self) -> LoopTurn:
        clock = self._system.clock
        if clock.now_ms() < self._next_ms and not self._poll.is_time():
            return self._sleep()
        store = self._system.store
        report = self._poll.looked(lambda: plan_due(store, now_ms=clock.now_ms(), keep_on=self._keep_on))
        runs = report.newcomers + sum(day.report.enqueued for day in report.days)
        for day in report.days:
            log.info(
                "planned",
                batch=day.batch,
                date=day.date,
                enqueued=day.report.enqueued,
                already=day.report.already,
                skipped=day.report.skipped,
            )
        if runs:
            self._metrics.count_planned(runs)
            self._planned()
        self._next_ms = NEVER_MS if report.next_ms is None else report.next_ms
        return self._sleep()

    def _sleep(self) -> LoopTurn:
        return LoopTurn(min(max(self._next_ms - self._system.clock.now_ms(), 0), PLAN_LOOK_MS))


class Calls(InFlightWork[call.SentCall, CallResult]):
    """Calls to providers of batches. On a file, settling and claiming are one act, which halves the cost."""

    name = "calls"

    def __init__(self, system: System, caller: Caller, metrics: Metrics, *, chance: Callable[[], float]) -> None:
        self.edge = caller
        self.orders_max = system.settings.calls_in_flight_max
        self.look_ms = max(LOOK_MS, system.traits.look_ms_min)
        self.settles_with_claim = not system.traits.remote
        self._system = system
        self._metrics = metrics
        self._chance = chance
        self._book = call.ProviderBook(system.store, system.vault)
        self._lease_ms = duration_ms(system.settings.call_lease)

    def claim(
        self, room: int, ended: Sequence[tuple[call.SentCall, CallResult]], *, expected: bool
    ) -> ClaimedOrders[call.SentCall]:
        del expected  # it costs little to ask when the next call is ready
        now_ms = self._system.clock.now_ms()
        next_ms = now_ms if ended else self._next_ms()
        if next_ms is None or next_ms > now_ms:
            return ClaimedOrders([], next_ms)
        terms = {"now_ms": now_ms, "runs_max": room, "lease_ms": self._lease_ms}
        settled = 0
        if self.settles_with_claim:
            report, sent = call.settle_and_claim(
                self._system.store, self._book, _by_fence(ended), _results(ended), chance=self._chance, **terms
            )
            settled = self._count(report)
        else:
            sent = self._claimed(**terms)
        next_ms = self._next_ms()
        if not (sent or settled) and next_ms is not None:
            next_ms = max(next_ms, now_ms + IN_VAIN_MS) if self.settles_with_claim else None
        return ClaimedOrders(sent, next_ms)

    def _next_ms(self) -> int | None:
        """Returns when the next call is ready."""
        return self._system.store.next_call_ms()

    def _claimed(self, **terms: int) -> list[call.SentCall]:
        return call.claim_calls(self._system.store, self._book, **terms)

    def fences(self, orders: Sequence[call.SentCall]) -> list[Fence]:
        return [sent.fence for sent in orders]

    def in_time(
        self, orders: Sequence[call.SentCall], *, now_ms: int
    ) -> tuple[list[call.SentCall], list[call.SentCall]]:
        return call.calls_in_time(orders, now_ms=now_ms)

    def start(self, orders: list[call.SentCall], *, now_ms: int) -> None:
        self.edge.start([sent.call for sent in orders])
        self._metrics.observe_calls_ms([max(0, now_ms - sent.due_ms) for sent in orders if sent.call.attempt == 1])

    def settle(self, ended: Sequence[tuple[call.SentCall, CallResult]]) -> int:
        return self._count(
            call.settle_calls(self._system.store, _by_fence(ended), _results(ended), chance=self._chance)
        )

    def release(self, fences: Sequence[Fence]) -> None:
        self._system.store.release_calls(fences, now_ms=self._system.clock.now_ms())

    def repeatable(self, order: call.SentCall) -> bool:
        return order.call.method in SAFE_METHODS

    def show_in_flight(self, count: int) -> None:
        self._metrics.set_calls_in_flight(count)

    def _count(self, report: call.CallSettleReport) -> int:
        for state, count in Counter(item.state for _, item in report.settled).items():
            self._metrics.count_runs("batch", state, count)
        if report.stale:
            log.warning("stale_call_results", count=report.stale)
        return len(report.settled)


def _by_fence(ended: Sequence[tuple[call.SentCall, CallResult]]) -> dict[Fence, call.SentCall]:
    return {(result.handle, result.attempt): sent for sent, result in ended}


def _results(ended: Sequence[tuple[call.SentCall, CallResult]]) -> list[CallResult]:
    return [result for _, result in ended]
