"""Loops of jobs: send measurements to RIPE and follow them to their end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import msgspec
import structlog

from paceline.core.jobs.atlas import RETRY_AFTER_MS_MAX, Lost, Refused
from paceline.core.jobs.pool import LOOK_AGAIN_MS
from paceline.core.jobs.values import StoredJob
from paceline.core.monitors.definition import duration_ms
from paceline.ports import Atlas
from paceline.shells.daemon.loop import Loop, LoopTurn
from paceline.shells.daemon.metrics import Metrics
from paceline.steps.jobs.account_queries import Quarantined, Trouble
from paceline.steps.jobs.counting import Watch
from paceline.steps.jobs.dispatch import Dispatched, DispatchSettings, dispatch_next
from paceline.steps.jobs.follow import FollowReport, finish, follow
from paceline.steps.jobs.lookup import LookedUp, look_up, lose_stale_sends
from paceline.steps.jobs.reconcile import reconcile
from paceline.steps.jobs.sync import sync_accounts
from paceline.wiring import System

log = structlog.get_logger("paceline")

LOOK_MS = 1_000
"""Longest sleep of a loop: another process may have written, and it cannot wake this one."""
IN_VAIN_MS = 50
"""Pause after a pass that sent nothing although something seemed ready."""
LOSE_MS = 10_000
COMPARE_LOOK_MS = 5_000
"""How often to ask whether it is time to compare the store with RIPE."""
SYNC_MS = 30_000
SYNC_IDLE_MS = 300_000
RECONCILE_ROUNDS = 20
"""Orphans are looked for after this many rounds of ``follow``: by default every ten minutes."""
RECONCILE_START_MS = 30_000
"""The first search after a start comes sooner, but not after each of many starts in a row."""
TROUBLE_MS = 600_000
"""The same trouble is logged again only after this time."""
TROUBLES_MAX = 1_000
SEND_GRACE_S = 5.0
"""How long a send in progress may still take when the process stops; after that it is unknown."""
SEND_S = 40.0
QUESTION_S = 130.0
RESULTS_S = 610.0
"""How long a request to RIPE may take before its loop counts as stuck: a little more than its own deadline."""
_WITHIN_S = {
    **dict.fromkeys(("find_by_marker", "running_by_marker", "statuses", "check_key"), QUESTION_S),
    "results": RESULTS_S,
}
"""Times of requests that may take longer than ``SEND_S``, by the name of the port's method."""

_SENDS = {
    "unknown": ("unknown", "send_unknown"),
    "not_sent": ("retry", "send_refused"),
    "rejected": ("failed", "measurement_rejected"),
}

T = TypeVar("T")


class WatchedAtlas:
    """Wraps an ``Atlas``: counts every request, and reports it as a sign of life of the loop that makes it."""

    def __init__(self, atlas: Atlas, metrics: Metrics, *, beat: Callable[[float], object]) -> None:
        self._atlas = atlas
        self._metrics = metrics
        self._beat = beat

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._atlas, name)
        return found if name in ("interrupt", "close") else partial(self._ask, name, found)

    def _ask(self, request: str, ask: Callable[..., T], *args: Any, **more: Any) -> T:
        self._beat(_WITHIN_S.get(request, SEND_S))
        answer = ask(*args, **more)
        self._beat(0.0)
        word = "refused" if isinstance(answer, Refused) else "lost" if isinstance(answer, Lost) else "answered"
        self._metrics.count_atlas(request, word)
        return answer


def watched_atlas(atlas: Atlas, metrics: Metrics, *, beat: Callable[[float], object]) -> Atlas:
    """Wraps ``atlas`` so that requests are counted. ``beat`` is called with how long each may take."""
    return cast("Atlas", WatchedAtlas(atlas, metrics, beat=beat))


class AtlasLoop(Loop):
    """A loop with its own client: one thread drives it, and a drain can cut its requests short."""

    def __init__(
        self, name: str, atlas: Atlas, make: Callable[[Atlas], Callable[[], LoopTurn]], metrics: Metrics
    ) -> None:
        self._atlas = atlas
        super().__init__(name, make(watched_atlas(atlas, metrics, beat=self.beat_for)), metrics)

    def interrupt(self) -> None:
        """Ends the request in progress within a second; its answer counts as lost."""
        self._atlas.interrupt()

    def close(self) -> None:
        if not self.alive:
            self._atlas.close()


class Dispatcher:
    """Sends one measurement after the other; sleeps until there is something to send."""

    def __init__(
        self,
        system: System,
        atlas: Atlas,
        dispatching: DispatchSettings,
        metrics: Metrics,
        *,
        chance: Callable[[], float],
    ) -> None:
        self._system = system
        self._atlas = atlas
        self._dispatching = dispatching
        self._metrics = metrics
        self._chance = chance
        self._lost_ms = 0
        self._sent = False
        self._woken = threading.Event()
        self._wait_until_ms = 0
        self._version: int | None = None

    def tell(self) -> None:
        """Says that there may be room or work that the last look did not find. May be called from any thread."""
        self._woken.set()

    def turn(self) -> LoopTurn:
        store, clock = self._system.store, self._system.clock
        now_ms = clock.now_ms()
        if abs(now_ms - self._lost_ms) >= LOSE_MS:
            self._lost_ms = now_ms
            if lost := lose_stale_sends(store, settle_ms=self._dispatching.settle_ms, now_ms=now_ms):
                self._metrics.count_runs("measurement", "unknown", lost)
                log.warning("sends_lost", count=lost)
        if self._waits_for_room(now_ms):
            return self._sleep(self._wait_until_ms)
        if not self._sent:  # after a send there is likely more to send
            next_ms = store.next_send_ms()
            if next_ms is None or next_ms > now_ms:
                return self._sleep(next_ms)  # most looks find nothing; then RIPE's gates are not read
        self._sent, self._wait_until_ms = False, 0
        self._woken.clear()
        self._version = store.version()  # writes during this look are seen by the next one
        report = dispatch_next(
            store, self._atlas, self._system.vault, self._dispatching, clock=clock, chance=self._chance
        )
        self._sent = report.outcome == "sent"
        self._note(report)
        if report.outcome == "idle":
            self._wait_until_ms = report.next_ms or 0
            return LoopTurn(max(IN_VAIN_MS, self._sleep(report.next_ms).sleep_ms))
        return self._sleep(report.next_ms)

    def _waits_for_room(self, now_ms: int) -> bool:
        """True if all accounts were full at the last look, and there was no hint and no write of others since then.

        A wait that lies further ahead than any can be means that the clock was set back; it is over.
        """
        if self._woken.is_set() or not 0 < self._wait_until_ms - now_ms <= LOOK_AGAIN_MS:
            return False
        return self._system.store.version() == self._version

    def _sleep(self, next_ms: int | None) -> LoopTurn:
        if next_ms is None:
            return LoopTurn(LOOK_MS)
        return LoopTurn(min(max(next_ms - self._system.clock.now_ms(), 0), LOOK_MS))

    def _note(self, report: Dispatched) -> None:
        if report.refused:
            self._metrics.count_runs("measurement", "failed", report.refused)
            log.warning("measurements_refused", count=report.refused)
        if report.parked:
            log.info("measurements_parked", count=report.parked, reason=report.reason)
        item = report.item
        if item is None:
            return
        fields = {"job": item.job, "index": item.index, "attempt": item.attempt, "account": item.account}
        if report.outcome == "sent":
            log.info("sent", **fields, **({"warnings": report.reason} if report.reason else {}))
            return
        outcome, event = _SENDS[report.outcome]
        self._metrics.count_runs("measurement", outcome)
        log.warning(event, **fields, key_id=item.key, reason=report.reason)


class Follower:
    """Finds out how sent measurements are doing, ends them, compares the meters with RIPE's, and finishes jobs."""

    def __init__(
        self,
        system: System,
        atlas: Atlas,
        dispatching: DispatchSettings,
        metrics: Metrics,
        *,
        chance: Callable[[], float],
        finished: Callable[[], None],
        freed: Callable[[], None] = lambda: None,
    ) -> None:
        self._system = system
        self._atlas = atlas
        self._dispatching = dispatching
        self._metrics = metrics
        self._chance = chance
        self._finished = finished
        self._freed = freed
        self._watch = Watch()
        self._every_ms = duration_ms(system.settings.atlas_every)
        self._reconcile_ms = RECONCILE_START_MS
        self._compare_look_ms = max(COMPARE_LOOK_MS, min(system.traits.keep_ms, SYNC_MS))
        self._compared_ms = 0
        self._quiet_until_ms = 0
        self._logged_ms: dict[Trouble, int] = {}

    def turn(self) -> LoopTurn:
        store, clock = self._system.store, self._system.clock
        report = look_up(store, self._atlas, self._system.vault, self._dispatching, clock=clock, chance=self._chance)
        self._note_lookups(report)
        if store.take_duty("follow", every_ms=self._every_ms, now_ms=clock.now_ms()):
            if not self._quiet:
                self._follow()
            self._finish()
        if not self._quiet and abs(clock.now_ms() - self._compared_ms) >= self._compare_look_ms:
            self._compared_ms = clock.now_ms()
            self._sync()
            if store.take_duty("reconcile", every_ms=self._reconcile_ms, now_ms=clock.now_ms()):
                self._reconcile()
        return LoopTurn(min(LOOK_MS, self._every_ms))

    @property
    def _quiet(self) -> bool:
        """True while RIPE wants a pause. A pause further ahead than any can be is over: the clock was set back."""
        return 0 < self._quiet_until_ms - self._system.clock.now_ms() <= RETRY_AFTER_MS_MAX

    def _note_lookups(self, report: LookedUp) -> None:
        if any(report):
            self._freed()
            log.info("looked_up", **{name: count for name, count in report._asdict().items() if count})
        if report.rejected:
            self._metrics.count_runs("measurement", "failed", report.rejected)

    def _follow(self) -> None:
        report = follow(self._system.store, self._atlas, self._system.vault, self._watch, clock=self._system.clock)
        self._note_common(report.quarantined, report.troubles, report.paused_until_ms)
        for one in report.ended:
            self._metrics.count_runs("measurement", one.state)
            fields = {"job": one.job, "index": one.index, "account": one.account}
            log.info("measurement_ended", **fields, state=one.state, reason=one.reason, credits=one.credits)
            if one.overrun:
                log.warning("credits_overrun", **fields, credits=one.overrun)
        self._note_oddities(report)
        if report.ended or report.freed:
            self._freed()
        if report.stopped or report.freed:
            log.info("followed", stopped=report.stopped, freed=report.freed)

    def _note_oddities(self, report: FollowReport) -> None:
        for status in report.unknown_statuses:
            log.warning("status_unknown", **status._asdict())
        if report.prices:
            log.warning("price_differs", count=len(report.prices), **report.prices[0]._asdict())

    def _finish(self) -> None:
        jobs: list[StoredJob] = finish(self._system.store, now_ms=self._system.clock.now_ms())
        for job in jobs:
            self._metrics.count_job(success=job.success)
            counts = {"done": job.done, "failed": job.failed, "cancelled": job.cancelled}
            log.info("job_finished", job=job.id, success=job.success, **counts, settled=job.settled)
        if jobs:
            self._finished()

    def _sync(self) -> None:
        store, clock = self._system.store, self._system.clock
        counts = store.send_counts()
        busy = counts.queued + counts.parked + counts.sending + counts.unknown + counts.ongoing > 0
        report = sync_accounts(
            store,
            self._atlas,
            self._system.vault,
            site=self._dispatching.site,
            every_ms=SYNC_MS if busy else SYNC_IDLE_MS,
            clock=clock,
        )
        self._note_common(report.quarantined, report.troubles, report.paused_until_ms)
        if report.accounts:
            self._freed()
        for lower in report.lower_limits:
            log.warning("limit_lower_at_ripe", **lower._asdict())

    def _reconcile(self) -> None:
        self._reconcile_ms = RECONCILE_ROUNDS * self._every_ms
        report = reconcile(
            self._system.store,
            self._atlas,
            self._system.vault,
            site=self._dispatching.site,
            settle_ms=self._dispatching.settle_ms,
            clock=self._system.clock,
        )
        self._note_common(report.quarantined, report.troubles, report.paused_until_ms)
        for orphan in report.orphans:
            log.warning("orphan", **msgspec.structs.asdict(orphan))

    def _note_common(
        self, quarantined: Sequence[Quarantined], troubles: Sequence[Trouble], paused_until_ms: int | None
    ) -> None:
        for key in quarantined:
            log.warning("key_quarantined", account=key.account, key_id=key.key, reason=key.reason)
        for trouble in troubles:
            if self._is_news(trouble):
                log.warning("atlas_trouble", **trouble._asdict())
        if paused_until_ms is not None:
            self._quiet_until_ms = paused_until_ms

    def _is_news(self, trouble: Trouble) -> bool:
        """True if the trouble was not logged lately: an account without a key would fill the log."""
        now_ms = self._system.clock.now_ms()
        if abs(now_ms - self._logged_ms.get(trouble, -TROUBLE_MS)) < TROUBLE_MS:
            return False
        if len(self._logged_ms) >= TROUBLES_MAX:
            self._logged_ms.clear()
        self._logged_ms[trouble] = now_ms
        return True
