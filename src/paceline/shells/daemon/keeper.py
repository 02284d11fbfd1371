"""The loop of upkeep: retention, the watch over the clock, and gauges that are read from the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import structlog

from paceline.core.clock import set_back_ms
from paceline.core.monitors.alerting.found import LATE_TOLD_MS
from paceline.core.monitors.definition import duration_ms
from paceline.ports.queued import OffersRuns
from paceline.shells.daemon.loop import Loop, LoopTurn
from paceline.shells.daemon.metrics import Metrics
from paceline.steps.ahead.counts import count_page
from paceline.steps.alerts.notice import notice
from paceline.steps.alerts.upkeep import purge_alerts
from paceline.steps.batches.deletion import go_on_deleting
from paceline.steps.history.notes import note_retention
from paceline.steps.monitors.look_after import LateReport, close_hours, is_any_late, tell_late
from paceline.steps.upkeep.clock import watch_clock
from paceline.steps.upkeep.fold import fold_runs
from paceline.steps.upkeep.purge import PurgeWalk, purge, purge_calls, purge_jobs
from paceline.steps.upkeep.recount import recount_phases
from paceline.wiring import System

log = structlog.get_logger("paceline")


class UpkeepTask(NamedTuple):
    """Work that is done in rounds of short passes."""

    every_ms: int
    """Time between rounds; 0: there is always one."""
    run: Callable[[int], bool]
    """Makes one pass, at this time. Returns True if the round needs another one."""
    at_once: bool = False
    """True if the next pass begins as soon as others had as much time as this one took; else it waits for a turn."""


class Keeper:
    """Does retention, watches the clock, offers runs again, and sets gauges that are read from the store."""

    TURN_MS = 1_000
    PURGE_MS = 15_000
    PURGE_ROUNDS = 5
    NOTE_MS = 10_000
    """How often the time is noted. After a restart, a clock behind the last note was set back."""
    FIGURES_MS = 5_000
    NOTICE_MS = 20_000
    """How often this process asks for the duty to look for alerts of admins, which is done once a minute."""
    RECOUNT_MS = 600_000
    """How often this process asks whether the daily recount of phases is due."""
    INDEXED_MAX = 500
    PAUSE_MS_MIN = 5

    def __init__(
        self,
        system: System,
        metrics: Metrics,
        *,
        loops: Callable[[], Sequence[Loop]],
        beat: Callable[[], object] = lambda: None,
    ) -> None:
        """``beat`` is called between pages of work that may take long."""
        self._system = system
        self._metrics = metrics
        self._loops = loops
        self._beat = beat
        self._walk = PurgeWalk()
        self._retention_noted = False
        self._any_late = False
        self._deleted = self._expired = 0
        self._noted_ms: int | None = None
        self._ahead_ms: int | None = None
        self._counted = False
        self._late_after = 0
        now_ms, keep_ms = system.clock.now_ms(), system.traits.keep_ms
        self._late_from_ms = now_ms + LATE_TOLD_MS
        """Runs that waited while no daemon ran are not late yet: their checkers get as long as any."""
        figures_ms, purge_ms = max(self.FIGURES_MS, keep_ms), max(self.PURGE_MS, self.PURGE_ROUNDS * keep_ms)
        self._tasks = (
            UpkeepTask(keep_ms - self.TURN_MS // 2, self._read_status),  # turns may come a little early
            UpkeepTask(max(self.NOTICE_MS, keep_ms), self._notice),
            UpkeepTask(figures_ms, self._read_jobs),
            UpkeepTask(0, lambda _: fold_runs(system.store).more, at_once=True),
            UpkeepTask(purge_ms, self._purge, at_once=True),
            UpkeepTask(0, lambda _: system.store.index_monitors(limit=self.INDEXED_MAX), at_once=True),
            UpkeepTask(0, self._count_cadences, at_once=True),
            UpkeepTask(figures_ms, self._delete_batches, at_once=True),
            UpkeepTask(purge_ms, self._purge_jobs_and_alerts),
            UpkeepTask(figures_ms, self._look_after_health),
            UpkeepTask(self.RECOUNT_MS, self._recount_phases),
            UpkeepTask(max(self.PURGE_MS, keep_ms), self._offer_again),
        )
        # A start needs no recount: a round takes long, and is due once a day.
        self._done_ms = [now_ms if task.every_ms == self.RECOUNT_MS else 0 for task in self._tasks]

    def turn(self) -> LoopTurn:
        now_ms, pause_ms = self._system.clock.now_ms(), self.TURN_MS
        self._watch_clock(now_ms)
        self._metrics.set_loop_ages((loop.name, loop.age_s) for loop in self._loops())
        for index, task in enumerate(self._tasks):
            before_ms, began_s = self._done_ms[index], time.monotonic()
            if abs(now_ms - before_ms) < task.every_ms:
                continue
            self._done_ms[index] = now_ms  # a task that fails must not keep the others from their work
            if not task.run(now_ms):
                continue
            self._done_ms[index] = before_ms
            if task.at_once:
                pause_ms = min(pause_ms, max(int(1_000 * (time.monotonic() - began_s)), self.PAUSE_MS_MIN))
        return LoopTurn(pause_ms)

    def _read_status(self, now_ms: int) -> bool:
        status = self._system.store.status()
        self._metrics.set_status(status, now_ms=now_ms)
        self._any_late = is_any_late(status, now_ms=now_ms)
        return False

    def _offer_again(self, now_ms: int) -> bool:
        store = self._system.store
        if isinstance(store, OffersRuns) and (offered := store.offer_again(now_ms=now_ms)):
            log.info("offered_again", runs=offered)
        return False

    def _look_after_health(self, now_ms: int) -> bool:
        closed = close_hours(self._system.store, now_ms=now_ms)
        late = LateReport(0, None)
        if self._any_late and now_ms >= self._late_from_ms:
            late = tell_late(self._system.store, after=self._late_after, now_ms=now_ms)
        self._late_after = late.after or 0
        if closed or late.reported:
            log.info("health_told", late=late.reported, flapping=closed)
        return late.after is not None

    def _recount_phases(self, now_ms: int) -> bool:
        report = recount_phases(self._system.store, now_ms=now_ms)
        if report.wrong:
            log.warning("phases_recounted", wrong=report.wrong)
        return report.more

    def _watch_clock(self, now_ms: int) -> None:
        """Notes the time now and then, and at once if the wall clock fell behind the monotonic clock."""
        before_ms, self._ahead_ms = self._ahead_ms, now_ms - int(time.monotonic() * 1_000)
        stepped_ms = set_back_ms(self._ahead_ms, latest_ms=before_ms)
        note_ms = max(self.NOTE_MS, self._system.traits.keep_ms)
        if self._noted_ms is not None and not stepped_ms and abs(now_ms - self._noted_ms) < note_ms:
            return
        system = self._system
        found = watch_clock(
            system.store,
            read_ms=self._read_ms,
            stepped_ms=stepped_ms,
            apart_ms=system.traits.apart_ms,
            waits=system.waits,
        )
        self._noted_ms = now_ms
        if found is not None:
            log.warning("clock_set_back", **found._asdict())

    def _read_jobs(self, now_ms: int) -> bool:
        store = self._system.store
        self._metrics.set_sends(store.send_counts(), now_ms=now_ms)
        self._metrics.set_alerts(store.alert_counts())
        self._metrics.set_accounts(store.accounts(now_ms=now_ms, releases_until_ms=now_ms))
        return False

    def _purge_jobs_and_alerts(self, now_ms: int) -> bool:
        """Deletes a page of old jobs and one of old alerts."""
        store, settings = self._system.store, self._system.settings
        if jobs := purge_jobs(store, keep_ms=duration_ms(settings.jobs_keep), now_ms=now_ms):
            log.info("purged", measurements=jobs)
        if alerts := purge_alerts(store, keep_ms=duration_ms(settings.alerts_keep), now_ms=now_ms):
            log.info("purged", alerts=alerts)
        return jobs > 0

    def _notice(self, now_ms: int) -> bool:
        """Makes alerts of admins from what is stored, a minute after the last look of any process."""
        noticed = notice(self._system.store, now_ms=now_ms)
        if noticed is not None and any(noticed):
            log.info("noticed", **noticed._asdict())
        return False

    def _delete_batches(self, now_ms: int) -> bool:
        done = go_on_deleting(self._system.store, now_ms=now_ms)
        if done.runs or done.records or done.gone:
            log.info("batches_deleting", runs=done.runs, records=done.records, gone=done.gone)
        return done.more

    def _count_cadences(self, now_ms: int) -> bool:
        """Counts monitors of an older store, once."""
        self._counted = self._counted or not count_page(self._system.store, now_ms=now_ms).more
        return not self._counted

    def _read_ms(self) -> int:
        """Returns the time. Called between the pages of entries."""
        self._beat()
        return self._system.clock.now_ms()

    def _purge(self, now_ms: int) -> bool:
        settings = self._system.settings
        self._note_retention()
        report = purge(
            self._system.store,
            keep_ms=duration_ms(settings.runs_keep),
            expire_ms=duration_ms(settings.runs_expire),
            now_ms=now_ms,
        )
        self._walk = purge_calls(
            self._system.store,
            self._walk,
            keep_ms=duration_ms(settings.runs_keep),
            dead_keep_ms=duration_ms(settings.dead_keep),
            now_ms=now_ms,
        )
        self._deleted += report.runs_deleted
        self._expired += report.runs_expired
        more = report.more or not self._walk.over
        if not more:
            self._log_purged()
        return more

    def _note_retention(self) -> None:
        """Writes the retention once, because the settings of a process do not change."""
        if self._retention_noted:
            return
        settings = self._system.settings
        keep_ms, expire_ms = duration_ms(settings.runs_keep), duration_ms(settings.runs_expire)
        note_retention(self._system.store, keep_ms=keep_ms, expire_ms=expire_ms)
        self._retention_noted = True

    def _log_purged(self) -> None:
        """Logs one line for the whole round, which has many passes."""
        if self._deleted or self._expired:
            log.info("purged", deleted=self._deleted, expired=self._expired)
        if self._walk.runs_deleted or self._walk.records_deleted:
            log.info("purged", batch_runs=self._walk.runs_deleted, records=self._walk.records_deleted)
        self._deleted = self._expired = 0
        self._walk = PurgeWalk()
