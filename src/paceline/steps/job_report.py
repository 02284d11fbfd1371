"""Jobs, measurements, accounts and budgets as people and programs are shown them. REST and CLI show nothing else."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Literal

import msgspec

from paceline.core.instants import to_text, to_text_or_none
from paceline.core.measurement import MeasurementState, kind_of, requested_probes, targets_of
from paceline.core.meters import DAY_MS, MINUTE_MS, NEVER_MS, Meter, room, room_ms
from paceline.core.pool import Account, Gate, KeyState, Refuse, Send, Wait, aside_reason, choose, make_pool
from paceline.errors import JobFinished, NotFound
from paceline.ports import Budget, JobState, JobStore, StoredJob, StoredKey, StoredMeasurement

PAGE_MEASUREMENTS = 500
RELEASES_MS = DAY_MS + MINUTE_MS
"""How far ahead room is expected: what is spent on a day's meter is free by then."""
AccountState = Literal["ready", "disabled", "closed", "no_key", "quarantined", "full"]


class CountsView(msgspec.Struct, frozen=True):
    """How many of a job's measurements are in each state."""

    queued: int = 0
    parked: int = 0
    sending: int = 0
    unknown: int = 0
    ongoing: int = 0
    done: int = 0
    failed: int = 0
    cancelled: int = 0


class CostView(msgspec.Struct, frozen=True):
    """Credits. ``reserved`` is the most that it could cost; of it ``settled`` and ``refunded`` are decided."""

    reserved: int
    settled: int
    refunded: int


class AccountReasonView(msgspec.Struct, frozen=True):
    """What is in the way at one account."""

    account: str
    reason: str


class WaitingView(msgspec.Struct, frozen=True):
    """Why something of a job waits. ``expected_room_at``: when an account has room, as far as is known.

    ``accounts`` is for admins, and null for others.
    """

    reason: str
    next_try: str | None
    expected_room_at: str | None
    accounts: list[AccountReasonView] | None


class MeasurementView(msgspec.Struct, frozen=True):
    """``atlas_id`` is the first of ``atlas_ids``, which are RIPE's, one for each definition.

    ``next_try``: parked, the next send; unknown, the next lookup. ``settled``: credits, once it has ended.
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
    next_try: str | None
    stopping: bool
    cost: int
    settled: int | None
    results: int
    sent_at: str | None
    ended_at: str | None


class JobView(msgspec.Struct, frozen=True):
    """``finished``: every measurement ended. ``success``: and every one ended well.

    ``measurements`` is left out where it was not asked for.
    """

    job: str
    title: str
    user: str
    state: JobState
    finished: bool
    success: bool
    webhook: str | None
    created_at: str
    started_at: str | None
    cancelled_at: str | None
    finished_at: str | None
    counts: CountsView
    cost: CostView
    waiting: WaitingView | None
    measurements: list[MeasurementView] | msgspec.UnsetType = msgspec.UNSET


class JobSummary(msgspec.Struct, frozen=True):
    """A job in a list. ``open``: measurements that have not ended."""

    job: str
    title: str
    user: str
    state: JobState
    finished: bool
    success: bool
    created_at: str
    finished_at: str | None
    measurements: int
    open: int
    done: int
    failed: int
    cancelled: int
    counts: CountsView
    cost: CostView


class BudgetView(msgspec.Struct, frozen=True):
    """A user's credits today. ``left`` is what a job may still cost."""

    user: str
    limit: int
    spent: int
    held: int
    left: int
    resets_at: str


class MeterView(msgspec.Struct, frozen=True):
    """``foreign``: used by others than Paceline, as RIPE says. ``room_at``: when there is room, as far as is known."""

    spent: int
    held: int
    foreign: int
    limit: int
    left: int
    room_at: str | None


class UsageView(msgspec.Struct, frozen=True):
    concurrent: MeterView
    daily_results: MeterView
    daily_credits: MeterView


class KeyView(msgspec.Struct, frozen=True):
    """``reason``: why it is quarantined, in RIPE's words. Its secret is never shown."""

    id: str
    account: str
    label: str
    last_four: str
    enabled: bool
    state: KeyState
    reason: str
    created_at: str


class AccountView(msgspec.Struct, frozen=True):
    """``reason``: why it is not ready."""

    id: str
    concurrent: int
    daily_results: int
    daily_credits: int
    enabled: bool
    state: AccountState
    reason: str
    closed_until: str | None
    usage: UsageView
    sends: int
    keys: list[KeyView]


def find_job(store: JobStore, viewer: str | None, job_id: str) -> StoredJob:
    """``viewer`` None may see anybody's; to others, somebody else's does not exist."""
    job = store.job(job_id)
    if job is None or viewer not in (None, job.owner):
        raise NotFound(f"There is no job {job_id[:100]!r}.")
    return job


def cancel_job(store: JobStore, job: StoredJob, *, now_ms: int) -> StoredJob:
    """The job after it: what was not sent is refunded, what runs is to be stopped."""
    if not store.cancel_job(job.number, now_ms=now_ms):
        raise JobFinished(f"Nothing of job {job.id} is left to cancel: every measurement has ended.")
    return store.job(job.id) or job


def job_view(store: JobStore, job: StoredJob, *, now_ms: int, viewer: str | None = None) -> JobView:
    """All of it, with every measurement."""
    views, waiting = [], list[StoredMeasurement]()
    for item in job_measurements(store, job):
        views.append(measurement_view(item))
        if item.state in ("queued", "parked"):
            waiting.append(item)
    first = min(waiting, key=_turn, default=None)
    found = _job_view(store, job, first, now_ms=now_ms, viewer=viewer)
    return msgspec.structs.replace(found, measurements=views)


def job_progress(store: JobStore, job: StoredJob, *, now_ms: int, viewer: str | None = None) -> JobView:
    """The same without its measurements, however many there are: for whoever asks again and again."""
    return _job_view(store, job, _one_waiting(store, job), now_ms=now_ms, viewer=viewer)


def job_summaries(
    store: JobStore, owner: str | None, *, before: int | None, limit: int
) -> tuple[list[JobSummary], int | None]:
    """A page of jobs, newest first, of one user or of all; and where the next page begins."""
    found = store.jobs(owner, before=before, limit=limit + 1)
    following = found[limit - 1].number if len(found) > limit else None
    return [job_summary(store, job) for job in found[:limit]], following


def job_summary(store: JobStore, job: StoredJob) -> JobSummary:
    ended = CountsView(done=job.done, failed=job.failed, cancelled=job.cancelled)
    return JobSummary(
        job=job.id,
        title=job.title,
        user=job.owner,
        state=job.state,
        finished=job.finished,
        success=job.success,
        created_at=to_text(job.created_ms),
        finished_at=to_text_or_none(job.finished_ms),
        measurements=job.measurements,
        open=job.open,
        done=job.done,
        failed=job.failed,
        cancelled=job.cancelled,
        counts=CountsView(**store.job_counts(job.number)) if job.open else ended,
        cost=CostView(job.reserved, job.settled, job.refunded),
    )


def job_measurements(store: JobStore, job: StoredJob) -> Iterator[StoredMeasurement]:
    """All of them in order, a page at a time."""
    after = -1
    while page := store.measurements(job.number, after=after, limit=PAGE_MEASUREMENTS):
        yield from page
        after = page[-1].index


def measurement_view(item: StoredMeasurement) -> MeasurementView:
    definitions = item.measurement.definitions
    ids = [one.atlas_id for one in item.atlas]
    return MeasurementView(
        index=item.index,
        state=item.state,
        types=list(dict.fromkeys(kind_of(one) for one in definitions)),
        targets=list(dict.fromkeys(one.target for one in definitions if one.target is not None)),
        probes=requested_probes(item.measurement),
        atlas_id=ids[0] if ids else None,
        atlas_ids=ids,
        account=item.account,
        reason=item.reason,
        next_try=to_text_or_none(item.next_ms),
        stopping=item.stopping and item.ended_ms is None,
        cost=item.cost.credits,
        settled=item.settled,
        results=sum(one.delivered for one in item.atlas),
        sent_at=to_text_or_none(item.answered_ms),
        ended_at=to_text_or_none(item.ended_ms),
    )


def budget_view(store: JobStore, user: str, *, now_ms: int) -> BudgetView:
    budget = store.budget(user, now_ms=now_ms)
    if budget is None:
        raise NotFound(f"There is no user {user!r}.")
    return view_of_budget(user, budget)


def view_of_budget(user: str, budget: Budget) -> BudgetView:
    return BudgetView(user, budget.limit, budget.spent, budget.held, budget.left, to_text(budget.resets_ms))


def account_views(store: JobStore, *, now_ms: int) -> list[AccountView]:
    """All of them, in order of id."""
    found = store.accounts(now_ms=now_ms, releases_until_ms=now_ms + RELEASES_MS)
    return [_account_view(account, store.keys(account.id), now_ms=now_ms) for account in found]


def account_view(store: JobStore, account_id: str, *, now_ms: int) -> AccountView:
    # Of one alone the store does not tell when it has room again.
    for account in store.accounts(now_ms=now_ms, releases_until_ms=now_ms + RELEASES_MS):
        if account.id == account_id:
            return _account_view(account, store.keys(account.id), now_ms=now_ms)
    raise NotFound(f"There is no account {account_id[:200]!r}. An admin can put one.")


def find_key_view(store: JobStore, account_id: str, key_id: str) -> KeyView:
    for key in store.keys(account_id):
        if key.id == key_id:
            return key_view(key)
    raise NotFound(f"Account {account_id[:200]!r} has no key {key_id[:100]!r}.")


def key_view(key: StoredKey) -> KeyView:
    state: KeyState = "disabled" if not key.enabled else "quarantined" if key.quarantine else "ready"
    return KeyView(
        id=key.id,
        account=key.account,
        label=key.label,
        last_four=key.last_four,
        enabled=key.enabled,
        state=state,
        reason=key.quarantine,
        created_at=to_text(key.created_ms),
    )


def _job_view(
    store: JobStore, job: StoredJob, item: StoredMeasurement | None, *, now_ms: int, viewer: str | None
) -> JobView:
    return JobView(
        job=job.id,
        title=job.title,
        user=job.owner,
        state=job.state,
        finished=job.finished,
        success=job.success,
        webhook=job.webhook,
        created_at=to_text(job.created_ms),
        started_at=to_text_or_none(job.started_ms),
        cancelled_at=to_text_or_none(job.cancelled_ms),
        finished_at=to_text_or_none(job.finished_ms),
        counts=CountsView(**store.job_counts(job.number)),
        cost=CostView(job.reserved, job.settled, job.refunded),
        waiting=None if item is None else _waiting_view(store, item, now_ms=now_ms, viewer=viewer),
    )


def _turn(item: StoredMeasurement) -> tuple[int, int]:
    """Parked ones first, for they have something to say; of those the one that is tried next."""
    return (NEVER_MS if item.next_ms is None else item.next_ms, item.index)


def _one_waiting(store: JobStore, job: StoredJob) -> StoredMeasurement | None:
    """One of a job's that waits, without reading all that do."""
    last = store.measurements(job.number, after=job.measurements - 2, limit=1) if job.open else []
    if not last:
        return None
    before, owner = last[0].handle + 1, job.owner
    for state in ("parked", "queued"):
        states: Sequence[MeasurementState] = (state,)
        found = store.measurements_of(owner, states=states, before=before, limit=1)
        if found and found[0].job == job.id:
            return found[0]
    return None


def _waiting_view(store: JobStore, item: StoredMeasurement, *, now_ms: int, viewer: str | None) -> WaitingView:
    """What the dispatcher would meet if it tried the measurement now."""
    pool = make_pool(store.accounts(now_ms=now_ms, releases_until_ms=now_ms + RELEASES_MS))
    paused, targets = store.gates(sorted(targets_of(item.measurement)))
    gates = [Gate(one.until_ms, f"the target {one.target} is full: {one.words}") for one in targets]
    if paused is not None:
        gates.insert(0, Gate(paused.until_ms, paused.reason))
    decision = choose(item.cost, pool, now_ms=now_ms, gates=gates)
    reason, next_ms, room_at, accounts = "", item.next_ms, None, list[AccountReasonView]()
    match decision:
        case Send():
            reason = "it waits for its turn"
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


def _account_view(account: Account, keys: Sequence[StoredKey], *, now_ms: int) -> AccountView:
    state, reason = _account_state(account, now_ms=now_ms)
    closed = account.closed_until_ms > now_ms
    return AccountView(
        id=account.id,
        concurrent=account.concurrent.limit,
        daily_results=account.results.limit,
        daily_credits=account.credits.limit,
        enabled=account.enabled,
        state=state,
        reason=reason,
        closed_until=to_text(account.closed_until_ms) if closed else None,
        usage=UsageView(
            _meter_view(account.concurrent, now_ms=now_ms),
            _meter_view(account.results, now_ms=now_ms),
            _meter_view(account.credits, now_ms=now_ms),
        ),
        sends=account.sends,
        keys=[key_view(key) for key in keys],
    )


def _account_state(account: Account, *, now_ms: int) -> tuple[AccountState, str]:
    if aside := aside_reason(account):
        if not account.enabled:
            return "disabled", aside
        quarantined = any(key.state == "quarantined" for key in account.keys)
        return "quarantined" if quarantined else "no_key", aside
    if account.closed_until_ms > now_ms:
        return "closed", account.reason or "backing off"
    meters = {
        "concurrent measurements": account.concurrent,
        "results a day": account.results,
        "credits a day": account.credits,
    }
    full = [f"{word}: {meter.limit} of {meter.limit} in use" for word, meter in meters.items() if not room(meter)]
    return ("full", "; ".join(full)) if full else ("ready", "")


def _meter_view(meter: Meter, *, now_ms: int) -> MeterView:
    at_ms = room_ms(meter, 1, now_ms=now_ms)
    return MeterView(
        spent=meter.spent,
        held=meter.held,
        foreign=meter.foreign,
        limit=meter.limit,
        left=room(meter),
        room_at=to_text(at_ms) if now_ms < at_ms < NEVER_MS else None,
    )
