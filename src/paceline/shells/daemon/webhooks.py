"""Calls to the webhooks of finished jobs, kept in flight."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import structlog

from paceline.core.batches.calls import CallResult
from paceline.ports import Caller
from paceline.shells.daemon.in_flight import Found, Work
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.daemon.store_threads import Fence
from paceline.steps.jobs.webhook import Hook, HookEnded, begin_webhooks, end_webhooks, hooks_in_time
from paceline.wiring import System

log = structlog.get_logger("paceline")


class Webhooks(Work[Hook, CallResult]):
    """Calls to webhooks. A try is written with the time of the next one: so none has to be given back."""

    name = "webhooks"
    too_late = "the store answers too slowly; each is tried again"
    orders_max = 50
    look_ms = 1_000

    def __init__(self, system: System, caller: Caller, metrics: Metrics, *, chance: Callable[[], float]) -> None:
        self.edge = caller
        self._system = system
        self._metrics = metrics
        self._chance = chance

    def claim(self, room: int, ended: Sequence[tuple[Hook, CallResult]], *, told: bool) -> Found[Hook]:
        del ended, told
        system, now_ms = self._system, self._system.clock.now_ms()
        hooks = begin_webhooks(system.store, secret=system.secret_key, now_ms=now_ms, chance=self._chance, limit=room)
        return Found(hooks, now_ms if len(hooks) == room else None)

    def fences(self, orders: Sequence[Hook]) -> list[Fence]:
        return [hook.fence for hook in orders]

    def in_time(self, orders: Sequence[Hook], *, now_ms: int) -> tuple[list[Hook], list[Hook]]:
        return hooks_in_time(orders, now_ms=now_ms)

    def start(self, orders: list[Hook], *, now_ms: int) -> None:
        del now_ms
        self.edge.start([hook.call for hook in orders])

    def settle(self, ended: Sequence[tuple[Hook, CallResult]]) -> int:
        hooks = {hook.fence: hook for hook, _ in ended}
        for one in end_webhooks(self._system.store, hooks, [result for _, result in ended]):
            self._note(one)
        return len(ended)

    def release(self, fences: Sequence[Fence]) -> None:
        """Nothing to do: each is due again at its next try."""

    def repeatable(self, order: Hook) -> bool:
        del order
        return False

    def _note(self, one: HookEnded) -> None:
        """Without the URL: it may have a secret in it."""
        fields = {"job": one.job.id, "tries": one.tries}
        if one.ok:
            self._metrics.count_webhook("ok")
            log.info("webhook_told", **fields)
        else:
            self._metrics.count_webhook("given_up" if one.over else "retry")
            log.warning("webhook_given_up" if one.over else "webhook_failed", **fields, reason=one.reason)
