"""When measurements are sent and jobs end, where each figure can be computed by hand."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from paceline.core.jobs.atlas import ONEOFF_MS, deadline_ms
from paceline.core.jobs.cost import Cost
from paceline.core.jobs.meters import CreditBalance, Meter, MeterRelease
from paceline.core.jobs.pool import Account, Barred, Gate, Refuse, make_pool
from paceline.core.jobs.send_order import QueuedUser
from paceline.core.jobs.values import StoredMeasurement
from paceline.core.leases import POST_MS_MAX
from paceline.core.why import send_eta
from paceline.core.why.chain import Eta
from paceline.core.why.job_eta import KINDS_MAX, begin_eta, end_eta, kinds_of_sends, sent_eta
from paceline.core.why.measurements import MeasurementFacts, why_measurement
from paceline.core.why.send_eta import EARLY_MS, LATE_MS, LOST_MS, OVERDUE_MS, PLAYED_MAX, SendForecast
from paceline.core.why.send_line import SendLine, WaitingSend, in_order, place_of, waiting_of
from tests.core.support.measurements import NOW_MS, NOW_S, definition, measurement, stored
from tests.core.support.pool_stage import HOUR_MS, account
from tests.core.why.test_why_measurements import JOB

COST = stored().cost
PING = frozenset({"ping"})
DAY_MS = 86_400_000
FULL = Meter("concurrent", 1, "until_released", held=1, releases=(MeterRelease(NOW_MS + HOUR_MS, 1),))


def mine(before: int = 0, **fields: Any) -> WaitingSend:
    return WaitingSend("ada", before, COST, PING)._replace(**fields)


def user(owner: str, *items: StoredMeasurement, queued: int | None = None) -> QueuedUser:
    return QueuedUser(owner, len(items) if queued is None else queued, items)


def line(*users: QueuedUser, accounts: list[Account] | None = None, **fields: Any) -> SendLine:
    pool = make_pool([account()] if accounts is None else accounts)
    return SendLine(users or (user("ada", stored(1)),), pool)._replace(**fields)


def sent(one: WaitingSend | None = None, at: SendLine | None = None) -> tuple[int, int] | None:
    """From and to, counted from now."""
    eta = SendForecast(at or line(), now_ms=NOW_MS).eta(one or mine())
    return None if eta is None else (eta.from_ms - NOW_MS, eta.to_ms - NOW_MS)


def test_measurement_with_room_and_nothing_before_it_is_sent_now() -> None:
    assert sent() == (0, 0)
    assert sent(at=line(sending=1)) == (0, LOST_MS)


def test_measurement_waits_for_its_own_gate_and_for_a_pause_of_everybody() -> None:
    assert sent(mine(open_ms=NOW_MS + 700)) == (700, 700)
    assert sent(at=line(paused=Gate(NOW_MS + 900, "slow down"))) == (900, 900)


def test_promise_13_measurement_is_sent_after_one_of_each_user_at_each_turn() -> None:
    both = line(user("bob", stored(2, "bob")), user("ada", stored(1), stored(3)))
    assert sent(mine(), both) == (0, POST_MS_MAX)
    assert sent(mine(1), both) == (0, 2 * POST_MS_MAX)
    assert [item.handle for item in in_order(both, now_ms=NOW_MS)] == [2, 1, 3]
    assert (place_of(both, "ada", 0), place_of(both, "ada", 1), place_of(both, "cyd", 0)) == (1, 2, 2)
    assert place_of(both._replace(unread=9), "ada", 1) == 3
    assert in_order(SendLine((), make_pool([])), now_ms=NOW_MS) == []


def test_measurement_that_the_dispatcher_may_take_later_is_sent_after_all_of_its_user() -> None:
    larger = stored(3, cost=msgspec.structs.replace(COST, daily_credits=600))
    assert sent(mine(), line(user("ada", stored(1), larger))) == (0, POST_MS_MAX)


def test_measurement_passed_by_others_goes_first() -> None:
    at = line(user("ada", stored(1)), user("bob", stored(2, "bob", passed_ms=NOW_MS)))
    assert sent(mine(), at) == (0, POST_MS_MAX)


def test_measurement_that_stops_before_it_can_be_sent_has_no_eta() -> None:
    assert sent(mine(stop_ms=NOW_MS)) is None
    assert sent(mine(stop_ms=NOW_MS + 5), line(sending=1)) == (0, 4)


@pytest.mark.parametrize(
    "accounts",
    [
        [],
        [account(enabled=False)],
        [account(concurrent=Meter("concurrent", 0, "until_released"))],
        [account(balance=CreditBalance(59, 59, NOW_MS))],
        [account(credits=Meter("credits", 1_000, "sliding", foreign=990))],
        [account(credits=Meter("credits", 1_000, "sliding", spent=990))],
    ],
)
def test_measurement_that_nothing_known_would_give_room_has_no_eta(accounts: list[Account]) -> None:
    assert sent(at=line(accounts=accounts)) is None


def test_measurement_waits_for_a_slot_that_comes_back_a_little_early_or_late() -> None:
    assert sent(at=line(accounts=[account(concurrent=FULL)])) == (HOUR_MS - EARLY_MS, HOUR_MS + LATE_MS)
    overdue = msgspec.structs.replace(FULL, releases=(MeterRelease(NOW_MS - 5, 1),))
    assert sent(at=line(accounts=[account(concurrent=overdue)])) == (0, OVERDUE_MS)


def test_measurement_behind_another_of_its_size_waits_for_the_slot_after_that() -> None:
    at = line(user("bob", stored(2, "bob")), user("ada", stored(1)), accounts=[account(concurrent=FULL)])
    eta = sent(mine(), at)
    assert eta is not None
    assert eta[0] == HOUR_MS - EARLY_MS + ONEOFF_MS - EARLY_MS
    assert eta[1] >= HOUR_MS + LATE_MS + ONEOFF_MS
    for unsure in (at._replace(gated=True), at._replace(unread=1)):
        assert sent(mine(), unsure) is not None
        assert (sent(mine(), unsure) or (0, 0))[0] == HOUR_MS - EARLY_MS
    assert (sent(mine(passed=True), at) or (0, 0))[0] == HOUR_MS - EARLY_MS


def test_measurement_of_a_user_who_is_not_in_the_queue_joins_at_its_end() -> None:
    at = line(user("bob", stored(2, "bob")), accounts=[account(concurrent=FULL)])
    eta = sent(mine(parked=True, open_ms=NOW_MS + 5), at._replace(not_queued=1))
    assert eta is not None
    assert eta[0] == HOUR_MS - EARLY_MS
    assert eta[1] > HOUR_MS + LATE_MS + ONEOFF_MS


def test_measurement_beside_larger_ones_may_wait_until_an_account_is_free_of_them() -> None:
    larger = stored(2, "bob", cost=msgspec.structs.replace(COST, daily_results=20))
    at = line(user("bob", larger), user("ada", stored(1)), accounts=[account(concurrent=FULL)])
    few = msgspec.structs.replace(account(concurrent=FULL), results=Meter("results", 35, "sliding"))
    wide, narrow = sent(mine(), at), sent(mine(), at._replace(pool=make_pool([few])))
    assert wide is not None
    assert narrow is not None
    assert wide[0] == narrow[0] == HOUR_MS - EARLY_MS
    assert narrow[1] - wide[1] >= DAY_MS


def test_closed_or_barred_account_is_waited_for_until_it_opens() -> None:
    closed = account(closed_until_ms=NOW_MS + 5_000)
    assert sent(at=line(accounts=[closed])) == (5_000, 5_000)
    barred = account(barred=(Barred("ping", NOW_MS + HOUR_MS, "no"),))
    eta = sent(at=line(accounts=[barred]))
    assert eta is not None
    assert eta[0] == HOUR_MS


def test_day_that_is_used_up_comes_back_with_its_releases() -> None:
    spend = Meter("credits", 100, "sliding", spent=100, releases=(MeterRelease(NOW_MS + HOUR_MS, 100),))
    assert sent(at=line(accounts=[account(credits=spend)])) == (HOUR_MS, HOUR_MS)
    results = Meter(
        "results", 10, "sliding", spent=10, releases=(MeterRelease(NOW_MS + 9, 4), MeterRelease(NOW_MS + HOUR_MS, 6))
    )
    assert sent(at=line(accounts=[account(results=results)])) == (HOUR_MS, HOUR_MS)


def test_measurement_whose_credits_others_will_use_up_has_no_eta() -> None:
    balance = CreditBalance(100, 100, NOW_MS)
    at = line(user("bob", stored(2, "bob")), user("ada", stored(1)), accounts=[account(balance=balance)])
    assert sent(mine(), at) is None


def test_measurement_behind_more_sends_than_are_played_takes_as_long_for_each() -> None:
    slots = Meter("concurrent", 1, "until_released")
    at = line(user("ada", stored(1), queued=PLAYED_MAX + 501), accounts=[account(scale=1_000, concurrent=slots)])
    near, far = sent(mine(PLAYED_MAX), at), sent(mine(PLAYED_MAX + 500), at)
    assert near is not None
    assert far is not None
    assert far[1] > near[1] * 1.2


def test_forecast_of_a_measurement_does_not_depend_on_earlier_questions() -> None:
    at = line(user("ada", stored(1), stored(2), stored(3)), accounts=[account(concurrent=FULL)])
    forecast = SendForecast(at, now_ms=NOW_MS)
    found = [forecast.eta(mine(before)) for before in (2, 0, 1, 2)]
    assert found == [SendForecast(at, now_ms=NOW_MS).eta(mine(before)) for before in (2, 0, 1, 2)]
    assert found[0] == found[3]


def test_send_that_no_account_allows_is_not_waited_for() -> None:
    huge = stored(2, "bob", cost=Cost(1, 1, 1_000, 1, 1))
    at = line(user("bob", huge), user("ada", stored(1)), accounts=[account(concurrent=FULL)])
    assert sent(mine(), at) is not None


def test_waiting_measurement_has_its_cost_gate_stop_and_place() -> None:
    asked = measurement(stop_time=NOW_S + 500)
    gates = [Gate(NOW_MS + 70, "full"), Gate(NOW_MS - 1, "was full")]
    parked = stored(asked=asked, state="parked", next_ms=NOW_MS + 50, passed_ms=NOW_MS)
    assert waiting_of(parked, 3, gates, now_ms=NOW_MS) == WaitingSend(
        "ada", 3, COST, PING, NOW_MS + 70, parked=True, passed=True, stop_ms=NOW_MS + 500_000
    )
    assert waiting_of(stored(next_ms=5), 0, [], now_ms=NOW_MS) == mine()


def test_why_of_a_measurement_has_an_eta_unless_somebody_has_to_act() -> None:
    facts = MeasurementFacts(JOB, stored(1), line=line())
    assert why_measurement(facts, now_ms=NOW_MS).eta == Eta(NOW_MS, NOW_MS)
    for helpless in ({"disabled": True}, {"daemons": 0}, {"decision": Refuse("too large")}, {"line": None}):
        assert why_measurement(facts._replace(**helpless), now_ms=NOW_MS).eta is None


def test_measurement_with_a_stop_says_by_when_it_must_be_sent() -> None:
    facts = MeasurementFacts(JOB, stored(1, asked=measurement(stop_time=NOW_S + 500)))
    [link] = [one for one in why_measurement(facts, now_ms=NOW_MS).chain if one.link == "due"]
    assert link.until_ms == NOW_MS + 500_000


def test_kinds_of_a_jobs_sends_are_each_named_by_the_first_and_the_last() -> None:
    items = [stored(1), stored(2, state="done"), stored(3), stored(4, state="parked", next_ms=9), stored(5)]
    found = kinds_of_sends(items)
    assert found is not None
    assert [(one.item.handle, one.own) for one in found.first] == [(1, 0), (4, 2)]
    assert [(one.item.handle, one.own) for one in found.last] == [(5, 2), (4, 2)]
    assert kinds_of_sends([stored(number, state="parked", next_ms=number) for number in range(KINDS_MAX + 1)]) is None


def test_job_begins_with_its_first_send_as_far_as_it_is_known() -> None:
    assert begin_eta([Eta(5, 9), None, Eta(7, 8)]) == Eta(5, 8)
    assert begin_eta([None]) is None


def test_job_ends_with_its_last_measurement_and_has_no_end_if_one_is_unknown() -> None:
    once = stored(1, state="ongoing", intent_ms=NOW_MS, answered_ms=NOW_MS)
    assert end_eta([once], [Eta(NOW_MS + 5, NOW_MS + 10**9)], now_ms=NOW_MS) == Eta(NOW_MS + 5, NOW_MS + 10**9)
    assert end_eta([once], [], now_ms=NOW_MS) == Eta(NOW_MS, NOW_MS + ONEOFF_MS + LATE_MS)
    assert end_eta([stored(1, state="unknown")], [], now_ms=NOW_MS) is None
    assert end_eta([once], [None], now_ms=NOW_MS) is None
    assert end_eta([], [], now_ms=NOW_MS) is None


def test_measurement_that_should_have_ended_ends_by_its_deadline() -> None:
    late = stored(1, state="ongoing", answered_ms=NOW_MS - HOUR_MS)
    latest_ms = max(deadline_ms(late.measurement, sent_ms=NOW_MS - HOUR_MS), NOW_MS) + 120_000
    assert end_eta([late], [], now_ms=NOW_MS) == Eta(NOW_MS, latest_ms)


def test_periodic_measurement_ends_about_its_stop_unless_it_is_being_stopped() -> None:
    asked = measurement(definition(interval=60), is_oneoff=False, stop_time=NOW_S + 5_000)
    runs = stored(1, asked=asked, state="ongoing", answered_ms=NOW_MS)
    stop_ms = NOW_MS + 5_000_000
    assert end_eta([runs], [], now_ms=NOW_MS) == Eta(stop_ms - EARLY_MS, stop_ms + LATE_MS)
    stopping = msgspec.structs.replace(runs, stopping=True)
    assert end_eta([stopping], [], now_ms=NOW_MS) == Eta(NOW_MS, stop_ms + LATE_MS)
    assert sent_eta(runs, Eta(NOW_MS, NOW_MS)) == Eta(stop_ms - EARLY_MS, stop_ms + LATE_MS)
    assert sent_eta(runs, None) is None


def test_measurement_on_its_way_ends_after_it_was_taken() -> None:
    found = end_eta([stored(1, state="sending")], [], now_ms=NOW_MS)
    assert found == Eta(NOW_MS, NOW_MS + LOST_MS + POST_MS_MAX + ONEOFF_MS + LATE_MS)


def test_earliest_slot_is_not_known_where_no_account_gives_back_enough() -> None:
    assert send_eta._SoonPlay([(5, 1)], 2).at(0) == 0
    assert send_eta._SoonPlay([(5, 1), (9, 1)], 2).at(0) == 9
