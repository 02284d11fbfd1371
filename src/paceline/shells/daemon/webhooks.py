"""Calls to the webhooks of finished jobs, kept in flight."""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from paceline.core.batches.calls import CallResult
from paceline.core.try_turns import TryPlaces, TryQueue
from paceline.shells.daemon.tries import Tries
from paceline.steps.jobs.webhook import HookEnded, WebhookTry, begin_webhooks, end_webhooks
from paceline.steps.tries import TriesToMake

log = structlog.get_logger("paceline")


class Webhooks(Tries[WebhookTry, int]):
    """Calls to webhooks."""

    name = "webhooks"

    def begin(self, queue: TryQueue[int], places: TryPlaces, *, now_ms: int) -> TriesToMake[WebhookTry]:
        system = self._system
        return begin_webhooks(
            system.store, secret=system.secret_key, now_ms=now_ms, chance=self._chance, queue=queue, places=places
        )

    def settle(self, ended: Sequence[tuple[WebhookTry, CallResult]]) -> int:
        hooks = {hook.fence: hook for hook, _ in ended}
        for one in end_webhooks(self._system.store, hooks, [result for _, result in ended]):
            self._note(one)
        return len(ended)

    def _note(self, one: HookEnded) -> None:
        """Counts and logs the end of a try, without the URL, which may contain a secret."""
        fields = {"job": one.job.id, "tries": one.tries}
        if one.ok:
            self._metrics.count_webhook("ok")
            log.info("webhook_told", **fields)
        else:
            self._metrics.count_webhook("given_up" if one.over else "retry")
            log.warning("webhook_given_up" if one.over else "webhook_failed", **fields, reason=one.reason)
