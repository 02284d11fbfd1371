"""Accounts, prices and sends that scenes of the pool are made of."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from paceline.core.jobs.cost import Cost
from paceline.core.jobs.meters import (
    Meter,
    Taken,
    take,
)
from paceline.core.jobs.pool import (
    Account,
    Key,
)

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000


def cost(credits_: int = 60, results: int = 1, slots: int = 1) -> Cost:
    return Cost(credits_, results, slots, credits_, results)


def account(name: str = "a", *, scale: int = 1, keys: Sequence[Key] = (Key("k"),), **fields: object) -> Account:
    one = Account(
        name,
        Meter("concurrent", 100 * scale, "until_released"),
        Meter("results", 100_000 * scale, "sliding"),
        Meter("credits", 1_000_000 * scale, "sliding"),
        tuple(keys),
    )
    return msgspec.structs.replace(one, **fields)


def send(one: Account, price: Cost, *, now_ms: int, hold: str = "h") -> tuple[Account, Taken]:
    """What the store does when a measurement is sent; it fails if any quota would be exceeded."""
    amounts = {"concurrent": price.concurrent, "results": price.daily_results, "credits": price.daily_credits}
    meters = {"concurrent": one.concurrent, "results": one.results, "credits": one.credits}
    taken = take(hold, amounts, meters, now_ms=now_ms)
    assert isinstance(taken, Taken), taken
    return msgspec.structs.replace(one, sends=one.sends + 1, **taken.meters), taken
