"""Runs of batches: claimed as providers allow, made into calls, settled by their results."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from paceline.core.batches.batch import call_url
from paceline.core.batches.calls import Call, CallRefusal, CallResult, CallSettlement, decide_call, settle_call
from paceline.core.batches.provider import Method, Policy, method_of, policy_of
from paceline.core.batches.records.options import RecordOptions, call_timeout_ms, parse_options
from paceline.core.batches.records.placeholders import has_braces, render_header
from paceline.core.batches.records.request import render_request, values_of
from paceline.core.batches.values import ClaimedCall
from paceline.core.ids import call_run_id
from paceline.core.leases import Leased, sort_out
from paceline.errors import WrongSetting
from paceline.ports import BatchStore, Vault
from paceline.steps.batches.headers import open_headers

IDEMPOTENCY_KEY = "Idempotency-Key"
KNOWN_MAX = 65_536
Fence = tuple[int, int]


class Known(msgspec.Struct, frozen=True, gc=False):
    """Facts of a provider that calls to it need, in one place. ``problem``: why its headers cannot be opened."""

    id: str
    revision: int
    policy: Policy
    base_url: str
    verify_tls: bool
    method_bare: Method
    """Method of a record without a body."""
    method_full: Method
    headers: dict[str, str]
    """Headers as templates."""
    fills_headers: bool
    look_up: str | None
    problem: str


class SentCall(msgspec.Struct, frozen=True, gc=False):
    """A call that is out, with the values that its settlement and the figures need."""

    call: Call
    provider: str
    policy: Policy
    due_ms: int
    lease_until_ms: int

    @property
    def fence(self) -> Fence:
        return self.call.handle, self.call.attempt


class CallSettleReport(NamedTuple):
    settled: list[tuple[SentCall, CallSettlement]]
    stale: int
    """Number of results that came after their lease had run out and were refused."""


class ProviderBook:
    """Providers by number. Each is read, and its headers opened, once for each revision."""

    def __init__(self, store: BatchStore, vault: Vault) -> None:
        self._store = store
        self.vault = vault
        self._known: dict[int, Known] = {}
        self._policies: dict[Policy, Policy] = {}

    def look_up(self, number: int, *, revision: int) -> Known:
        """Return the provider as it was at this revision, or later."""
        known = self._known.get(number)
        if known is None or known.revision < revision:
            known = self._read(number)
            if len(self._known) >= KNOWN_MAX:
                self._known.clear()
                self._policies.clear()
            self._known[number] = known
        return known

    def _read(self, number: int) -> Known:
        provider = self._store.provider(number)
        assert provider is not None, "a provider with runs out cannot be removed"
        headers, problem = {}, ""
        try:
            headers = open_headers(provider.spec.headers, self.vault)
        except WrongSetting as error:
            problem = str(error)
        spec = provider.spec
        policy = policy_of(spec)
        policy = self._policies.setdefault(policy, policy)  # most are equal: one shared value stays in the cache
        return Known(
            provider.id,
            provider.revision,
            policy,
            spec.base_url,
            spec.verify_tls,
            method_of(spec, has_body=False),
            method_of(spec, has_body=True),
            headers,
            any(has_braces(value) for value in headers.values()),
            spec.look_up,
            problem,
        )


def claim_calls(store: BatchStore, book: ProviderBook, *, now_ms: int, runs_max: int, lease_ms: int) -> list[SentCall]:
    """Return the calls to be made now; runs that must not be sent are settled at once."""
    return make_calls(
        store, book, store.claim_calls(now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms), now_ms=now_ms
    )


def calls_in_time(sent: Iterable[SentCall], *, now_ms: int) -> tuple[list[SentCall], list[SentCall]]:
    """Divide the calls into those to make now, and those to give back because they may outlive their lease."""
    return sort_out(sent, lambda one: Leased(one.lease_until_ms, one.call.timeout_ms), now_ms=now_ms)


def settle_calls(
    store: BatchStore, sent: Mapping[Fence, SentCall], results: Sequence[CallResult], *, chance: Callable[[], float]
) -> CallSettleReport:
    """Record the results of calls; ``sent`` has each call by its handle and attempt."""
    calls, settlements = _judge(sent, results, chance)
    return _report(calls, settlements, store.settle_calls(settlements) if settlements else [])


def settle_and_claim(
    store: BatchStore,
    book: ProviderBook,
    sent: Mapping[Fence, SentCall],
    results: Sequence[CallResult],
    *,
    chance: Callable[[], float],
    now_ms: int,
    runs_max: int,
    lease_ms: int,
) -> tuple[CallSettleReport, list[SentCall]]:
    """Settle and claim in one act: with one call at a time, that halves the cost of each."""
    calls, settlements = _judge(sent, results, chance)
    won, claimed = store.settle_and_claim_calls(settlements, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)
    return _report(calls, settlements, won), make_calls(store, book, claimed, now_ms=now_ms)


def _judge(
    sent: Mapping[Fence, SentCall], results: Sequence[CallResult], chance: Callable[[], float]
) -> tuple[list[SentCall], list[CallSettlement]]:
    calls = [sent[item.handle, item.attempt] for item in results]
    settlements = [
        settle_call(of.call, item, of.policy, chance=chance()) for of, item in zip(calls, results, strict=True)
    ]
    return calls, settlements


def _report(calls: Sequence[SentCall], settlements: Sequence[CallSettlement], won: Sequence[bool]) -> CallSettleReport:
    settled = [(of, item) for of, item, ok in zip(calls, settlements, won, strict=True) if ok]
    return CallSettleReport(settled, len(settlements) - len(settled))


def make_calls(store: BatchStore, book: ProviderBook, claimed: Sequence[ClaimedCall], *, now_ms: int) -> list[SentCall]:
    """Return the calls of claimed runs; runs that must not be sent are settled at once."""
    sent: list[SentCall] = []
    refused: list[CallSettlement] = []
    theirs: list[Fence] = []
    for item in claimed:
        known = book.look_up(item.provider, revision=item.provider_revision)
        if known.policy.kind == "outgoing":  # changed since the claim: its workers may have the run
            theirs.append((item.handle, item.attempt))
            continue
        built = _build(item, known, book.vault)
        if isinstance(built, CallRefusal):
            refused.append(_refused(item, built, known, now_ms=now_ms))
        else:
            sent.append(SentCall(built, known.id, known.policy, item.due_ms, item.lease_until_ms))
    if refused:
        store.settle_calls(refused)
    if theirs:
        store.release_calls(theirs, now_ms=now_ms)
    return sent


def _build(item: ClaimedCall, known: Known, vault: Vault) -> Call | CallRefusal:
    policy = known.policy
    options = parse_options(item.options)
    method = options.method or (known.method_bare if item.body is None else known.method_full)
    decision = decide_call(method, policy, attempt=item.attempt, lost=item.lost)
    if isinstance(decision, CallRefusal):
        return decision
    try:
        headers = _headers(item, options, known, vault)
    except WrongSetting as error:
        return CallRefusal("unknown" if item.lost else "failed", str(error))
    run_id = call_run_id(item.batch, item.record, item.date)
    (endpoint, body), looks_up = render_request(item), decision == "look_up"
    if looks_up:
        assert known.look_up is not None
        endpoint, method, body = known.look_up.replace("{run}", quote(run_id, safe="")), "GET", None
    # Arguments are given by position: this is made for every run, and keywords would double its cost.
    return Call(
        item.handle,
        item.attempt,
        run_id,
        method,
        call_url(known.base_url, endpoint),
        {**headers, IDEMPOTENCY_KEY: run_id},
        body,
        call_timeout_ms(item.options, policy),
        looks_up,
        known.verify_tls,
        options.expect,
    )


def _headers(item: ClaimedCall, options: RecordOptions, known: Known, vault: Vault) -> dict[str, str]:
    """Return the provider's and the record's headers, filled in; the record's replace the provider's of the same name.

    WrongSetting: a header cannot be opened.
    """
    if known.problem:
        raise WrongSetting(known.problem)
    if not (known.fills_headers or options.headers):
        return known.headers
    own = {name.lower() for name in options.headers}
    kept = {name: value for name, value in known.headers.items() if name.lower() not in own}
    values = values_of(item)
    return {name: render_header(value, values) for name, value in (kept | open_headers(options.headers, vault)).items()}


def _refused(item: ClaimedCall, refusal: CallRefusal, known: Known, *, now_ms: int) -> CallSettlement:
    """Return the settlement of a refused run.

    Headers that cannot be opened count against the provider: its breaker then spares the other runs.
    """
    return CallSettlement(
        handle=item.handle,
        attempt=item.attempt,
        state=refusal.state,
        started_ms=now_ms,
        ended_ms=now_ms,
        reason=refusal.reason,
        verdict="bad" if known.problem else "none",
    )
