"""Accounts with their meters, and the keys that spend them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from paceline.adapters.sqlite import ledger
from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.entries import integers
from paceline.core.atlas import MeterName
from paceline.core.meters import (
    NEVER_MS,
    CreditBalance,
    Meter,
    Reading,
    Release,
    Window,
    read_balance,
    refuse_balance,
    refused,
    sync,
)
from paceline.core.pool import Account, Barred, Key
from paceline.ports.job_values import (
    AccountClosed,
    AccountPut,
    AccountSpec,
    AddKey,
    Blame,
    KeyAdded,
    KeyRefused,
    MeterFull,
    Paused,
    SeenAccount,
    StoredKey,
    TargetFull,
    TypeBarred,
)

WINDOWS: dict[MeterName, Window] = {"concurrent": "until_released", "results": "sliding", "credits": "sliding"}
ACCOUNTS_MAX = 1_000
KEYS_MAX = 100
TYPES_MAX = 100
_ACCOUNT = """SELECT id, name, concurrent, results, credits, enabled, closed_until_ms, reason, sends, balance_told,
                     balance_free, balance_ms FROM account"""
_KEY = """SELECT "key".id, account.name, last_four, label, "key".enabled, quarantine, created_ms
          FROM "key" JOIN account ON account.id = "key".account"""


def put(db: Connection, name: str, spec: AccountSpec, *, seen: SeenAccount | None) -> AccountPut:
    row = db.execute("SELECT id, enabled FROM account WHERE name = ?", (name,)).fetchone()
    if seen is not None and seen.spec != (None if row is None else _spec(db, row[0])):
        return "revision_mismatch"
    limits: dict[MeterName, int] = {
        "concurrent": spec.concurrent,
        "results": spec.daily_results,
        "credits": spec.daily_credits,
    }
    before = db.total_changes()
    meters = [
        ledger.ensure_meter(db, f"account/{name}/{meter}", window=WINDOWS[meter], limit=limit)
        for meter, limit in limits.items()
    ]
    if row is None:
        db.execute(
            "INSERT INTO account (name, concurrent, results, credits, enabled) VALUES (?, ?, ?, ?, ?)",
            (name, *meters, int(spec.enabled)),
        )
        return "created"
    if row[1] != spec.enabled:
        db.execute("UPDATE account SET enabled = ? WHERE id = ?", (int(spec.enabled), row[0]))
    return "replaced" if db.total_changes() != before else "unchanged"


def _spec(db: Connection, number: int) -> AccountSpec:
    row = db.execute(
        """SELECT concurrent."limit", results."limit", credits."limit", account.enabled FROM account
           JOIN meter AS concurrent ON concurrent.id = account.concurrent
           JOIN meter AS results ON results.id = account.results
           JOIN meter AS credits ON credits.id = account.credits WHERE account.id = ?""",
        (number,),
    ).fetchone()
    assert row is not None
    concurrent, results, spend, enabled = row
    return AccountSpec(concurrent, results, spend, bool(enabled))


def account(db: Connection, name: str, *, now_ms: int) -> Account | None:
    row = db.execute(f"{_ACCOUNT} WHERE name = ?", (name,)).fetchone()
    return _account(db, row, now_ms=now_ms, releases_until_ms=NEVER_MS) if row else None


def accounts(db: Connection, *, now_ms: int, releases_until_ms: int) -> list[Account]:
    rows = db.execute(f"{_ACCOUNT} ORDER BY name LIMIT ?", (ACCOUNTS_MAX,)).fetchall()
    return [_account(db, row, now_ms=now_ms, releases_until_ms=max(now_ms, releases_until_ms)) for row in rows]


def add_key(db: Connection, add: AddKey, *, now_ms: int) -> KeyAdded:
    number = number_of(db, add.account)
    if number is None:
        return KeyAdded("no_account")
    # Asked for first: an insert that comes to nothing would take a number, and so a name, all the same.
    there = db.execute(
        f'{_KEY} WHERE sealed = ? ORDER BY "key".account <> ?, "key".id LIMIT 1', (add.sealed, number)
    ).fetchone()
    if there is not None:
        return KeyAdded("already", _key(there))
    db.execute("DELETE FROM account_type WHERE account = ?", (number,))
    made = db.execute(
        """INSERT INTO "key" (account, sealed, last_four, label, enabled, created_ms) VALUES (?, ?, ?, ?, 1, ?)
           RETURNING id""",
        (number, add.sealed, add.last_four, add.label, now_ms),
    ).get
    return KeyAdded("created", key(db, add.account, key_id(made)))


def key(db: Connection, account_name: str, key_name: str) -> StoredKey | None:
    row = db.execute(f'{_KEY} WHERE account.name = ? AND "key".id = ?', (account_name, key_number(key_name))).fetchone()
    return _key(row) if row else None


def keys(db: Connection, account_name: str) -> list[StoredKey]:
    rows = db.execute(f'{_KEY} WHERE account.name = ? ORDER BY "key".id LIMIT ?', (account_name, KEYS_MAX))
    return [_key(row) for row in rows]


def sealed_key(db: Connection, account_name: str, key_name: str) -> str | None:
    row = db.execute(
        """SELECT sealed FROM "key" JOIN account ON account.id = "key".account
           WHERE account.name = ? AND "key".id = ?""",
        (account_name, key_number(key_name)),
    ).fetchone()
    return row[0] if row else None


def enable_key(db: Connection, account_name: str, key_name: str, *, enabled: bool) -> StoredKey | None:
    db.execute(
        """UPDATE "key" SET enabled = ?1, quarantine = CASE WHEN ?1 THEN '' ELSE quarantine END
           WHERE id = ?2 AND account = (SELECT id FROM account WHERE name = ?3)""",
        (int(enabled), key_number(key_name), account_name),
    )
    if enabled:
        db.execute("DELETE FROM account_type WHERE account = (SELECT id FROM account WHERE name = ?)", (account_name,))
    return key(db, account_name, key_name)


def remove_key(db: Connection, account_name: str, key_name: str) -> bool:
    db.execute(
        'DELETE FROM "key" WHERE id = ? AND account = (SELECT id FROM account WHERE name = ?)',
        (key_number(key_name), account_name),
    )
    return db.changes() == 1


def quarantine_key(db: Connection, account_name: str, key_name: str, *, reason: str) -> bool:
    db.execute(
        """UPDATE "key" SET quarantine = ? WHERE id = ? AND account = (SELECT id FROM account WHERE name = ?)""",
        (reason or "refused", key_number(key_name), account_name),
    )
    return db.changes() == 1


def sync_meters(db: Connection, name: str, readings: Sequence[tuple[MeterName, Reading]], *, now_ms: int) -> bool:
    meters = meters_of(db, name)
    if meters is None:
        return False
    for meter, reading in readings:
        if meter == "balance":
            spend = ledger.fresh(db, meters["credits"], now_ms=now_ms)
            _write_balance(db, name, read_balance(_balance(db, name), spend, reading))
            continue
        number = meters[meter]
        ledger.set_foreign(db, number, sync(ledger.fresh(db, number, now_ms=now_ms), reading))
    return True


def slots_seen(db: Connection, name: str, atlas_ids: Sequence[int]) -> int:
    seen = db.execute(
        """SELECT count(*) FROM atlas_measurement JOIN measurement ON measurement.id = atlas_measurement.measurement
           WHERE atlas_id IN carray(?) AND slot = 1 AND account = (SELECT id FROM account WHERE name = ?)""",
        (integers(atlas_ids), name),
    ).get
    return int(seen)


def blame(db: Connection, item: Blame, *, account_number: int, key: int, now_ms: int) -> None:
    """What a refusal means for others than the measurement. Its hold was refunded."""
    match item:
        case MeterFull():
            _fill(db, item, account_number, now_ms)
        case KeyRefused():
            db.execute('UPDATE "key" SET quarantine = ? WHERE id = ?', (item.reason or "refused", key))
        case AccountClosed():
            db.execute(
                "UPDATE account SET closed_until_ms = max(closed_until_ms, ?), reason = ? WHERE id = ?",
                (item.until_ms, item.reason, account_number),
            )
        case TypeBarred():
            db.executemany(
                """INSERT INTO account_type (account, type, until_ms, reason) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (account, type) DO UPDATE SET until_ms = ?3, reason = ?4""",
                [(account_number, one, item.until_ms, item.reason) for one in item.types],
            )
        case TargetFull():
            db.execute(
                """INSERT INTO target (name, until_ms, refusals, words) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (name) DO UPDATE SET until_ms = max(until_ms, ?2), refusals = ?3, words = ?4""",
                item,
            )
        case Paused():
            db.execute("UPDATE atlas SET until_ms = max(until_ms, ?), refusals = ?, reason = ?", item)


def clear_blame(db: Connection, *, account_number: int, targets: frozenset[str], now_ms: int) -> None:
    """Something was sent: what was refused in a row is over."""
    db.execute("UPDATE atlas SET refusals = 0 WHERE refusals > 0 AND until_ms <= ?", (now_ms,))
    db.execute(
        "UPDATE account SET reason = '' WHERE id = ? AND reason <> '' AND closed_until_ms <= ?",
        (account_number, now_ms),
    )
    for target in targets:
        db.execute("DELETE FROM target WHERE name = ? AND until_ms <= ?", (target, now_ms))


def gates(db: Connection, targets: Sequence[str]) -> tuple[Paused | None, list[TargetFull]]:
    row = db.execute("SELECT until_ms, refusals, reason FROM atlas WHERE until_ms > 0").fetchone()
    found = []
    for target in targets:
        full = db.execute("SELECT name, until_ms, refusals, words FROM target WHERE name = ?", (target,)).fetchone()
        found += [TargetFull(*full)] if full else []
    return (Paused(*row) if row else None), found


def site(db: Connection, proposed: str) -> str:
    return str(db.execute("UPDATE atlas SET site = coalesce(site, ?) RETURNING site", (proposed,)).get)


def number_of(db: Connection, name: str) -> int | None:
    row = db.execute("SELECT id FROM account WHERE name = ?", (name,)).fetchone()
    return row[0] if row else None


def meters_of(db: Connection, name: str) -> dict[MeterName, int] | None:
    """The numbers of an account's meters."""
    row = db.execute("SELECT concurrent, results, credits FROM account WHERE name = ?", (name,)).fetchone()
    return dict(zip(WINDOWS, row, strict=True)) if row else None


def key_id(number: int) -> str:
    return f"k{number}"


def key_number(name: str) -> int:
    """-1, which no key has, for what is not a key's id."""
    digits = name.removeprefix("k")
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 19 and name == f"k{digits}" else -1


def _fill(db: Connection, item: MeterFull, account_number: int, now_ms: int) -> None:
    name = db.execute("SELECT name FROM account WHERE id = ?", (account_number,)).get
    meters = meters_of(db, name)
    assert meters is not None
    if item.meter == "balance":
        _write_balance(db, name, refuse_balance(_balance(db, name), item.need, now_ms=now_ms))
        return
    number = meters[item.meter]
    if item.limit is not None:
        # RIPE knows better how much it allows; the operator can raise it again.
        db.execute('UPDATE meter SET "limit" = min("limit", ?) WHERE id = ?', (item.limit, number))
    meter = ledger.fresh(db, number, now_ms=now_ms)
    ledger.set_foreign(db, number, refused(meter, item.need, now_ms=now_ms))


def move_balance(db: Connection, account_number: int, amount: int) -> None:
    """What was held comes back, or is taken; one that is not known stays so."""
    db.execute("UPDATE account SET balance_free = balance_free + ? WHERE id = ?", (amount, account_number))


def balance_free(db: Connection, account_number: int) -> int | None:
    free: int | None = db.execute("SELECT balance_free FROM account WHERE id = ?", (account_number,)).get
    return free


def _balance(db: Connection, name: str) -> CreditBalance | None:
    row = db.execute("SELECT balance_told, balance_free, balance_ms FROM account WHERE name = ?", (name,)).fetchone()
    return _balance_of(*row)


def _balance_of(told: int | None, free: int | None, read_ms: int) -> CreditBalance | None:
    return None if free is None else CreditBalance(free, told, read_ms)


def _write_balance(db: Connection, name: str, balance: CreditBalance) -> None:
    db.execute("UPDATE account SET balance_free = ?, balance_told = ?, balance_ms = ? WHERE name = ?", (*balance, name))


def _account(db: Connection, row: tuple[Any, ...], *, now_ms: int, releases_until_ms: int) -> Account:
    number, name, concurrent, results, spend, enabled, closed_until_ms, reason, sends, *balance = row
    numbers: dict[MeterName, int] = {"concurrent": concurrent, "results": results, "credits": spend}
    views = {
        meter: ledger.view(db, number, f"account/{name}/{meter}", now_ms=now_ms, releases_until_ms=releases_until_ms)
        for meter, number in numbers.items()
    }
    found = db.execute(
        'SELECT id, enabled, quarantine FROM "key" WHERE account = ? ORDER BY id LIMIT ?', (number, KEYS_MAX)
    )
    return Account(
        id=name,
        concurrent=_with_releases(db, views["concurrent"], number, now_ms=now_ms, until_ms=releases_until_ms),
        results=views["results"],
        credits=views["credits"],
        keys=tuple(_pool_key(*one) for one in found),
        enabled=bool(enabled),
        closed_until_ms=closed_until_ms,
        reason=reason,
        sends=sends,
        balance=_balance_of(*balance),
        barred=tuple(
            Barred(*one)
            for one in db.execute(
                "SELECT type, until_ms, reason FROM account_type WHERE account = ? ORDER BY type LIMIT ?",
                (number, TYPES_MAX),
            )
        ),
    )


def _with_releases(db: Connection, slots: Meter, number: int, *, now_ms: int, until_ms: int) -> Meter:
    """With when its slots are expected back. One that is overdue may be back any moment."""
    rows = db.execute(
        """SELECT max(expected_ms, ?1), sum(concurrent) FROM measurement
           WHERE slot = 1 AND account = ?2 AND expected_ms <= ?3 GROUP BY 1 ORDER BY 1""",
        (now_ms, number, until_ms),
    )
    return msgspec.structs.replace(slots, releases=tuple(Release(*row) for row in rows))


def _pool_key(number: int, enabled: int, quarantine: str) -> Key:
    if not enabled:
        return Key(key_id(number), "disabled")
    return Key(key_id(number), "quarantined", quarantine) if quarantine else Key(key_id(number))


def _key(row: tuple[Any, ...]) -> StoredKey:
    number, account_name, last_four, label, enabled, quarantine, created_ms = row
    return StoredKey(key_id(number), account_name, last_four, label, bool(enabled), quarantine, created_ms)
