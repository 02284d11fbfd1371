"""Which account and key: evenly, never over a quota, with a reason for every wait."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.cost import Cost
from paceline.core.jobs.meters import (
    NEVER_MS,
    Meter,
    MeterRelease,
    Taken,
    close,
    used,
)
from paceline.core.jobs.pool import (
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
from tests.core.support.pool_stage import HOUR_MS, NOW_MS, account, cost, send


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
def test_equal_accounts_are_used_evenly(seed: int) -> None:
    ends = simulate_sends([account(f"a{i}") for i in range(10)], sends=3_000, seed=seed, gap_ms=800).values()
    assert jain([used(one.credits) for one in ends]) >= 0.99
    assert jain([used(one.results) for one in ends]) >= 0.99


@pytest.mark.parametrize("seed", range(3))
def test_equal_accounts_are_used_evenly_even_when_every_slot_is_taken(seed: int) -> None:
    """The pool then cannot choose which account has a free slot, only what it is given."""
    ends = simulate_sends([account(f"a{i}") for i in range(10)], sends=3_000, seed=seed, gap_ms=500).values()
    assert jain([one.sends for one in ends]) >= 0.99
    assert jain([used(one.credits) for one in ends]) >= 0.99
    assert jain([used(one.results) for one in ends]) >= 0.99


@given(st.lists(st.integers(1, 300), min_size=8, max_size=60))
def test_waiting_user_is_not_passed_over_for_long(sizes: list[int]) -> None:
    """With one account every second send takes the first user: a user behind n others is served within 2n + 2 sends."""
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
def test_accounts_with_unequal_limits_are_used_in_proportion(seed: int) -> None:
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


def test_full_pool_waits_for_the_earliest_release_but_at_most_half_a_minute() -> None:
    def full(name: str, *releases: MeterRelease) -> Account:
        return account(name, concurrent=Meter("c", 10, "until_released", held=10, releases=releases))

    late, soon = (
        full("a", MeterRelease(NOW_MS + HOUR_MS, 2)),
        full("b", MeterRelease(NOW_MS + 7_000, 1), MeterRelease(NOW_MS + 9_000, 1)),
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
    overdue = Meter("c", 10, "until_released", held=10, releases=(MeterRelease(NOW_MS, 1),))
    decision = choose(cost(), make_pool([account(concurrent=overdue)]), now_ms=NOW_MS)
    assert isinstance(decision, Wait)
    assert (decision.until_ms, decision.room_ms) == (NOW_MS + LOOK_AGAIN_MS_MIN, NOW_MS)


def test_closed_account_is_used_again_when_its_pause_is_over() -> None:
    pool = make_pool([account(closed_until_ms=NOW_MS + 5_000, reason="429")])
    decision = choose(cost(), pool, now_ms=NOW_MS)
    assert isinstance(decision, Wait)
    assert decision.until_ms == NOW_MS + 5_000
    assert isinstance(choose(cost(), pool, now_ms=NOW_MS + 5_000), Send)


def test_cost_that_no_account_can_ever_take_is_refused_with_the_figures() -> None:
    decision = choose(cost(credits_=2_000_000), make_pool([account(), account("b", enabled=False)]), now_ms=NOW_MS)
    assert decision == Refuse("no account allows it: it takes 2000000 credits a day, and the largest limit is 1000000")
    waits = choose(
        cost(credits_=2_000_000), make_pool([account(), account("b", scale=2, enabled=False)]), now_ms=NOW_MS
    )
    assert isinstance(waits, Wait)


def test_send_waits_while_there_is_no_account() -> None:
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
    assert {one.id for one, _ in pool.unusable} == {one.id for one, _ in make_pool(found).unusable}
