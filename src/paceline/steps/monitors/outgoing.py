"""The outgoing queue: runs for checkers that users write themselves, with leases and fencing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from paceline.core.ids import parse_run_id, run_id
from paceline.core.instants import to_text
from paceline.core.monitors import outcome as outcomes
from paceline.core.monitors.checks import DEFAULT_QUEUE, OutgoingCheck, check_document
from paceline.core.monitors.dispatch import RetryPolicy, retry_delay_ms
from paceline.core.monitors.values import Claimed, Run, RunQueue, Settlement, Take
from paceline.core.parsing import document_problem
from paceline.core.schema import Instant
from paceline.errors import FieldProblem, InvalidInput, PacelineError
from paceline.ports import Store
from paceline.steps.monitors.send import admit, claim
from paceline.steps.run_leases import make_lease, no_lease, not_claimable, parse_lease, stale, why_not_claimable
from paceline.steps.views.report import no_run

LEASE_MS_MIN, LEASE_MS_MAX = 1_000, 43_200_000
LATENCY_MS_MAX = 10**9


class OutgoingItem(msgspec.Struct, frozen=True):
    """A claimed run, as its checker sees it. The lease is opaque and stands for this attempt alone."""

    run: str
    lease: str
    check: dict[str, Any]
    due: Instant
    attempt: int
    monitor: str
    user: str
    lease_until: Instant


class OutcomeReport(msgspec.Struct, frozen=True):
    """Report of a checker or a worker on a run. ``viewer`` None may settle anybody's; ``chance`` spreads a retry.

    ``after_ms``: the shortest pause before a retry. ``provider``: only runs of this provider; None: any.
    """

    run: str
    lease: str
    status: Literal["ok", "failed", "retry"]
    detail: dict[str, Any]
    viewer: str | None
    chance: float
    after_ms: int | None = None
    provider: str | None = None

    @property
    def may_settle_calls(self) -> bool:
        """Whether it may settle runs of batches: an admin's any, a worker's those of its provider, a user's none."""
        return self.viewer is None or self.provider is not None


class ReportDetail(NamedTuple):
    """Parts that Paceline reads of the detail that a checker or a worker sends."""

    reason: str
    latency_ms: float | None


def read_detail(detail: dict[str, Any]) -> ReportDetail:
    """Return the reason and the latency in a detail; raise InvalidInput if it is too large or no valid JSON."""
    if len(msgspec.json.encode(detail)) > outcomes.DETAIL_BYTES_MAX:
        raise InvalidInput.of(FieldProblem("/detail", f"at most {outcomes.DETAIL_BYTES_MAX} bytes of JSON"))
    if problem := document_problem(detail):
        raise InvalidInput.of(FieldProblem("/detail", problem))
    reason = detail.get("reason")
    reason = reason[: outcomes.REASON_CHARS_MAX] if isinstance(reason, str) else ""
    return ReportDetail(reason, _latency_ms(detail.get("latency_ms")))


def claim_outgoing(
    store: Store,
    *,
    owner: str | None,
    now_ms: int,
    runs_max: int,
    lease_ms: int,
    policy: RetryPolicy,
    name: str = DEFAULT_QUEUE,
) -> list[OutgoingItem]:
    """Claim runs that wait in the queue of this name. ``owner`` None claims for every owner: an admin's checker."""
    queue = RunQueue(outgoing=True, owner=owner, name=name)
    claims = claim(store, queue, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms, policy=policy)
    return [_item(item) for item in claims.granted]


class RunClaim(msgspec.Struct, frozen=True):
    """Request of a checker for a run by its id. ``viewer`` None may claim anybody's runs; ``attempt`` None: any."""

    run: str
    attempt: int | None
    lease_ms: int
    viewer: str | None


def claim_runs(
    store: Store, asks: Sequence[RunClaim], *, now_ms: int, policy: RetryPolicy
) -> list[OutgoingItem | PacelineError]:
    """Lease outgoing runs by their ids in one act. Return each claimed run, or NotFound or NotClaimable."""
    takes = {index: take for index, ask in enumerate(asks) if (take := _take(ask)) is not None}
    taken = store.take(list(takes.values()), now_ms=now_ms) if takes else []
    had = {index: item for index, item in zip(takes, taken, strict=True) if item is not None}
    admitted = admit(store, had.values(), now_ms=now_ms, policy=policy)
    granted = {(item.handle, item.attempt) for item in admitted.granted}
    answers: list[OutgoingItem | PacelineError] = []
    for index, ask in enumerate(asks):
        item = had.get(index)
        if item is not None and (item.handle, item.attempt) in granted:
            answers.append(_item(item))
        else:
            answers.append(_refusal(store, ask, takes.get(index), now_ms=now_ms))
    return answers


class Recorded(NamedTuple):
    """An outcome that was written."""

    handle: int
    state: outcomes.TerminalState | Literal["retry"]
    """Terminal state; ``retry``: the run will be made again."""


def settle_outcomes(
    store: Store, reports: Sequence[OutcomeReport], *, now_ms: int, policy: RetryPolicy
) -> list[Recorded | PacelineError]:
    """Settle outgoing runs in one act. Return the result of each, or NotFound, StaleLease or InvalidInput.

    Of several reports of one run the first that holds its lease counts; the others are stale.
    """
    answers: dict[int, Recorded | PacelineError] = {}
    settlements: dict[int, Settlement] = {}
    fences = [parse_lease(report.lease) for report in reports]
    records = store.runs([fence[0] for fence in fences if fence is not None], now_ms=now_ms)
    for index, (report, fence) in enumerate(zip(reports, fences, strict=True)):
        try:
            settlements[index] = _settlement(report, fence, records, now_ms=now_ms, policy=policy)
        except PacelineError as error:
            answers[index] = error
    won = store.settle(list(settlements.values())) if settlements else []
    for (index, item), settled in zip(settlements.items(), won, strict=True):
        state = "retry" if isinstance(item.outcome, outcomes.Retry) else outcomes.terminal_state(item.outcome)
        answers[index] = Recorded(item.handle, state) if settled else stale(reports[index].run)
    return [answers[index] for index in range(len(reports))]


def record_outcomes(
    store: Store, reports: Sequence[OutcomeReport], *, now_ms: int, policy: RetryPolicy
) -> list[Run | PacelineError]:
    """Settle like ``settle_outcomes``; return the run as it is then for each one that was settled."""
    recorded = settle_outcomes(store, reports, now_ms=now_ms, policy=policy)
    runs = store.runs([item.handle for item in recorded if isinstance(item, Recorded)], now_ms=now_ms)
    return [
        item if isinstance(item, PacelineError) else runs.get(item.handle) or stale(report.run)
        for item, report in zip(recorded, reports, strict=True)
    ]


def extend_lease(store: Store, run: str, *, lease: str, by_ms: int, viewer: str | None, now_ms: int) -> int:
    """Extend the lease and return its new end, counted from now."""
    fence = parse_lease(lease)
    records = store.runs([fence[0]] if fence else [], now_ms=now_ms)
    handle, attempt, _ = _leased_run(records, fence, run, viewer=viewer)
    until_ms = now_ms + by_ms
    if not store.extend(handle, attempt, until_ms=until_ms, now_ms=now_ms):
        raise stale(run)
    return until_ms


def give_back(store: Store, items: Sequence[OutgoingItem], *, now_ms: int) -> None:
    """Release claimed runs whose answer reached nobody."""
    fences = [fence for item in items if (fence := parse_lease(item.lease)) is not None]
    if fences:
        store.release(fences, now_ms=now_ms)


def _take(ask: RunClaim) -> Take | None:
    """Return the take; None: there is no such run, or the viewer may not know of it."""
    name = parse_run_id(ask.run)
    if name is None or ask.viewer not in (None, name.owner):
        return None
    return Take(*name, lease_ms=ask.lease_ms, attempt=ask.attempt)


def _refusal(store: Store, ask: RunClaim, take: Take | None, *, now_ms: int) -> PacelineError:
    """Return why the run could not be claimed, as far as can be seen afterwards.

    Its message is not needed in any case.
    """
    run = None
    if take is not None:
        run = store.find_run(take.owner, take.monitor, generation=take.generation, counter=take.counter, now_ms=now_ms)
    if run is None:
        return no_run(ask.run)
    why = why_not_claimable(run, ask.attempt, now_ms=now_ms)
    if why is None and run.until_ms is not None and run.until_ms > now_ms:
        why = f"it may not start before {to_text(run.until_ms)}"
    if why is None:
        monitor = store.monitor(run.owner, run.monitor)
        own = monitor is not None and not isinstance(monitor.spec.check, OutgoingCheck)
        why = "Paceline makes this check itself" if own else "it waits behind an earlier one, or another checker has it"
    return not_claimable(ask.run, why)


def _settlement(
    report: OutcomeReport,
    fence: tuple[int, int] | None,
    records: Mapping[int, Run],
    *,
    now_ms: int,
    policy: RetryPolicy,
) -> Settlement:
    handle, attempt, record = _leased_run(records, fence, report.run, viewer=report.viewer)
    outcome = _outcome(report, attempt=attempt, now_ms=now_ms, policy=policy)
    return Settlement(handle, attempt, outcome, started_ms=_claimed_ms(record), ended_ms=now_ms)


def _leased_run(
    records: Mapping[int, Run], fence: tuple[int, int] | None, run: str, *, viewer: str | None
) -> tuple[int, int, Run]:
    record = records.get(fence[0]) if fence else None
    if fence is None or record is None or _name(record) != run or viewer not in (None, record.owner):
        raise no_lease(run)
    return (*fence, record)


def _outcome(report: OutcomeReport, *, attempt: int, now_ms: int, policy: RetryPolicy) -> outcomes.Outcome:
    status, (reason, latency_ms) = report.status, read_detail(report.detail)
    if status == "retry":
        if attempt >= policy.attempts_max:
            return outcomes.Dead(f"given up after {attempt} attempts{': ' + reason if reason else ''}")
        delay_ms = max(retry_delay_ms(attempt, policy=policy, chance=report.chance), report.after_ms or 0)
        return outcomes.Retry(reason=reason or "the checker asked for a retry", not_before_ms=now_ms + delay_ms)
    return outcomes.Done(
        ok=status == "ok",
        reason=reason or ("" if status == "ok" else "the checker reported a failure"),
        latency_ms=latency_ms,
        detail=report.detail,
    )


def _latency_ms(value: Any) -> float | None:
    """Return the latency that the checker measured, if it is a sensible number; the detail keeps what was sent."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= LATENCY_MS_MAX:
        return None
    return float(value)


def _claimed_ms(record: Run) -> int:
    return record.started_ms if record.started_ms is not None else record.due_ms


def _name(record: Run) -> str:
    return run_id(record.owner, record.monitor, generation=record.generation, counter=record.counter)


def _item(item: Claimed) -> OutgoingItem:
    assert item.check is not None
    name = run_id(item.owner, item.monitor, generation=item.generation, counter=item.counter)
    document = item.check.document if isinstance(item.check, OutgoingCheck) else check_document(item.check)
    return OutgoingItem(
        run=name,
        lease=make_lease(item.handle, item.attempt),
        check=document,
        due=to_text(item.due_ms),
        attempt=item.attempt,
        monitor=item.monitor,
        user=item.owner,
        lease_until=to_text(item.lease_until_ms),
    )
