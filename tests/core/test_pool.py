"""Which account and key: evenly, never over a quota, with a reason for every wait; and beside it a simpler rule."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from random import Random
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.cost import Cost
from paceline.core.meters import (
    DAY_MS,
    NEVER_MS,
    Meter,
    Reading,
    Release,
    Taken,
    close,
    expire,
    lagging_visible,
    sync,
    take,
    used,
)
from paceline.core.pool import (
    LOOK_AGAIN_MS,
    LOOK_AGAIN_MS_MIN,
    Account,
    Gate,
    Key,
    Pool,
    Refuse,
    Send,
    Wait,
    backoff_until_ms,
    choose,
    make_pool,
    pick,
    target_gate,
    with_account,
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


def jain(shares: Sequence[float]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def simulate_sends(accounts: list[Account], *, sends: int, seed: int, gap_ms: int) -> dict[str, Account]:
    """Sends of mixed sizes, each in flight for ten minutes; the slots come back, what was spent stays."""
    random = Random(seed)
    by_name = {one.id: one for one in accounts}
    pool, now_ms = make_pool(accounts), NOW_MS
    flights: list[tuple[int, str, Taken]] = []
    waiting: list[Cost] = []
    while sends:
        while len(waiting) < 8:
            probes = random.choice([1, 5, 10, 50, 300])
            waiting.append(cost(random.choice([6, 20, 60]) * probes, probes))
        index = pick(waiting, pool, now_ms=now_ms)
        price = waiting[index]
        match choose(price, pool, now_ms=now_ms):
            case Send(name):
                del waiting[index]
                by_name[name], taken = send(by_name[name], price, now_ms=now_ms)
                pool = with_account(pool, by_name[name])
                flights.append((now_ms + 600_000, name, taken))
                sends -= 1
            case Wait():
                now_ms += 30_100
            case Refuse(reason):
                raise AssertionError(reason)
        while flights and flights[0][0] <= now_ms:
            _, name, taken = flights.pop(0)
            one = by_name[name]
            meters = {"concurrent": one.concurrent, "results": one.results, "credits": one.credits}
            end = close(taken.hold, taken.hold.lines, meters, now_ms=now_ms)
            by_name[name] = msgspec.structs.replace(one, **end.meters)
            pool = with_account(pool, by_name[name])
        now_ms += gap_ms
    return by_name


@pytest.mark.parametrize("seed", range(3))
def test_use_is_even_over_equal_accounts(seed: int) -> None:
    ends = simulate_sends([account(f"a{i}") for i in range(10)], sends=3_000, seed=seed, gap_ms=800).values()
    assert jain([used(one.credits) for one in ends]) >= 0.99
    assert jain([used(one.results) for one in ends]) >= 0.99


@pytest.mark.parametrize("seed", range(3))
def test_use_is_even_also_when_every_slot_is_taken(seed: int) -> None:
    """Who has a free slot is then no choice of ours; what it is given is."""
    ends = simulate_sends([account(f"a{i}") for i in range(10)], sends=3_000, seed=seed, gap_ms=500).values()
    assert jain([one.sends for one in ends]) >= 0.99
    assert jain([used(one.credits) for one in ends]) >= 0.99
    assert jain([used(one.results) for one in ends]) >= 0.99


@given(st.lists(st.integers(1, 300), min_size=8, max_size=60))
def test_nobody_is_passed_over_for_long(sizes: list[int]) -> None:
    """Of one account: every second send takes the first, so what has n before it goes within 2n + 2 sends."""
    one = account("a")
    waiting = [(number, cost(6 * size, size)) for number, size in enumerate(sizes)]
    sent: list[int] = []
    while waiting:
        index = pick([price for _, price in waiting[:8]], make_pool([one]), now_ms=NOW_MS)
        number, price = waiting.pop(index)
        one, _ = send(one, price, now_ms=NOW_MS)
        sent.append(number)
    assert sorted(sent) == list(range(len(sizes)))
    assert all(place <= 2 * number + 2 for place, number in enumerate(sent))


@pytest.mark.parametrize("seed", range(3))
def test_use_is_in_proportion_to_unequal_limits(seed: int) -> None:
    ends = simulate_sends(
        [account(f"a{i}", scale=1 + i % 4) for i in range(8)], sends=3_000, seed=seed, gap_ms=800
    ).values()
    assert jain([used(one.credits) / one.credits.limit for one in ends]) >= 0.99
    assert jain([used(one.credits) for one in ends]) < 0.9


def test_the_keys_of_an_account_take_turns_and_those_set_aside_are_left_out() -> None:
    keys = [Key("k1"), Key("k2", "disabled"), Key("k3"), Key("k4", "quarantined", "401")]
    one, used_keys = account(keys=keys), []
    for _ in range(4):
        decision = choose(cost(), make_pool([one]), now_ms=NOW_MS)
        assert isinstance(decision, Send)
        used_keys.append(decision.key)
        one, _ = send(one, cost(), now_ms=NOW_MS)
    assert used_keys == ["k1", "k3", "k1", "k3"]


@pytest.mark.parametrize(
    ("one", "reason"),
    [
        (account(enabled=False), "disabled"),
        (account(keys=()), "it has no key"),
        (account(keys=[Key("k", "disabled")]), "all its keys are disabled"),
        (account(keys=[Key("k", "quarantined", "403: no")]), "its keys are quarantined: 403: no"),
        (account(closed_until_ms=NOW_MS + 5_000, reason="RIPE asks for a pause"), "RIPE asks for a pause"),
        (
            account(concurrent=Meter("c", 100, "until_released", held=100)),
            "concurrent measurements: 100 of 100 in use, 1 needed",
        ),
        (account(credits=Meter("c", 100, "sliding", spent=30, held=20)), "credits a day: 50 of 100 in use, 60 needed"),
        (account(results=Meter("r", 9, "sliding", foreign=9)), "results a day: 9 of 9 in use, 1 needed"),
    ],
)
def test_an_account_that_cannot_be_used_is_left_out_and_says_why(one: Account, reason: str) -> None:
    decision = choose(cost(), make_pool([one]), now_ms=NOW_MS)
    assert isinstance(decision, Wait)
    assert decision.accounts == (("a", reason),)
    assert NOW_MS < decision.until_ms <= NOW_MS + LOOK_AGAIN_MS
    assert choose(cost(), make_pool([one, account("b")]), now_ms=NOW_MS) == Send("b", "k")


def test_when_all_are_full_it_waits_for_the_earliest_release_and_at_the_latest_half_a_minute() -> None:
    def full(name: str, *releases: Release) -> Account:
        return account(name, concurrent=Meter("c", 10, "until_released", held=10, releases=releases))

    late, soon = (
        full("a", Release(NOW_MS + HOUR_MS, 2)),
        full("b", Release(NOW_MS + 7_000, 1), Release(NOW_MS + 9_000, 1)),
    )
    nobody_knows = full("c")
    for accounts, slots, until_ms, known_ms in (
        ([late, soon, nobody_knows], 1, NOW_MS + 7_000, NOW_MS + 7_000),
        ([late, soon, nobody_knows], 2, NOW_MS + 9_000, NOW_MS + 9_000),
        ([late, nobody_knows], 1, NOW_MS + LOOK_AGAIN_MS, NOW_MS + HOUR_MS),
        ([nobody_knows], 1, NOW_MS + LOOK_AGAIN_MS, NEVER_MS),
    ):
        decision = choose(cost(slots=slots), make_pool(accounts), now_ms=NOW_MS)
        assert isinstance(decision, Wait)
        assert (decision.until_ms, decision.room_ms) == (until_ms, known_ms)


def test_a_slot_that_is_overdue_is_looked_for_again_and_not_without_a_pause() -> None:
    overdue = Meter("c", 10, "until_released", held=10, releases=(Release(NOW_MS, 1),))
    decision = choose(cost(), make_pool([account(concurrent=overdue)]), now_ms=NOW_MS)
    assert isinstance(decision, Wait)
    assert (decision.until_ms, decision.room_ms) == (NOW_MS + LOOK_AGAIN_MS_MIN, NOW_MS)


def test_an_account_is_back_when_its_pause_is_over() -> None:
    pool = make_pool([account(closed_until_ms=NOW_MS + 5_000, reason="429")])
    decision = choose(cost(), pool, now_ms=NOW_MS)
    assert isinstance(decision, Wait)
    assert decision.until_ms == NOW_MS + 5_000
    assert isinstance(choose(cost(), pool, now_ms=NOW_MS + 5_000), Send)


def test_what_no_account_can_ever_take_is_refused_with_the_figures() -> None:
    decision = choose(cost(credits_=2_000_000), make_pool([account(), account("b", enabled=False)]), now_ms=NOW_MS)
    assert decision == Refuse("no account allows it: it takes 2000000 credits a day, and the limit of a is 1000000")
    waits = choose(
        cost(credits_=2_000_000), make_pool([account(), account("b", scale=2, enabled=False)]), now_ms=NOW_MS
    )
    assert isinstance(waits, Wait)


def test_without_any_account_it_waits() -> None:
    assert choose(cost(), make_pool([]), now_ms=NOW_MS) == Wait(NOW_MS + LOOK_AGAIN_MS, "there is no account yet")


def test_a_full_target_parks_the_measurement_and_asks_no_account() -> None:
    gate = target_gate("8.8.8.8", refusals=1, now_ms=NOW_MS, words="no more than 25", chance=0.0)
    decision = choose(cost(), make_pool([account(), account("b")]), now_ms=NOW_MS, gates=(Gate(0, ""), gate))
    assert decision == Wait(NOW_MS + 30_000, "the target 8.8.8.8 is full: no more than 25", NOW_MS + 30_000)
    assert isinstance(choose(cost(), make_pool([account()]), now_ms=gate.until_ms, gates=(gate,)), Send)


def test_a_target_waits_longer_each_time_up_to_half_an_hour() -> None:
    waits = [
        target_gate("t", refusals=n, now_ms=0, words="", chance=chance).until_ms
        for n in (1, 2, 9, 99)
        for chance in (0, 1)
    ]
    assert waits == [30_000, 60_000, 60_000, 120_000, 900_000, 1_800_000, 900_000, 1_800_000]


def test_retry_after_is_honoured_and_without_it_the_pause_doubles() -> None:
    assert backoff_until_ms(9, now_ms=0, retry_after_ms=7, chance=0.5) == 7
    pauses = [backoff_until_ms(n, now_ms=0, retry_after_ms=None, chance=0.0) for n in (1, 2, 3, 50)]
    assert pauses == [2_500, 5_000, 10_000, 300_000]


meters = st.builds(
    lambda limit, spent, held, foreign: Meter("m", limit, "sliding", spent=spent, held=held, foreign=foreign),
    *[st.integers(0, 40)] * 4,
)
accounts = st.lists(
    st.builds(
        Account,
        st.sampled_from("abcdefgh"),
        meters,
        meters,
        meters,
        st.lists(st.builds(Key, st.sampled_from("kl"), st.sampled_from(["ready", "disabled"])), max_size=2).map(tuple),
        st.booleans(),
        st.sampled_from([0, NOW_MS + 10]),
    ),
    unique_by=lambda one: one.id,
    max_size=8,
)


@given(accounts, st.builds(cost, st.integers(0, 30), st.integers(0, 30), st.integers(1, 30)))
def test_a_send_fits_every_meter_and_a_wait_means_that_none_would(found: list[Account], price: Cost) -> None:
    def fits(one: Account) -> bool:
        pairs = (
            (price.concurrent, one.concurrent),
            (price.daily_results, one.results),
            (price.daily_credits, one.credits),
        )
        ready = any(key.state == "ready" for key in one.keys)
        return one.enabled and ready and one.closed_until_ms <= NOW_MS and all(n + used(m) <= m.limit for n, m in pairs)

    match choose(price, make_pool(found), now_ms=NOW_MS):
        case Send(name, key):
            (one,) = [one for one in found if one.id == name]
            assert fits(one)
            assert Key(key) in one.keys
        case Wait(until_ms, reason, _, reasons):
            assert not any(map(fits, found))
            assert NOW_MS < until_ms <= NOW_MS + LOOK_AGAIN_MS
            assert reason
            assert {name for name, _ in reasons} == {one.id for one in found}
            assert all(text for _, text in reasons)
        case Refuse():
            assert found


@given(accounts, st.randoms(use_true_random=False))
def test_changing_one_account_at_a_time_gives_the_same_pool(found: list[Account], random: Random) -> None:
    pool = Pool(())
    for one in random.sample(found, len(found)):
        pool = with_account(with_account(pool, one), one)
    ranks = [one.rank for one in pool.ready]
    assert ranks == sorted(ranks)
    assert {one.id for one in pool.ready} == {one.id for one in make_pool(found).ready}
    assert {one.id for one, _ in pool.aside} == {one.id for one, _ in make_pool(found).aside}


# "Overwrite when idle" and our rule, on the same arrivals, against a model of RIPE that books credits every five hours
# and lists a new measurement after 45 seconds. It refuses nothing: what counts is how far each would go over.

LIMIT_CREDITS, LIMIT_SLOTS, LAG_MS, BATCH_MS, FLIGHT_MS = 100_000, 10, 45_000, 5 * HOUR_MS, 600_000
NAMES = ("a", "b", "c", "d")


class Flight(NamedTuple):
    start_ms: int
    account: str
    credits: int
    """Delivered in the end."""


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


def test_promise_8_overwriting_when_idle_overspends_where_holds_do_not() -> None:
    theirs = [overspend(OverwriteWhenIdle, seed) for seed in range(5)]
    ours = [overspend(Holds, seed) for seed in range(5)]
    print(*(f"seed {seed}: {pair}" for seed, pair in enumerate(zip(theirs, ours, strict=True))), sep="\n")
    assert all(over.credits > LIMIT_CREDITS // 10 for over in theirs)
    assert sum(over.slots for over in theirs) > 0
    assert all((over.credits, over.slots) == (0, 0) for over in ours)
    assert all(over.sent > 500 for over in ours)
