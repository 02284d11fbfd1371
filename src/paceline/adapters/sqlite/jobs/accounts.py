"""Accounts, their meters and their keys, on SQLite."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, assert_never

import msgspec

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.jobs import ledger
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.core.jobs import refusals as rules
from paceline.core.jobs import values
from paceline.core.jobs.accounts import (
    ACCOUNTS_MAX,
    KEYS_MAX,
    TYPES_MAX,
    WINDOWS,
    KeyChange,
    limits_of,
    meter_name,
    pool_key,
    put_account,
)
from paceline.core.jobs.atlas import MeterName
from paceline.core.jobs.meters import NEVER_MS, CreditBalance, Meter, MeterRelease, Reading, read_balance, sync
from paceline.core.jobs.names import key_id, key_number
from paceline.core.jobs.pool import Account, Barred

_ACCOUNT = """SELECT id, name, concurrent, results, credits, enabled, closed_until_ms, reason, sends, balance_told,
                     balance_free, balance_ms FROM account"""
_KEY = """SELECT "key".id, account.name, last_four, label, "key".enabled, quarantine, created_ms
          FROM "key" JOIN account ON account.id = "key".account"""


def put(
    db: Connection, name: str, spec: values.AccountSpec, *, seen: values.SeenAccount | None = None
) -> values.AccountPut:
    row = db.execute("SELECT id FROM account WHERE name = ?", (name,)).fetchone()
    done = put_account(spec, None if row is None else _spec(db, row[0]), seen)
    if done not in ("created", "replaced"):
        return done
    meters = [
        ledger.ensure_meter(db, meter_name(name, meter), window=WINDOWS[meter], limit=limit)
        for meter, limit in limits_of(spec).items()
    ]
    if row is None:
        db.execute(
            "INSERT INTO account (name, concurrent, results, credits, enabled) VALUES (?, ?, ?, ?, ?)",
            (name, *meters, int(spec.enabled)),
        )
    else:
        db.execute("UPDATE account SET enabled = ? WHERE id = ?", (int(spec.enabled), row[0]))
    return done


def _spec(db: Connection, number: int) -> values.AccountSpec:
    row = db.execute(
        """SELECT concurrent."limit", results."limit", credits."limit", account.enabled FROM account
           JOIN meter AS concurrent ON concurrent.id = account.concurrent
           JOIN meter AS results ON results.id = account.results
           JOIN meter AS credits ON credits.id = account.credits WHERE account.id = ?""",
        (number,),
    ).fetchone()
    assert row is not None
    concurrent, results, spend, enabled = row
    return values.AccountSpec(concurrent, results, spend, bool(enabled))


def account(db: Connection, name: str, *, now_ms: int) -> Account | None:
    row = db.execute(f"{_ACCOUNT} WHERE name = ?", (name,)).fetchone()
    return _account(db, row, now_ms=now_ms, releases_until_ms=NEVER_MS) if row else None


def accounts(db: Connection, *, now_ms: int, releases_until_ms: int) -> list[Account]:
    rows = db.execute(f"{_ACCOUNT} ORDER BY name LIMIT ?", (ACCOUNTS_MAX,)).fetchall()
    return [_account(db, row, now_ms=now_ms, releases_until_ms=max(now_ms, releases_until_ms)) for row in rows]


def add_key(db: Connection, add: values.AddKey, *, now_ms: int) -> values.KeyAdded:
    number = number_of(db, add.account)
    if number is None:
        return values.KeyAdded("no_account")
    # Looked up first: an insert that fails would use up a number, and so a name.
    there = db.execute(
        f'{_KEY} WHERE sealed = ? ORDER BY "key".account <> ?, "key".id LIMIT 1', (add.sealed, number)
    ).fetchone()
    if there is not None:
        return values.KeyAdded("already", _key(there))
    db.execute("DELETE FROM account_type WHERE account = ?", (number,))
    made = db.execute(
        """INSERT INTO "key" (account, sealed, last_four, label, enabled, created_ms) VALUES (?, ?, ?, ?, 1, ?)
           RETURNING id""",
        (number, add.sealed, add.last_four, add.label, now_ms),
    ).get
    return values.KeyAdded("created", key(db, add.account, key_id(made)))


def key(db: Connection, account_name: str, key_name: str) -> values.StoredKey | None:
    row = db.execute(f'{_KEY} WHERE account.name = ? AND "key".id = ?', (account_name, key_number(key_name))).fetchone()
    return _key(row) if row else None


def keys(db: Connection, account_name: str) -> list[values.StoredKey]:
    rows = db.execute(f'{_KEY} WHERE account.name = ? ORDER BY "key".id LIMIT ?', (account_name, KEYS_MAX))
    return [_key(row) for row in rows]


def sealed_key(db: Connection, account_name: str, key_name: str) -> str | None:
    row = db.execute(
        """SELECT sealed FROM "key" JOIN account ON account.id = "key".account
           WHERE account.name = ? AND "key".id = ?""",
        (account_name, key_number(key_name)),
    ).fetchone()
    return row[0] if row else None


def change_key(db: Connection, account_name: str, key_name: str, change: KeyChange) -> values.StoredKey | None:
    db.execute(
        """UPDATE "key" SET enabled = coalesce(?, enabled), quarantine = coalesce(?, quarantine)
           WHERE id = ? AND account = (SELECT id FROM account WHERE name = ?)""",
        (change.enabled, change.quarantine, key_number(key_name), account_name),
    )
    if change.allows_types:
        db.execute("DELETE FROM account_type WHERE account = (SELECT id FROM account WHERE name = ?)", (account_name,))
    return key(db, account_name, key_name)


def remove_key(db: Connection, account_name: str, key_name: str) -> bool:
    db.execute(
        'DELETE FROM "key" WHERE id = ? AND account = (SELECT id FROM account WHERE name = ?)',
        (key_number(key_name), account_name),
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


def apply_effect(db: Connection, effect: values.RefusalEffect, *, account_number: int, key: int, now_ms: int) -> None:
    """Write the effect of a refusal on other things than the measurement, by the rules of ``core.jobs.refusals``."""
    match effect:
        case values.MeterFull():
            _fill(db, effect, account_number, now_ms)
        case values.KeyRefused():
            db.execute('UPDATE "key" SET quarantine = ? WHERE id = ?', (rules.quarantine_reason(effect.reason), key))
        case values.AccountClosed():
            known_ms, _ = _closure(db, account_number)
            db.execute(
                "UPDATE account SET closed_until_ms = ?, reason = ? WHERE id = ?",
                (rules.closed_until(known_ms, effect), effect.reason, account_number),
            )
        case values.TypeBarred():
            db.executemany(
                """INSERT INTO account_type (account, type, until_ms, reason) VALUES (?1, ?2, ?3, ?4)
                   ON CONFLICT (account, type) DO UPDATE SET until_ms = ?3, reason = ?4""",
                [(account_number, one, effect.until_ms, effect.reason) for one in effect.types],
            )
        case values.TargetFull():
            db.execute(
                "INSERT OR REPLACE INTO target (name, until_ms, refusals, words) VALUES (?, ?, ?, ?)",
                rules.later_target(_target(db, effect.target), effect),
            )
        case values.Paused():
            db.execute(
                "UPDATE atlas SET until_ms = ?, refusals = ?, reason = ?", rules.later_pause(_paused(db), effect)
            )
        case _:
            assert_never(effect)


def clear_effects(db: Connection, *, account_number: int, targets: frozenset[str], now_ms: int) -> None:
    """Remove effects of earlier refusals, because RIPE accepted a send (``core.jobs.refusals``)."""
    if rules.clears_pause(_paused(db), now_ms=now_ms):
        db.execute("UPDATE atlas SET refusals = 0")
    closed_until_ms, reason = _closure(db, account_number)
    if rules.clears_account(reason, closed_until_ms, now_ms=now_ms):
        db.execute("UPDATE account SET reason = '' WHERE id = ?", (account_number,))
    for name in targets:
        known = _target(db, name)
        if known is not None and rules.clears_target(known, now_ms=now_ms):
            db.execute("DELETE FROM target WHERE name = ?", (name,))


def _paused(db: Connection) -> values.Paused | None:
    row = db.execute("SELECT until_ms, refusals, reason FROM atlas WHERE until_ms > 0").fetchone()
    return values.Paused(*row) if row else None


def _target(db: Connection, name: str) -> values.TargetFull | None:
    row = db.execute("SELECT name, until_ms, refusals, words FROM target WHERE name = ?", (name,)).fetchone()
    return values.TargetFull(*row) if row else None


def _closure(db: Connection, account_number: int) -> tuple[int, str]:
    """Return until when the account is or was closed, and why."""
    row: tuple[int, str] | None = db.execute(
        "SELECT closed_until_ms, reason FROM account WHERE id = ?", (account_number,)
    ).fetchone()
    assert row is not None
    return row


def gates(db: Connection, targets: Sequence[str]) -> tuple[values.Paused | None, list[values.TargetFull]]:
    found = [_target(db, target) for target in targets]
    return _paused(db), [one for one in found if one is not None]


def site(db: Connection, proposed: str) -> str:
    return str(db.execute("UPDATE atlas SET site = coalesce(site, ?) RETURNING site", (proposed,)).get)


def number_of(db: Connection, name: str) -> int | None:
    row = db.execute("SELECT id FROM account WHERE name = ?", (name,)).fetchone()
    return row[0] if row else None


def meters_of(db: Connection, name: str) -> dict[MeterName, int] | None:
    """Return the numbers of an account's meters; None if there is no such account."""
    row = db.execute("SELECT concurrent, results, credits FROM account WHERE name = ?", (name,)).fetchone()
    return dict(zip(WINDOWS, row, strict=True)) if row else None


def _fill(db: Connection, item: values.MeterFull, account_number: int, now_ms: int) -> None:
    name = db.execute("SELECT name FROM account WHERE id = ?", (account_number,)).get
    meters = meters_of(db, name)
    assert meters is not None
    if item.meter == "balance":
        _write_balance(db, name, rules.too_low_balance(_balance(db, name), item, now_ms=now_ms))
        return
    number = meters[item.meter]
    meter = rules.full_meter(ledger.fresh(db, number, now_ms=now_ms), item, now_ms=now_ms)
    ledger.set_limit(db, number, meter.limit)
    ledger.set_foreign(db, number, meter)


def move_balance(db: Connection, account_number: int, amount: int) -> None:
    """Add to the free part of the credit balance; an unknown balance stays unknown."""
    db.execute("UPDATE account SET balance_free = balance_free + ? WHERE id = ?", (amount, account_number))


def balance_free(db: Connection, account_number: int) -> int | None:
    free: int | None = db.execute("SELECT balance_free FROM account WHERE id = ?", (account_number,)).get
    return free


def _balance(db: Connection, name: str) -> CreditBalance | None:
    row = db.execute("SELECT balance_told, balance_free, balance_ms FROM account WHERE name = ?", (name,)).fetchone()
    return _balance_of(*row)


def _balance_of(reported: int | None, free: int | None, read_ms: int) -> CreditBalance | None:
    return None if free is None else CreditBalance(free, reported, read_ms)


def _write_balance(db: Connection, name: str, balance: CreditBalance) -> None:
    db.execute("UPDATE account SET balance_free = ?, balance_told = ?, balance_ms = ? WHERE name = ?", (*balance, name))


def _account(db: Connection, row: tuple[Any, ...], *, now_ms: int, releases_until_ms: int) -> Account:
    number, name, concurrent, results, spend, enabled, closed_until_ms, reason, sends, *balance = row
    numbers: dict[MeterName, int] = {"concurrent": concurrent, "results": results, "credits": spend}
    views = {
        meter: ledger.view(db, number, meter_name(name, meter), now_ms=now_ms, releases_until_ms=releases_until_ms)
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
        keys=tuple(pool_key(number, enabled=bool(on), quarantine=why) for number, on, why in found),
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
    """Return the meter with the times at which its slots are expected back.

    Fast path of ``core.jobs.accounts.slots_back``.
    """
    rows = db.execute(
        """SELECT max(expected_ms, ?1), sum(concurrent) FROM measurement
           WHERE slot = 1 AND account = ?2 AND expected_ms <= ?3 GROUP BY 1 ORDER BY 1""",
        (now_ms, number, until_ms),
    )
    return msgspec.structs.replace(slots, releases=tuple(MeterRelease(*row) for row in rows))


def _key(row: tuple[Any, ...]) -> values.StoredKey:
    number, account_name, last_four, label, enabled, quarantine, created_ms = row
    return values.StoredKey(key_id(number), account_name, last_four, label, bool(enabled), quarantine, created_ms)
