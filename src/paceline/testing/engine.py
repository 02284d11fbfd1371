"""The engine on a virtual clock: the daemon's steps, one after another, at each moment at which something is due."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from paceline.core.monitors.definition import duration_ms
from paceline.core.monitors.values import CheckOrder
from paceline.core.try_turns import PLACES, TryPlaces, TryQueue
from paceline.shells.daemon.check_places import CheckPlaces
from paceline.steps.batches.call import Fence, ProviderBook, SentCall, claim_calls, settle_calls
from paceline.steps.batches.plan import plan_due
from paceline.steps.jobs.counting import Watch
from paceline.steps.jobs.dispatch import DispatchSettings, dispatch_next
from paceline.steps.jobs.follow import finish, follow
from paceline.steps.jobs.lookup import look_up, lose_stale_sends
from paceline.steps.jobs.sync import sync_accounts
from paceline.steps.jobs.webhook import WebhookTry, begin_webhooks, end_webhooks
from paceline.steps.monitors.check_secrets import CheckOpener
from paceline.steps.monitors.react import react_to_all
from paceline.steps.monitors.send import claim_orders, settle
from paceline.steps.monitors.tick import tick
from paceline.steps.upkeep.fold import fold_runs
from paceline.steps.upkeep.purge import PurgeWalk, purge, purge_calls
from paceline.testing.outside import Outside
from paceline.wiring import System, open_atlas

PASSES_MAX = 10_000
"""Passes at one moment; more than any honest test needs."""
SENDS_MAX = 10_000
KEEP_MS = 3_600_000
SYNC_MS = 300_000


class VirtualClock:
    """A clock that moves only when ``move_to`` is called."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms

    def move_to(self, now_ms: int) -> None:
        assert now_ms >= self._now_ms, "time does not go back"
        self._now_ms = now_ms


class VirtualEngine:
    """All loops of a daemon in one thread.

    ``work_off`` does what is due; ``next_ms`` says when something is due next.
    """

    def __init__(self, system: System, clock: VirtualClock, outside: Outside, *, chance: Random) -> None:
        self._system, self._store, self._clock, self._outside = system, system.store, clock, outside
        self._chance: Callable[[], float] = chance.random
        self._opener = CheckOpener(system.vault)
        self._book = ProviderBook(system.store, system.vault)
        self._places = CheckPlaces(system.settings)
        self._checks_out: dict[tuple[int, int], CheckOrder] = {}
        self._calls_out: dict[Fence, SentCall] = {}
        self._hooks_out: dict[tuple[int, int], WebhookTry] = {}
        self._hook_line: TryQueue[int] = TryQueue()
        self._watch = Watch()
        self._atlas = open_atlas(system.settings)
        self._dispatching = DispatchSettings(
            site=system.store.site("virtual"),
            secret=system.secret_key,
            sending_max=system.settings.atlas_sends_max,
            settle_ms=duration_ms(system.settings.atlas_settle),
        )
        self._plan_ms: int | None = clock.now_ms()
        self._follow_ms = self._keep_ms = 0
        self._walk = PurgeWalk()

    def close(self) -> None:
        self._atlas.close()

    def tell(self) -> None:
        """Plan days again, because a definition may have changed."""
        self._plan_ms = self._clock.now_ms()

    def next_ms(self) -> int | None:
        """Return when something is due next; None if nothing ever is."""
        store, outside = self._store, self._outside
        moments = [store.next_due_ms(), store.next_run_ms(), store.next_call_ms(), self._plan_ms]
        moments += [outside.checks.next_ms, outside.calls.next_ms, outside.webhooks.next_ms]
        if self._has_jobs():
            moments.append(self._follow_ms)
        return min((moment for moment in moments if moment is not None), default=None)

    def work_off(self) -> None:
        """Do all that is due now, until nothing more happens at this moment."""
        self._keep()
        for _ in range(PASSES_MAX):
            if not any([self._monitors(), self._batches(), self._jobs()]):
                return
        raise RuntimeError("the engine does not come to rest at this moment: a definition fires without end")

    def _monitors(self) -> bool:
        store, now_ms, settings = self._store, self._clock.now_ms(), self._system.settings
        react_to_all(store, now_ms=now_ms)
        report = tick(store, now_ms=now_ms, catch_up=self._system.catch_up)
        finished = self._outside.checks.arrived()
        self._places.end([self._checks_out.pop((item.handle, item.attempt)) for item in finished])
        settle(store, finished, policy=self._system.retry_policy)
        next_ms = store.next_run_ms()
        if next_ms is None or next_ms > now_ms or len(self._checks_out) >= settings.check_places:
            return bool(report.entries or finished)
        orders = claim_orders(
            store,
            now_ms=now_ms,
            runs_max=settings.check_places - len(self._checks_out),
            lease_ms=duration_ms(settings.check_lease),
            policy=self._system.retry_policy,
            places=self._places.now(),
            opener=self._opener,
        )
        self._places.start(orders)
        self._checks_out.update(((order.handle, order.attempt), order) for order in orders)
        self._outside.start_checks(orders)
        return bool(report.entries or finished or orders)

    def _batches(self) -> bool:
        store, now_ms = self._store, self._clock.now_ms()
        if self._plan_ms is not None and self._plan_ms <= now_ms:
            self._plan_ms = plan_due(store, now_ms=now_ms).next_ms
        results = self._outside.calls.arrived()
        if results:
            settle_calls(store, self._calls_out, results, chance=self._chance)
            for result in results:
                del self._calls_out[result.handle, result.attempt]
        next_ms = store.next_call_ms()
        if next_ms is None or next_ms > now_ms:
            return bool(results)
        room = self._system.settings.calls_in_flight_max - len(self._calls_out)
        lease_ms = duration_ms(self._system.settings.call_lease)
        sent = claim_calls(store, self._book, now_ms=now_ms, runs_max=room, lease_ms=lease_ms) if room > 0 else []
        self._calls_out.update((one.fence, one) for one in sent)
        self._outside.start_calls([one.call for one in sent], into=self._outside.calls)
        return bool(results or sent)

    def _has_jobs(self) -> bool:
        return self._store.send_counts().open_jobs > 0

    def _jobs(self) -> bool:
        """Send measurements and follow those at RIPE, every ``atlas_every`` while a job is open."""
        now_ms = self._clock.now_ms()
        sent = self._webhooks()
        if now_ms < self._follow_ms or not self._has_jobs():
            return sent
        store, atlas, vault, dispatching, clock = (
            self._store,
            self._atlas,
            self._system.vault,
            self._dispatching,
            self._clock,
        )
        self._follow_ms = now_ms + duration_ms(self._system.settings.atlas_every)
        lose_stale_sends(store, settle_ms=dispatching.settle_ms, now_ms=now_ms)
        look_up(store, atlas, vault, dispatching, clock=clock, chance=self._chance)
        sync_accounts(store, atlas, vault, site=dispatching.site, every_ms=SYNC_MS, clock=clock)
        follow(store, atlas, vault, self._watch, clock=clock)
        finish(store, now_ms=now_ms)
        for _ in range(SENDS_MAX):
            if dispatch_next(store, atlas, vault, dispatching, clock=clock, chance=self._chance).outcome != "sent":
                break
        return True

    def _webhooks(self) -> bool:
        now_ms, outside = self._clock.now_ms(), self._outside
        results = outside.webhooks.arrived()
        if results:
            end_webhooks(self._store, self._hooks_out, results)
            for result in results:
                del self._hooks_out[result.handle, result.attempt]
        held = Counter(hook.user for hook in self._hooks_out.values())
        hooks = begin_webhooks(
            self._store,
            secret=self._system.secret_key,
            now_ms=now_ms,
            chance=self._chance,
            queue=self._hook_line,
            places=TryPlaces(PLACES - held.total(), held),
        ).tries
        self._hooks_out.update((hook.fence, hook) for hook in hooks)
        outside.start_calls([hook.order for hook in hooks], into=outside.webhooks)
        return bool(results or hooks)

    def _keep(self) -> None:
        """Fold outcomes and purge old runs, once an hour."""
        now_ms, settings = self._clock.now_ms(), self._system.settings
        if now_ms < self._keep_ms:
            return
        self._keep_ms = now_ms + KEEP_MS
        keep_ms = duration_ms(settings.runs_keep)
        while fold_runs(self._store).more:
            pass
        purge(self._store, keep_ms=keep_ms, expire_ms=duration_ms(settings.runs_expire), now_ms=now_ms)
        dead_keep_ms = duration_ms(settings.dead_keep)
        walk = purge_calls(self._store, self._walk, keep_ms=keep_ms, dead_keep_ms=dead_keep_ms, now_ms=now_ms)
        self._walk = PurgeWalk() if walk.over else walk
