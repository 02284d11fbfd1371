"""What a refusal by RIPE leaves behind on an account, a key, a target or everybody, and when a send clears it."""

from __future__ import annotations

import msgspec

from paceline.core.jobs.meters import CreditBalance, Meter, refuse_balance, refused
from paceline.core.jobs.values import AccountClosed, MeterFull, Paused, RefusalEffect, TargetFull


def touches_account(effect: RefusalEffect | None) -> bool:
    """Returns whether something is written to the account itself."""
    return isinstance(effect, MeterFull | AccountClosed)


def full_meter(meter: Meter, effect: MeterFull, *, now_ms: int) -> Meter:
    """Returns the meter after a refusal; the hold for what was refused is refunded already.

    RIPE knows better how much it allows, so a lower limit is taken over; the operator can raise it again.
    """
    if effect.limit is not None:
        meter = msgspec.structs.replace(meter, limit=min(meter.limit, effect.limit))
    return refused(meter, effect.need, now_ms=now_ms)


def too_low_balance(known: CreditBalance | None, effect: MeterFull, *, now_ms: int) -> CreditBalance:
    """Returns the credit balance after RIPE refused a send for want of credits."""
    return refuse_balance(known, effect.need, now_ms=now_ms)


def closed_until(known_ms: int, effect: AccountClosed) -> int:
    """Returns until when the account is closed: never shorter than it was."""
    return max(known_ms, effect.until_ms)


def quarantine_reason(reason: str) -> str:
    """Returns why a key is not used any more: RIPE's words, if there were any."""
    return reason or "refused"


def later_target(known: TargetFull | None, effect: TargetFull) -> TargetFull:
    """Returns the target with its newest refusal; it opens no sooner than it would have."""
    return effect if known is None else effect._replace(until_ms=max(known.until_ms, effect.until_ms))


def later_pause(known: Paused | None, effect: Paused) -> Paused:
    """Returns the pause of everybody with its newest refusal; it ends no sooner than it would have."""
    return effect if known is None else effect._replace(until_ms=max(known.until_ms, effect.until_ms))


def clears_pause(paused: Paused | None, *, now_ms: int) -> bool:
    """Returns whether a send that RIPE took ends the count of refusals in a row."""
    return paused is not None and paused.refusals > 0 and paused.until_ms <= now_ms


def clears_account(reason: str, closed_until_ms: int, *, now_ms: int) -> bool:
    """Returns whether a send that RIPE took removes the reason why its account was closed."""
    return bool(reason) and closed_until_ms <= now_ms


def clears_target(target: TargetFull, *, now_ms: int) -> bool:
    """Returns whether a send that RIPE took removes the note that its target was full."""
    return target.until_ms <= now_ms
