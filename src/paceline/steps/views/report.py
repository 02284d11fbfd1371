"""Views of monitors, runs, providers, batches and users. The API exposes all of them; pages show nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, Literal

import msgspec

from paceline.core.batches.batch import Batch, batch_document, day_at, window_of
from paceline.core.batches.outgoing import WAITS_FOR_WORKER
from paceline.core.batches.provider import (
    BreakerSpec,
    Method,
    Order,
    ProviderDefinition,
    ProviderSpec,
    RetrySpec,
    WhenUnknown,
    provider_document,
)
from paceline.core.batches.records.expect import ExpectSpec
from paceline.core.batches.values import ProviderStanding
from paceline.core.ids import entry_key, parse_run_id, run_id
from paceline.core.instants import to_text, to_text_or_none
from paceline.core.monitors.alerting.policy import AlertPolicy
from paceline.core.monitors.definition import Monitor, spec_document
from paceline.core.monitors.health import Glance, Health, judge
from paceline.core.monitors.outcome import RunState, TerminalState
from paceline.core.monitors.schedule import Entry, Missed, Overlap
from paceline.core.monitors.values import Run, Scheduler
from paceline.core.schema import Duration, Instant
from paceline.core.store_status import StoreStatus
from paceline.core.users import Role, Token, User
from paceline.errors import NotFound
from paceline.ports import BatchStore, Store
from paceline.ports.queued import HasDeadQueues
from paceline.steps.upkeep.daemons import DaemonView, daemon_views
from paceline.steps.views.to_view import to_view

LATE_AFTER_MS = 10_000
LATENCY_RUNS = 100
"""Number of a provider's newest runs that are looked at for its latency."""
_TERMINAL: dict[str, TerminalState] = {"ok": "ok", "failed": "failed", "dead": "dead", "unknown": "unknown"}


class ScheduleView(msgspec.Struct, frozen=True):
    key: str
    generation: int
    counter: int
    next_due: Instant | None


class SkippedView(msgspec.Struct, frozen=True):
    """Firings that made no run because an earlier run has not ended. ``since``: when that run was due."""

    count: int
    since: Instant
    reason: str


class MonitorFigures(msgspec.Struct, frozen=True):
    """Uptime over 30 days as a share from 0 to 1, and the 95th percentile of latency over 90 days.

    ``days`` and ``p50_days``: the uptime and the median latency of each of the last 30 days, oldest first. Null:
    nothing is known.
    """

    uptime_30d: float | None
    p95_ms: float | None
    days: list[float | None]
    p50_days: list[float | None]


class MonitorView(msgspec.Struct, frozen=True, omit_defaults=True):
    id: str
    user: str
    check: dict[str, Any]
    jitter: Duration
    missed: Missed
    overlap: Overlap
    paused: bool
    tags: list[str]
    alert: AlertPolicy
    attempts: int
    schedule: ScheduleView
    revision: int
    health: Health
    failures: int
    """Number of failures in a row; there are some before it is called failing, if ``alert`` wants several."""
    created_at: Instant
    updated_at: Instant
    every: Duration | None = None
    cron: str | None = None
    timezone: str | None = None
    initial_delay: Duration | None = None
    skipped: SkippedView | None = None
    failing_since: Instant | None = None
    """End of the first of the failures that made it fail."""
    figures: MonitorFigures | None = None
    """Figures, in lists that are asked for them."""


class RunView(msgspec.Struct, frozen=True):
    run: str
    user: str
    monitor: str
    due: Instant
    state: RunState
    outcome: TerminalState | None
    attempt: int
    reason: str
    latency_ms: float | None
    status_code: int | None
    started_at: Instant | None
    ended_at: Instant | None
    until: Instant | None
    detail: dict[str, Any]


class StandingView(msgspec.Struct, frozen=True):
    """Current state of a provider.

    ``reason``: why no run starts now; empty if nothing prevents it. ``waiting``: number of waiting runs, up to 1000.
    """

    state: Literal["open", "closed", "paused"]
    reason: str
    waiting: int
    in_flight: int
    failures: int
    closed_until: Instant | None
    next_due: Instant | None


class ProviderView(msgspec.Struct, frozen=True):
    id: str
    kind: str
    base_url: str
    headers: dict[str, str]
    method: Method | None
    max_in_flight: int
    rate: str | None
    timeout: Duration
    expect: ExpectSpec | None
    retry: RetrySpec
    breaker: BreakerSpec
    unknown: WhenUnknown
    look_up: str | None
    verify_tls: bool
    order: Order
    paused: bool
    standing: StandingView
    revision: int
    created_at: Instant
    updated_at: Instant
    latency_ms: float | None = None
    """Mean latency of its newest done calls, in lists that are asked for figures; null: none is known."""


class DeletingView(msgspec.Struct, frozen=True):
    """Progress of the deletion of a batch: when it began, and how many runs and records are deleted so far."""

    since: Instant
    runs: int
    records: int


class BatchView(msgspec.Struct, frozen=True):
    """A batch as it is stored. ``next_start``: when its next day is planned automatically."""

    id: str
    start: str
    window: Duration
    timezone: str
    jitter: Duration
    missed: Missed
    paused: bool
    channels: list[str]
    next_start: Instant
    revision: int
    created_at: Instant
    updated_at: Instant
    deleting: DeletingView | None = None


class SchedulerView(msgspec.Struct, frozen=True):
    key: str
    generation: int
    counter: int
    next_due: Instant | None
    owner: str


class UserView(msgspec.Struct, frozen=True):
    id: str
    role: Role
    daily_credits: int
    disabled: bool
    monitors: int
    created_at: Instant


class TokenView(msgspec.Struct, frozen=True):
    """A token without its secret. ``scope``: what the token may do; null: everything that its user may do."""

    id: str
    label: str
    scope: str | None
    expires: Instant | None
    created_at: Instant


class StatusView(msgspec.Struct, frozen=True):
    users: int
    monitors: int
    entries: int
    changes_pending: int
    runs_waiting: int
    runs_out: int
    next_due: Instant | None
    queue_age_s: float
    late_s: float
    start_late_s: dict[str, float]
    """Longest wait of a run that could have started, by kind: checks, outgoing, batches, workers."""
    providers: int
    batches: int
    calls_waiting: int
    calls_for_workers: int
    """Number of batches' runs that are due and wait for users' own workers, up to ten thousand."""
    dead_letters: int
    dead_messages: dict[str, int]
    """Approximate number of messages in each dead queue; on AWS only."""
    call_age_s: float
    file_bytes: int
    daemons: list[DaemonView]
    """Processes that work on the store, by their own rows."""


def monitor_views(
    store: Store, monitors: Sequence[Monitor], *, now_ms: int, known: Mapping[int, Entry] | None = None
) -> list[MonitorView]:
    """Return definitions with schedule and health; two reads for the whole page, fewer if entries are known already."""
    generations = [monitor.generation for monitor in monitors]
    entries = dict(known or {})
    if unknown := [generation for generation in generations if generation not in entries]:
        entries |= store.entries(unknown, now_ms=now_ms)
    # Nothing is known of an entry that was just made; one that was moved from another store has its record already.
    looked = [generation for generation, entry in entries.items() if entry.counter or generation not in (known or {})]
    glances = store.glances(looked, now_ms=now_ms) if looked else {}
    return [
        _monitor_view(
            monitor, entries.get(monitor.generation), glances.get(monitor.generation, Glance()), now_ms=now_ms
        )
        for monitor in monitors
    ]


def monitor_view(store: Store, monitor: Monitor, *, now_ms: int) -> MonitorView:
    return monitor_views(store, [monitor], now_ms=now_ms)[0]


def monitor_runs(
    store: Store, monitor: Monitor, *, before: int | None, limit: int, now_ms: int
) -> tuple[list[RunView], int | None]:
    """Return a page of runs, newest first, and where the next page begins."""
    runs = store.monitor_runs(monitor, before=before, limit=limit, now_ms=now_ms)
    return [run_view(run) for run in runs], runs[-1].handle if len(runs) == limit else None


def show_run(store: Store, run: str, *, viewer: str | None, now_ms: int) -> RunView:
    """Return one run by its id. ``viewer`` None may see anybody's."""
    name = parse_run_id(run)
    record = None
    if name is not None and viewer in (None, name.owner):
        record = store.find_run(
            name.owner, name.monitor, generation=name.generation, counter=name.counter, now_ms=now_ms
        )
    if record is None:
        raise no_run(run)
    return run_view(record)


def no_run(run: str) -> NotFound:
    return NotFound(f"There is no run {run[:300]!r}. Ids look like user/monitor#generation@counter.")


def run_view(run: Run) -> RunView:
    return to_view(
        run,
        RunView,
        run=run_id(run.owner, run.monitor, generation=run.generation, counter=run.counter),
        user=run.owner,
        outcome=_TERMINAL.get(run.state),
        status_code=run.code,
    )


def provider_view(store: BatchStore, provider: ProviderDefinition, *, now_ms: int) -> ProviderView:
    spec = provider.spec
    fields = provider_document(spec) | {"expect": spec.expect, "retry": spec.retry, "breaker": spec.breaker}
    standing = _standing_view(provider, store.provider_standing(provider.number, now_ms=now_ms), now_ms=now_ms)
    return to_view(provider, ProviderView, standing=standing, **fields)


def with_latencies(store: BatchStore, views: Sequence[ProviderView]) -> list[ProviderView]:
    """Return the views of a page of providers with the latency of each."""
    numbers = {found.id: found.number for view in views if (found := store.provider(view.id)) is not None}
    latencies = store.latencies_ms(list(numbers.values()), runs_max=LATENCY_RUNS)
    return [msgspec.structs.replace(view, latency_ms=latencies.get(numbers.get(view.id, -1))) for view in views]


def batch_view(batch: Batch, *, now_ms: int) -> BatchView:
    following = day_at(batch.spec, now_ms) + timedelta(days=1)
    next_start = to_text(window_of(batch.spec, following).start_ms)
    deleting = to_view(batch.deleting, DeletingView) if batch.deleting is not None else None
    return to_view(batch, BatchView, next_start=next_start, deleting=deleting, **batch_document(batch.spec))


def scheduler_view(scheduler: Scheduler) -> SchedulerView:
    entry, owner = scheduler.entry, scheduler.owner
    key, next_due = entry_key(owner, scheduler.monitor), to_text_or_none(entry.due_ms)
    return to_view(entry, SchedulerView, key=key, next_due=next_due, owner=owner)


def user_view(user: User) -> UserView:
    return to_view(user, UserView)


def token_view(token: Token) -> TokenView:
    return to_view(token, TokenView, scope=token.scope or None, expires=to_text_or_none(token.expires_ms))


def status_view(store: Store, *, now_ms: int) -> StatusView:
    status = store.status()
    return to_view(
        status,
        StatusView,
        changes_pending=status.changes,
        queue_age_s=_age_s(status.oldest_waiting_due_ms, now_ms),
        late_s=_age_s(status.next_due_ms, now_ms),
        start_late_s=start_lateness_s(status, now_ms=now_ms),
        calls_waiting=status.calls_waiting + status.calls_aside,
        calls_for_workers=store.calls_for_workers(now_ms=now_ms),
        dead_messages=store.dead_messages() if isinstance(store, HasDeadQueues) else {},
        call_age_s=_age_s(status.oldest_call_due_ms, now_ms),
        daemons=daemon_views(store, now_ms=now_ms),
    )


def start_lateness_s(status: StoreStatus, *, now_ms: int) -> dict[str, float]:
    """Return how long the first run has waited that could have started and has not, by kind."""
    starts_ms = {
        "checks": status.check_start_ms,
        "outgoing": status.outgoing_start_ms,
        "batches": status.call_start_ms,
        "workers": status.worker_start_ms,
    }
    return {kind: _age_s(start_ms, now_ms) for kind, start_ms in starts_ms.items()}


def _standing_view(provider: ProviderDefinition, standing: ProviderStanding, *, now_ms: int) -> StandingView:
    closed_ms = standing.pace.closed_until_ms if standing.pace.closed_until_ms > now_ms else None
    failures = standing.pace.failures
    reason = ""
    if provider.spec.paused:
        reason = "paused by its operator"
    elif closed_ms is not None:
        broken = failures >= provider.spec.breaker.failures
        reason = f"{failures} bad calls in a row; then one is tried" if broken else "it asked for a pause"
    elif provider.spec.kind == "outgoing" and _waits_for_worker(provider.spec, standing, now_ms=now_ms):
        reason = WAITS_FOR_WORKER
    return to_view(
        standing,
        StandingView,
        state="paused" if provider.spec.paused else "open" if closed_ms is None else "closed",
        reason=reason,
        failures=failures,
        closed_until=to_text_or_none(closed_ms),
        next_due=to_text_or_none(standing.head_due_ms),
    )


def _waits_for_worker(spec: ProviderSpec, standing: ProviderStanding, *, now_ms: int) -> bool:
    """Return whether a run with a free place is due that nobody has claimed."""
    due = standing.head_due_ms is not None and standing.head_due_ms <= now_ms
    return due and standing.waiting > 0 and standing.in_flight < spec.max_in_flight


def _age_s(due_ms: int | None, now_ms: int) -> float:
    return 0.0 if due_ms is None else max(0, now_ms - due_ms) / 1000


def _monitor_view(monitor: Monitor, entry: Entry | None, glance: Glance, *, now_ms: int) -> MonitorView:
    document = spec_document(monitor.spec) | {"alert": monitor.spec.alert}
    record = glance.record
    due_ms = entry.due_ms if entry else None
    resting = monitor.spec.paused or (entry is not None and due_ms is None)
    return MonitorView(
        id=monitor.id,
        user=monitor.owner,
        schedule=ScheduleView(
            key=entry_key(monitor.owner, monitor.id),
            generation=monitor.generation,
            counter=entry.counter if entry else 0,
            next_due=to_text_or_none(due_ms),
        ),
        revision=monitor.revision,
        health=judge(resting=resting, due_ms=due_ms, glance=glance, now_ms=now_ms, late_after_ms=LATE_AFTER_MS),
        created_at=to_text(monitor.created_ms),
        updated_at=to_text(monitor.updated_ms),
        skipped=_skipped_view(entry, glance),
        failures=record.failures,
        failing_since=to_text(record.since_ms) if record.failing else None,
        **document,
    )


def _skipped_view(entry: Entry | None, glance: Glance) -> SkippedView | None:
    if entry is None or entry.cadence.overlap != "skip" or not entry.overlapped or glance.open_due_ms is None:
        return None
    since = to_text(glance.open_due_ms)
    return SkippedView(entry.overlapped, since, f"the run that was due at {since} has not ended")
