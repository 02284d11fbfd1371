"""Loops of monitors: the ticker makes runs of due entries, and checks are kept in flight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import structlog

from paceline.core.monitors.checks import repeatable
from paceline.core.monitors.definition import duration_ms
from paceline.core.monitors.values import CheckOrder, Finished, Settlement
from paceline.ports import Provider
from paceline.shells.daemon import in_flight
from paceline.shells.daemon.check_places import CheckPlaces
from paceline.shells.daemon.in_flight import ClaimedOrders, InFlightWork
from paceline.shells.daemon.loop import LoopTurn
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.daemon.polling import PollTimer
from paceline.shells.daemon.store_threads import Fence
from paceline.steps.monitors.check_secrets import CheckOpener
from paceline.steps.monitors.react import react_to_all
from paceline.steps.monitors.send import CheckSettleReport, claim_orders, orders_in_time, settle, settle_and_claim
from paceline.steps.monitors.tick import next_entries_max, tick
from paceline.wiring import System

log = structlog.get_logger("paceline")

LOOK_MS = 200
"""How soon the ticker notices definitions of another process."""
IN_VAIN_MS = 20
"""Pause after a tick that found nothing although something seemed due."""
PASSES_MAX = 50


class Ticker:
    """Makes entries follow changed definitions, and makes runs of due entries; sleeps until the next one is due."""

    def __init__(
        self, system: System, metrics: Metrics, *, made: Callable[[], None], keep_on: Callable[[], bool]
    ) -> None:
        self._system = system
        self._metrics = metrics
        self._made = made
        self._keep_on = keep_on
        self._look_ms = max(LOOK_MS, system.traits.look_ms_min)
        self._changes = PollTimer(system)
        self._entries_max = next_entries_max(full=False)

    def tell(self) -> None:
        """Says that a definition changed."""
        self._changes.wake()

    def turn(self) -> LoopTurn:
        store, clock = self._system.store, self._system.clock
        if self._changes.is_time():
            self._changes.looked(lambda: react_to_all(store, now_ms=clock.now_ms()))
        soonest_ms = 0
        for _ in range(PASSES_MAX):
            now_ms = clock.now_ms()
            next_due_ms = store.next_due_ms()
            if next_due_ms is None or next_due_ms > now_ms:
                break  # most looks find nothing due; then no tick is needed
            report = tick(store, now_ms=now_ms, catch_up=self._system.catch_up, limit=self._entries_max)
            self._entries_max = next_entries_max(full=report.more)
            if report.entries or report.lost:
                # Lateness counts until the runs can be claimed.
                behind_ms = clock.now_ms() - now_ms
                late_ms = [ms + behind_ms for ms in report.late_ms]
                self._metrics.count_tick(
                    entries=report.entries, lost=report.lost, late_ms=late_ms, skipped_by=report.skipped_by
                )
            if report.runs:
                self._made()
            if not (report.entries or report.lost):
                soonest_ms = IN_VAIN_MS  # another process was faster, and the hint is a moment old
                break
            if not self._keep_on():
                break
        if next_due_ms is None:
            return LoopTurn(self._look_ms)
        return LoopTurn(min(max(next_due_ms - clock.now_ms(), soonest_ms), self._look_ms))


class Checks(InFlightWork[CheckOrder, Finished]):
    """Checks of monitors, made by this process. On a file, results are settled with the next claim, in one commit."""

    name = "checks"
    claim_ms = 20
    settle_ms = 50

    def __init__(self, system: System, provider: Provider, metrics: Metrics) -> None:
        self.edge = provider
        self.orders_max = system.settings.check_places
        self.look_ms = max(in_flight.LOOK_MS, system.traits.look_ms_min)
        self.settles_with_claim = not system.traits.remote
        self._system = system
        self._opener = CheckOpener(system.vault)
        self._metrics = metrics
        self._lease_ms = duration_ms(system.settings.check_lease)
        self._places = CheckPlaces(system.settings)

    def claim(
        self, room: int, ended: Sequence[tuple[CheckOrder, Finished]], *, expected: bool
    ) -> ClaimedOrders[CheckOrder]:
        store, now_ms = self._system.store, self._system.clock.now_ms()
        if not (expected or ended):
            next_ms = store.next_run_ms()  # this costs less than a claim
            if next_ms is None or next_ms > now_ms:
                return ClaimedOrders([], None if self._system.traits.remote else next_ms)
        terms: dict[str, Any] = {
            "now_ms": now_ms,
            "runs_max": room,
            "lease_ms": self._lease_ms,
            "places": self._places.now(),
        }
        orders = self._settled_and_claimed(ended, **terms) if ended else self._claimed(**terms)
        if len(orders) == room:
            return ClaimedOrders(orders, now_ms)
        if self._system.traits.remote or (next_ms := self._system.store.next_run_ms()) is None:
            return ClaimedOrders(orders)
        if next_ms <= now_ms:  # runs wait for a place
            return ClaimedOrders(orders, more=True)
        return ClaimedOrders(orders, next_ms)

    def _claimed(self, **terms: Any) -> list[CheckOrder]:
        return claim_orders(self._system.store, policy=self._system.retry_policy, opener=self._opener, **terms)

    def _settled_and_claimed(self, ended: Sequence[tuple[CheckOrder, Finished]], **terms: Any) -> list[CheckOrder]:
        results, policy = [item for _, item in ended], self._system.retry_policy
        report, orders = settle_and_claim(self._system.store, results, policy=policy, opener=self._opener, **terms)
        self._count(ended, report)
        return orders

    def fences(self, orders: Sequence[CheckOrder]) -> list[Fence]:
        return [(order.handle, order.attempt) for order in orders]

    def in_time(self, orders: Sequence[CheckOrder], *, now_ms: int) -> tuple[list[CheckOrder], list[CheckOrder]]:
        return orders_in_time(orders, lease_ms=self._lease_ms, now_ms=now_ms)

    def start(self, orders: list[CheckOrder], *, now_ms: int) -> None:
        self._places.start(orders)
        self.edge.start(orders)
        kinds = {type(order.check) for order in orders}
        for kind in kinds:
            these = orders if len(kinds) == 1 else [order for order in orders if type(order.check) is kind]
            late_ms = [now_ms - order.due_ms for order in these if order.attempt == 1]
            self._metrics.observe_starts_ms(str(kind.__struct_config__.tag), late_ms)

    def leave(self, orders: Sequence[CheckOrder]) -> None:
        self._places.end(orders)

    def settle(self, ended: Sequence[tuple[CheckOrder, Finished]]) -> int:
        report = settle(self._system.store, [item for _, item in ended], policy=self._system.retry_policy)
        return self._count(ended, report)

    def release(self, fences: Sequence[Fence]) -> None:
        self._system.store.release(fences, now_ms=self._system.clock.now_ms())

    def repeatable(self, order: CheckOrder) -> bool:
        return repeatable(order.check)

    def show_in_flight(self, count: int) -> None:
        self._metrics.set_in_flight(count)

    def _count(self, ended: Sequence[tuple[CheckOrder, Finished]], report: CheckSettleReport) -> int:
        """Counts outcomes by type first, and looks each name up once: there are thousands of results, and few kinds."""
        settled = {id(item) for item in report.settled} if report.stale or report.again else None
        made = Counter(
            [(type(order.check), item.outcome.ok) for order, item in ended if settled is None or id(item) in settled]
        )
        for (kind, ok), count in made.items():
            self._metrics.count_runs(str(kind.__struct_config__.tag), "ok" if ok else "failed", count)
        if report.stale:
            log.warning("stale_outcomes", count=report.stale)
        if report.again:
            out = {(order.handle, order.attempt): order for order, _ in ended}
            self.try_again([(out[one.handle, one.attempt], one) for one in report.again])
        return len(report.settled)

    def try_again(self, failed: Sequence[tuple[CheckOrder, Settlement]]) -> None:
        """Called with checks that may start again after a pause.

        The store holds them, so there is nothing to do here.
        """
