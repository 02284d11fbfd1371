"""Called every quarter of an hour: watches the clock, deletes old data, tells of late monitors, counts dead letters."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.utilities.typing import LambdaContext

from paceline.core.monitors.definition import duration_ms
from paceline.shells.aws_lambda.runtime import Event, FunctionEngine, Time, engine, logger, metrics, time_of
from paceline.steps.ahead.counts import count_page
from paceline.steps.alerts.notice import notice
from paceline.steps.alerts.upkeep import purge_alerts
from paceline.steps.batches.deletion import go_on_deleting
from paceline.steps.history.notes import note_retention
from paceline.steps.monitors.look_after import LateReport, close_hours, is_any_late, tell_late
from paceline.steps.upkeep.clock import watch_clock
from paceline.steps.upkeep.purge import PurgeWalk, purge, purge_calls, purge_jobs
from paceline.steps.upkeep.recount import RecountReport, recount_phases

PAGE_S = 60.0
"""With less time left no further page is begun."""
RECOUNT_PAGES_MAX = 100
"""Most pages of the daily recount of phases in one call: a million monitors take ten calls."""


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Watches the clock, then does each kind of upkeep until nothing is left of it or the time is over.

    The next call goes on. Dead letters are counted here, no matter which function or worker made them, so that an alarm
    can watch the figure.
    """
    del event
    now, time = engine(), time_of(context)
    report = {"set_back_ms": _clock(now)}
    report |= {"runs": _runs(now, time), "calls": _calls(now, time), "measurements": _jobs(now, time)}
    report |= {"batches": _batches(now, time)} | _health(now, time) | {"alerts_purged": _alerts(now)}
    report |= {"phases_wrong": _phases(now, time), "counted": _cadences(now, time)}
    metrics.add_metric("DeadLetters", MetricUnit.Count, now.store.dead_letters())
    logger.info("purged", extra=report)
    return report


def _clock(now: FunctionEngine) -> int:
    """Returns by how much the clock was set back since the last note; then also pulls back what waits too far ahead.

    If AWS ends the call before all of it is pulled back, the next call goes on.
    """
    system = now.system
    found = watch_clock(
        now.store, read_ms=now.now_ms, stepped_ms=0, apart_ms=system.traits.apart_ms, waits=system.waits
    )
    if found is None:
        return 0
    logger.warning("clock_set_back", extra=found._asdict())
    return found.by_ms


def _runs(now: FunctionEngine, time: Time) -> int:
    settings, total, expired = now.system.settings, 0, 0
    keep_ms, expire_ms = duration_ms(settings.runs_keep), duration_ms(settings.runs_expire)
    note_retention(now.store, keep_ms=keep_ms, expire_ms=expire_ms)
    while time.left_s > PAGE_S:
        report = purge(now.store, keep_ms=keep_ms, expire_ms=expire_ms, now_ms=now.now_ms())
        total += report.runs_deleted + report.runs_expired
        expired += report.runs_expired
        if not report.more:
            break
    metrics.add_metric("RunsExpired", MetricUnit.Count, expired)
    return total


def _health(now: FunctionEngine, time: Time) -> dict[str, int]:
    """Tells of late monitors, and closes hours in which alerts were held back."""
    flapping = close_hours(now.store, now_ms=now.now_ms())
    late = LateReport(0, 0 if is_any_late(now.store.status(), now_ms=now.now_ms()) else None)
    alerted = 0
    while late.after is not None and time.left_s > PAGE_S:
        late = tell_late(now.store, after=late.after, now_ms=now.now_ms())
        alerted += late.reported
    return {"flapping": flapping, "late": alerted}


def _calls(now: FunctionEngine, time: Time) -> int:
    settings, walk = now.system.settings, PurgeWalk()
    keep_ms, dead_keep_ms = duration_ms(settings.runs_keep), duration_ms(settings.dead_keep)
    while not walk.over and time.left_s > PAGE_S:
        walk = purge_calls(now.store, walk, keep_ms=keep_ms, dead_keep_ms=dead_keep_ms, now_ms=now.now_ms())
    return walk.runs_deleted + walk.records_deleted


def _batches(now: FunctionEngine, time: Time) -> int:
    """Goes on with the deletion of batches. Returns how many of their runs and records are gone."""
    total, more = 0, True
    while more and time.left_s > PAGE_S:
        done = go_on_deleting(now.store, now_ms=now.now_ms())
        total, more = total + done.runs + done.records, done.more
    return total


def _alerts(now: FunctionEngine) -> int:
    """Looks for alerts of admins, then deletes old alerts. Returns how many were deleted."""
    now_ms = now.now_ms()
    noticed = notice(now.store, now_ms=now_ms)
    if noticed is not None and any(noticed):
        logger.info("noticed", extra=noticed._asdict())
    return purge_alerts(now.store, keep_ms=duration_ms(now.system.settings.alerts_keep), now_ms=now_ms)


def _phases(now: FunctionEngine, time: Time) -> int:
    """Recounts phases. Returns the sum of the errors that it corrected."""
    wrong, report, pages = 0, RecountReport(more=True), 0
    while report.more and pages < RECOUNT_PAGES_MAX and time.left_s > PAGE_S:
        report = recount_phases(now.store, now_ms=now.now_ms(), pause_ms=0)
        wrong, pages = wrong + report.wrong, pages + 1
    if wrong:
        logger.warning("phases_recounted", extra={"wrong": wrong})
    return wrong


def _cadences(now: FunctionEngine, time: Time) -> int:
    """Counts monitors of an older store by their cadence. Returns how many."""
    total, more = 0, True
    while more and time.left_s > PAGE_S:
        page = count_page(now.store, now_ms=now.now_ms())
        total, more = total + page.counted, page.more
    return total


def _jobs(now: FunctionEngine, time: Time) -> int:
    keep_ms, total = duration_ms(now.system.settings.jobs_keep), 0
    while time.left_s > PAGE_S:
        deleted = purge_jobs(now.store, keep_ms=keep_ms, now_ms=now.now_ms())
        if not deleted:
            break
        total += deleted
    return total
