"""Views of jobs, measurements and budgets. REST and the command line show nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import msgspec

from paceline.core.instants import to_text_or_none
from paceline.core.jobs.cost import Cost
from paceline.core.jobs.measurement import MeasurementState, kind_of, kinds_of, requested_probes
from paceline.core.jobs.meters import NEVER_MS
from paceline.core.jobs.pool import Gate, Pool, Refuse, Send, Wait, choose, make_pool
from paceline.core.jobs.values import Budget, JobState, StoredJob, StoredMeasurement
from paceline.core.schema import Instant
from paceline.errors import JobFinished, NotFound
from paceline.ports import JobStore, Store
from paceline.steps.jobs.gates import read_gates
from paceline.steps.views.eta import EtaView, eta_view
from paceline.steps.views.job_outlook import JobOutlooks, OpenJob
from paceline.steps.views.to_view import to_view

PAGE_MEASUREMENTS = 500
POLLED_MAX = 100
LISTED_MAX = 20
"""Limit on a job's measurements for lists: those of a larger job are not read, so there is no ETA of its end."""
TURN = "it waits for its turn"
_WAITING: tuple[MeasurementState, ...] = ("parked", "queued")


class CountsView(msgspec.Struct, frozen=True):
    """Number of a job's measurements in each state."""

    queued: int = 0
    parked: int = 0
    sending: int = 0
    unknown: int = 0
    ongoing: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0


class CostView(msgspec.Struct, frozen=True):
    """Credits of a job.

    ``reserved``: the most that the job can cost. ``settled`` and ``refunded``: the parts of it that were spent and
    given back so far.
    """

    reserved: int
    settled: int
    refunded: int


class AccountReasonView(msgspec.Struct, frozen=True):
    """Why one account cannot send the measurement now."""

    account: str
    reason: str


class WaitingView(msgspec.Struct, frozen=True):
    """Why a measurement of the job is not sent yet.

    ``expected_room_at``: when an account has room for it; null if that is not known. ``accounts``: the reason for each
    account; null for users who are not admins.
    """

    reason: str
    next_try: Instant | None
    expected_room_at: Instant | None
    accounts: list[AccountReasonView] | None


class MeasurementView(msgspec.Struct, frozen=True):
    """One measurement of a job.

    ``atlas_ids``: RIPE's ids, one for each definition; ``atlas_id`` is the first of them. ``next_try``: for a parked
    measurement, when sending is tried again; for an unknown one, when it is looked up again. ``settled``: the credits
    that it cost; null until it has ended.
    """

    index: int
    state: MeasurementState
    types: list[str]
    targets: list[str]
    probes: int
    atlas_id: int | None
    atlas_ids: list[int]
    account: str | None
    reason: str
    next_try: Instant | None
    stopping: bool
    cost: int
    settled: int | None
    results: int
    sent_at: Instant | None
    ended_at: Instant | None


class JobView(msgspec.Struct, frozen=True):
    """A job and its progress.

    ``finished``: all measurements have ended. ``success``: all of them are done. ``place``: number of sends before
    the job's next one; null if none of its measurements waits to be sent. ``eta``: when the first measurement is sent,
    or, if one was sent already, when the last one ends; null if that is not known. ``reason``: what the job waits for;
    empty if it has ended. ``measurements``: left out if the request did not ask for them.
    """

    job: str
    title: str
    user: str
    state: JobState
    finished: bool
    success: bool
    webhook: str | None
    created_at: Instant
    started_at: Instant | None
    cancelled_at: Instant | None
    finished_at: Instant | None
    counts: CountsView
    cost: CostView
    waiting: WaitingView | None
    place: int | None
    eta: EtaView | None
    reason: str
    measurements: list[MeasurementView] | msgspec.UnsetType = msgspec.UNSET


class JobSummary(msgspec.Struct, frozen=True):
    """A job in a list. ``measurements``: how many it has. ``open``: how many of them have not ended.

    ``place``, ``eta`` and ``reason`` mean the same as in the job itself. ``eta`` is null for a job that has begun and
    has more than 20 measurements.
    """

    job: str
    title: str
    user: str
    state: JobState
    finished: bool
    success: bool
    created_at: Instant
    finished_at: Instant | None
    measurements: int
    open: int
    done: int
    failed: int
    cancelled: int
    counts: CountsView
    cost: CostView
    place: int | None
    eta: EtaView | None
    reason: str


class BudgetView(msgspec.Struct, frozen=True):
    """A user's credits today. ``left`` is what a job may still cost."""

    user: str
    limit: int
    spent: int
    held: int
    left: int
    resets_at: Instant


def find_job(store: JobStore, viewer: str | None, job_id: str) -> StoredJob:
    """Return the job if the viewer may see it; else raise NotFound. ``viewer`` None may see every job."""
    job = store.job(job_id)
    if job is None or viewer not in (None, job.owner):
        raise NotFound(f"There is no job {job_id[:100]!r}.")
    return job


def cancel_job(store: JobStore, job: StoredJob, *, now_ms: int) -> StoredJob:
    """Cancel a job and return it: measurements that were not sent are refunded, those that run will be stopped."""
    if not store.cancel_job(job.number, now_ms=now_ms):
        raise JobFinished(f"Nothing of job {job.id} is left to cancel: every measurement has ended.")
    return store.job(job.id) or job


def job_view(store: Store, job: StoredJob, *, now_ms: int, viewer: str | None = None) -> JobView:
    """Return the job with every measurement."""
    why = WaitReasons(store, now_ms=now_ms)
    items = list(job_measurements(store, job))
    views = [measurement_view(item, why) for item in items]
    found = OpenJob(job, store.job_counts(job.number), _next_waiting(items), items)
    return _job_view(store, found, views, now_ms=now_ms, viewer=viewer)


def job_progress(store: Store, job: StoredJob, *, now_ms: int, viewer: str | None = None) -> JobView:
    """Return the job without its measurements, at the same cost however many there are: for clients that poll."""
    found = _open_job(store, job, items_max=POLLED_MAX)
    return _job_view(store, found, msgspec.UNSET, now_ms=now_ms, viewer=viewer)


def job_summaries(
    store: Store, owner: str | None, *, before: int | None, limit: int, now_ms: int
) -> tuple[list[JobSummary], int | None]:
    """Return a page of jobs, newest first, of one user or of all; and where the next page begins."""
    found = store.jobs(owner, before=before, limit=limit + 1)
    following = found[limit - 1].number if len(found) > limit else None
    outlooks = JobOutlooks(store, now_ms=now_ms)
    return [job_summary(store, job, outlooks, now_ms=now_ms) for job in found[:limit]], following


def job_summary(store: Store, job: StoredJob, outlooks: JobOutlooks, *, now_ms: int) -> JobSummary:
    one = _open_job(store, job, items_max=LISTED_MAX)
    outlook = outlooks.of(one)
    waiting = None if one.waiting is None else _waiting_view(store, one.waiting, outlooks, now_ms=now_ms, viewer="")
    return to_view(
        job,
        JobSummary,
        job=job.id,
        user=job.owner,
        counts=CountsView(**one.counts),
        cost=to_view(job, CostView),
        place=outlook.place,
        eta=eta_view(outlook.eta),
        reason=_reason(one, waiting, outlooks),
    )


def job_measurements(store: JobStore, job: StoredJob) -> Iterator[StoredMeasurement]:
    """Yield all measurements of a job in order, read a page at a time."""
    after = -1
    while page := store.measurements(job.number, after=after, limit=PAGE_MEASUREMENTS):
        yield from page
        after = page[-1].index


class WaitReasons:
    """Reasons why queued measurements wait, by the current accounts; equal costs are decided once."""

    def __init__(self, store: JobStore, *, now_ms: int) -> None:
        self._store, self._now_ms = store, now_ms
        self._known: dict[tuple[Cost, frozenset[str]], str] = {}

    @cached_property
    def _pool(self) -> Pool:
        return make_pool(self._store.accounts(now_ms=self._now_ms, releases_until_ms=self._now_ms))

    @cached_property
    def _gates(self) -> list[Gate]:
        return read_gates(self._store, []).of_all()

    def of(self, item: StoredMeasurement) -> str:
        """Return why the measurement waits; for one that is not queued, the stored reason."""
        if item.state == "sending":
            return item.reason or "it is being sent"
        if item.state != "queued":
            return item.reason
        name = (item.cost, kinds_of(item.measurement))
        if name not in self._known:
            decision = choose(item.cost, self._pool, now_ms=self._now_ms, types=name[1], gates=self._gates)
            self._known[name] = TURN if isinstance(decision, Send) else decision.reason
        return self._known[name]


def measurement_view(item: StoredMeasurement, why: WaitReasons) -> MeasurementView:
    definitions = item.measurement.definitions
    ids = [one.atlas_id for one in item.atlas]
    return to_view(
        item,
        MeasurementView,
        types=list(dict.fromkeys(kind_of(one) for one in definitions)),
        targets=list(dict.fromkeys(one.target for one in definitions if one.target is not None)),
        probes=requested_probes(item.measurement),
        atlas_id=ids[0] if ids else None,
        atlas_ids=ids,
        reason=why.of(item),
        next_try=to_text_or_none(item.next_ms),
        stopping=item.stopping and item.ended_ms is None,
        cost=item.cost.credits,
        results=sum(one.delivered for one in item.atlas),
        sent_at=to_text_or_none(item.answered_ms),
    )


def budget_view(store: JobStore, user: str, *, now_ms: int) -> BudgetView:
    budget = store.budget(user, now_ms=now_ms)
    if budget is None:
        raise NotFound(f"There is no user {user!r}.")
    return view_of_budget(user, budget)


def view_of_budget(user: str, budget: Budget) -> BudgetView:
    return to_view(budget, BudgetView, user=user)


def _job_view(
    store: Store,
    one: OpenJob,
    measurements: list[MeasurementView] | msgspec.UnsetType,
    *,
    now_ms: int,
    viewer: str | None,
) -> JobView:
    outlooks = JobOutlooks(store, now_ms=now_ms)
    outlook = outlooks.of(one)
    first = min((item for item in one.items or () if item.state in _WAITING), key=_turn, default=one.waiting)
    waiting = None if first is None else _waiting_view(store, first, outlooks, now_ms=now_ms, viewer=viewer)
    return to_view(
        one.job,
        JobView,
        job=one.job.id,
        user=one.job.owner,
        counts=CountsView(**one.counts),
        cost=to_view(one.job, CostView),
        waiting=waiting,
        place=outlook.place,
        eta=eta_view(outlook.eta),
        reason=_reason(one, waiting, outlooks),
        measurements=measurements,
    )


def _open_job(store: Store, job: StoredJob, *, items_max: int) -> OpenJob:
    """Return the job with its counts; with its measurements if it has few, and only if some are open."""
    if not job.open:
        return OpenJob(job, {"done": job.done, "failed": job.failed, "cancelled": job.cancelled}, None, None)
    counts = store.job_counts(job.number)
    if job.measurements > items_max:
        return OpenJob(job, counts, _one_waiting(store, job, counts), None)
    items = store.measurements(job.number, after=-1, limit=items_max)
    return OpenJob(job, counts, _next_waiting(items), items)


def _next_waiting(items: Sequence[StoredMeasurement]) -> StoredMeasurement | None:
    """Return the measurement that is sent next: a queued one, else the first of the parked ones."""
    queued = next((item for item in items if item.state == "queued"), None)
    return queued or min((item for item in items if item.state == "parked"), key=_turn, default=None)


def _reason(one: OpenJob, waiting: WaitingView | None, outlooks: JobOutlooks) -> str:
    """Return what a job waits for; empty for a job that has ended."""
    job = one.job
    if not job.open:
        return ""
    if job.cancelled_ms is not None:
        return "it is cancelled, and what runs of it is being stopped"
    if waiting is not None:
        return f"its user {job.owner} is disabled" if outlooks.is_disabled(job.owner) else waiting.reason
    if one.counts.get("unknown"):
        return "RIPE's reply to one of its sends was lost: it is looked up"
    return "all that is left of it runs at RIPE"


def _turn(item: StoredMeasurement) -> tuple[int, int]:
    """Return a sort key of waiting measurements: parked ones first, because they have a reason, by their next try."""
    return (NEVER_MS if item.next_ms is None else item.next_ms, item.index)


def _one_waiting(store: JobStore, job: StoredJob, counts: dict[MeasurementState, int]) -> StoredMeasurement | None:
    """Return a waiting measurement of the job, if there is one, without reading all of them."""
    waiting: list[MeasurementState] = [state for state in _WAITING if counts.get(state)]
    last = store.measurements(job.number, after=job.measurements - 2, limit=1) if waiting else []
    if not last:
        return None
    before, owner = last[0].handle + 1, job.owner
    for state in waiting:
        states: Sequence[MeasurementState] = (state,)
        found = store.measurements_of(owner, states=states, before=before, limit=1)
        if found and found[0].job == job.id:
            return found[0]
    return None


def _waiting_view(
    store: JobStore, item: StoredMeasurement, outlooks: JobOutlooks, *, now_ms: int, viewer: str | None
) -> WaitingView:
    """Return what the dispatcher would decide if it tried the measurement now."""
    pool = outlooks.pool
    found = read_gates(store, [item])
    gates = [*found.of_all(), *found.of_targets(item.measurement)]
    decision = choose(item.cost, pool, now_ms=now_ms, types=kinds_of(item.measurement), gates=gates)
    reason, next_ms, room_at, accounts = "", item.next_ms, None, list[AccountReasonView]()
    match decision:
        case Send():
            reason = TURN
        case Refuse():
            reason = decision.reason
        case Wait():
            reason, next_ms = decision.reason, item.next_ms or decision.until_ms
            room_at = decision.room_ms if decision.room_ms < NEVER_MS else None
            accounts = [AccountReasonView(*pair) for pair in decision.accounts]
    return WaitingView(
        reason=item.reason if item.state == "parked" and item.reason else reason,
        next_try=to_text_or_none(next_ms),
        expected_room_at=to_text_or_none(room_at),
        accounts=accounts if viewer is None else None,
    )
