"""Views of accounts and their keys. REST and the command line show nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from paceline.core.instants import to_text
from paceline.core.jobs.meters import DAY_MS, MINUTE_MS, NEVER_MS, Meter, balance_ends_ms, room, room_ms
from paceline.core.jobs.pool import Account, KeyState, aside_reason
from paceline.core.jobs.values import StoredKey
from paceline.core.schema import Instant
from paceline.errors import NotFound
from paceline.ports import JobStore
from paceline.steps.views.to_view import to_view

RELEASES_MS = DAY_MS + MINUTE_MS
"""Time ahead within which room is expected: what is spent on a day's meter is free by then."""
AccountState = Literal["ready", "disabled", "closed", "no_key", "quarantined", "full"]


class MeterView(msgspec.Struct, frozen=True):
    """``foreign``: used by others than Paceline, as RIPE says. ``room_at``: when there is room, as far as is known."""

    spent: int
    held: int
    foreign: int
    limit: int
    left: int
    room_at: Instant | None


class UsageView(msgspec.Struct, frozen=True):
    """``balance``: the credits that the account has at RIPE; null until RIPE has told it.

    Its ``limit`` is RIPE's figure, and its ``spent`` is what of ours RIPE has not booked yet.
    """

    concurrent: MeterView
    daily_results: MeterView
    daily_credits: MeterView
    balance: MeterView | None
    balance_ends: Instant | None
    """Time at which the balance is used up, if the use of the last 24 hours goes on."""


class KeyView(msgspec.Struct, frozen=True):
    """``reason``: why it is quarantined, in RIPE's words. Its secret is never shown."""

    id: str
    account: str
    label: str
    last_four: str
    enabled: bool
    state: KeyState
    reason: str
    created_at: Instant


class BarredView(msgspec.Struct, frozen=True):
    """A type of measurement that RIPE does not let the account make; it is asked again after ``until``."""

    type: str
    until: Instant
    reason: str


class AddedKeyView(KeyView, frozen=True):
    """``unverified``: what it needs and could not be tried; null: it was added without asking RIPE."""

    unverified: list[str] | None


class AccountView(msgspec.Struct, frozen=True):
    """``reason``: why it is not ready."""

    id: str
    concurrent: int
    daily_results: int
    daily_credits: int
    enabled: bool
    state: AccountState
    reason: str
    closed_until: Instant | None
    usage: UsageView
    sends: int
    barred: list[BarredView]
    keys: list[KeyView]


def account_views(store: JobStore, *, now_ms: int) -> list[AccountView]:
    """Return all accounts, in order of id."""
    found = store.accounts(now_ms=now_ms, releases_until_ms=now_ms + RELEASES_MS)
    return [_account_view(account, store.keys(account.id), now_ms=now_ms) for account in found]


def account_view(store: JobStore, account_id: str, *, now_ms: int) -> AccountView:
    # For a single account the store does not tell when it has room again.
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
    return to_view(key, KeyView, state=state, reason=key.quarantine)


def added_key_view(key: StoredKey, unverified: Sequence[str] | None) -> AddedKeyView:
    return to_view(key_view(key), AddedKeyView, unverified=None if unverified is None else list(unverified))


def _account_view(account: Account, keys: Sequence[StoredKey], *, now_ms: int) -> AccountView:
    state, reason = _account_state(account, now_ms=now_ms)
    closed = account.closed_until_ms > now_ms
    return to_view(
        account,
        AccountView,
        concurrent=account.concurrent.limit,
        daily_results=account.results.limit,
        daily_credits=account.credits.limit,
        state=state,
        reason=reason,
        closed_until=to_text(account.closed_until_ms) if closed else None,
        usage=UsageView(
            _meter_view(account.concurrent, now_ms=now_ms),
            _meter_view(account.results, now_ms=now_ms),
            _meter_view(account.credits, now_ms=now_ms),
            _balance_view(account),
            _balance_ends(account, now_ms=now_ms),
        ),
        barred=[to_view(one, BarredView) for one in account.barred if one.until_ms > now_ms],
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
    if account.balance is not None and account.balance.free <= 0:
        full.append("credit balance at RIPE: 0 left")
    return ("full", "; ".join(full)) if full else ("ready", "")


def _balance_view(account: Account) -> MeterView | None:
    balance = account.balance
    if balance is None:
        return None
    held, left = account.credits.held, max(0, balance.free)
    # RIPE may only have said that it is too little: then what is left is an upper bound.
    limit = left + held if balance.told is None else balance.told
    return MeterView(max(0, limit - held - left), held, 0, limit, left, None)


def _balance_ends(account: Account, *, now_ms: int) -> Instant | None:
    if account.balance is None:
        return None
    ends_ms = balance_ends_ms(account.balance, account.credits, now_ms=now_ms)
    return None if ends_ms is None else to_text(ends_ms)


def _meter_view(meter: Meter, *, now_ms: int) -> MeterView:
    at_ms = room_ms(meter, 1, now_ms=now_ms)
    room_at = to_text(at_ms) if now_ms < at_ms < NEVER_MS else None
    return to_view(meter, MeterView, left=room(meter), room_at=room_at)
