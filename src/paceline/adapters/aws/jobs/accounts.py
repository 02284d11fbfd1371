"""Accounts, their meters and their keys, on DynamoDB."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from paceline.adapters.aws.cache.row_cache import RowCache
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import ABSENT, PRESENT, Item, delete, joined, padded, put, setting, update
from paceline.adapters.aws.client.tables import LEDGER
from paceline.adapters.aws.jobs import meters
from paceline.adapters.aws.jobs.keys import account_key, key_key, secret_key, too_busy, tries, type_key, vault_key
from paceline.adapters.aws.jobs.parts import JobParts
from paceline.core.jobs import accounts as rules
from paceline.core.jobs.atlas import MeterName
from paceline.core.jobs.meters import NEVER_MS, Meter, Reading, read_balance, sync
from paceline.core.jobs.names import key_id, key_number
from paceline.core.jobs.pool import Account, Barred
from paceline.core.jobs.values import AccountPut, AccountSpec, AddKey, KeyAdded, SeenAccount, StoredKey

SLOTS_MAX = 100_000
PARTS_MAX = rules.KEYS_MAX + SLOTS_MAX


def put_account(store: JobParts, name: str, spec: AccountSpec, *, seen: SeenAccount | None = None) -> AccountPut:
    limits = rules.limits_of(spec)
    for _ in tries():
        found = store.db.get(LEDGER, account_key(name))
        done = rules.put_account(spec, None if found is None else _spec(found), seen)
        if done in ("revision_mismatch", "unchanged"):
            return done
        if found is None:
            if _create(store.db, name, spec, limits):
                store.change_counter.bump()
                return done
            continue
        its_meters = [meters.with_limit(meters.meter_of(found, meter), limit) for meter, limit in limits.items()]
        write = meters.difference(found, {meter.name: meter for meter in its_meters})
        if found["enabled"] != spec.enabled:
            write = meters.joined_write(write, meters.Write({}, {"enabled": spec.enabled}, bound=found["v"]))
        if store.db.write(meters.account_action(name, write)).won:
            store.change_counter.bump()
            return done
    raise too_busy()


def _spec(item: Item) -> AccountSpec:
    return AccountSpec(
        meters.meter_of(item, "concurrent").limit,
        meters.meter_of(item, "results").limit,
        meters.meter_of(item, "credits").limit,
        item["enabled"],
    )


def account(store: JobParts, name: str, *, now_ms: int) -> Account | None:
    return _account(store.db, name, now_ms=now_ms, until_ms=NEVER_MS)


def accounts(store: JobParts, *, now_ms: int, releases_until_ms: int) -> list[Account]:
    listed = store.db.page(LEDGER, "accounts", limit=rules.ACCOUNTS_MAX)
    until_ms = max(now_ms, releases_until_ms)
    found = store.db.threads.fan_out(
        lambda item: _account(store.db, item["sk"], now_ms=now_ms, until_ms=until_ms, seen=store.row_cache),
        listed,
    )
    return [one for one in found if one is not None]


def names(database: DynamoDatabase) -> list[str]:
    return [item["sk"] for item in database.page(LEDGER, "accounts", limit=rules.ACCOUNTS_MAX)]


def add_key(store: JobParts, add: AddKey, *, now_ms: int) -> KeyAdded:
    for _ in tries():
        owner = store.db.get(LEDGER, account_key(add.account))
        if owner is None:
            return KeyAdded("no_account")
        holder = _holder(store.db, add)
        if holder is not None:
            item = store.db.get(LEDGER, key_key(*holder))
            if item is not None:
                return KeyAdded("already", _stored_key(item))
            continue
        [number] = store.numbers.take("key", 1, block=1)
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
        # Three items in one transaction: the key, that this account has the secret, and which account has the secret.
        if store.db.transact([put(LEDGER, one, when=ABSENT) for one in (item, once, whose)]).won:
            _allow_types(store.db, add.account)
            store.change_counter.bump()
            return KeyAdded("created", _stored_key(item))
    raise too_busy()


def _holder(database: DynamoDatabase, add: AddKey) -> tuple[str, int] | None:
    """Return the account that has this secret, and the key's number; None if no account has it.

    Keys that older versions added have no item under their secret, so every account is searched.
    """
    found = database.get(LEDGER, secret_key(add.sealed))
    if found is not None:
        return found["account"], found["number"]
    accounts_found = {vault_key(name, add.sealed): name for name in names(database)}
    vaults = database.get_many(LEDGER, accounts_found)
    return next(((accounts_found[key], item["number"]) for key, item in vaults.items()), None)


def _allow_types(database: DynamoDatabase, account_name: str) -> None:
    """Remove the bars on types of measurements: the account's keys have changed, so RIPE is asked again."""
    pk = account_key(account_name).pk
    found = database.page(LEDGER, pk, limit=rules.TYPES_MAX, begins="type#")
    for item in found:
        database.write(delete(LEDGER, type_key(account_name, item["type"])))


def keys(store: JobParts, account_name: str) -> list[StoredKey]:
    pk = account_key(account_name).pk
    found = store.db.page(LEDGER, pk, limit=rules.KEYS_MAX, begins="key#")
    return [_stored_key(item) for item in found]


def key_item(database: DynamoDatabase, account_name: str, key_id: str) -> Item | None:
    number = key_number(key_id)
    return None if number < 0 else database.get(LEDGER, key_key(account_name, number))


def sealed_key(store: JobParts, account_name: str, key_id: str) -> str | None:
    if (sealed := store.row_cache.take_sealed(account_name, key_number(key_id))) is not None:
        return sealed
    found = key_item(store.db, account_name, key_id)
    return None if found is None else str(found["sealed"])


def change_key(store: JobParts, account_name: str, key_id: str, change: rules.KeyChange) -> StoredKey | None:
    fields = {"enabled": change.enabled, "quarantine": change.quarantine}
    text, values = setting({name: value for name, value in fields.items() if value is not None})
    key = key_key(account_name, max(key_number(key_id), 0))  # no key has the number 0
    written = store.db.write(update(LEDGER, key, text, when=PRESENT, **values))
    if not written.won or written.item is None:
        return None
    if change.allows_types:
        _allow_types(store.db, account_name)
        store.change_counter.bump()
    return _stored_key(written.item)


def remove_key(store: JobParts, account_name: str, key_id: str) -> bool:
    store.row_cache.take_sealed(account_name, key_number(key_id))
    found = key_item(store.db, account_name, key_id)
    if found is None:
        return False
    gone = delete(LEDGER, key_key(account_name, found["number"]), when=PRESENT)
    names_of_it = (vault_key(account_name, found["sealed"]), secret_key(found["sealed"]))
    return store.db.transact([gone, *(delete(LEDGER, key) for key in names_of_it)]).won


def sync_meters(store: JobParts, name: str, readings: Sequence[tuple[MeterName, Reading]], *, now_ms: int) -> bool:
    for _ in tries():
        found = store.db.get(LEDGER, account_key(name))
        if found is None:
            return False
        if not readings:
            return True
        found = meters.freshened(store.db, found, now_ms=now_ms)
        its_meters: dict[str, Meter] = {}
        for meter, reading in readings:
            if meter == "balance":
                continue
            before = meters.meter_of(found, meter)
            its_meters[before.name] = sync(its_meters.get(before.name, before), reading)
        write = meters.difference(found, its_meters)
        for meter, reading in readings:
            if meter == "balance":
                balance = read_balance(meters.balance_of(found), meters.meter_of(found, "credits"), reading)
                write = meters.balance_write(found, write, balance)
        if not write.sets or store.db.write(meters.account_action(name, write)).won:
            return True
    raise too_busy()


def slots_seen(store: JobParts, name: str, atlas_ids: Sequence[int]) -> int:
    if not atlas_ids:
        return 0
    found = store.db.page(LEDGER, account_key(name).pk, limit=SLOTS_MAX, begins="slot#")
    wanted = set(atlas_ids)
    return sum(atlas_id in wanted for item in found for atlas_id in item["atlas_ids"])


def _create(database: DynamoDatabase, name: str, spec: AccountSpec, limits: dict[MeterName, int]) -> bool:
    item = {
        **account_key(name)._asdict(),
        "name": name,
        "enabled": spec.enabled,
        "closed_until_ms": 0,
        "reason": "",
        "sends": 0,
        "v": 0,
        **meters.new_meters(limits),
    }
    listed = put(LEDGER, {"pk": "accounts", "sk": name})
    return database.transact([put(LEDGER, item, when=ABSENT), listed]).won


def _account(
    database: DynamoDatabase, name: str, *, now_ms: int, until_ms: int, seen: RowCache | None = None
) -> Account | None:
    """Read an account with one query: its item, keys, slots, barred types and releases are sorted in this order."""
    items = database.page(LEDGER, joined("account", name), limit=PARTS_MAX, last=f"until#{padded(until_ms)}")
    if not items or items[0]["sk"] != "-":
        return None
    item = items[0]
    its_meters = meters.with_expired(item, meters.releases_in(items), now_ms=now_ms)
    slots = [one for one in items if one["sk"].startswith("slot#")]
    keys_found = [one for one in items if one["sk"].startswith("key#")]
    if seen is not None:
        for one in keys_found:
            seen.note_sealed(name, one["number"], one["sealed"])
    back = rules.slots_back(
        ((one["expected_ms"], one["concurrent"]) for one in slots), now_ms=now_ms, until_ms=until_ms
    )
    return Account(
        id=name,
        concurrent=msgspec.structs.replace(its_meters[rules.meter_name(name, "concurrent")], releases=back),
        results=its_meters[rules.meter_name(name, "results")],
        credits=its_meters[rules.meter_name(name, "credits")],
        keys=tuple(
            rules.pool_key(one["number"], enabled=one["enabled"], quarantine=one["quarantine"])
            for one in keys_found[: rules.KEYS_MAX]
        ),
        enabled=item["enabled"],
        closed_until_ms=item["closed_until_ms"],
        reason=item["reason"],
        sends=item["sends"],
        balance=meters.balance_of(item),
        barred=tuple(
            Barred(one["type"], one["until_ms"], one["reason"]) for one in items if one["sk"].startswith("type#")
        ),
    )


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
