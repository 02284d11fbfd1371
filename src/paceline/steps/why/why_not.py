"""Explanation why a monitor does not fire, a record did not run today, or a job is not done."""

from __future__ import annotations

from datetime import timedelta

from paceline.core.batches.batch import Batch, day_at, window_of
from paceline.core.jobs.transitions import ENDED, WAITING
from paceline.core.jobs.values import StoredJob, StoredMeasurement
from paceline.core.monitors.definition import Monitor
from paceline.core.why.chain import OVER, Link, Why
from paceline.core.why.records import RecordFacts, why_no_run
from paceline.errors import NotFound
from paceline.ports import Store
from paceline.steps.upkeep.daemons import count_daemons
from paceline.steps.why import runs
from paceline.steps.why.view import WhyView, why_view

PAGE = 500


def explain_monitor(store: Store, monitor: Monitor, *, now_ms: int) -> WhyView:
    """Return why the monitor does not fire: the chain of its first waiting run, else of its next firing."""
    entry = store.entries([monitor.generation], now_ms=now_ms).get(monitor.generation)
    waiting = [run for run in runs.open_runs(store, monitor, now_ms=now_ms) if run.state != "out"]
    if not waiting:
        return why_view(runs.explain_firing(store, monitor, entry, now_ms=now_ms))
    return why_view(runs.explain_check(store, monitor, entry, waiting[0], now_ms=now_ms))


def explain_record(store: Store, batch: Batch, record_id: str, *, now_ms: int) -> WhyView:
    """Return the chain of the record's run of the running day, or why it has none."""
    today = day_at(batch.spec, now_ms)
    run = store.find_call_run(batch.id, record_id, today.isoformat())
    if run is not None:
        return why_view(runs.explain_call(store, run, now_ms=now_ms))
    record = store.record(batch, record_id)
    if record is None and batch.deleting is None:
        raise NotFound(f"Batch {batch.id!r} has no record {record_id[:300]!r}: it was deleted, or never put.")
    facts = RecordFacts(
        batch,
        today.isoformat(),
        window_of(batch.spec, today),
        window_of(batch.spec, today + timedelta(days=1)).start_ms,
        record,
        store.day(batch, today.isoformat()),
        provider_gone=record is not None and store.provider(record.provider) is None,
        daemons=count_daemons(store, now_ms=now_ms),
    )
    return why_view(why_no_run(facts, now_ms=now_ms))


def explain_job(store: Store, job: StoredJob, *, viewer: str | None, now_ms: int) -> WhyView:
    """Return the chain of a measurement of the job that waits or runs; for a finished job, how it ended."""
    item = _first_open_measurement(store, job)
    if item is None:
        return why_view(Why(None, job.state, (_finished(job),)))
    why = runs.explain_measurement(store, job, item, viewer=viewer, now_ms=now_ms)
    return why_view(why._replace(state=job.state))


def _first_open_measurement(store: Store, job: StoredJob) -> StoredMeasurement | None:
    """Return the first measurement that waits, else the first that is looked up, is sent or runs."""
    soonest: StoredMeasurement | None = None
    for first in range(0, job.measurements if job.open else 0, PAGE):
        for item in store.measurements(job.number, after=first - 1, limit=PAGE):
            if item.state in WAITING:
                return item
            if soonest is None and item.state not in ENDED:
                soonest = item
    return soonest


def _finished(job: StoredJob) -> Link:
    text = f"It is {job.state}: {job.done} of {job.measurements} measurements are done, {job.failed} failed"
    text = f"{text}, {job.cancelled} were cancelled; {job.settled:,} of {job.reserved:,} credits were spent."
    return Link("provider", text, job.started_ms or job.created_ms, job.finished_ms, OVER)
