"""Independent books of batches: which runs were handed out, to whom and with which result, and what must be true."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field

from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.provider import BURST_US, Policy, ProviderKind
from paceline.core.batches.values import ClaimedCall
from tests.world.support.ledger import demand

ENDED = frozenset({"done", "failed", "unknown", "skipped"})


@dataclass
class Book:
    """One run, as the outside has seen it."""

    name: str
    handle: int
    provider: int
    due_ms: int
    state: str = "waiting"
    attempt: int = 0
    until_ms: int = 0
    """Of the lease, or of the retry's pause."""
    started_ms: int = 0
    lost: bool = False
    looked_up: bool = False
    """Since it was last lost."""


@dataclass
class ProviderBook:
    policy: Policy
    name: str
    closed_until_ms: int = 0
    starts_us: list[int] = field(default_factory=list)
    bad: int = 0


class BatchLedger:
    def __init__(self) -> None:
        self.runs: dict[str, Book] = {}
        self.by_handle: dict[int, Book] = {}
        self.providers: dict[int, ProviderBook] = {}
        self.inactive: set[tuple[str, str]] = set()
        """Records that are deleted or switched off."""
        self.paused_batches: set[str] = set()
        self.unsafe: set[int] = set()
        """Providers whose calls are not safe to repeat."""

    # -- what the store granted

    def claimed(self, claimed: Sequence[ClaimedCall], *, now_ms: int, kind: ProviderKind) -> None:
        """``kind``: of the claimer, which must be the provider's."""
        for item in claimed:
            provider = self.providers[item.provider]
            demand(6, provider.policy.kind == kind, f"{provider.name} is {provider.policy.kind}; {kind} claims from it")
        starts: dict[int, list[ClaimedCall]] = defaultdict(list)
        for item in claimed:
            self._judge_claim(item, now_ms)
            starts[item.provider].append(item)
        for number, items in starts.items():
            self._judge_provider(number, items, now_ms)

    def _judge_claim(self, item: ClaimedCall, now_ms: int) -> None:
        name = f"{item.batch}/{item.record}@{item.date}"
        book = self.runs.get(name)
        if book is None:
            book = self.runs[name] = Book(name, item.handle, item.provider, item.due_ms)
        demand(5, book.state not in ENDED, f"{name} has ended as {book.state} and was handed out again")
        demand(3, (item.batch, item.record) not in self.inactive, f"{name} was handed out, but its record is off")
        demand(6, item.batch not in self.paused_batches, f"{name} was handed out, but its batch is paused")
        demand(6, item.due_ms <= now_ms or item.attempt > 1, f"{name} was handed out before it was due")
        ready = book.state == "waiting" or book.until_ms <= now_ms
        moved = book.state == "retry" and item.provider != book.provider  # another's pause is not its own
        demand(6, ready or moved, f"{name} was handed out while {book.state}")
        demand(5, item.attempt == book.attempt + 1, f"{name}: attempt {item.attempt} after {book.attempt}")
        lost = book.lost or book.state == "out"
        demand(9, item.lost == lost, f"{name}: lost is {item.lost}, and should be {lost}")
        if book.state == "out":
            book.looked_up = False
        self.by_handle[item.handle] = book
        book.handle, book.provider, book.due_ms = item.handle, item.provider, item.due_ms
        book.state, book.attempt, book.until_ms, book.lost = "out", item.attempt, item.lease_until_ms, lost
        book.started_ms = now_ms

    def _judge_provider(self, number: int, items: Sequence[ClaimedCall], now_ms: int) -> None:
        provider = self.providers[number]
        policy = provider.policy
        demand(6, not policy.paused, f"{provider.name} is paused, and something of it started")
        demand(
            6,
            provider.closed_until_ms <= now_ms,
            f"{provider.name} is closed until {provider.closed_until_ms}, at {now_ms}",
        )
        out = sum(
            book.provider == number and book.state == "out" and book.until_ms > now_ms for book in self.runs.values()
        )
        demand(6, out <= policy.max_in_flight, f"{provider.name} has {out} out, more than {policy.max_in_flight}")
        if provider.bad >= policy.breaker_failures:
            demand(6, out <= 1, f"the breaker of {provider.name} is open, and {out} are out")
        provider.starts_us += [now_ms * 1_000] * len(items)
        if policy.rate_gap_us:
            self._judge_rate(provider)

    def _judge_rate(self, provider: ProviderBook) -> None:
        """Of the starts since the policy was last edited, no n are closer than n - 1 gaps, less the burst."""
        gap_us, starts_us = provider.policy.rate_gap_us, provider.starts_us[-50:]
        for first, begin_us in enumerate(starts_us):
            for count, end_us in enumerate(starts_us[first + 1 :], start=1):
                slack_us = BURST_US + 1_000
                demand(8, end_us - begin_us + slack_us >= count * gap_us, f"{provider.name} is called too often")

    def extended(self, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> None:
        book = self.by_handle[handle]
        held = book.state == "out" and book.attempt == attempt and book.until_ms >= now_ms
        demand(5, held, f"{book.name} was extended from a stale lease")
        book.until_ms = until_ms

    def settled(self, items: Sequence[CallSettlement], won: Sequence[bool]) -> None:
        for item, ok in zip(items, won, strict=True):
            if ok:
                self._settle(item)

    def _settle(self, item: CallSettlement) -> None:
        book = self.by_handle.get(item.handle)
        if book is None:
            demand(5, False, f"an unknown run {item.handle} was settled")
            return
        demand(5, book.state == "out", f"{book.name} was settled while {book.state}")
        demand(5, book.attempt == item.attempt, f"{book.name} was settled from a stale attempt")
        demand(5, item.ended_ms <= book.until_ms, f"{book.name} was settled from a stale lease")
        book.state = item.state
        book.until_ms, book.lost = item.not_before_ms, item.lost and item.state == "retry"
        if book.lost:
            book.looked_up = False
        provider = self.providers[book.provider]
        provider.closed_until_ms = max(provider.closed_until_ms, item.closed_until_ms)
        if item.verdict == "good":
            provider.bad = 0
        elif item.verdict == "bad":
            provider.bad += 1
            if provider.bad >= provider.policy.breaker_failures:
                until_ms = item.ended_ms + provider.policy.breaker_open_ms
                provider.closed_until_ms = max(provider.closed_until_ms, until_ms)

    def released(self, fences: Sequence[tuple[int, int]], won: Sequence[bool], *, now_ms: int) -> None:
        for (handle, _), ok in zip(fences, won, strict=True):
            if ok:
                book = self.by_handle[handle]
                book.attempt -= 1  # it does not count
                book.state, book.until_ms = "retry" if book.attempt else "waiting", now_ms

    def deleted(self, batch: str) -> None:
        """Nothing of the batch starts any more, and its runs and records are forgotten."""
        self.paused_batches.add(batch)
        self.runs = {name: book for name, book in self.runs.items() if not name.startswith(f"{batch}/")}
        self.inactive = {name for name in self.inactive if name[0] != batch}

    def redriven(self, states: dict[str, str]) -> None:
        """These runs were redriven and start over. A provider that can be asked about an unknown run is asked first."""
        for name, state in states.items():
            book = self.runs.get(name)
            if book is None:
                continue
            demand(5, book.state not in ("done", "skipped"), f"{name} was redriven while {book.state}")
            asks = self.providers[book.provider].policy.unknown == "look_up"
            book.state, book.attempt, book.lost = "waiting", 0, asks and state == "unknown"
            book.looked_up = False

    def pulled_back(self, *, now_ms: int, wait_ms_max: int) -> None:
        for provider in self.providers.values():
            provider.closed_until_ms = min(provider.closed_until_ms, now_ms + wait_ms_max)
            provider.starts_us.clear()
        for book in self.runs.values():
            if book.state == "out" and book.started_ms > now_ms:
                book.started_ms, book.until_ms = now_ms, now_ms + book.until_ms - book.started_ms
            elif book.state == "retry":
                book.until_ms = min(book.until_ms, now_ms + wait_ms_max)

    # -- what reached the provider

    def arrived(self, handle: int, name: str, *, looks_up: bool, safe: bool) -> None:
        book = self.runs[name]
        if looks_up:
            book.looked_up = True
            return
        if book.lost and not safe:
            policy = self.providers[book.provider].policy
            demand(9, policy.unknown != "hold", f"{name} may have arrived, is to be held, and was sent again")
            if policy.unknown == "look_up":
                demand(9, book.looked_up, f"{name} may have arrived and was sent again without a look-up")
        del handle
