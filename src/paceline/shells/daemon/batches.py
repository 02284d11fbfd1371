"""The daemon's loops for batches: one plans days when they begin, one keeps calls to providers in flight."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

import structlog

from paceline.core.batches.calls import CallResult
from paceline.core.batches.provider import SAFE_METHODS
from paceline.core.monitors.definition import duration_ms
from paceline.ports import Caller
from paceline.shells.daemon.loop import Turn
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.daemon.monitors import BUSY_MIN, BUSY_MS, DRAIN_S, LOOK_MS, TOO_LATE
from paceline.shells.daemon.polling import Outlook
from paceline.shells.daemon.store_threads import SETTLES_MAX, Returns, StoreActs
from paceline.steps.batches.call import (
    Fence,
    ProviderBook,
    Sent,
    SettleReport,
    calls_in_time,
    claim_calls,
    settle_and_claim,
    settle_calls,
)
from paceline.steps.batches.plan import plan_due
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


class Found(NamedTuple):
    """What a look for calls came to. ``next_ms``: when there may be more; None: nobody knows of any."""

    sent: list[Sent]
    next_ms: int | None


class CallSender:
    """Keeps calls in flight up to the limit. What ends while a settlement is written is settled with the next.

    On a file both are one act, which halves what each costs. Where a request to the store may hang, claims and
    settlements are made beside this loop, each on its own thread: what has ended is settled however long a claim takes.
    """

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
        self._next_ms: int | None = 0
        self._lease_ms = duration_ms(system.settings.call_lease)
        self._look_ms = max(LOOK_MS, system.traits.look_ms_min)
        self._looked_ms = 0
        self._news = threading.Event()
        apart, done = system.traits.remote, caller.wake
        self._claims: StoreActs[int, Found] = StoreActs("claims-calls", apart=apart, done=done)
        self._settles: StoreActs[list[CallResult], SettleReport] = StoreActs(
            "settles-calls", apart=apart, done=done, most=SETTLES_MAX
        )
        self._returns = Returns("returns-calls", self._release, apart=apart, done=done)
        self._hurried = False

    def wake(self) -> None:
        """There may be runs to claim."""
        self._news.set()
        self._caller.wake()

    def turn(self) -> Turn:
        """The caller does the sleeping: it wakes for a socket as well as for news."""
        if self._system.traits.remote:
            self._settle()
            self._claim()
        else:
            self._exchange()
        self._returns.turn()
        ended = self._caller.finished(wait_ms=self._wait_ms())
        self._ended += ended
        in_flight = self._caller.in_flight
        self._metrics.set_calls_in_flight(in_flight)
        busy = in_flight >= BUSY_MIN and len(ended) < BUSY_MIN
        return Turn(BUSY_MS if busy else 0)

    def hurry(self) -> None:
        """A drain does not wait for what is in flight. From any thread."""
        self._hurried = True

    def drain(self) -> None:
        """No new claims; what is in flight settles, or is given back where it can be repeated safely."""
        until_s = time.monotonic() + DRAIN_S
        self._settle()
        while (self._caller.in_flight or self._claims.busy) and not self._hurried and time.monotonic() < until_s:
            self._ended += self._caller.finished(wait_ms=100)
            self._settle()
            self._returns.add(one.fence for one in self._fetch_found().sent)
        while (self._ended or self._settles.busy) and time.monotonic() < until_s + DRAIN_S:
            self._settle()
            self._note_settled(wait_s=0.1)
        self._returns.turn(wait_s=DRAIN_S)
        left = [fence for fence, sent in self._out.items() if sent.call.method in SAFE_METHODS]
        if left:
            self._system.store.release_calls(left, now_ms=self._system.clock.now_ms())
        log.info("calls_drained", given_back=len(left), left_to_lease=len(self._out) - len(left))

    def _wait_ms(self) -> int:
        """Until something may be claimed: a call that ends is noticed anyway."""
        if self._room <= 0 or self._claims.busy:
            return self._look_ms
        next_ms = self._next_ms if self._system.traits.remote else self._system.store.next_call_ms()
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
        # Only now are they forgotten: had the store been unavailable, they would be settled with the next turn.
        self._note(report, self._ended)
        self._ended = []
        self._in_vain = not sent and not report.settled
        self._start(sent)

    def _claim(self) -> None:
        """Begins a look for calls when there may be some, and starts what the last one found."""
        if self._claims.busy:
            self._start(self._fetch_found().sent)
        now_ms, room = self._system.clock.now_ms(), self._room
        due = self._next_ms is not None and self._next_ms <= now_ms and not self._in_vain
        if self._claims.full or room <= 0:
            return
        if due or self._news.is_set() or abs(now_ms - self._looked_ms) >= self._look_ms:
            self._news.clear()
            self._looked_ms = now_ms
            self._claims.begin(room, self._find)

    def _fetch_found(self) -> Found:
        found = self._claims.result()
        if found is None:
            return Found([], self._next_ms)
        self._next_ms, self._in_vain = found.next_ms, not found.sent
        return found

    def _find(self, room: int) -> Found:
        store, now_ms = self._system.store, self._system.clock.now_ms()
        next_ms = store.next_call_ms()
        if next_ms is None or next_ms > now_ms:
            return Found([], next_ms)
        sent = claim_calls(store, self._book, now_ms=now_ms, runs_max=room, lease_ms=self._lease_ms)
        return Found(sent, store.next_call_ms())

    def _start(self, sent: Sequence[Sent]) -> None:
        """Those that cannot outlive their lease, however long it took to get it. The others are given back."""
        if not sent:
            return
        now_ms = self._system.clock.now_ms()
        start, late = calls_in_time(sent, now_ms=now_ms)
        self._out.update((one.fence, one) for one in start)
        self._caller.start([one.call for one in start])
        self._metrics.observe_calls_ms([max(0, now_ms - one.due_ms) for one in start if one.call.attempt == 1])
        if late:
            log.warning("claimed_too_late", calls=len(late), hint=TOO_LATE)
            self._returns.add(one.fence for one in late)

    def _release(self, late: Sequence[Fence]) -> None:
        self._system.store.release_calls(late, now_ms=self._system.clock.now_ms())
        self._news.set()

    def _settle(self) -> None:
        self._note_settled()
        if not self._ended or self._settles.full:
            return
        batch, self._ended = self._ended, []
        sent = {(item.handle, item.attempt): self._out[item.handle, item.attempt] for item in batch}
        self._settles.begin(batch, lambda batch: settle_calls(self._system.store, sent, batch, chance=self._chance))
        self._note_settled()

    def _note_settled(self, *, wait_s: float = 0.0) -> None:
        failed: Exception | None = None
        for batch, report, error in self._settles.fetch(wait_s=wait_s):
            if report is None:
                self._ended += batch  # the store was unavailable: they are settled with the next turn
                failed = error
                continue
            self._note(report, batch)
            self._news.set()  # their providers may start the next
        if failed is not None:
            raise failed

    def _note(self, report: SettleReport, settled: Sequence[CallResult]) -> None:
        for result in settled:
            del self._out[result.handle, result.attempt]
        for state, count in Counter(item.state for _, item in report.settled).items():
            self._metrics.count_runs("batch", state, count)
        if report.stale:
            log.warning("stale_call_results", count=report.stale)
