"""Room kept for a measurement that was passed too long, types that an account may not make, and reasons of waits."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.meters import (
    NEVER_MS,
    CreditBalance,
    Meter,
    MeterRelease,
    Reading,
    Taken,
    close,
    read_balance,
    refund,
    refuse_balance,
    room_at,
    room_ms,
    take,
)
from paceline.core.jobs.pool import (
    KEPT_FREE,
    LOOK_AGAIN_MS,
    PASSED_MS_MAX,
    TYPE_BARRED_MS,
    Account,
    Barred,
    Refuse,
    Reservation,
    Send,
    Wait,
    bar_of,
    choose,
    is_exhausted,
    make_pool,
    reserve,
    was_passed_too_long,
)
from tests.core.support.pool_stage import HOUR_MS, NOW_MS, account, cost

HTTP = frozenset({"http"})
NO_HTTP = Barred("http", NOW_MS + HOUR_MS, "not permitted")
BUSY = Meter("concurrent", 2, "until_released", held=2, releases=(MeterRelease(NOW_MS + HOUR_MS, 1),))


def test_account_that_may_not_make_a_type_is_left_out_for_that_type_alone() -> None:
    pool = make_pool([account("a", barred=(NO_HTTP,)), account("b", sends=9)])
    assert choose(cost(), pool, now_ms=NOW_MS, types=HTTP) == Send("b", "k")
    assert choose(cost(), pool, now_ms=NOW_MS, types=frozenset({"ping"})) == Send("a", "k")


def test_bar_ends_after_its_time_and_one_from_a_wrong_clock_does_not_count() -> None:
    one = account(barred=(Barred("dns", NOW_MS + 1, "x"), NO_HTTP))
    assert bar_of(one, HTTP, now_ms=NOW_MS) == NO_HTTP
    assert bar_of(one, HTTP, now_ms=NO_HTTP.until_ms) is None
    assert bar_of(one, HTTP, now_ms=NO_HTTP.until_ms - TYPE_BARRED_MS - 1) is None
    assert bar_of(one, frozenset({"ping"}), now_ms=NOW_MS) is None


def test_type_that_no_enabled_account_may_make_is_refused() -> None:
    pool = make_pool([account("a", barred=(NO_HTTP,)), account("b", enabled=False)])
    refused = choose(cost(), pool, now_ms=NOW_MS, types=HTTP)
    assert refused == Refuse("no account may make http measurements: not permitted")


def test_wait_names_both_the_busy_account_and_the_barred_one() -> None:
    pool = make_pool([account("a", barred=(NO_HTTP,)), account("b", concurrent=BUSY)])
    wait = choose(cost(), pool, now_ms=NOW_MS, types=HTTP)
    assert isinstance(wait, Wait)
    assert dict(wait.accounts)["a"] == "it may not make http measurements: not permitted"
    assert "2 of 2 in use" in dict(wait.accounts)["b"]
    assert wait.room_ms == NOW_MS + HOUR_MS


def test_measurement_that_the_balance_does_not_cover_waits_and_no_time_is_known() -> None:
    wait = choose(cost(60), make_pool([account(balance=CreditBalance(-5, 10, NOW_MS))]), now_ms=NOW_MS)
    assert isinstance(wait, Wait)
    assert "credit balance at RIPE: 0 left, 60 needed" in wait.reason
    assert (wait.until_ms, wait.room_ms) == (NOW_MS + LOOK_AGAIN_MS, NEVER_MS)


def test_reservation_is_made_at_the_account_that_has_room_first() -> None:
    later = msgspec.structs.replace(BUSY, releases=(MeterRelease(NOW_MS + 2 * HOUR_MS, 1),))
    pool = make_pool([account("late", concurrent=later), account("soon", concurrent=BUSY)])
    assert reserve(cost(), pool, now_ms=NOW_MS) == Reservation("soon", cost(), NOW_MS + HOUR_MS)


def test_reservation_passes_accounts_that_may_not_make_the_type() -> None:
    pool = make_pool([account("barred", barred=(NO_HTTP,)), account("b", concurrent=BUSY)])
    kept = reserve(cost(), pool, now_ms=NOW_MS, types=HTTP)
    assert kept is not None
    assert kept.account == "b"


@pytest.mark.parametrize(
    "accounts",
    [
        [],
        [account(barred=(NO_HTTP,))],
        [account(concurrent=msgspec.structs.replace(BUSY, releases=()))],
        [account(balance=CreditBalance(0, 0, NOW_MS))],
    ],
)
def test_reservation_is_not_made_while_the_time_of_free_room_is_unknown(accounts: list[Account]) -> None:
    assert reserve(cost(), make_pool(accounts), now_ms=NOW_MS, types=HTTP) is None


def test_smaller_measurement_does_not_take_room_that_is_kept_for_a_larger_one() -> None:
    slots = Meter("concurrent", 3, "until_released", held=1, releases=(MeterRelease(NOW_MS + HOUR_MS, 1),))
    pool = make_pool([account("a", concurrent=slots)])
    large = reserve(cost(slots=3), pool, now_ms=NOW_MS)
    assert large == Reservation("a", cost(slots=3), NOW_MS + HOUR_MS)
    wait = choose(cost(), pool, now_ms=NOW_MS, reserved=large)
    assert isinstance(wait, Wait)
    assert wait.accounts == (("a", KEPT_FREE),)
    assert wait.room_ms == NOW_MS + HOUR_MS
    assert choose(cost(), pool, now_ms=NOW_MS, reserved=Reservation("a", cost(slots=2), NOW_MS + HOUR_MS)) == Send(
        "a", "k"
    )


def test_smaller_measurement_goes_by_another_account_than_the_reserved_one() -> None:
    pool = make_pool([account("a"), account("b", sends=9)])
    kept = Reservation("a", cost(slots=100), NOW_MS)
    assert choose(cost(), pool, now_ms=NOW_MS, reserved=kept) == Send("b", "k")


@pytest.mark.parametrize(("free", "goes"), [(160, True), (159, False)])
def test_balance_is_kept_for_the_larger_measurement_too(free: int, *, goes: bool) -> None:
    pool = make_pool([account("a", balance=CreditBalance(free, free, NOW_MS))])
    kept = Reservation("a", cost(100), NOW_MS)
    assert isinstance(choose(cost(60), pool, now_ms=NOW_MS, reserved=kept), Send) is goes


@given(ago_ms=st.integers(-10 * PASSED_MS_MAX, 10 * PASSED_MS_MAX))
def test_measurement_is_passed_too_long_after_ten_minutes_or_if_the_clock_was_set_back(ago_ms: int) -> None:
    too_long = was_passed_too_long(NOW_MS - ago_ms, now_ms=NOW_MS)
    assert too_long is (ago_ms < 0 or ago_ms >= PASSED_MS_MAX)
    assert not was_passed_too_long(None, now_ms=NOW_MS)


def test_pool_is_exhausted_once_no_account_has_room_for_the_smallest_measurement() -> None:
    closed = account("c", closed_until_ms=NOW_MS + 1)
    full = account("f", concurrent=BUSY)
    broke = account("b", balance=CreditBalance(0, 0, NOW_MS))
    assert is_exhausted(make_pool([closed, full, broke]), now_ms=NOW_MS)
    assert not is_exhausted(make_pool([closed, full, broke]), now_ms=NOW_MS + 1)
    assert not is_exhausted(make_pool([full, account("a")]), now_ms=NOW_MS)


releases = st.lists(st.builds(MeterRelease, st.integers(NOW_MS - 5, NOW_MS + 50), st.integers(1, 9)), max_size=6)


@given(releases=releases.map(sorted), foreign=st.integers(0, 9), amount=st.integers(0, 20))
def test_room_comes_at_the_first_time_at_which_there_is_enough(
    releases: list[MeterRelease], foreign: int, amount: int
) -> None:
    spent = sum(release.amount for release in releases)
    meter = Meter("m", 20, "sliding", spent=spent, foreign=foreign, releases=tuple(releases))
    at_ms = room_ms(meter, amount, now_ms=NOW_MS)
    if at_ms == NEVER_MS:
        assert room_at(meter, NOW_MS + 50) < amount
    else:
        assert amount == 0 or room_at(meter, at_ms) >= amount
        assert at_ms == NOW_MS or room_at(meter, at_ms - 1) < amount


def test_balance_is_ripes_figure_less_the_usage_that_ripe_has_not_booked_yet() -> None:
    spend = Meter("credits", 1_000, "sliding", spent=300, held=50)
    assert read_balance(None, spend, Reading(NOW_MS, 5_000, 200)) == CreditBalance(4_850, 5_000, NOW_MS)
    assert read_balance(None, spend, Reading(NOW_MS, 5_000, 400)) == CreditBalance(4_950, 5_000, NOW_MS)


def test_older_reading_of_a_balance_does_not_replace_a_newer_one() -> None:
    known = CreditBalance(10, 10, NOW_MS)
    spend = Meter("credits", 1_000, "sliding")
    assert read_balance(known, spend, Reading(NOW_MS - 1, 5_000, 0)) == known
    assert read_balance(known, spend, Reading(NOW_MS, 5_000, 0)).free == 5_000


def test_refusal_for_lack_of_credits_lowers_the_balance_and_never_raises_it() -> None:
    assert refuse_balance(CreditBalance(10, 12, 5), 60, now_ms=NOW_MS) == CreditBalance(10, 12, NOW_MS)
    assert refuse_balance(CreditBalance(100, 120, 5), 60, now_ms=NOW_MS) == CreditBalance(59, 120, NOW_MS)


def test_spending_under_a_clock_set_back_keeps_the_releases_in_order() -> None:
    meters = {"m": Meter("m", 100, "sliding")}
    for hold, now_ms in (("h1", NOW_MS), ("h2", NOW_MS - HOUR_MS), ("h3", NOW_MS - HOUR_MS)):
        taken = take(hold, {"m": 10}, meters, now_ms=now_ms)
        assert isinstance(taken, Taken)
        meters = close(taken.hold, {"m": 10}, taken.meters, now_ms=now_ms).meters
    releases = meters["m"].releases
    assert list(releases) == sorted(releases)
    assert sum(release.amount for release in releases) == meters["m"].spent == 30


def test_promise_8_send_that_did_not_happen_is_refunded_whole() -> None:
    meters = {"slots": Meter("slots", 5, "until_released"), "credits": Meter("credits", 100, "sliding")}
    taken = take("h", {"slots": 1, "credits": 60}, meters, now_ms=NOW_MS)
    assert isinstance(taken, Taken)
    end = refund(taken.hold, taken.meters, now_ms=NOW_MS)
    assert end.meters == meters
    assert end.hold.lines == {}
