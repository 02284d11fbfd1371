"""Holds and meters beside a simpler rule, on the same sends: counters that are overwritten when nothing was asked."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from random import Random
from typing import NamedTuple

import msgspec
import pytest

from paceline.core.jobs.meters import (
    DAY_MS,
    Meter,
    Reading,
    Taken,
    close,
    expire,
    lagging_visible,
    sync,
)
from paceline.core.jobs.pool import (
    Send,
    choose,
    make_pool,
)
from tests.core.support.pool_stage import HOUR_MS, NOW_MS, account, cost, send

# "Overwrite when idle" and our rule, on the same arrivals, against a model of RIPE that books credits every five hours
# and lists a new measurement after 45 seconds. It refuses nothing: what counts is how far each would go over.

LIMIT_CREDITS, LIMIT_SLOTS, LAG_MS, BATCH_MS, FLIGHT_MS = 100_000, 10, 45_000, 5 * HOUR_MS, 600_000
NAMES = ("a", "b", "c", "d")


class Flight(NamedTuple):
    start_ms: int
    account: str
    credits: int
    """Credits of the results that are delivered in the end."""


class Over(NamedTuple):
    credits: int
    slots: int
    sent: int


class Ripe:
    """Each account's flights in order of time, and the running total of their credits."""

    def __init__(self) -> None:
        self.starts: dict[str, list[int]] = {name: [] for name in NAMES}
        self.totals: dict[str, list[int]] = {name: [0] for name in NAMES}

    def add(self, flight: Flight) -> None:
        self.starts[flight.account].append(flight.start_ms)
        self.totals[flight.account].append(self.totals[flight.account][-1] + flight.credits)

    def spent(self, name: str, now_ms: int, *, seen_ms: int) -> int:
        starts, totals = self.starts[name], self.totals[name]
        since = bisect_right(starts, now_ms - DAY_MS)
        return totals[max(bisect_right(starts, seen_ms), since)] - totals[since]

    def past_day(self, name: str, now_ms: int) -> int:
        return self.spent(name, now_ms, seen_ms=now_ms // BATCH_MS * BATCH_MS)

    def running(self, name: str, now_ms: int, *, seen_ms: int) -> int:
        starts = self.starts[name]
        return max(0, bisect_right(starts, seen_ms) - bisect_right(starts, now_ms - FLIGHT_MS))


class OverwriteWhenIdle:
    """Counters that grow with each send and are overwritten with RIPE's own after 30 idle seconds."""

    def __init__(self, ripe: Ripe) -> None:
        self.ripe, self.asked_ms = ripe, 0
        self.credits = dict.fromkeys(NAMES, 0)
        self.slots = dict.fromkeys(NAMES, 0)

    def pick(self, price: int, now_ms: int) -> str | None:
        if now_ms - self.asked_ms >= 30_000:
            self.credits = {name: self.ripe.past_day(name, now_ms) for name in NAMES}
            self.slots = {name: self.ripe.running(name, now_ms, seen_ms=now_ms - LAG_MS) for name in NAMES}
        self.asked_ms = now_ms
        free = [n for n in NAMES if self.slots[n] < LIMIT_SLOTS and self.credits[n] + price <= LIMIT_CREDITS]
        if not free:
            return None
        name = min(free, key=lambda one: self.credits[one])
        self.credits[name] += price
        self.slots[name] += 1
        return name

    def sent(self, flight: Flight) -> None:
        pass


class Holds:
    """Holds and meters, settled when a measurement ends, with readings of the same lagging RIPE."""

    def __init__(self, ripe: Ripe) -> None:
        self.ripe = ripe
        self.accounts = {
            name: account(
                name,
                concurrent=Meter("concurrent", LIMIT_SLOTS, "until_released"),
                credits=Meter("credits", LIMIT_CREDITS, "sliding"),
            )
            for name in NAMES
        }
        self.open: list[tuple[Flight, Taken]] = []
        self.taken: Taken | None = None

    def pick(self, price: int, now_ms: int) -> str | None:
        self.settle(now_ms)
        self.read(now_ms)
        match choose(cost(price), make_pool(self.accounts.values()), now_ms=now_ms):
            case Send(name):
                self.accounts[name], self.taken = send(self.accounts[name], cost(price), now_ms=now_ms)
                return name
            case _:
                return None

    def sent(self, flight: Flight) -> None:
        assert self.taken is not None
        self.open.append((flight, self.taken))

    def settle(self, now_ms: int) -> None:
        while self.open and self.open[0][0].start_ms + FLIGHT_MS <= now_ms:
            flight, taken = self.open.pop(0)
            one = self.accounts[flight.account]
            found = {"concurrent": one.concurrent, "results": one.results, "credits": one.credits}
            end = close(taken.hold, {"concurrent": 0, "results": 1, "credits": flight.credits}, found, now_ms=now_ms)
            self.accounts[flight.account] = msgspec.structs.replace(one, **end.meters)

    def read(self, now_ms: int) -> None:
        for name, one in self.accounts.items():
            credits_, _ = expire(one.credits, now_ms=now_ms)
            results, _ = expire(one.results, now_ms=now_ms)
            booked = Reading(now_ms, self.ripe.past_day(name, now_ms), lagging_visible(credits_))
            running = self.ripe.running(name, now_ms, seen_ms=now_ms - LAG_MS)
            visible = sum(f.account == name and f.start_ms <= now_ms - LAG_MS for f, _ in self.open)
            self.accounts[name] = msgspec.structs.replace(
                one,
                credits=sync(credits_, booked),
                results=results,
                concurrent=sync(one.concurrent, Reading(now_ms, running, visible)),
            )


def overspend(rule_of: Callable[[Ripe], OverwriteWhenIdle | Holds], seed: int) -> Over:
    """Bursts of one-offs with pauses between them, for thirty hours; the furthest that any account went over."""
    random, ripe = Random(seed), Ripe()
    rule, now_ms, worst_credits, worst_slots = rule_of(ripe), NOW_MS, 0, 0
    while now_ms < NOW_MS + 30 * HOUR_MS:
        for _ in range(random.randrange(5, 60)):
            price = 60 * random.choice([1, 5, 10, 20, 50])
            delivered = int(price * random.uniform(0.7, 1.0))
            if (name := rule.pick(price, now_ms)) is not None:
                flight = Flight(now_ms, name, delivered)
                ripe.add(flight)
                rule.sent(flight)
                worst_credits = max(worst_credits, ripe.spent(name, now_ms, seen_ms=now_ms) - LIMIT_CREDITS)
                worst_slots = max(worst_slots, ripe.running(name, now_ms, seen_ms=now_ms) - LIMIT_SLOTS)
            now_ms += random.randrange(200, 2_000)
        now_ms += random.randrange(31_000, 900_000)
    return Over(worst_credits, worst_slots, sum(map(len, ripe.starts.values())))


@pytest.mark.slow
def test_promise_8_overwriting_counters_when_idle_overspends_and_reservations_do_not() -> None:
    theirs = [overspend(OverwriteWhenIdle, seed) for seed in range(5)]
    ours = [overspend(Holds, seed) for seed in range(5)]
    print(*(f"seed {seed}: {pair}" for seed, pair in enumerate(zip(theirs, ours, strict=True))), sep="\n")
    assert all(over.credits > LIMIT_CREDITS // 10 for over in theirs)
    assert sum(over.slots for over in theirs) > 0
    assert all((over.credits, over.slots) == (0, 0) for over in ours)
    assert all(over.sent > 500 for over in ours)
