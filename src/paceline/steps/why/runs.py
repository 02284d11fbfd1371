"""Explanation why any run waits or went as it did: reads the store, and asks core for the chain of reasons."""

from __future__ import annotations

import re

from paceline.core.batches.batch import Day
from paceline.core.batches.provider import ProviderDefinition, policy_of
from paceline.core.batches.values import CallRun
from paceline.core.ids import parse_call_run_id, parse_run_id
from paceline.core.jobs.measurement import kinds_of
from paceline.core.jobs.pool import choose
from paceline.core.jobs.values import StoredJob, StoredMeasurement
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.schedule import Entry
from paceline.core.monitors.values import Run
from paceline.core.why.calls import CallFacts, why_call
from paceline.core.why.chain import Why
from paceline.core.why.checks import CheckFacts, why_check
from paceline.core.why.measurements import MeasurementFacts, why_measurement
from paceline.core.why.queued import DUES_READ_MAX, QUEUE_READ_MAX, ProviderQueue, QueuedCall, with_dues
from paceline.core.why.refusals import parse_refusal_id
from paceline.core.why.send_line import PLACES_MAX
from paceline.errors import NotFound
from paceline.ports import JobStore, Store
from paceline.steps.jobs.gates import read_gates
from paceline.steps.jobs.refusals import explain_refusal
from paceline.steps.jobs.send_line import read_line
from paceline.steps.upkeep.daemons import count_daemons
from paceline.steps.views.report import no_run
from paceline.steps.why.view import WhyView, why_view

_MEASUREMENT = re.compile(r"([0-9a-z]{1,64})/([0-9]{1,6})", re.ASCII)
_ENDED = ("done", "failed", "unknown", "skipped")
_RUN_ENDED = ("ok", "failed", "dead", "unknown")
OPEN_READ_MAX = 200
"""Maximum number of open runs that are read: a monitor has no more, because those beyond the limit are superseded."""


def explain_run(store: Store, run: str, *, viewer: str | None, now_ms: int) -> WhyView:
    """Return why the run waits or went as it did.

    ``viewer`` None may see anybody's; raise NotFound if there is none.
    """
    if viewer is None and (call := parse_call_run_id(run)) is not None:
        found = store.find_call_run(call.batch, call.record, call.date)
        if found is None:
            raise NotFound(f"There is no run {run[:300]!r}. Ids of a batch's runs look like batch/record@2026-11-15.")
        return why_view(explain_call(store, found, now_ms=now_ms))
    if (refusal := parse_refusal_id(run)) is not None:
        return explain_refusal(store, refusal, viewer=viewer, now_ms=now_ms)
    if (name := _MEASUREMENT.fullmatch(run)) is not None:
        return why_view(_explain_index(store, name[1], int(name[2]), viewer=viewer, now_ms=now_ms))
    named = parse_run_id(run)
    if named is None or viewer not in (None, named.owner):
        raise no_run(run)
    monitor = store.monitor(named.owner, named.monitor)
    if monitor is None or monitor.generation != named.generation:
        raise no_run(run)
    entry = store.entries([monitor.generation], now_ms=now_ms).get(monitor.generation)
    if entry is not None and entry.counter == named.counter:
        return why_view(explain_firing(store, monitor, entry, now_ms=now_ms))
    made = store.find_run(named.owner, named.monitor, generation=named.generation, counter=named.counter, now_ms=now_ms)
    if made is None:
        raise no_run(run)
    return why_view(explain_check(store, monitor, entry, made, now_ms=now_ms))


def explain_call(store: Store, run: CallRun, *, now_ms: int) -> Why:
    """Return the chain of a batch's run. For an ended run the queue is not read."""
    batch = store.batch(run.batch)
    day = store.day(batch, run.date) if batch is not None else None
    if run.state in _ENDED:
        return why_call(CallFacts(run, batch, day), now_ms=now_ms)
    record = store.record(batch, run.record) if batch is not None else None
    provider = store.provider(run.provider)
    queue, before = None, None
    if provider is not None:
        queue = _queue_to(store, provider, run, day)
    if record is not None and record.options.after is not None:
        before = store.find_call_run(run.batch, record.options.after, run.date)
    daemons = count_daemons(store, now_ms=now_ms)
    return why_call(CallFacts(run, batch, day, record, provider, queue, before, daemons), now_ms=now_ms)


def explain_check(store: Store, monitor: Monitor, entry: Entry | None, run: Run, *, now_ms: int) -> Why:
    """Return the chain of a monitor's run that was made."""
    if run.state in _RUN_ENDED:
        return why_check(CheckFacts(monitor, entry, run), now_ms=now_ms)
    earlier = tuple(one for one in open_runs(store, monitor, now_ms=now_ms) if one.counter < run.counter)
    return why_check(_around(store, monitor, entry, run, earlier, now_ms=now_ms), now_ms=now_ms)


def explain_firing(store: Store, monitor: Monitor, entry: Entry | None, *, now_ms: int) -> Why:
    """Return why the monitor's next firing has not come yet."""
    earlier = open_runs(store, monitor, now_ms=now_ms)
    return why_check(_around(store, monitor, entry, None, earlier, now_ms=now_ms), now_ms=now_ms)


def explain_measurement(
    store: Store, job: StoredJob, item: StoredMeasurement, *, viewer: str | None, now_ms: int
) -> Why:
    """Return the chain of a measurement; only admins see which accounts there are."""
    facts = MeasurementFacts(job, item, account_names=viewer is None)
    if item.state not in ("queued", "parked"):
        return why_measurement(facts, now_ms=now_ms)
    gates = read_gates(store, [item])
    line = read_line(store, now_ms=now_ms)
    decision = choose(item.cost, line.pool, now_ms=now_ms, types=kinds_of(item.measurement))
    owner = store.user(item.owner) if item.owner else None
    facts = facts._replace(
        decision=decision,
        ahead=_own_ahead(store, item),
        targets=gates.of_targets(item.measurement),
        ripe=gates.of_all(),
        disabled=owner is not None and owner.disabled,
        daemons=count_daemons(store, now_ms=now_ms),
        line=line,
    )
    return why_measurement(facts, now_ms=now_ms)


def _queue_to(store: Store, provider: ProviderDefinition, run: CallRun, day: Day | None) -> ProviderQueue:
    """Return the provider's queue up to the run. If many are before it, only the due times of some are read."""
    policy = policy_of(provider.spec)
    queue = store.provider_queue(provider.number, policy, limit=QUEUE_READ_MAX)
    last_ms = max((call.due_ms for call in queue.calls if call.state == "waiting"), default=0)
    if run.state != "waiting" or not queue.more or run.due_ms <= last_ms or day is None:
        return queue
    dues_ms = store.taken(provider.number, from_ms=last_ms + 1, to_ms=run.due_ms, limit=DUES_READ_MAX)
    if len(dues_ms) + len(queue.calls) >= DUES_READ_MAX:
        return queue
    mine = QueuedCall(run.handle, "waiting", run.due_ms, run.due_ms, day.end_ms, policy.timeout_ms, sure=True)
    return with_dues(queue, dues_ms, mine, policy)


def _explain_index(store: Store, job_id: str, index: int, *, viewer: str | None, now_ms: int) -> Why:
    job = store.job(job_id)
    found = [] if job is None else store.measurements(job.number, after=index - 1, limit=1)
    if job is None or viewer not in (None, job.owner) or not found or found[0].index != index:
        raise NotFound(f"There is no run '{job_id[:100]}/{index}'.")
    return explain_measurement(store, job, found[0], viewer=viewer, now_ms=now_ms)


def _own_ahead(store: JobStore, item: StoredMeasurement) -> int:
    return store.queued_before(item.owner, item.handle, limit=PLACES_MAX) if item.owner else 0


def _around(
    store: Store, monitor: Monitor, entry: Entry | None, run: Run | None, earlier: tuple[Run, ...], *, now_ms: int
) -> CheckFacts:
    owner = store.user(monitor.owner)
    disabled = owner is not None and owner.disabled
    return CheckFacts(monitor, entry, run, earlier, disabled, count_daemons(store, now_ms=now_ms))


def open_runs(store: Store, monitor: Monitor, *, now_ms: int) -> tuple[Run, ...]:
    """Return the open runs of the monitor, the oldest first, as far as a page of runs shows them."""
    newest = store.monitor_runs(monitor, before=None, limit=OPEN_READ_MAX, now_ms=now_ms)
    return tuple(run for run in reversed(newest) if run.state not in _RUN_ENDED)
