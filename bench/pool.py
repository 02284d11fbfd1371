"""Decisions per second with 100 accounts: choose one, take the quotas, keep the pool in order.

And two rules compared.
"""

from __future__ import annotations

import time
from random import Random

import msgspec

from bench.harness import Context, Result
from bench.pool_rules import compare
from paceline.core.jobs.cost import Cost
from paceline.core.jobs.meters import Meter, Taken, take
from paceline.core.jobs.pool import Account, Key, Pool, Send, Wait, choose, make_pool, with_account

ACCOUNTS = 100
NOW_MS = 1_800_000_000_000
TARGET_PER_S = 50_000
PRICES = [Cost(6 * n, n, 1, 6 * n, n) for n in (1, 5, 10, 50)]
TOO_MUCH = Cost(999_999, 99_999, 1, 999_999, 99_999)


def run(context: Context) -> list[Result]:
    size = 200_000 if context.full else 50_000
    pool = _busy_pool()
    rows = [
        _row("choose", size, _time_choices(pool, size), target=TARGET_PER_S),
        _row("choose, take, reorder", size // 5, _time_sends(pool, size // 5), target=None),
        _row("wait, with every account's reason", size // 50, _time_waits(pool, size // 50), target=None),
    ]
    for row in rows:
        context.say(f"pool: {row['subject']}: {row['per_s']:,.0f}/s")
    return rows + compare(context)


def _row(subject: str, size: int, seconds: float, *, target: int | None) -> Result:
    row: Result = {"subject": subject, "size": size, "per_s": size / seconds, "accounts": ACCOUNTS}
    return row if target is None else row | {"target": target, "met": size / seconds >= target}


def _busy_pool() -> Pool:
    """Returns a pool in which half of the accounts have no slot left, and rank first: the worst case of a busy day."""
    random = Random(7)
    accounts = []
    for number in range(ACCOUNTS):
        full = number < ACCOUNTS // 2
        accounts.append(
            Account(
                f"account-{number}",
                Meter("concurrent", 100_000, "until_released", held=100_000 if full else 0),
                Meter("results", 100_000_000, "sliding", held=0 if full else 1_000 + random.randrange(1_000)),
                Meter("credits", 1_000_000_000, "sliding", held=0 if full else 10_000 + random.randrange(9_000)),
                (Key("k1"), Key("k2")),
            )
        )
    return make_pool(accounts)


def _time_choices(pool: Pool, size: int) -> float:
    start_s = time.perf_counter()
    for number in range(size):
        choose(PRICES[number % 4], pool, now_ms=NOW_MS)
    return time.perf_counter() - start_s


def _time_sends(pool: Pool, size: int) -> float:
    by_name = {one.id: one.account for one in pool.ready}
    start_s = time.perf_counter()
    for number in range(size):
        price = PRICES[number % 4]
        decision = choose(price, pool, now_ms=NOW_MS)
        assert isinstance(decision, Send)
        one = by_name[decision.account]
        amounts = {"concurrent": price.concurrent, "results": price.daily_results, "credits": price.daily_credits}
        meters = {"concurrent": one.concurrent, "results": one.results, "credits": one.credits}
        taken = take("hold", amounts, meters, now_ms=NOW_MS)
        assert isinstance(taken, Taken)
        one = msgspec.structs.replace(one, sends=one.sends + 1, **taken.meters)
        by_name[one.id] = one
        pool = with_account(pool, one)
    return time.perf_counter() - start_s


def _time_waits(pool: Pool, size: int) -> float:
    full = make_pool(
        msgspec.structs.replace(one.account, concurrent=Meter("concurrent", 100, "until_released", held=100))
        for one in pool.ready
    )
    start_s = time.perf_counter()
    for _ in range(size):
        decision = choose(TOO_MUCH, full, now_ms=NOW_MS)
    seconds = time.perf_counter() - start_s
    assert isinstance(decision, Wait)
    return seconds
