"""Meters on DynamoDB: ``core.jobs.meters`` decides, and its moves are written as differences, guarded by ``free``.

An account's three meters are in the account's own item, so a send takes all of them in one write or none. ``free`` is
limit less spent, held and foreign, and may be below zero after a limit was lowered; a condition can compare it, but
could not compute the sum. So a write that only takes or gives back need not read the account. A write that decides from
more than that is bound to the version ``v`` that it read.

A hold's lines are always taken and closed together, so a posting is one item for a hold and a kind, with an amount for
each meter: ``hold``, and ``close`` with the settled and the refunded amount. An expiry belongs to no hold: it is added
up at once, in ``opened_spent``, which also keeps the sums of removed postings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import msgspec

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import ABSENT, PRESENT, Action, Item, delete, padded, put, update
from paceline.adapters.aws.client.tables import LEDGER
from paceline.adapters.aws.jobs import keys
from paceline.core.jobs.accounts import WINDOWS, meter_name
from paceline.core.jobs.atlas import MeterName
from paceline.core.jobs.cost import Cost
from paceline.core.jobs.cost import needs_of as cost_needs
from paceline.core.jobs.meters import (
    DAY_MS,
    CreditBalance,
    Hold,
    Kind,
    Meter,
    MeterRelease,
    Posting,
    close,
    expire,
    used,
)

EXPIRED_MAX = 40
"""Releases that one write takes off an account."""
EXPIRIES_MAX = 1_000
"""Such writes that are made in a row: there is one release a minute, and those of some days may have come together."""
POTS = ("limit", "spent", "held", "foreign", "read_ms", "free", "opened_held", "opened_spent")


class Write(NamedTuple):
    """A change of one account's item, collected until it is written: a transaction has one action for each item."""

    adds: dict[str, int]
    sets: dict[str, Any]
    bound: int | None = None
    """The version that must still be stored; None if the additions are right whatever else was written."""


def empty_write() -> Write:
    return Write({}, {})


def joined_write(one: Write, other: Write) -> Write:
    adds = {name: one.adds.get(name, 0) + other.adds.get(name, 0) for name in {**one.adds, **other.adds}}
    assert one.bound is None or other.bound is None or one.bound == other.bound
    return Write(adds, one.sets | other.sets, other.bound if one.bound is None else one.bound)


def account_action(account: str, write: Write, *, when: str = "", **values: Any) -> Action:
    """Return the write as an action, with a further condition."""
    adds = {name: amount for name, amount in write.adds.items() if amount} | {"v": 1}
    change = "ADD " + ", ".join(f"#{name} :add_{name}" for name in adds)
    if write.sets:
        change = "SET " + ", ".join(f"#{name} = :set_{name}" for name in write.sets) + " " + change
    given = {f"add_{name}": amount for name, amount in adds.items()}
    given |= {f"set_{name}": value for name, value in write.sets.items()}
    conditions = [PRESENT, *([when] if when else []), *(["#v = :was"] if write.bound is not None else [])]
    given |= {"was": write.bound} if write.bound is not None else {}
    return update(LEDGER, keys.account_key(account), change, when=" AND ".join(conditions), **given, **values)


def new_meters(limits: Mapping[MeterName, int]) -> dict[str, int]:
    """Return the attributes of an account's meters before their first use."""
    made: dict[str, int] = {}
    for name, limit in limits.items():
        made |= {f"{name}_{pot}": limit if pot in {"limit", "free"} else 0 for pot in POTS}
    return made


def meter_of(account: Item, name: MeterName, releases: tuple[MeterRelease, ...] = ()) -> Meter:
    limit, spent, held, foreign, read_ms = (account[f"{name}_{pot}"] for pot in POTS[:5])
    return Meter(meter_name(account["name"], name), limit, WINDOWS[name], spent, held, releases, foreign, read_ms)


def meters_of(account: Item) -> dict[str, Meter]:
    """Return the account's meters by name, without releases."""
    found = [meter_of(account, name) for name in WINDOWS]
    return {meter.name: meter for meter in found}


def needs_of(account: str, cost: Cost) -> dict[str, int]:
    """Return what a send takes of each of the account's meters, by name."""
    return {meter_name(account, name): amount for name, amount in cost_needs(cost).items()}


def difference(account: Item, after: Mapping[str, Meter]) -> Write:
    """Return the write that turns the meters as read into ``after``. It adds to ``spent``, ``held`` and ``free``.

    ``limit``, ``foreign`` and ``read_ms`` are set, and only if nothing else was written since.
    """
    adds: dict[str, int] = {}
    sets: dict[str, Any] = {}
    for name in WINDOWS:
        before = meter_of(account, name)
        meter = after.get(before.name, before)
        adds |= {
            f"{name}_spent": meter.spent - before.spent,
            f"{name}_held": meter.held - before.held,
            f"{name}_free": (meter.limit - used(meter)) - (before.limit - used(before)),
        }
        for pot in ("limit", "foreign", "read_ms"):
            if getattr(meter, pot) != getattr(before, pot):
                sets[f"{name}_{pot}"] = getattr(meter, pot)
    return Write(adds, sets, bound=account["v"] if sets else None)


def taking(cost: Cost) -> Write:
    """Return the write that takes what a send needs of each meter. Its condition has to check the room."""
    adds: dict[str, int] = {}
    for name, amount in cost_needs(cost).items():
        adds |= {f"{name}_held": amount, f"{name}_free": -amount}
    return Write(adds | {"balance_free": -cost.daily_credits}, {})


def balance_of(account: Item) -> CreditBalance | None:
    """Return the credit balance; None if RIPE has not told it: then ``balance_free`` is counted but has no meaning."""
    if "balance_ms" not in account:
        return None
    reported = account["balance_told"]
    return CreditBalance(account["balance_free"], None if reported < 0 else reported, account["balance_ms"])


def balance_write(account: Item, write: Write, balance: CreditBalance) -> Write:
    """Return the write with this balance set, instead of what the write would add to it."""
    reported = -1 if balance.reported is None else max(balance.reported, 0)
    sets = {"balance_free": balance.free, "balance_told": reported, "balance_ms": balance.read_ms}
    adds = {name: amount for name, amount in write.adds.items() if name != "balance_free"}
    return Write(adds, write.sets | sets, bound=account["v"])


def applied(account: Item, write: Write) -> Item:
    """Return the account as it is after the write, as far as it was read."""
    after = account | write.sets
    return after | {name: after.get(name, 0) + amount for name, amount in write.adds.items()}


class Closing(NamedTuple):
    """The closing of an account's part of a send: its write, the actions beside it, and when spent amounts are free."""

    account: str
    write: Write
    beside: list[Action]
    release_ms: int | None


def closing(row: Item, *, results: int, spent: int, now_ms: int) -> Closing:
    """Settle the used part of the account's day, refund the rest and give the slots back: all lines together.

    It only moves amounts, whatever the meters' values are, so the account is not read.
    """
    name, cost = row["account"], cost_of(row)
    meters = {full: Meter(full, 0, WINDOWS[_short(full)]) for full in needs_of(name, cost)}
    actual = dict(zip(meters, (0, results, spent), strict=True))
    closed = close(Hold("", needs_of(name, cost), now_ms), actual, meters, now_ms=now_ms)
    adds: dict[str, int] = {}
    for meter in closed.meters.values():
        pots = {"spent": meter.spent, "held": meter.held, "free": -used(meter)}
        adds |= {f"{_short(meter.name)}_{pot}": amount for pot, amount in pots.items()}
    adds["balance_free"] = adds["credits_free"]  # no window gives it back, so spent credits stay taken off
    posting: Item = {"account": name, "handle": row["handle"], "attempt": row["attempt"], "at_ms": now_ms}
    for one in closed.postings:
        posting[f"{_short(one.meter)}_{one.kind}"] = one.amount
    key = keys.posting_key(row["handle"], row["attempt"], "close")
    beside = [put(LEDGER, posting | key._asdict(), when=ABSENT)]
    if row.get("answered_ms") is not None:
        beside.append(delete(LEDGER, keys.slot_key(name, row["handle"])))
    at_ms, amounts = _released(closed.meters)
    if at_ms is not None:
        beside.append(_add_release(name, at_ms, amounts))
    return Closing(name, Write(adds, {}), beside, at_ms)


def refunding(row: Item, *, now_ms: int) -> Closing:
    return closing(row, results=0, spent=0, now_ms=now_ms)


def closing_action(closed: Closing, *, first: bool) -> Action:
    """Return the account's part of a closing. ``first``: its release comes before all others of the account.

    The caller guesses that, and the write checks it: expiry begins at ``first_release_ms``.
    """
    if closed.release_ms is None:
        return account_action(closed.account, closed.write)
    at_ms = closed.release_ms
    if not first:
        return account_action(closed.account, closed.write, when="#first_release_ms <= :at_ms", at_ms=at_ms)
    write = Write(closed.write.adds, {"first_release_ms": at_ms})
    when = "(attribute_not_exists(#first_release_ms) OR #first_release_ms > :at_ms)"
    return account_action(closed.account, write, when=when, at_ms=at_ms)


def is_first(account: Item, release_ms: int) -> bool:
    return bool(account.get("first_release_ms", release_ms + 1) > release_ms)


def _short(meter: str) -> MeterName:
    """Return the name of an account's meter without the account."""
    return cast("MeterName", meter.rpartition("/")[2])


def hold_posting(account: str, row: Item, *, attempt: int, now_ms: int) -> Action:
    cost = cost_of(row)
    item = {
        **keys.posting_key(row["handle"], attempt, "hold")._asdict(),
        "account": account,
        "handle": row["handle"],
        "attempt": attempt,
        "concurrent_hold": cost.concurrent,
        "results_hold": cost.daily_results,
        "credits_hold": cost.daily_credits,
        "at_ms": now_ms,
    }
    return put(LEDGER, item, when=ABSENT)


def postings_in(item: Item) -> list[Posting]:
    """Return the postings of all meters that an item holds, as values of core."""
    kinds: tuple[Kind, ...] = ("hold", "settle", "refund")
    return [
        Posting(meter_name(item["account"], name), f"{item['handle']}/{item['attempt']}", kind, amount, item["at_ms"])
        for name in WINDOWS
        for kind in kinds
        if (amount := item.get(f"{name}_{kind}")) is not None
    ]


def cost_of(row: Item) -> Cost:
    return Cost(row["credits"], row["results"], row["concurrent"], row["daily_credits"], row["daily_results"])


def freshened(database: DynamoDatabase, account: Item, *, now_ms: int) -> Item:
    """Expire amounts that have left the windows of the account's meters, in separate writes.

    Return the account afterwards.
    """
    left = keys.tries()
    for _ in range(EXPIRIES_MAX):
        if account.get("first_release_ms", now_ms + 1) > now_ms:
            return account
        won = database.transact(_expiring(database, account, now_ms=now_ms)).won
        found = database.get(LEDGER, keys.account_key(account["name"]))
        assert found is not None
        account = found
        if not won and next(left, None) is None:  # others expire the same releases; only lost writes count as tries
            break
    raise keys.too_busy()


def releases_in(items: list[Item]) -> dict[MeterName, tuple[MeterRelease, ...]]:
    """Return the amounts that leave the account's windows and when, read from its items."""
    found = [item for item in items if item["sk"].startswith("until#")]
    return {
        name: tuple(MeterRelease(item["at_ms"], item[name]) for item in found if item.get(name)) for name in WINDOWS
    }


def with_expired(
    account: Item, releases: Mapping[MeterName, tuple[MeterRelease, ...]], *, now_ms: int
) -> dict[str, Meter]:
    """Return the account's meters by name, as if everything that has left their windows were expired."""
    found = [expire(meter_of(account, name, releases[name]), now_ms=now_ms)[0] for name in WINDOWS]
    return {meter.name: meter for meter in found}


def day_closing(row: Item, *, settled: int) -> Action:
    """Return the action on the user's day that ends a measurement: the settled amount is spent, the rest is free."""
    change = "ADD #held :held, #spent :spent, #used :used"
    held, rest = row["credits"], row["credits"] - settled
    return update(
        LEDGER, keys.day_key(row["owner"], row["day"]), change, when=PRESENT, held=-held, spent=settled, used=-rest
    )


def _expiring(database: DynamoDatabase, account: Item, *, now_ms: int) -> list[Action]:
    key = keys.release_key(account["name"], now_ms)
    items = database.page(LEDGER, key.pk, limit=EXPIRED_MAX, first="until#", last=key.sk)
    meters = with_expired(account, releases_in(items), now_ms=now_ms)
    write = difference(account, meters)
    opened = {f"{name}_opened_spent": write.adds[f"{name}_spent"] for name in WINDOWS}
    # Amounts that are settled from now on are released in a day, so the next release is the first later one, or then.
    # The write is bound to the version that was read: otherwise it would skip a release that was added since.
    first_ms = now_ms + DAY_MS if len(items) < EXPIRED_MAX else now_ms
    if len(items) < EXPIRED_MAX:
        later = database.page(LEDGER, key.pk, limit=1, first=f"until#{padded(now_ms + 1)}", last="until#~")
        first_ms = min([first_ms, *(item["at_ms"] for item in later)])
    gone = [delete(LEDGER, keys.release_key(account["name"], item["at_ms"])) for item in items]
    write = Write(write.adds | opened, {"first_release_ms": first_ms}, bound=account["v"])
    return [account_action(account["name"], write), *gone]


def _released(meters: Mapping[str, Meter]) -> tuple[int | None, dict[str, int]]:
    """Return when the amounts settled now leave their windows, and the amount of each meter."""
    found = {_short(meter.name): release for meter in meters.values() for release in meter.releases}
    times = {release.at_ms for release in found.values()}
    assert len(times) <= 1
    return next(iter(times), None), {name: release.amount for name, release in found.items()}


def _add_release(account: str, at_ms: int, amounts: Mapping[str, int]) -> Action:
    change = "ADD " + ", ".join(f"#{name} :{name}" for name in amounts) + " SET #at_ms = :at_ms"
    return update(LEDGER, keys.release_key(account, at_ms), change, when="", at_ms=at_ms, **amounts)


def with_limit(meter: Meter, limit: int) -> Meter:
    return msgspec.structs.replace(meter, limit=limit)
