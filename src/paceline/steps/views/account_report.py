"""Views of accounts and their keys. REST and the command line show nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from paceline.core.instants import to_text
from paceline.core.jobs.meters import DAY_MS, MINUTE_MS, NEVER_MS, Meter, balance_ends_ms, room, room_ms
from paceline.core.jobs.pool import Account, KeyState, unusable_reason
from paceline.core.jobs.values import StoredKey
from paceline.core.schema import Instant
from paceline.errors import NotFound
from paceline.ports import JobStore
from paceline.steps.views.to_view import to_view

RELEASES_MS = DAY_MS + MINUTE_MS
"""Time ahead within which room is expected: what is spent on a day's meter is free by then."""
AccountState = Literal["ready", "disabled", "closed", "no_key", "quarantined", "full"]


class MeterView(msgspec.Struct, frozen=True):
    """Use of one limit of an account.

    ``spent``: used. ``held``: reserved. ``foreign``: used outside Paceline, as RIPE reports. ``left``: still available.
    ``room_at``: when a full meter has room again; null if it has room now or the time is not known.
    """

    spent: int
    held: int
    foreign: int
    limit: int
    left: int
    room_at: Instant | None


class UsageView(msgspec.Struct, frozen=True):
    """Use of all limits of an account.

    ``balance``: the account's credits at RIPE; null until RIPE has reported them. Its ``limit`` is the figure that RIPE
    reported, and its ``spent`` the credits that Paceline has used and RIPE has not deducted yet. ``balance_ends``: when
    the balance is used up, if the use of the last 24 hours goes on; null if that is not known.
    """

    concurrent: MeterView
    daily_results: MeterView
    daily_credits: MeterView
    balance: MeterView | None
    balance_ends: Instant | None
    """Time at which the balance is used up, if the use of the last 24 hours goes on."""


class KeyView(msgspec.Struct, frozen=True):
    """An API key of an account; its secret is never shown. ``reason``: why it is quarantined, in RIPE's words."""

    id: str
    account: str
    label: str
    last_four: str
    enabled: bool
    state: KeyState
    reason: str
    created_at: Instant


class BarredView(msgspec.Struct, frozen=True):
    """A type of measurement that RIPE refuses to this account. It is tried again after ``until``."""

    type: str
    until: Instant
    reason: str


class AddedKeyView(KeyView, frozen=True):
    """A key that was just added.

    ``unverified``: permissions that it needs and that could not be tested; null: it was added without a test at RIPE.
    """

    unverified: list[str] | None


class AccountView(msgspec.Struct, frozen=True):
    """An account at RIPE Atlas with its limits, usage and keys. ``reason``: why it is not ready; empty if it is."""

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
    if reason := unusable_reason(account):
        if not account.enabled:
            return "disabled", reason
        quarantined = any(key.state == "quarantined" for key in account.keys)
        return "quarantined" if quarantined else "no_key", reason
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
    limit = left + held if balance.reported is None else balance.reported
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
