"""Effects of a refusal by RIPE on an account, a key, a target or everybody, and when a send clears them."""

from __future__ import annotations

import msgspec

from paceline.core.jobs.meters import CreditBalance, Meter, refuse_balance, refused
from paceline.core.jobs.values import AccountClosed, MeterFull, Paused, RefusalEffect, TargetFull


def touches_account(effect: RefusalEffect | None) -> bool:
    """Return whether the refusal is written to the account itself."""
    return isinstance(effect, MeterFull | AccountClosed)


def full_meter(meter: Meter, effect: MeterFull, *, now_ms: int) -> Meter:
    """Return the meter after a refusal; the hold for the refused send is refunded already.

    RIPE's limit is authoritative, so a lower one is taken over; the operator can raise it again.
    """
    if effect.limit is not None:
        meter = msgspec.structs.replace(meter, limit=min(meter.limit, effect.limit))
    return refused(meter, effect.need, now_ms=now_ms)


def too_low_balance(known: CreditBalance | None, effect: MeterFull, *, now_ms: int) -> CreditBalance:
    """Return the credit balance after RIPE refused a send for lack of credits."""
    return refuse_balance(known, effect.need, now_ms=now_ms)


def closed_until(known_ms: int, effect: AccountClosed) -> int:
    """Return until when the account is closed: no earlier than before."""
    return max(known_ms, effect.until_ms)


def quarantine_reason(reason: str) -> str:
    """Return why a key is not used any more: RIPE's words, if there were any."""
    return reason or "refused"


def later_target(known: TargetFull | None, effect: TargetFull) -> TargetFull:
    """Return the target with its newest refusal; it opens no earlier than it would have."""
    return effect if known is None else effect._replace(until_ms=max(known.until_ms, effect.until_ms))


def later_pause(known: Paused | None, effect: Paused) -> Paused:
    """Return the pause for everybody with its newest refusal; it ends no earlier than it would have."""
    return effect if known is None else effect._replace(until_ms=max(known.until_ms, effect.until_ms))


def clears_pause(paused: Paused | None, *, now_ms: int) -> bool:
    """Return whether a send that RIPE took ends the count of refusals in a row."""
    return paused is not None and paused.refusals > 0 and paused.until_ms <= now_ms


def clears_account(reason: str, closed_until_ms: int, *, now_ms: int) -> bool:
    """Return whether a send that RIPE took removes the reason why its account was closed."""
    return bool(reason) and closed_until_ms <= now_ms


def clears_target(target: TargetFull, *, now_ms: int) -> bool:
    """Return whether a send that RIPE took removes the note that its target was full."""
    return target.until_ms <= now_ms
