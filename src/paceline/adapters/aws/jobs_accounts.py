"""Accounts with their meters, and the keys that spend them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import msgspec

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import ABSENT, PRESENT, Item, delete, joined, padded, put, setting, update
from paceline.adapters.aws.jobs_keys import (
    account_key,
    key_key,
    secret_key,
    too_busy,
    tries,
    type_key,
    vault_key,
)
from paceline.adapters.aws.jobs_meters import (
    Write,
    account_action,
    balance_of,
    balance_write,
    difference,
    freshened,
    joined_write,
    meter_of,
    new_meters,
    releases_in,
    with_expired,
    with_limit,
)
from paceline.adapters.aws.jobs_seen import Seen
from paceline.adapters.aws.numbers import Numbers
from paceline.adapters.aws.tables import LEDGER
from paceline.core.atlas import MeterName
from paceline.core.meters import NEVER_MS, Meter, Reading, Release, read_balance, sync
from paceline.core.pool import Account, Barred
from paceline.core.pool import Key as PoolKey
from paceline.ports.job_values import AccountPut, AccountSpec, AddKey, KeyAdded, SeenAccount, StoredKey

ACCOUNTS_MAX = 1_000
KEYS_MAX = 100
TYPES_MAX = 100
SLOTS_MAX = 100_000
PARTS_MAX = KEYS_MAX + SLOTS_MAX


def put_account(database: Database, name: str, spec: AccountSpec, *, seen: SeenAccount | None) -> AccountPut:
    limits: dict[MeterName, int] = {
        "concurrent": spec.concurrent,
        "results": spec.daily_results,
        "credits": spec.daily_credits,
    }
    for _ in tries():
        found = database.get(LEDGER, account_key(name))
        if seen is not None and seen.spec != (None if found is None else _spec(found)):
            return "revision_mismatch"
        if found is None:
            if _create(database, name, spec, limits):
                return "created"
            continue
        meters = [with_limit(meter_of(found, meter), limit) for meter, limit in limits.items()]
        write = difference(found, {meter.name: meter for meter in meters})
        if found["enabled"] != spec.enabled:
            write = joined_write(write, Write({}, {"enabled": spec.enabled}, bound=found["v"]))
        if not write.sets:
            return "unchanged"
        if database.write(account_action(name, write)).won:
            return "replaced"
    raise too_busy()


def _spec(item: Item) -> AccountSpec:
    return AccountSpec(
        meter_of(item, "concurrent").limit,
        meter_of(item, "results").limit,
        meter_of(item, "credits").limit,
        item["enabled"],
    )


def account(database: Database, name: str, *, now_ms: int) -> Account | None:
    return _account(database, name, now_ms=now_ms, until_ms=NEVER_MS)


def accounts(database: Database, seen: Seen, *, now_ms: int, releases_until_ms: int) -> list[Account]:
    listed = database.query(LEDGER, "#pk = :pk", limit=ACCOUNTS_MAX, pk="accounts")
    until_ms = max(now_ms, releases_until_ms)
    found = database.threads.fan_out(
        lambda item: _account(database, item["sk"], now_ms=now_ms, until_ms=until_ms, seen=seen), listed
    )
    return [one for one in found if one is not None]


def names(database: Database) -> list[str]:
    return [item["sk"] for item in database.query(LEDGER, "#pk = :pk", limit=ACCOUNTS_MAX, pk="accounts")]


def add_key(database: Database, numbers: Numbers, add: AddKey, *, now_ms: int) -> KeyAdded:
    for _ in tries():
        owner = database.get(LEDGER, account_key(add.account))
        if owner is None:
            return KeyAdded("no_account")
        holder = _holder(database, add)
        if holder is not None:
            item = database.get(LEDGER, key_key(*holder))
            if item is not None:
                return KeyAdded("already", _stored_key(item))
            continue
        [number] = numbers.take("key", 1, block=1)
        item = {
            **key_key(add.account, number)._asdict(),
            "number": number,
            "account": add.account,
            "sealed": add.sealed,
            "last_four": add.last_four,
            "label": add.label,
            "enabled": True,
            "quarantine": "",
            "created_ms": now_ms,
        }
        once = {**vault_key(add.account, add.sealed)._asdict(), "number": number}
        whose = {**secret_key(add.sealed)._asdict(), "account": add.account, "number": number}
        if database.transact([put(LEDGER, one, when=ABSENT) for one in (item, once, whose)]).won:
            _allow_types(database, add.account)
            return KeyAdded("created", _stored_key(item))
    raise too_busy()


def _holder(database: Database, add: AddKey) -> tuple[str, int] | None:
    """The account that has this secret, and the key's number. Keys that were added by older versions name no holder."""
    found = database.get(LEDGER, secret_key(add.sealed))
    if found is not None:
        return found["account"], found["number"]
    accounts_found = {vault_key(name, add.sealed): name for name in names(database)}
    vaults = database.get_many(LEDGER, accounts_found)
    return next(((accounts_found[key], item["number"]) for key, item in vaults.items()), None)


def _allow_types(database: Database, account_name: str) -> None:
    """An operator changed its keys: RIPE is asked again whether the account may make what it might not."""
    pk = account_key(account_name).pk
    found = database.query(LEDGER, "#pk = :pk AND begins_with(#sk, :kind)", limit=TYPES_MAX, pk=pk, kind="type#")
    for item in found:
        database.write(delete(LEDGER, type_key(account_name, item["type"])))


def keys(database: Database, account_name: str) -> list[StoredKey]:
    pk = account_key(account_name).pk
    found = database.query(LEDGER, "#pk = :pk AND begins_with(#sk, :kind)", limit=KEYS_MAX, pk=pk, kind="key#")
    return [_stored_key(item) for item in found]


def key_item(database: Database, account_name: str, key_id: str) -> Item | None:
    number = key_number(key_id)
    return None if number < 0 else database.get(LEDGER, key_key(account_name, number))


def sealed_key(database: Database, seen: Seen, account_name: str, key_id: str) -> str | None:
    if (sealed := seen.take_sealed(account_name, key_number(key_id))) is not None:
        return sealed
    found = key_item(database, account_name, key_id)
    return None if found is None else str(found["sealed"])


def change_key(database: Database, account_name: str, key_id: str, **changes: bool | str) -> Item | None:
    """The key as it is then; None: there is no such key."""
    number = key_number(key_id)
    if number < 0:
        return None
    change, values = setting(changes)
    written = database.write(update(LEDGER, key_key(account_name, number), change, when=PRESENT, **values))
    return written.item if written.won else None


def enable_key(database: Database, account_name: str, key_id: str, *, enabled: bool) -> StoredKey | None:
    changes: dict[str, bool | str] = {"enabled": True, "quarantine": ""} if enabled else {"enabled": False}
    found = change_key(database, account_name, key_id, **changes)
    if found is not None and enabled:
        _allow_types(database, account_name)
    return None if found is None else _stored_key(found)


def remove_key(database: Database, account_name: str, key_id: str) -> bool:
    found = key_item(database, account_name, key_id)
    if found is None:
        return False
    gone = delete(LEDGER, key_key(account_name, found["number"]), when=PRESENT)
    names_of_it = (vault_key(account_name, found["sealed"]), secret_key(found["sealed"]))
    return database.transact([gone, *(delete(LEDGER, key) for key in names_of_it)]).won


def sync_meters(database: Database, name: str, readings: Sequence[tuple[MeterName, Reading]], *, now_ms: int) -> bool:
    for _ in tries():
        found = database.get(LEDGER, account_key(name))
        if found is None:
            return False
        if not readings:
            return True
        found = freshened(database, found, now_ms=now_ms)
        meters: dict[str, Meter] = {}
        for meter, reading in readings:
            if meter == "balance":
                continue
            before = meter_of(found, meter)
            meters[before.name] = sync(meters.get(before.name, before), reading)
        write = difference(found, meters)
        for meter, reading in readings:
            if meter == "balance":
                balance = read_balance(balance_of(found), meter_of(found, "credits"), reading)
                write = balance_write(found, write, balance)
        if not write.sets or database.write(account_action(name, write)).won:
            return True
    raise too_busy()


def slots_seen(database: Database, name: str, atlas_ids: Sequence[int]) -> int:
    if not atlas_ids:
        return 0
    found = database.query(
        LEDGER, "#pk = :pk AND begins_with(#sk, :kind)", limit=SLOTS_MAX, pk=account_key(name).pk, kind="slot#"
    )
    wanted = set(atlas_ids)
    return sum(atlas_id in wanted for item in found for atlas_id in item["atlas_ids"])


def key_id(number: int) -> str:
    return f"k{number}"


def key_number(name: str) -> int:
    """-1, which no key has, for what is not a key's id."""
    digits = name.removeprefix("k")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 and name == f"k{digits}" else -1


def _create(database: Database, name: str, spec: AccountSpec, limits: dict[MeterName, int]) -> bool:
    item = {
        **account_key(name)._asdict(),
        "name": name,
        "enabled": spec.enabled,
        "closed_until_ms": 0,
        "reason": "",
        "sends": 0,
        "v": 0,
        **new_meters(limits),
    }
    listed = put(LEDGER, {"pk": "accounts", "sk": name})
    return database.transact([put(LEDGER, item, when=ABSENT), listed]).won


def _account(database: Database, name: str, *, now_ms: int, until_ms: int, seen: Seen | None = None) -> Account | None:
    """Everything of an account is in one partition, in an order in which one query has what is asked for."""
    items = database.query(
        LEDGER, "#pk = :pk AND #sk <= :last", limit=PARTS_MAX,
        pk=joined("account", name), last=f"until#{padded(until_ms)}",
    )  # fmt: skip
    if not items or items[0]["sk"] != "-":
        return None
    item = items[0]
    meters = with_expired(item, releases_in(items), now_ms=now_ms)
    slots = [one for one in items if one["sk"].startswith("slot#")]
    keys_found = [one for one in items if one["sk"].startswith("key#")]
    if seen is not None:
        for one in keys_found:
            seen.note_sealed(name, one["number"], one["sealed"])
    back = _expected_back(slots, now_ms=now_ms, until_ms=until_ms)
    return Account(
        id=name,
        concurrent=msgspec.structs.replace(meters[f"account/{name}/concurrent"], releases=back),
        results=meters[f"account/{name}/results"],
        credits=meters[f"account/{name}/credits"],
        keys=tuple(_pool_key(one) for one in keys_found)[:KEYS_MAX],
        enabled=item["enabled"],
        closed_until_ms=item["closed_until_ms"],
        reason=item["reason"],
        sends=item["sends"],
        balance=balance_of(item),
        barred=tuple(
            Barred(one["type"], one["until_ms"], one["reason"]) for one in items if one["sk"].startswith("type#")
        ),
    )


def _expected_back(slots: Iterable[Item], *, now_ms: int, until_ms: int) -> tuple[Release, ...]:
    """When its slots are expected back. One that is overdue may be back any moment."""
    found: Counter[int] = Counter()
    for one in slots:
        if one["expected_ms"] <= until_ms:
            found[max(one["expected_ms"], now_ms)] += one["concurrent"]
    return tuple(Release(*one) for one in sorted(found.items()))


def _pool_key(item: Item) -> PoolKey:
    name = key_id(item["number"])
    if not item["enabled"]:
        return PoolKey(name, "disabled")
    return PoolKey(name, "quarantined", item["quarantine"]) if item["quarantine"] else PoolKey(name)


def _stored_key(item: Item) -> StoredKey:
    return StoredKey(
        key_id(item["number"]),
        item["account"],
        item["last_four"],
        item["label"],
        item["enabled"],
        item["quarantine"],
        item["created_ms"],
    )
