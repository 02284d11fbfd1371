"""Sends alerts to their channels: the messages in flight, and the loop that tells them."""

from __future__ import annotations

import random
from collections.abc import Sequence

import structlog

from paceline.core.batches.calls import CallResult
from paceline.core.try_turns import TryPlaces, TryQueue
from paceline.shells.daemon.in_flight import InFlight
from paceline.shells.daemon.loop import JOIN_S, Loop
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.daemon.tries import Tries
from paceline.steps.alerts.deliver import DeliveryResult, Message, begin_deliveries, end_deliveries
from paceline.steps.tries import TriesToMake
from paceline.wiring import System, open_messenger

log = structlog.get_logger("paceline")

DRAIN_S = 3.0
"""How long messages in flight may still take in a drain; those that are cut short are tried again."""


class Alerts(Tries[Message, str]):
    """Messages to channels."""

    name = "alerts"

    def begin(self, queue: TryQueue[str], places: TryPlaces, *, now_ms: int) -> TriesToMake[Message]:
        system = self._system
        return begin_deliveries(
            system.store,
            system.vault,
            secret=system.secret_key,
            now_ms=now_ms,
            chance=self._chance,
            queue=queue,
            places=places,
        )

    def settle(self, ended: Sequence[tuple[Message, CallResult]]) -> int:
        for one in end_deliveries(self._system.store, ended):
            self._note(one)
        return len(ended)

    def _note(self, one: DeliveryResult) -> None:
        """Counts and logs the end of a try, without the URL, which contains a secret."""
        alert = one.alert
        fields = {
            "alert": alert.id,
            "told": alert.event,
            "user": alert.user,
            "channel": one.channel,
            "tries": one.tries,
        }
        if one.ok:
            self._metrics.count_alert("ok")
            log.info("alert_told", **fields)
        else:
            self._metrics.count_alert("given_up" if one.over else "retry")
            log.warning("alert_given_up" if one.over else "alert_failed", **fields, reason=one.reason)


class AlertEngine:
    """The loop that tells alerts, with its own connections to channels."""

    def __init__(self, system: System, metrics: Metrics, *, own: list[tuple[str, int]]) -> None:
        self._messenger = open_messenger(system.settings, system.clock, own=own)
        work = Alerts(system, self._messenger, metrics, chance=random.SystemRandom().random)
        self._alerts = InFlight(work, clock=system.clock, remote=system.traits.remote)
        self.loop = Loop("alerts", self._alerts.turn, metrics)

    def wake(self) -> None:
        """Says that there may be an alert to tell. May be called from any thread."""
        self._alerts.wake()

    def hurry(self) -> None:
        self._alerts.hurry()

    def drain(self) -> None:
        """Ends the loop after it was stopped. Messages in flight get some seconds; the others are tried again."""
        self._alerts.wake()
        self.loop.join(JOIN_S)
        self._alerts.drain(wait_s=DRAIN_S, settle_s=DRAIN_S)
        self._messenger.close()
