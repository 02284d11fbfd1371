"""What a refusal means for others than the measurement: for its account, its key, a target, or everybody."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import PRESENT, Action, Item, Key, delete, put, setting, update
from paceline.adapters.aws.jobs_accounts import key_number
from paceline.adapters.aws.jobs_keys import GATE, account_key, key_key, read, target_key, type_key
from paceline.adapters.aws.jobs_meters import (
    Write,
    applied,
    balance_of,
    balance_write,
    difference,
    joined_write,
    meter_of,
)
from paceline.adapters.aws.jobs_seen import Seen
from paceline.adapters.aws.tables import LEDGER
from paceline.core.meters import refuse_balance, refused
from paceline.ports.job_values import AccountClosed, Blame, KeyRefused, MeterFull, Paused, TargetFull, TypeBarred

_OR_NEW = "attribute_not_exists(#until_ms) OR #until_ms = :was"


def gates(database: Database, seen: Seen, targets: Sequence[str]) -> tuple[Paused | None, list[TargetFull]]:
    gate, *found = read(database, [GATE, *map(target_key, targets)])
    seen.note_gates(gate, dict(zip(targets, found, strict=True)))
    paused = Paused(gate["until_ms"], gate["refusals"], gate["reason"]) if gate and gate.get("until_ms") else None
    return paused, [_target(item) for item in found if item is not None]


def site(database: Database, proposed: str) -> str:
    written = database.write(
        update(LEDGER, GATE, "SET #site = if_not_exists(#site, :proposed)", when="", proposed=proposed)
    )
    assert written.item is not None
    return str(written.item["site"])


def blamed_account(account: Item, write: Write, blame: Blame | None, *, now_ms: int) -> Write:
    """What is written to the account because of it, together with what is written anyway."""
    match blame:
        case MeterFull(meter="balance"):
            balance = refuse_balance(balance_of(applied(account, write)), blame.need, now_ms=now_ms)
            return balance_write(account, write, balance)
        case MeterFull():
            meter = meter_of(applied(account, write), blame.meter)
            if blame.limit is not None:
                # RIPE knows better how much it allows; the operator can raise it again.
                meter = msgspec.structs.replace(meter, limit=min(meter.limit, blame.limit))
            full = refused(meter, blame.need, now_ms=now_ms)
            return joined_write(write, difference(applied(account, write), {meter.name: full}))
        case AccountClosed():
            until_ms = max(account["closed_until_ms"], blame.until_ms)
            return joined_write(
                write, Write({}, {"closed_until_ms": until_ms, "reason": blame.reason}, bound=account["v"])
            )
        case _:
            return write


def is_of_account(blame: Blame | None) -> bool:
    return isinstance(blame, MeterFull | AccountClosed)


def blamed_beside(blame: Blame | None, *, account: str, key: str, seen: Item | None) -> list[Action]:
    """What is written elsewhere. ``seen``: the target or the gate that ``blamed_key`` names, as it was read."""
    match blame:
        case KeyRefused():
            change = "SET #quarantine = :reason"
            where = key_key(account, key_number(key))
            # A key that was removed meanwhile cannot be quarantined, and need not be.
            return (
                [] if seen is None else [update(LEDGER, where, change, when=PRESENT, reason=blame.reason or "refused")]
            )
        case TypeBarred():
            told = {"until_ms": blame.until_ms, "reason": blame.reason}
            return [put(LEDGER, {**type_key(account, one)._asdict(), "type": one, **told}) for one in blame.types]
        case TargetFull():
            until_ms = max((seen or {}).get("until_ms", 0), blame.until_ms)
            item = {**target_key(blame.target)._asdict(), "until_ms": until_ms}
            item |= {"refusals": blame.refusals, "words": blame.words}
            was = (seen or {}).get("until_ms", -1)
            return [put(LEDGER, item, when=_OR_NEW, was=was)]
        case Paused():
            was = (seen or {}).get("until_ms", 0)
            sets = {"until_ms": max(was, blame.until_ms), "refusals": blame.refusals, "reason": blame.reason}
            change, values = setting(sets)
            return [update(LEDGER, GATE, change, when=_OR_NEW, was=was, **values)]
        case _:
            return []


def blamed_key(blame: Blame | None, *, account: str, key: str) -> Key | None:
    """What has to be read for ``blamed_beside``."""
    match blame:
        case KeyRefused():
            return key_key(account, key_number(key))
        case TargetFull():
            return target_key(blame.target)
        case Paused():
            return GATE
        case _:
            return None


def clear_blame(database: Database, *, account: Item, gate: Item | None, targets: Iterable[Item], now_ms: int) -> None:
    """Something was sent: what was refused in a row is over. Whatever of it is not written, the next one writes."""
    if gate is not None and gate.get("refusals") and gate["until_ms"] <= now_ms:
        when = "#until_ms = :was AND #refusals = :refused"
        seen = {"was": gate["until_ms"], "refused": gate["refusals"]}
        database.write(update(LEDGER, GATE, "SET #refusals = :none", when=when, none=0, **seen))
    if account["reason"] and account["closed_until_ms"] <= now_ms:
        when = "#closed_until_ms = :was"
        change = "SET #reason = :none ADD #v :one"
        was = account["closed_until_ms"]
        database.write(update(LEDGER, account_key(account["name"]), change, when=when, was=was, none="", one=1))
    for item in targets:
        if item["until_ms"] <= now_ms:
            database.write(delete(LEDGER, target_key(item["sk"]), when="#until_ms = :was", was=item["until_ms"]))


def _target(item: Item) -> TargetFull:
    return TargetFull(item["sk"], item["until_ms"], item["refusals"], item["words"])
