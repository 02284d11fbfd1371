"""Reading back a measurement at RIPE: when it has ended, when it is counted, and what a missing answer means."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.atlas import Failed, Ongoing, Succeeded, deadline_ms, expected_end_ms
from paceline.core.jobs.atlas_replies import ListedMeasurement
from paceline.core.jobs.observations import (
    FIRST_COUNT_MS,
    GHOST_MS,
    GONE,
    RETRY_MS_MAX,
    Beyond,
    Count,
    Gone,
    PriceDiffers,
    begins_ms,
    first_count_ms,
    given_up_ms,
    is_unseen,
    judge_by_count,
    judge_by_status,
    may_end_early,
    next_count_ms,
    observe,
    price_differences,
    reported_of,
    retry_count_ms,
    scheduled_of,
    uncounted,
)
from paceline.core.jobs.values import AtlasMeasurement
from tests.core.support.measurements import NOW_MS, NOW_S, definition, measurement, stored

TWO = measurement(definition(), definition("traceroute", protocol="ICMP"))
ITEM = stored(
    asked=TWO,
    answered_ms=NOW_MS,
    atlas=(AtlasMeasurement(101, 2, 3), AtlasMeasurement(102, None, 0)),
)
PERIODIC = measurement(definition(interval=60), is_oneoff=False, start_time=NOW_S + 1_000, stop_time=NOW_S + 5_000)


def test_observation_takes_ripes_newest_status_and_else_the_stored_one() -> None:
    first, second = observe(ITEM, {102: ListedMeasurement(102, 1, scheduled=10)})
    assert (first.status, first.delivered, first.scheduled, first.listed) == (2, 3, None, None)
    assert (second.status, second.delivered, second.scheduled) == (1, 0, 10)
    assert [one.atlas_id for one in (first, second)] == [101, 102]
    _, never_told = observe(ITEM, {})
    assert never_told.status == 0


def test_probes_of_a_periodic_measurement_do_not_say_how_many_results_will_come() -> None:
    item = stored(asked=PERIODIC, answered_ms=NOW_MS, atlas=(AtlasMeasurement(101, 2, 3),))
    [one] = observe(item, {101: ListedMeasurement(101, 2, scheduled=10)})
    assert one.scheduled is None
    assert scheduled_of([one]) == (10,)


@pytest.mark.parametrize(("status", "may"), [(0, True), (1, True), (2, True), (6, True), (4, False), (5, False)])
def test_definition_may_deliver_until_ripe_says_that_it_has_ended(status: int, *, may: bool) -> None:
    first, _ = observe(ITEM, {101: ListedMeasurement(101, status)})
    assert first.may_deliver is may


def test_measurement_is_unseen_once_ripe_should_have_listed_it() -> None:
    first, second = observe(ITEM, {101: ListedMeasurement(101, 2)})
    assert not is_unseen(ITEM, first, now_ms=NOW_MS + 10 * GHOST_MS)
    assert not is_unseen(ITEM, second, now_ms=NOW_MS + GHOST_MS - 1)
    assert is_unseen(ITEM, second, now_ms=NOW_MS + GHOST_MS)


def test_results_begin_with_the_last_start_and_never_before_the_send() -> None:
    assert begins_ms(ITEM) == NOW_MS
    assert begins_ms(stored(asked=PERIODIC, answered_ms=NOW_MS)) == NOW_MS + 1_000_000
    assert given_up_ms(stored(asked=PERIODIC, answered_ms=NOW_MS)) == deadline_ms(PERIODIC, sent_ms=NOW_MS)


def test_measurement_is_expected_to_end_at_its_stop_or_soon_after_a_one_off_begins() -> None:
    assert expected_end_ms(PERIODIC, sent_ms=NOW_MS) == NOW_MS + 5_000_000
    soon_ms = expected_end_ms(TWO, sent_ms=NOW_MS)
    assert NOW_MS < soon_ms < deadline_ms(TWO, sent_ms=NOW_MS)
    later = measurement(start_time=NOW_S + 1_000)
    assert expected_end_ms(later, sent_ms=NOW_MS) == soon_ms + 1_000_000


def test_count_can_end_a_measurement_early_only_if_every_open_definition_says_how_many_come() -> None:
    assert may_end_early(observe(ITEM, {101: ListedMeasurement(101, 2, scheduled=5), 102: ListedMeasurement(102, 4)}))
    assert not may_end_early(
        observe(ITEM, {101: ListedMeasurement(101, 2, scheduled=5), 102: ListedMeasurement(102, 2)})
    )
    assert not may_end_early(
        observe(ITEM, {101: ListedMeasurement(101, 2, scheduled=0), 102: ListedMeasurement(102, 4)})
    )


def test_promise_11_measurement_ends_with_its_last_definition_and_succeeds_only_if_all_did() -> None:
    def judged(first: int, second: int) -> object:
        observed = observe(ITEM, {101: ListedMeasurement(101, first), 102: ListedMeasurement(102, second)})
        return judge_by_status(ITEM, observed, now_ms=NOW_MS)

    assert judged(4, 2) == Ongoing()
    assert judged(4, 4) == Succeeded()
    assert isinstance(judged(4, 7), Failed)
    assert judged(7, 1) == Ongoing()


def test_count_of_all_results_ends_a_one_off_that_ripe_still_lists_as_running() -> None:
    observed = observe(ITEM, {101: ListedMeasurement(101, 2, scheduled=5), 102: ListedMeasurement(102, 2, scheduled=5)})
    assert judge_by_count(ITEM, observed, [5, 4], now_ms=NOW_MS) == Ongoing()
    assert judge_by_count(ITEM, observed, [5, 5], now_ms=NOW_MS) == Succeeded(frees_slot=False)


def test_measurement_that_ripe_has_no_more_fails_and_one_beyond_counting_keeps_its_last_count() -> None:
    observed = observe(ITEM, {101: ListedMeasurement(101, 4), 102: ListedMeasurement(102, 4)})
    failed = judge_by_count(ITEM, observed, [Gone("404"), 5], now_ms=NOW_MS)
    assert failed == Failed(GONE)
    assert judge_by_count(ITEM, observed, [Beyond("too many"), 5], now_ms=NOW_MS) == Succeeded()
    assert reported_of(observed, [Beyond("too many"), 5]) == ((4, 3), (4, 5))
    assert reported_of(observed) == ((4, 3), (4, 0))


def test_missing_results_settle_nothing_before_ripe_should_have_listed_the_measurement() -> None:
    unlisted = observe(ITEM, {101: ListedMeasurement(101, 4)})
    gone: list[Count] = [5, Gone("RIPE answered 404")]
    assert uncounted(ITEM, unlisted, gone, now_ms=NOW_MS) == "RIPE answered 404"
    assert uncounted(ITEM, unlisted, gone, now_ms=NOW_MS + GHOST_MS) == ""
    assert uncounted(ITEM, unlisted, [5, 5], now_ms=NOW_MS) == ""


def test_probes_are_known_once_ripe_lists_some() -> None:
    listed = {101: ListedMeasurement(101, 2, scheduled=0), 102: ListedMeasurement(102, 2, scheduled=7)}
    assert scheduled_of(observe(ITEM, listed)) == (None, 7)
    assert scheduled_of(observe(ITEM, {})) == (None, None)


def test_price_that_differs_from_ripes_is_reported_with_both_figures() -> None:
    one, two = observe(ITEM, {101: ListedMeasurement(101, 2, credits_per_result=999), 102: ListedMeasurement(102, 2)})
    assert price_differences(ITEM, [one, two]) == [PriceDiffers(101, 999, 6)]
    one, two = observe(ITEM, {101: ListedMeasurement(101, 2, credits_per_result=6)})
    assert price_differences(ITEM, [one, two]) == []


@given(age_ms=st.integers(0, 10**9))
def test_running_measurement_is_counted_again_once_its_age_has_doubled(age_ms: int) -> None:
    now_ms = NOW_MS + age_ms
    again_ms = next_count_ms(begins_ms=NOW_MS, now_ms=now_ms)
    assert again_ms - now_ms >= FIRST_COUNT_MS
    assert again_ms - NOW_MS >= 2 * age_ms
    assert first_count_ms(NOW_MS) == NOW_MS + FIRST_COUNT_MS


def test_failed_count_is_tried_in_the_next_pass_then_ever_later_up_to_a_limit() -> None:
    waits = [retry_count_ms(failures, now_ms=NOW_MS) - NOW_MS for failures in range(1, 12)]
    assert waits[0] == 0
    assert waits == sorted(waits)
    assert waits[1] > 0
    assert waits[-1] == RETRY_MS_MAX
