"""Runs of batches for workers that users write themselves: claimed in order, settled and extended by their leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.outgoing import WorkReport, refuse_to_hand_out, settle_report
from paceline.core.batches.provider import Policy, ProviderDefinition, policy_of
from paceline.core.batches.records.request import render_request
from paceline.core.batches.reruns import split_round
from paceline.core.batches.values import CallRun, ClaimedCall, OutCall
from paceline.core.ids import call_run_id, parse_call_run_id
from paceline.core.instants import to_text
from paceline.core.schema import Date, Instant
from paceline.errors import NotClaimable, NotFound, OutOfScope, PacelineError
from paceline.ports import BatchStore
from paceline.ports.queued import OffersWork
from paceline.steps.batches.providers import get_provider
from paceline.steps.monitors.outgoing import OutcomeReport, read_detail
from paceline.steps.run_leases import make_lease, no_lease, not_claimable, parse_lease, stale, why_not_claimable

HANDLE_MAX = (1 << 62) - 1


class RecordItem(msgspec.Struct, frozen=True):
    """The record of a run, as its worker sees it. ``body`` is JSON; null: no body."""

    id: str
    provider: str
    endpoint: str
    body: Any


class CallItem(msgspec.Struct, frozen=True):
    """A claimed run of a batch, as its worker sees it. The lease is opaque and stands for this attempt alone."""

    run: str
    lease: str
    record: RecordItem
    due: Instant
    attempt: int
    batch: str
    date: Date
    lease_until: Instant


class WorkerClaim(NamedTuple):
    """Runs that a worker claimed, and when there may be more; None: not known."""

    items: list[CallItem]
    next_ms: int | None


class CallRunClaim(msgspec.Struct, frozen=True):
    """Request of a worker for a run by its id. ``attempt`` None: any. ``provider`` None: any."""

    run: str
    attempt: int | None
    lease_ms: int
    provider: str | None = None


class RecordedCall(NamedTuple):
    """A report that was written. ``retry``: the run comes again."""

    run: str
    state: Literal["done", "failed", "retry"]


def claim_for_worker(store: BatchStore, provider_id: str, *, now_ms: int, runs_max: int, lease_ms: int) -> WorkerClaim:
    """Claim runs of a provider of kind ``outgoing``, in order; raise NotFound or NotClaimable for another one."""
    provider = _outgoing_provider(store, provider_id)
    claimed = store.claim_for_worker(provider.number, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)
    items = _hand_out(store, provider, claimed, now_ms=now_ms)
    return WorkerClaim(items, None if items else store.next_for_worker_ms(provider.number))


def claim_call_run(store: BatchStore, ask: CallRunClaim, *, now_ms: int) -> CallItem:
    """Claim one run by its id, if it is the next of its provider; else raise NotFound or NotClaimable."""
    run = _find(store, ask)
    provider = _outgoing_provider(store, run.provider)
    if (ended := why_not_claimable(run, ask.attempt, now_ms=now_ms)) is not None:
        raise not_claimable(ask.run, ended)
    claimed = store.claim_for_worker(provider.number, now_ms=now_ms, runs_max=1, lease_ms=ask.lease_ms, run=run.handle)
    items = _hand_out(store, provider, claimed, now_ms=now_ms)
    if not items:
        raise not_claimable(ask.run, "it waits for its turn, for a place or for the provider's pace")
    return items[0]


def settle_reports(
    store: BatchStore, reports: Sequence[OutcomeReport], *, now_ms: int
) -> list[RecordedCall | PacelineError]:
    """Settle batches' runs in one act. Return the result of each, or NotFound, StaleLease or InvalidInput.

    For those who may not settle runs of batches there are none. Of several reports of one run the first that holds its
    lease counts; the others are stale.
    """
    answers: dict[int, RecordedCall | PacelineError] = {}
    settlements: dict[int, CallSettlement] = {}
    fences = [parse_lease(report.lease, handle_max=HANDLE_MAX) for report in reports]
    out = store.out_calls([fence[0] for fence in fences if fence is not None])
    policies = _Policies(store)
    for index, (report, fence) in enumerate(zip(reports, fences, strict=True)):
        try:
            if not report.may_settle_calls:
                raise no_lease(report.run)  # as for a run that does not exist
            run = _leased_run(out, fence, report.run, provider=report.provider, policies=policies)
            policy = policies.of(run.provider)
            work = _work_report(report)
        except PacelineError as error:
            answers[index] = error
            continue
        settlements[index] = settle_report(run, work, policy, ended_ms=now_ms, chance=report.chance)
    won = store.settle_calls(list(settlements.values())) if settlements else []
    if isinstance(store, OffersWork) and any(won):
        store.offer_work({out[item.handle].provider for item in settlements.values()}, now_ms=now_ms)
    for (index, item), settled in zip(settlements.items(), won, strict=True):
        answers[index] = _recorded(reports[index].run, item) if settled else stale(reports[index].run)
    return [answers[index] for index in range(len(reports))]


def extend_call_lease(store: BatchStore, run: str, *, lease: str, by_ms: int, provider: str | None, now_ms: int) -> int:
    """Move the end of a lease. Return the new end, counted from now."""
    fence = parse_lease(lease, handle_max=HANDLE_MAX)
    out = store.out_calls([fence[0]] if fence else [])
    found = _leased_run(out, fence, run, provider=provider, policies=_Policies(store))
    until_ms = now_ms + by_ms
    if not store.extend_call(found.handle, found.attempt, until_ms=until_ms, now_ms=now_ms):
        raise stale(run)
    return until_ms


def give_back_calls(store: BatchStore, items: Sequence[CallItem], *, now_ms: int) -> None:
    """Release claimed runs whose answer reached nobody."""
    fences = [fence for item in items if (fence := parse_lease(item.lease, handle_max=HANDLE_MAX)) is not None]
    if fences:
        store.release_calls(fences, now_ms=now_ms)


class _Policies:
    """Providers by number, each read once in a step."""

    def __init__(self, store: BatchStore) -> None:
        self._store = store
        self._known: dict[int, tuple[str, Policy]] = {}

    def of(self, number: int) -> Policy:
        return self._read(number)[1]

    def name(self, number: int) -> str:
        return self._read(number)[0]

    def _read(self, number: int) -> tuple[str, Policy]:
        if number not in self._known:
            provider = self._store.provider(number)
            assert provider is not None, "a provider with runs out cannot be removed"
            self._known[number] = (provider.id, policy_of(provider.spec))
        return self._known[number]


def _outgoing_provider(store: BatchStore, provider_id: str) -> ProviderDefinition:
    provider = get_provider(store, provider_id)
    if provider.spec.kind != "outgoing":
        raise NotClaimable(
            f"Paceline calls provider {provider_id[:128]!r} itself: it is of kind 'http'."
            " Workers claim from providers of kind 'outgoing'."
        )
    return provider


def _hand_out(
    store: BatchStore, provider: ProviderDefinition, claimed: Sequence[ClaimedCall], *, now_ms: int
) -> list[CallItem]:
    """Return the runs to work on.

    A run that an earlier attempt may have done, and that must not be repeated, ends here.
    """
    policy = policy_of(provider.spec)
    items: list[CallItem] = []
    refused: list[CallSettlement] = []
    for item in claimed:
        refusal = refuse_to_hand_out(policy, attempt=item.attempt, lost=item.lost)
        if refusal is None:
            items.append(_item(item, provider.id))
        else:
            refused.append(CallSettlement(item.handle, item.attempt, refusal.state, now_ms, now_ms, refusal.reason))
    if refused:
        store.settle_calls(refused)
    return items


def _item(item: ClaimedCall, provider: str) -> CallItem:
    endpoint, text = render_request(item)
    body = None if text is None else msgspec.Raw(text.encode())
    return CallItem(
        run=call_run_id(item.batch, item.record, item.date),
        lease=make_lease(item.handle, item.attempt),
        record=RecordItem(item.record, provider, endpoint, body),
        due=to_text(item.due_ms),
        attempt=item.attempt,
        batch=item.batch,
        date=split_round(item.date)[0],
        lease_until=to_text(item.lease_until_ms),
    )


def _find(store: BatchStore, ask: CallRunClaim) -> CallRun:
    name = parse_call_run_id(ask.run)
    found = store.find_call_run(name.batch, name.record, name.date) if name is not None else None
    if found is None:
        raise NotFound(f"There is no run {ask.run[:300]!r}. Ids of a batch's runs look like batch/record@2026-11-15.")
    if ask.provider not in (None, found.provider):
        raise _another_provider(ask.run, ask.provider)
    return found


def _leased_run(
    out: Mapping[int, OutCall],
    fence: tuple[int, int] | None,
    run: str,
    *,
    provider: str | None,
    policies: _Policies,
) -> OutCall:
    """Return the run of a lease, or raise an error.

    NotFound: the lease is another run's. StaleLease: the run is not out, whether it exists or not. OutOfScope: the run
    is of another provider than the one that is asked for.
    """
    if fence is None or parse_call_run_id(run) is None:
        raise no_lease(run)
    found = out.get(fence[0])
    if found is None:
        raise stale(run)
    if call_run_id(found.batch, found.record, found.date) != run:
        raise no_lease(run)
    if provider is not None and policies.name(found.provider) != provider:
        raise _another_provider(run, provider)
    if found.attempt != fence[1]:
        raise stale(run)
    return found


def _work_report(report: OutcomeReport) -> WorkReport:
    detail = read_detail(report.detail)
    payload = msgspec.json.encode(report.detail).decode() if report.detail else None
    return WorkReport(report.status, detail.reason, detail.latency_ms, payload, report.after_ms)


def _recorded(run: str, item: CallSettlement) -> RecordedCall:
    match item.state:
        case "done" | "retry" as state:
            return RecordedCall(run, state)
        case _:
            return RecordedCall(run, "failed")


def _another_provider(run: str, provider: str | None) -> OutOfScope:
    return OutOfScope(f"This token is for runs of provider {provider!r} only, and {run[:300]!r} is not one of them.")
