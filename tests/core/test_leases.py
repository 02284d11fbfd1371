"""Claimed work may start only if it ends before its lease."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.leases import (
    POST_MS_MAX,
    SEND_LEASE_MS,
    SEND_MS_MAX,
    Leased,
    check_lease,
    fits_lease,
    given_up_before_ms,
    may_send,
    sort_out,
    write_time_ms,
)

MS = st.integers(min_value=0, max_value=10**13)
TAKES = st.integers(min_value=0, max_value=10**6)


@given(now_ms=MS, until_ms=MS, takes_ms=TAKES)
def test_work_that_starts_is_over_before_its_lease_however_long_it_takes(
    now_ms: int, until_ms: int, takes_ms: int
) -> None:
    start, give_back = sort_out([Leased(until_ms, takes_ms)], lambda one: one, now_ms=now_ms)
    assert len(start) + len(give_back) == 1
    assert bool(start) == (now_ms + takes_ms <= until_ms)


@given(timeout_ms=TAKES, lease_ms=st.integers(min_value=1_000, max_value=10**6), late_ms=TAKES)
def test_check_starts_while_half_of_a_short_lease_is_left(timeout_ms: int, lease_ms: int, late_ms: int) -> None:
    lease = check_lease(lease_ms, timeout_ms=timeout_ms, lease_ms=lease_ms)
    fits = fits_lease(lease, now_ms=late_ms)
    assert fits or late_ms > 0, "a check whose claim took no time is always made"
    assert not fits or late_ms + min(timeout_ms, lease_ms // 2) <= lease_ms


@given(asked_ms=MS, now_ms=MS)
def test_lease_counts_from_the_write_and_never_from_before_it_was_asked_for(asked_ms: int, now_ms: int) -> None:
    assert write_time_ms(asked_ms, now_ms) == max(asked_ms, now_ms)
    assert write_time_ms(asked_ms, None) == asked_ms


@given(intent_ms=MS, late_ms=st.integers(min_value=-(10**6), max_value=10**6), took_ms=st.integers(0, SEND_MS_MAX))
def test_send_that_starts_has_its_answer_before_anybody_may_give_it_up(
    intent_ms: int, late_ms: int, took_ms: int
) -> None:
    now_ms = intent_ms + late_ms
    starts = may_send(intent_ms, now_ms=now_ms)
    assert starts == (abs(late_ms) <= SEND_LEASE_MS - SEND_MS_MAX)
    assert not starts or intent_ms >= given_up_before_ms(now_ms + took_ms)


@given(intent_ms=MS, now_ms=MS)
def test_send_that_may_be_given_up_is_not_started(intent_ms: int, now_ms: int) -> None:
    assert not (may_send(intent_ms, now_ms=now_ms) and intent_ms < given_up_before_ms(now_ms))


def test_post_that_starts_is_over_well_before_its_send_may_be_given_up() -> None:
    assert POST_MS_MAX < SEND_MS_MAX < SEND_LEASE_MS
