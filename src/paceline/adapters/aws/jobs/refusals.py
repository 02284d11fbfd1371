"""Writes the effects of a refusal on account, key, target or everybody, as ``core.jobs.refusals`` decides them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import PRESENT, Action, DynamoKey, Item, delete, item_at, put, setting, update
from paceline.adapters.aws.client.tables import LEDGER
from paceline.adapters.aws.jobs import keys, meters
from paceline.adapters.aws.jobs.parts import JobParts
from paceline.core.jobs import refusals as rules
from paceline.core.jobs.names import key_number
from paceline.core.jobs.values import (
    AccountClosed,
    KeyRefused,
    MeterFull,
    Paused,
    RefusalEffect,
    TargetFull,
    TypeBarred,
)

_OR_NEW = "attribute_not_exists(#until_ms) OR #until_ms = :was"


def gates(store: JobParts, targets: Sequence[str]) -> tuple[Paused | None, list[TargetFull]]:
    gate, *found = keys.read(store.db, [keys.GATE, *map(keys.target_key, targets)])
    store.row_cache.note_gates(gate, dict(zip(targets, found, strict=True)))
    return _paused(gate), [_target(item) for item in found if item is not None]


def site(store: JobParts, proposed: str) -> str:
    written = store.db.write(
        update(LEDGER, keys.GATE, "SET #site = if_not_exists(#site, :proposed)", when="", proposed=proposed)
    )
    assert written.item is not None
    return str(written.item["site"])


def account_after(account: Item, write: meters.Write, effect: RefusalEffect | None, *, now_ms: int) -> meters.Write:
    """Return the write to the account with what the refusal adds to it."""
    match effect:
        case MeterFull(meter="balance"):
            balance = rules.too_low_balance(meters.balance_of(meters.applied(account, write)), effect, now_ms=now_ms)
            return meters.balance_write(account, write, balance)
        case MeterFull():
            meter = meters.meter_of(meters.applied(account, write), effect.meter)
            full = rules.full_meter(meter, effect, now_ms=now_ms)
            return meters.joined_write(write, meters.difference(meters.applied(account, write), {meter.name: full}))
        case AccountClosed():
            until_ms = rules.closed_until(account["closed_until_ms"], effect)
            return meters.joined_write(
                write, meters.Write({}, {"closed_until_ms": until_ms, "reason": effect.reason}, bound=account["v"])
            )
        case _:
            return write


def actions_beside(effect: RefusalEffect | None, *, account: str, key: str, seen: Item | None) -> list[Action]:
    """Return the actions beside the account. ``seen``: the item that ``key_beside`` names, as it was read."""
    match effect:
        case KeyRefused():
            if seen is None:  # a key that was removed in the meantime need not be quarantined
                return []
            reason, where = rules.quarantine_reason(effect.reason), keys.key_key(account, key_number(key))
            return [update(LEDGER, where, "SET #quarantine = :reason", when=PRESENT, reason=reason)]
        case TypeBarred():
            fields = {"until_ms": effect.until_ms, "reason": effect.reason}
            return [put(LEDGER, item_at(keys.type_key(account, one), type=one, **fields)) for one in effect.types]
        case TargetFull():
            after = rules.later_target(None if seen is None else _target(seen), effect)
            item = item_at(keys.target_key(after.target), until_ms=after.until_ms)
            item |= {"refusals": after.refusals, "words": after.words}
            was = (seen or {}).get("until_ms", -1)
            return [put(LEDGER, item, when=_OR_NEW, was=was)]
        case Paused():
            was = (seen or {}).get("until_ms", 0)
            change, values = setting(rules.later_pause(_paused(seen), effect)._asdict())
            return [update(LEDGER, keys.GATE, change, when=_OR_NEW, was=was, **values)]
        case _:
            return []


def key_beside(effect: RefusalEffect | None, *, account: str, key: str) -> DynamoKey | None:
    """Return the key of the item that ``actions_beside`` needs; None if it needs none."""
    match effect:
        case KeyRefused():
            return keys.key_key(account, key_number(key))
        case TargetFull():
            return keys.target_key(effect.target)
        case Paused():
            return keys.GATE
        case _:
            return None


def clear_effects(
    database: DynamoDatabase, *, account: Item, gate: Item | None, targets: Iterable[Item], now_ms: int
) -> None:
    """Remove effects of refusals, since RIPE accepted a send. If a write is lost, the next send makes it."""
    if gate is not None and rules.clears_pause(_paused(gate), now_ms=now_ms):
        when = "#until_ms = :was AND #refusals = :refused"
        seen = {"was": gate["until_ms"], "refused": gate["refusals"]}
        database.write(update(LEDGER, keys.GATE, "SET #refusals = :none", when=when, none=0, **seen))
    if rules.clears_account(account["reason"], account["closed_until_ms"], now_ms=now_ms):
        when = "#closed_until_ms = :was"
        change = "SET #reason = :none ADD #v :one"
        was = account["closed_until_ms"]
        database.write(update(LEDGER, keys.account_key(account["name"]), change, when=when, was=was, none="", one=1))
    for item in targets:
        if rules.clears_target(_target(item), now_ms=now_ms):
            database.write(delete(LEDGER, keys.target_key(item["sk"]), when="#until_ms = :was", was=item["until_ms"]))


def _paused(gate: Item | None) -> Paused | None:
    return Paused(gate["until_ms"], gate["refusals"], gate["reason"]) if gate and gate.get("until_ms") else None


def _target(item: Item) -> TargetFull:
    return TargetFull(item["sk"], item["until_ms"], item["refusals"], item["words"])
