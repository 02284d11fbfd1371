"""The loops of monitors: the ticker makes runs of what is due, and the sender makes their checks."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence

import structlog

from paceline.core.monitors.checks import repeatable
from paceline.core.monitors.definition import duration_ms
from paceline.core.monitors.places import Places
from paceline.core.monitors.values import Finished, Order
from paceline.ports import Provider
from paceline.shells.daemon.check_places import CheckPlaces
from paceline.shells.daemon.loop import Turn
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.daemon.polling import Outlook
from paceline.shells.daemon.store_threads import SETTLES_MAX, Returns, StoreActs
from paceline.steps.monitors.check_secrets import CheckOpener
from paceline.steps.monitors.react import react_to_all
from paceline.steps.monitors.send import SettleReport, claim_orders, orders_in_time, settle
from paceline.steps.monitors.tick import next_entries_max, tick
from paceline.wiring import System

log = structlog.get_logger("paceline")

LOOK_MS = 200
"""How long a loop sleeps at most: another process may have written, and it cannot wake us."""
IN_VAIN_MS = 20
"""A tick that found nothing, although something seemed due, is not repeated sooner."""
PASSES_MAX = 50
SETTLE_MS = 50
SETTLE_MAX = 500
"""Checks that end within this time, or so many of them, are settled together."""
BUSY_MIN = 50
BUSY_MS = 1
"""With so many checks in flight, the few that ended first wait so long for company: a turn costs the same for one."""
CLAIM_MS = 20
"""More checks are claimed after this time, or when half the room is free: few claims, each of many."""
DRAIN_S = 10.0
TOO_LATE = (
    "the store answers too slowly for these leases: look at it, or set a longer PACELINE_CHECK_LEASE or CALL_LEASE"
)


class Ticker:
    """Lets recorded changes drive entries, and due entries make runs; sleeps until the next one is due."""

    def __init__(
        self, system: System, metrics: Metrics, *, made: Callable[[], None], keep_on: Callable[[], bool]
    ) -> None:
        self._system = system
        self._metrics = metrics
        self._made = made
        self._keep_on = keep_on
        self._look_ms = max(LOOK_MS, system.traits.look_ms_min)
        self._changes = Outlook(system)
        self._entries_max = next_entries_max(full=False)

    def tell(self) -> None:
        """A definition changed."""
        self._changes.tell()

    def turn(self) -> Turn:
        store, clock = self._system.store, self._system.clock
        if self._changes.is_time():
            self._changes.looked(lambda: react_to_all(store, now_ms=clock.now_ms()))
        soonest_ms = 0
        for _ in range(PASSES_MAX):
            now_ms = clock.now_ms()
            next_due_ms = store.next_due_ms()
            if next_due_ms is None or next_due_ms > now_ms:
                break  # most looks find nothing due, and then the tick need not ask more closely
            report = tick(store, now_ms=now_ms, catch_up=self._system.catch_up, limit=self._entries_max)
            self._entries_max = next_entries_max(full=report.more)
            if report.entries or report.lost:
                # Lateness is counted to the moment when the runs can be claimed.
                behind_ms = clock.now_ms() - now_ms
                late_ms = [ms + behind_ms for ms in report.late_ms]
                self._metrics.count_tick(
                    entries=report.entries, lost=report.lost, late_ms=late_ms, skipped_by=report.skipped_by
                )
            if report.runs:
                self._made()
            if not (report.entries or report.lost):
                soonest_ms = IN_VAIN_MS  # somebody else was faster, and the hint is a moment old
                break
            if not self._keep_on():
                break
        if next_due_ms is None:
            return Turn(self._look_ms)
        return Turn(min(max(next_due_ms - clock.now_ms(), soonest_ms), self._look_ms))


class Sender:
    """Keeps checks in flight up to the limit and settles what has ended in batches.

    Where a request to the store may hang, claims and settlements are made beside this loop, each on its own thread: it
    goes on reading answers, and what has ended is settled however long a claim takes.
    """

    def __init__(self, system: System, provider: Provider, metrics: Metrics) -> None:
        self._system = system
        self._opener = CheckOpener(system.vault)
        self._provider = provider
        self._metrics = metrics
        # By attempt too: a check that outlives its lease may be out once more, and the two must not be confused.
        self._out: dict[tuple[int, int], Order] = {}
        self._ended: deque[Finished] = deque()
        self._settled_ms = 0
        self._looked_ms = 0
        self._look_ms = max(LOOK_MS, system.traits.look_ms_min)
        self._news = threading.Event()
        self._lease_ms = duration_ms(system.settings.check_lease)
        self._places = CheckPlaces(system.settings)
        apart, done = system.traits.remote, provider.wake
        self._claims: StoreActs[int, list[Order]] = StoreActs("claims", apart=apart, done=done)
        self._settles: StoreActs[list[Finished], SettleReport] = StoreActs(
            "settles", apart=apart, done=done, most=SETTLES_MAX
        )
        self._returns = Returns("returns", self._release, apart=apart, done=done)
        self._hurried = False
        self._freed = False
        """Runs have ended since the last look."""

    def wake(self) -> None:
        """There may be runs to claim."""
        self._news.set()
        self._provider.wake()

    def turn(self) -> Turn:
        """The provider does the sleeping: it wakes for a socket as well as for news."""
        self._claim()
        self._start(self._claims.result() or [])
        ended = self._provider.finished(wait_ms=self._wait_ms())
        self._ended.extend(ended)
        self._places.end([self._out[item.handle, item.attempt] for item in ended])
        self._settle()
        self._returns.turn()
        in_flight = self._provider.in_flight
        self._metrics.set_in_flight(in_flight)
        busy = in_flight >= BUSY_MIN and len(ended) < BUSY_MIN
        return Turn(BUSY_MS if busy else 0)

    def hurry(self) -> None:
        """A drain does not wait for what is in flight. From any thread."""
        self._hurried = True

    def drain(self) -> None:
        """No new claims; what is in flight settles, or is given back where it can be repeated safely."""
        until_s = time.monotonic() + DRAIN_S
        while (self._provider.in_flight or self._claims.busy) and not self._hurried and time.monotonic() < until_s:
            self._ended.extend(self._provider.finished(wait_ms=100))
            self._settle()
            self._returns.add((order.handle, order.attempt) for order in self._claims.result() or [])
        self._ended.extend(self._provider.finished(wait_ms=0))
        while (self._ended or self._settles.busy) and time.monotonic() < until_s + DRAIN_S:
            self._settle(at_once=True)
            self._note_settled(wait_s=0.1)
        self._returns.turn(wait_s=DRAIN_S)
        left = [(order.handle, order.attempt) for order in self._out.values() if repeatable(order.check)]
        if left:
            self._system.store.release(left, now_ms=self._system.clock.now_ms())
        log.info("drained", given_back=len(left), left_to_lease=len(self._out) - len(left))

    def _wait_ms(self) -> int:
        """Until something must be settled, or may be claimed."""
        now_ms = self._system.clock.now_ms()
        wait_ms = self._look_ms
        if (self._freed or self._news.is_set()) and self._provider.in_flight < self._system.settings.check_places:
            wait_ms = max(0, CLAIM_MS - abs(now_ms - self._looked_ms))
        if self._ended:
            wait_ms = min(wait_ms, max(0, SETTLE_MS - abs(now_ms - self._settled_ms)))
        return wait_ms

    def _claim(self) -> None:
        settings, now_ms = self._system.settings, self._system.clock.now_ms()
        in_flight = self._provider.in_flight
        room = settings.check_places - in_flight
        passed_ms = abs(now_ms - self._looked_ms)
        soon = passed_ms < CLAIM_MS and room < in_flight
        if room <= 0 or soon or self._claims.busy:
            return
        if not (self._freed or self._news.is_set() or passed_ms >= self._look_ms):
            return
        self._looked_ms = now_ms
        told = self._news.is_set()
        self._news.clear()
        self._freed = False
        places = self._places.now()
        self._claims.begin(room, lambda room: self._claimed(room, places, told=told, now_ms=now_ms))

    def _claimed(self, room: int, places: Places, *, told: bool, now_ms: int) -> list[Order]:
        """``told``: there may be something; else the store is asked first, which costs less than a claim."""
        if not told:
            next_ms = self._system.store.next_run_ms()
            if next_ms is None or next_ms > now_ms:
                return []
        orders = claim_orders(
            self._system.store,
            now_ms=now_ms,
            runs_max=room,
            lease_ms=self._lease_ms,
            policy=self._system.retry_policy,
            places=places,
            opener=self._opener,
        )
        if len(orders) == room:
            self._news.set()  # there may be more
        return orders

    def _start(self, orders: Sequence[Order]) -> None:
        """Those that cannot outlive their lease, however long it took to get it. The others are given back."""
        if not orders:
            return
        now_ms = self._system.clock.now_ms()
        start, late = orders_in_time(orders, lease_ms=self._lease_ms, now_ms=now_ms)
        self._out.update([((order.handle, order.attempt), order) for order in start])
        self._places.start(start)
        self._provider.start(start)
        self._count_starts(start, now_ms)
        if late:
            log.warning("claimed_too_late", checks=len(late), hint=TOO_LATE)
            self._returns.add((order.handle, order.attempt) for order in late)

    def _release(self, late: Sequence[tuple[int, int]]) -> None:
        self._system.store.release(late, now_ms=self._system.clock.now_ms())
        self._news.set()

    def _settle(self, *, at_once: bool = False) -> None:
        self._note_settled()
        now_ms = self._system.clock.now_ms()
        soon = len(self._ended) < SETTLE_MAX and abs(now_ms - self._settled_ms) < SETTLE_MS
        if not self._ended or self._settles.full or (soon and not at_once):
            return
        batch = list(self._ended)
        self._ended.clear()
        self._settled_ms = now_ms
        self._settles.begin(batch, lambda batch: settle(self._system.store, batch))
        self._note_settled()

    def _note_settled(self, *, wait_s: float = 0.0) -> None:
        failed: Exception | None = None
        for batch, report, error in self._settles.fetch(wait_s=wait_s):
            if report is None:
                self._ended.extendleft(reversed(batch))  # the store was unavailable: they are tried again
                failed = error
                continue
            pop = self._out.pop
            orders = [pop((item.handle, item.attempt)) for item in batch]
            self._count(batch, orders, report)
            if report.stale:
                log.warning("stale_outcomes", count=report.stale)
            self._note_freed()
        if failed is not None:
            raise failed

    def _note_freed(self) -> None:
        """Runs have ended: what was parked behind them, or waited for a place, may start.

        Most often nothing was, and a store that is near is asked first, which costs less than a claim.
        """
        if self._system.traits.remote:
            self._news.set()
        else:
            self._freed = True

    def _count_starts(self, orders: Sequence[Order], now_ms: int) -> None:
        kinds = {type(order.check) for order in orders}
        for kind in kinds:
            these = orders if len(kinds) == 1 else [order for order in orders if type(order.check) is kind]
            late_ms = [now_ms - order.due_ms for order in these if order.attempt == 1]
            if late_ms:
                self._metrics.observe_starts_ms(str(kind.__struct_config__.tag), late_ms)

    def _count(self, batch: Sequence[Finished], orders: Sequence[Order], report: SettleReport) -> None:
        """Counts what was settled: by type, and named once for each, since items are thousands and kinds a handful."""
        settled = {id(item) for item in report.settled} if report.stale else None
        made = Counter(
            [
                (type(order.check), item.outcome.ok)
                for item, order in zip(batch, orders, strict=True)
                if settled is None or id(item) in settled
            ]
        )
        for (kind, ok), count in made.items():
            self._metrics.count_runs(str(kind.__struct_config__.tag), "ok" if ok else "failed", count)
