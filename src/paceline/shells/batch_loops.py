"""The daemon's loops for batches: one plans days when they begin, one keeps calls to providers in flight."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable

import structlog

from paceline.core.calls import CallResult
from paceline.core.definition import duration_ms
from paceline.core.provider import SAFE_METHODS
from paceline.ports import Caller
from paceline.shells.loops import BUSY_MIN, BUSY_MS, DRAIN_S, LOOK_MS, Outlook, Turn
from paceline.shells.metrics import Metrics
from paceline.steps.call import Fence, ProviderBook, Sent, SettleReport, settle_and_claim, settle_calls
from paceline.steps.plan import plan_due
from paceline.wiring import System

log = structlog.get_logger("paceline")

PLAN_LOOK_MS = 1_000
"""How long the planner sleeps at most: another process may have written, and it cannot wake us."""
NEVER_MS = 1 << 60
IN_VAIN_MS = 5
"""A claim that found nothing, although something seemed ready, is not repeated sooner."""


class Planner:
    """Plans each batch's day when its window begins, goes on with plans that were cut short, and places newcomers."""

    def __init__(
        self, system: System, metrics: Metrics, *, planned: Callable[[], None], keep_on: Callable[[], bool]
    ) -> None:
        self._system = system
        self._metrics = metrics
        self._planned = planned
        self._keep_on = keep_on
        self._outlook = Outlook(system)
        self._next_ms = 0

    def tell(self) -> None:
        """A batch or a record changed."""
        self._outlook.tell()

    def turn(self) -> Turn:
        clock = self._system.clock
        if clock.now_ms() < self._next_ms and not self._outlook.is_time():
            return self._sleep()
        store = self._system.store
        report = self._outlook.looked(lambda: plan_due(store, now_ms=clock.now_ms(), keep_on=self._keep_on))
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

    def _sleep(self) -> Turn:
        return Turn(min(max(self._next_ms - self._system.clock.now_ms(), 0), PLAN_LOOK_MS))


class CallSender:
    """Keeps calls in flight up to the limit. What ends while a settlement is written is settled with the next."""

    def __init__(self, system: System, caller: Caller, metrics: Metrics, *, chance: Callable[[], float]) -> None:
        self._system = system
        self._caller = caller
        self._metrics = metrics
        self._chance = chance
        self._book = ProviderBook(system.store, system.vault)
        # By attempt too: a call that outlives its lease may be out once more, and the two must not be confused.
        self._out: dict[Fence, Sent] = {}
        self._ended: list[CallResult] = []
        self._in_vain = False
        self._lease_ms = duration_ms(system.settings.call_lease)
        self._look_ms = max(LOOK_MS, system.look_ms_min)

    def wake(self) -> None:
        """There may be runs to claim."""
        self._caller.wake()

    def turn(self) -> Turn:
        """The caller does the sleeping: it wakes for a socket as well as for news."""
        self._exchange()
        ended = self._caller.finished(wait_ms=self._wait_ms())
        self._ended += ended
        in_flight = self._caller.in_flight
        self._metrics.set_calls_in_flight(in_flight)
        busy = in_flight >= BUSY_MIN and len(ended) < BUSY_MIN
        return Turn(BUSY_MS if busy else 0)

    def drain(self) -> None:
        """No new claims; what is in flight settles, or is given back where it can be repeated safely."""
        until_s = time.monotonic() + DRAIN_S
        self._settle()
        while self._caller.in_flight and time.monotonic() < until_s:
            self._ended += self._caller.finished(wait_ms=100)
            self._settle()
        left = [fence for fence, sent in self._out.items() if sent.call.method in SAFE_METHODS]
        if left:
            self._system.store.release_calls(left, now_ms=self._system.clock.now_ms())
        log.info("calls_drained", given_back=len(left), left_to_lease=len(self._out) - len(left))

    def _wait_ms(self) -> int:
        """Until something may be claimed: a call that ends is noticed anyway."""
        if self._room <= 0:
            return self._look_ms
        next_ms = self._system.store.next_call_ms()
        if next_ms is None:
            return self._look_ms
        soonest_ms = IN_VAIN_MS if self._in_vain else 0
        return min(max(next_ms - self._system.clock.now_ms(), soonest_ms), self._look_ms)

    @property
    def _room(self) -> int:
        return self._system.settings.calls_in_flight_max - self._caller.in_flight

    def _exchange(self) -> None:
        """Settles what has ended and claims what may start: in one act, for what comes next waits for both."""
        store, now_ms, room = self._system.store, self._system.clock.now_ms(), self._room
        if room <= 0:
            self._settle()
            return
        next_ms = store.next_call_ms()
        if not self._ended and (next_ms is None or next_ms > now_ms):
            return
        report, sent = settle_and_claim(
            store,
            self._book,
            self._out,
            self._ended,
            chance=self._chance,
            now_ms=now_ms,
            runs_max=room,
            lease_ms=self._lease_ms,
        )
        self._note(report)
        self._in_vain = not sent and not report.settled
        self._out.update(((one.call.handle, one.call.attempt), one) for one in sent)
        self._caller.start([one.call for one in sent])
        self._metrics.observe_calls_ms([max(0, now_ms - one.due_ms) for one in sent if one.call.attempt == 1])

    def _settle(self) -> None:
        if self._ended:
            self._note(settle_calls(self._system.store, self._out, self._ended, chance=self._chance))

    def _note(self, report: SettleReport) -> None:
        """Only now are they forgotten: had the store been unavailable, they would be settled with the next turn."""
        for result in self._ended:
            del self._out[result.handle, result.attempt]
        self._ended.clear()
        for state, count in Counter(item.state for _, item in report.settled).items():
            self._metrics.count_runs("batch", state, count)
        if report.stale:
            log.warning("stale_call_results", count=report.stale)
