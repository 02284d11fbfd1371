"""Names, admission, edits of accounts, refusals and upkeep: rules that every engine shares."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.accounts import (
    enable_key,
    limits_of,
    meter_name,
    pool_key,
    put_account,
    quarantine_key,
    slots_back,
)
from paceline.core.jobs.admission import after_admission, budget_of, refuse_submission, reserved_of
from paceline.core.jobs.cost import Cost
from paceline.core.jobs.job import Job
from paceline.core.jobs.meters import Meter, MeterRelease
from paceline.core.jobs.names import handle_of, hold_of, job_name, job_numbers, key_id, key_number
from paceline.core.jobs.pool import Key
from paceline.core.jobs.refusals import (
    clears_account,
    clears_pause,
    clears_target,
    closed_until,
    full_meter,
    later_pause,
    later_target,
)
from paceline.core.jobs.upkeep import days_before, is_duty_due, may_be_removed, next_send_ms, pulled_back_ms
from paceline.core.jobs.values import (
    AccountClosed,
    AccountSpec,
    Already,
    MeterFull,
    OverCredits,
    Paused,
    SeenAccount,
    StoredJob,
    Submission,
    TargetFull,
)

NOW_MS = 1_800_000_000_000
COST = Cost(credits=60, results=10, concurrent=1, daily_credits=60, daily_results=10)


@given(job=st.integers(1, 2**40), index=st.integers(0, 2**14 - 1), attempt=st.integers(0, 9_999))
def test_handles_and_holds_are_split_back_into_their_parts(job: int, index: int, attempt: int) -> None:
    hold = hold_of(handle_of(job, index), attempt)
    assert (hold >> 28, hold >> 14 & 16_383, hold & 16_383) == (job, index, attempt)


@given(number=st.integers(0, 10**17))
def test_key_id_and_key_number_convert_into_each_other(number: int) -> None:
    assert key_number(key_id(number)) == number


@pytest.mark.parametrize("name", ["", "k", "7", "k-1", "kk7", "k7 ", "k٣", "k" + "9" * 19])
def test_other_texts_name_no_key(name: str) -> None:
    assert key_number(name) == -1


@given(number=st.integers(1, 2**40), now_ms=st.integers(NOW_MS, 4_000_000_000_000))
def test_number_of_a_job_is_found_in_its_name(number: int, now_ms: int) -> None:
    assert number in job_numbers(job_name(number, now_ms=now_ms))


def submission(count: int, digest: str = "d") -> Submission:
    return Submission("ann", Job(()), (COST,) * count, digest)


def stored(digest: str) -> StoredJob:
    return StoredJob("j", 1, "ann", "", None, digest, 0, 1, 1, 0, 0, 0, 60, 0, 0)


@given(limit=st.integers(0, 500), spent=st.integers(0, 300), held=st.integers(0, 300), count=st.integers(1, 5))
def test_job_is_admitted_only_within_the_remaining_credits_of_the_day(
    limit: int, spent: int, held: int, count: int
) -> None:
    budget = budget_of(limit, spent=spent, held=held, now_ms=NOW_MS)
    refused = refuse_submission("d", reserved_of(submission(count)), budget, None)
    if spent + held + 60 * count > limit:
        assert refused == OverCredits(60 * count, budget)
    else:
        assert refused is None
        after = after_admission(budget, reserved_of(submission(count)))
        assert after == budget_of(limit, spent=spent, held=held + 60 * count, now_ms=NOW_MS)


def test_idempotency_key_is_answered_before_credits_are_counted() -> None:
    budget = budget_of(0, spent=0, held=0, now_ms=NOW_MS)
    assert refuse_submission("d", 60, budget, stored("d")) == Already(stored("d"), budget, same=True)
    assert refuse_submission("d", 60, budget, stored("e")) == Already(stored("e"), budget, same=False)


def test_put_of_an_account_is_created_replaced_unchanged_or_refused() -> None:
    old, new = AccountSpec(concurrent=1), AccountSpec(concurrent=2)
    assert put_account(new, None, None) == "created"
    assert put_account(new, old, None) == "replaced"
    assert put_account(old, old, None) == "unchanged"
    assert put_account(new, old, SeenAccount(new)) == "revision_mismatch"
    assert put_account(new, old, SeenAccount(None)) == "revision_mismatch"
    assert put_account(new, old, SeenAccount(old)) == "replaced"


def test_enabling_a_key_ends_its_quarantine_and_disabling_keeps_it() -> None:
    assert enable_key(enabled=True) == (True, "", True)
    assert enable_key(enabled=False) == (False, None, False)
    assert quarantine_key("no") == (None, "no", False)
    assert quarantine_key("") == (None, "refused", False)
    assert pool_key(7, enabled=True, quarantine="") == Key("k7")
    assert pool_key(7, enabled=True, quarantine="no") == Key("k7", "quarantined", "no")
    assert pool_key(7, enabled=False, quarantine="no") == Key("k7", "disabled")


def test_overdue_slots_are_expected_now_and_later_ones_together() -> None:
    slots = [(5, 1), (20, 2), (20, 3), (99, 1), (9, 4)]
    assert slots_back(slots, now_ms=10, until_ms=50) == (MeterRelease(10, 5), MeterRelease(20, 5))


@given(limit=st.integers(1, 200), told=st.integers(1, 200) | st.none(), need=st.integers(1, 100))
def test_full_meter_has_less_room_than_was_refused(limit: int, told: int | None, need: int) -> None:
    after = full_meter(Meter("m", limit, "sliding"), MeterFull("credits", need, told), now_ms=NOW_MS)
    assert after.limit == min(limit, limit if told is None else told)
    assert after.limit - after.foreign < need


def test_refusal_never_shortens_a_wait() -> None:
    assert closed_until(9, AccountClosed(5, "no")) == 9
    assert closed_until(3, AccountClosed(5, "no")) == 5
    assert later_target(TargetFull("t", 9, 1, "a"), TargetFull("t", 5, 2, "b")) == TargetFull("t", 9, 2, "b")
    assert later_target(None, TargetFull("t", 5, 2, "b")) == TargetFull("t", 5, 2, "b")
    assert later_pause(Paused(9, 1, "a"), Paused(5, 2, "b")) == Paused(9, 2, "b")


def test_send_clears_only_refusals_whose_wait_is_over() -> None:
    assert clears_pause(Paused(5, 1, "a"), now_ms=5)
    assert not clears_pause(Paused(6, 1, "a"), now_ms=5)
    assert not clears_pause(Paused(5, 0, "a"), now_ms=5)
    assert not clears_pause(None, now_ms=5)
    assert clears_account("no", 5, now_ms=5)
    assert not clears_account("no", 6, now_ms=5)
    assert not clears_account("", 5, now_ms=5)
    assert clears_target(TargetFull("t", 5, 1, "a"), now_ms=5)
    assert not clears_target(TargetFull("t", 6, 1, "a"), now_ms=5)


def test_job_may_be_removed_only_if_it_finished_earlier_without_open_webhook_or_slot() -> None:
    assert may_be_removed(finished_ms=4, hook_ms=None, slots=0, before_ms=5)
    assert not may_be_removed(finished_ms=5, hook_ms=None, slots=0, before_ms=5)
    assert not may_be_removed(finished_ms=None, hook_ms=None, slots=0, before_ms=5)
    assert not may_be_removed(finished_ms=4, hook_ms=9, slots=0, before_ms=5)
    assert not may_be_removed(finished_ms=4, hook_ms=None, slots=1, before_ms=5)


def test_duty_is_due_after_its_time_and_after_a_clock_set_back() -> None:
    def due(taken_ms: int | None) -> bool:
        return is_duty_due(taken_ms, every_ms=100, now_ms=1_000, apart_ms_max=10)

    assert due(None)
    assert due(900)
    assert not due(901)
    assert not due(1_010)
    assert due(1_011)


def test_next_send_is_now_if_something_is_queued_else_the_earliest_wait() -> None:
    assert next_send_ms(queued=True, later_ms=[5]) == 0
    assert next_send_ms(queued=False, later_ms=[None, 7, 5]) == 5
    assert next_send_ms(queued=False, later_ms=[None, None]) is None


def test_times_move_back_only_from_beyond_the_latest() -> None:
    assert pulled_back_ms(11, latest_ms=10) == 10
    assert pulled_back_ms(10, latest_ms=10) is None


def test_account_has_one_limit_and_one_name_for_each_meter() -> None:
    limits = limits_of(AccountSpec(concurrent=1, daily_results=2, daily_credits=3))
    assert limits == {"concurrent": 1, "results": 2, "credits": 3}
    assert len({meter_name(account, meter) for account in ("a", "b") for meter in limits}) == 6


@given(before_ms=st.integers(0, 10**13))
def test_meters_are_removed_for_the_days_before_a_time(before_ms: int) -> None:
    day = days_before(before_ms)
    assert day * 86_400_000 <= before_ms < (day + 1) * 86_400_000


def test_promise_11_job_is_finished_when_all_ended_and_successful_only_if_all_were_done() -> None:
    def job(**fields: int) -> StoredJob:
        return msgspec.structs.replace(stored("d"), measurements=2, **fields)

    assert (job().state, job().finished, job().success) == ("queued", False, False)
    assert job(started_ms=1).state == "running"
    assert job(started_ms=1, cancelled_ms=2).state == "cancelling"
    half = job(started_ms=1, cancelled_ms=2, finished_ms=3, done=1, cancelled=1)
    assert (half.state, half.finished, half.success) == ("finished", True, False)
    whole = job(started_ms=1, finished_ms=3, done=2)
    assert (whole.state, whole.finished, whole.success) == ("finished", True, True)
    assert not job(started_ms=1, done=2).success
