"""The loop that calls the webhooks of finished jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import structlog

from paceline.core.batches.calls import CallResult
from paceline.ports import Caller
from paceline.shells.daemon.loop import Turn
from paceline.shells.daemon.metrics import Metrics
from paceline.shells.daemon.store_threads import SETTLES_MAX, StoreActs
from paceline.steps.jobs.webhook import Hook, HookEnded, begin_webhooks, end_webhooks, hooks_in_time
from paceline.wiring import System

log = structlog.get_logger("paceline")

LOOK_MS = 1_000
"""How long the loop sleeps at most: another process may have written, and it cannot wake this one."""
HOOKS_IN_FLIGHT_MAX = 50
HOOK_WAIT_MS = 200
HOOK_DRAIN_S = 3.0


class WebhookLoop:
    """Calls the webhooks of finished jobs."""

    def __init__(
        self, system: System, caller: Caller, metrics: Metrics, *, chance: Callable[[], float], apart: bool = False
    ) -> None:
        """``apart``: the store is called on threads of their own, for a store whose replies may hang."""
        self._system = system
        self._caller = caller
        self._metrics = metrics
        self._chance = chance
        self._out: dict[tuple[int, int], Hook] = {}
        self._ended: list[CallResult] = []
        self._begins: StoreActs[int, list[Hook]] = StoreActs("begins-webhooks", apart=apart, done=caller.wake)
        self._ends: StoreActs[list[CallResult], list[HookEnded]] = StoreActs(
            "ends-webhooks", apart=apart, done=caller.wake, most=SETTLES_MAX
        )
        self._hurried = False

    def turn(self) -> Turn:
        """While calls are out, the caller does the sleeping."""
        self._begin()
        self._end()
        if not self._out and not self._begins.busy:
            return Turn(LOOK_MS)
        self._ended += self._caller.finished(wait_ms=HOOK_WAIT_MS)
        self._end()
        return Turn(0)

    def hurry(self) -> None:
        """A drain does not wait for what is in flight. From any thread."""
        self._hurried = True

    def drain(self) -> None:
        """Starts no new calls, and waits a little for those that are out. Those that are cut short are tried again."""
        until_s = time.monotonic() + HOOK_DRAIN_S
        while self._out and not self._hurried and time.monotonic() < until_s:
            self._ended += self._caller.finished(wait_ms=100)
            self._end()

    def _begin(self) -> None:
        room = HOOKS_IN_FLIGHT_MAX - len(self._out)
        if room > 0 and not self._begins.full:
            self._begins.begin(room, self._find)
        self._start(self._begins.result() or [])

    def _find(self, room: int) -> list[Hook]:
        return begin_webhooks(
            self._system.store,
            secret=self._system.secret_key,
            now_ms=self._system.clock.now_ms(),
            chance=self._chance,
            limit=room,
        )

    def _start(self, begun: Sequence[Hook]) -> None:
        """Starts the calls that end before another process may make the next try, and leaves the others to it."""
        hooks, late = hooks_in_time(begun, now_ms=self._system.clock.now_ms())
        if late:
            log.warning(
                "claimed_too_late", webhooks=len(late), hint="the store answers too slowly; each is tried again"
            )
        self._out.update((hook.fence, hook) for hook in hooks)
        self._caller.start([hook.call for hook in hooks])

    def _end(self) -> None:
        if self._ended and not self._ends.full:
            batch, self._ended = self._ended, []
            hooks = {(one.handle, one.attempt): self._out[one.handle, one.attempt] for one in batch}
            self._ends.begin(batch, lambda batch: end_webhooks(self._system.store, hooks, batch))
        failed: Exception | None = None
        for batch, reports, error in self._ends.fetch():
            if reports is None:
                self._ended += batch  # the store was unavailable: they are noted with the next turn
                failed = error
                continue
            for result in batch:
                del self._out[result.handle, result.attempt]
            for one in reports:
                self._note(one)
        if failed is not None:
            raise failed

    def _note(self, one: HookEnded) -> None:
        """Without the URL: it may have a secret in it."""
        fields = {"job": one.job.id, "tries": one.tries}
        if one.ok:
            self._metrics.count_webhook("ok")
            log.info("webhook_told", **fields)
        else:
            self._metrics.count_webhook("given_up" if one.over else "retry")
            log.warning("webhook_given_up" if one.over else "webhook_failed", **fields, reason=one.reason)
