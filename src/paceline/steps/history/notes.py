"""Notes that are needed to judge history: set-backs of the clock, retentions, limits, strays at RIPE."""

from __future__ import annotations

import msgspec

from paceline.core.verify.facts import RetentionFact, SetBackFact, StrayFact
from paceline.ports.items import ItemStore
from paceline.steps.collection import Collection

SET_BACKS = Collection("set_back", SetBackFact)
RETENTION = Collection("retention", RetentionFact)
SHORTEST = "shortest"
LIMITS_MAX = 50
SET_BACK_KEPT_MS = 400 * 86_400_000
"""Time for which set-backs are kept, longer than anything that one may excuse."""


class EarlierCreditLimits(msgspec.Struct, frozen=True):
    """Earlier daily credits of a user, each with the time of its change; the newest ones."""

    before: tuple[tuple[int, int], ...] = ()


class AccountLimits(msgspec.Struct, frozen=True):
    """Limits that were declared for an account: concurrent, results, credits; the newest ones, each once."""

    declared: tuple[tuple[int, int, int], ...] = ()


class Disabled(msgspec.Struct, frozen=True):
    """Times at which a user was disabled and enabled again; None: not yet. The newest spans."""

    spans: tuple[tuple[int, int | None], ...] = ()


LIMITS = Collection("daily_credits", EarlierCreditLimits)
DISABLED = Collection("disabled", Disabled)
ACCOUNT_LIMITS = Collection("account_limits", AccountLimits)
STRAYS = Collection("stray", StrayFact)
STRAY_KEPT_MS = 400 * 86_400_000


def note_limit(store: ItemStore, user: str, *, daily_credits: int, now_ms: int) -> None:
    """Note a user's daily credits up to now."""

    def longer(known: EarlierCreditLimits | None) -> EarlierCreditLimits:
        before = (*(known or EarlierCreditLimits()).before, (daily_credits, now_ms))
        return EarlierCreditLimits(before[-LIMITS_MAX:])

    LIMITS.edit(store, user, longer)


def note_disabled(store: ItemStore, user: str, *, disabled: bool, now_ms: int) -> None:
    """Note that a user is disabled from now on, or is not any more."""

    def longer(known: Disabled | None) -> Disabled:
        *before, last = (known or Disabled()).spans or ((0, 0),)
        is_open = last[1] is None
        if disabled == is_open:
            spans = (*before, last)
        else:
            spans = (*before, last, (now_ms, None)) if disabled else (*before, (last[0], now_ms))
        return Disabled(spans[-LIMITS_MAX:])

    DISABLED.edit(store, user, longer)


def note_account_limits(store: ItemStore, account: str, *limits: tuple[int, int, int]) -> None:
    """Note limits that an operator declares for an account, before they are written."""

    def longer(known: AccountLimits | None) -> AccountLimits:
        before = (known or AccountLimits()).declared
        return AccountLimits((*(one for one in before if one not in limits), *dict.fromkeys(limits))[-LIMITS_MAX:])

    known = ACCOUNT_LIMITS.get(store, account)
    if known is None or not set(limits) <= set(known.declared):
        ACCOUNT_LIMITS.edit(store, account, longer)


def note_stray(store: ItemStore, stray: StrayFact) -> None:
    """Note a measurement at RIPE that nobody here follows; it stays noted after RIPE has stopped it."""
    STRAYS.put(store, str(stray.atlas_id), stray, expires_ms=stray.seen_ms + STRAY_KEPT_MS)


def note_set_back(store: ItemStore, *, from_ms: int, to_ms: int) -> None:
    """Note that a clock which showed ``from_ms`` was set back to ``to_ms``."""
    note = SetBackFact(from_ms, to_ms)
    SET_BACKS.put(store, f"{to_ms:015}-{from_ms:015}", note, expires_ms=from_ms + SET_BACK_KEPT_MS)


def note_retention(store: ItemStore, *, keep_ms: int, expire_ms: int) -> None:
    """Note how long ended runs are kept and others may wait, if one of the two is shorter than it ever was."""

    def shortest(known: RetentionFact | None) -> RetentionFact:
        if known is None:
            return RetentionFact(keep_ms, expire_ms)
        return RetentionFact(min(known.keep_ms, keep_ms), min(known.expire_ms, expire_ms))

    RETENTION.edit(store, SHORTEST, shortest)
