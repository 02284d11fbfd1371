"""Runs that have not ended: why they wait, what a failed attempt leads to, and what a claim may take."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.monitors.claim import TakeFacts, may_take
from paceline.core.monitors.dispatch import ATTEMPT_PAUSE_MS, RetryPolicy, after_attempt
from paceline.core.monitors.leases import ended
from paceline.core.monitors.outcome import REASON_CHARS_MAX, Done, Retry, RunState
from paceline.core.monitors.overlap import state_made, superseded_reason
from paceline.core.monitors.values import Claimed, Moved, Run, Settlement
from paceline.core.monitors.wait_reasons import HELD, UNCLAIMED, OpenRun, show_open, wait_reason

NOW_MS = 1_790_000_000_000
RUN = Run(1, "ada", "web", 7, 3, NOW_MS - 500, "waiting")
NOTED = "waiting for a place: all are taken"


def shown(found: OpenRun, *, disabled: bool = False, outgoing: bool = False, noted: str = "") -> tuple[RunState, str]:
    run = show_open(RUN, found, disabled=disabled, outgoing=outgoing, place_reason=lambda: noted, now_ms=NOW_MS)
    return run.state, run.reason


def test_run_that_is_out_is_shown_with_its_times_also_of_a_disabled_owner() -> None:
    found = OpenRun("out", behind=False, at_ms=NOW_MS + 9, started_ms=NOW_MS - 1, reason="attempt 2")
    run = show_open(RUN, found, disabled=True, outgoing=False, place_reason=lambda: NOTED, now_ms=NOW_MS)
    assert (run.state, run.reason, run.until_ms, run.started_ms) == ("out", "attempt 2", NOW_MS + 9, NOW_MS - 1)


def test_run_of_a_disabled_owner_is_held() -> None:
    assert shown(OpenRun("waiting", behind=True), disabled=True) == ("held", HELD)


@pytest.mark.parametrize("state", ["retry", "later"])
def test_pause_is_shown_until_it_is_over_and_then_the_run_waits(state: RunState) -> None:
    assert shown(OpenRun(state, behind=True, at_ms=NOW_MS + 1, reason="why")) == (state, "why")
    assert shown(OpenRun(state, behind=False, at_ms=NOW_MS + 1)) == (state, wait_reason(state, outgoing=False))
    assert shown(OpenRun(state, behind=False, at_ms=NOW_MS))[0] == "waiting"
    assert shown(OpenRun(state, behind=True, at_ms=NOW_MS))[0] == "parked"
    assert shown(OpenRun(state, behind=False))[0] == "waiting"


def test_run_behind_another_is_parked_and_says_why() -> None:
    assert shown(OpenRun("waiting", behind=True, reason="why")) == ("parked", "why")
    assert shown(OpenRun("waiting", behind=True)) == ("parked", wait_reason("parked", outgoing=False))


def test_run_that_lacks_only_a_place_says_what_the_claimer_has_noted() -> None:
    assert shown(OpenRun("waiting", behind=False), noted=NOTED) == ("waiting", NOTED)
    assert shown(OpenRun("waiting", behind=False)) == ("waiting", wait_reason("waiting", outgoing=False))


def test_outgoing_run_waits_for_a_checker_and_never_for_a_place() -> None:
    assert shown(OpenRun("waiting", behind=False), outgoing=True, noted=NOTED) == ("waiting", UNCLAIMED)
    assert wait_reason("parked", outgoing=True) == wait_reason("parked", outgoing=False)
    assert wait_reason("ok", outgoing=False) == ""


FAILED = Done(ok=False, reason="status 503")


def after(done: Done, *, attempt: int, attempts: int, attempts_max: int = 5) -> Done | Retry:
    return after_attempt(
        done, attempt=attempt, attempts=attempts, ended_ms=NOW_MS, policy=RetryPolicy(attempts_max=attempts_max)
    )


def test_good_check_is_done_at_any_attempt() -> None:
    assert after(Done(ok=True), attempt=1, attempts=3) == Done(ok=True)


def test_failed_check_is_tried_again_after_a_pause_while_it_has_attempts() -> None:
    again = Retry("attempt 2 of 3 failed: status 503", NOW_MS + ATTEMPT_PAUSE_MS)
    assert after(FAILED, attempt=2, attempts=3) == again


def test_last_attempt_fails_the_check_and_says_how_many_there_were() -> None:
    assert after(FAILED, attempt=1, attempts=1) == FAILED
    assert after(FAILED, attempt=2, attempts=1) == FAILED
    assert after(FAILED, attempt=3, attempts=3) == Done(ok=False, reason="status 503 (attempt 3 of 3)")
    assert after(FAILED, attempt=4, attempts=3) == Done(ok=False, reason="status 503 (attempt 4 of 4)")
    assert after(FAILED, attempt=1, attempts=3, attempts_max=1) == FAILED


@given(attempt=st.integers(1, 9), attempts=st.integers(1, 9), chars=st.integers(0, 2 * REASON_CHARS_MAX))
def test_reason_of_an_attempt_keeps_to_its_length(attempt: int, attempts: int, chars: int) -> None:
    outcome = after(Done(ok=False, reason="x" * min(chars, REASON_CHARS_MAX)), attempt=attempt, attempts=attempts)
    assert len(outcome.reason) <= REASON_CHARS_MAX


@pytest.mark.parametrize(
    ("state", "at_ms", "taken"),
    [
        ("waiting", NOW_MS + 9, "take"),
        ("held", 0, "take"),
        *((state, NOW_MS + 1, "early") for state in ("retry", "later", "parked")),
        *((state, NOW_MS, "take") for state in ("retry", "later", "parked", "out")),
        ("out", NOW_MS + 1, "refuse"),
        *((state, 0, "refuse") for state in ("ok", "failed", "dead", "unknown")),
    ],
)
def test_take_of_a_run_depends_on_its_state_and_time(state: RunState, at_ms: int, taken: str) -> None:
    run = TakeFacts(state, at_ms, 0, clear=True, disabled=False, defined=True)
    assert may_take(run, attempt=None, now_ms=NOW_MS) == taken


def test_new_run_begins_later_queued_or_waiting() -> None:
    assert state_made(NOW_MS + 1, busy=True, now_ms=NOW_MS) == "later"
    assert state_made(NOW_MS, busy=True, now_ms=NOW_MS) == "queued"
    assert state_made(0, busy=False, now_ms=NOW_MS) == "waiting"
    assert "more than 3 runs" in superseded_reason(3)


def test_ended_run_without_details_keeps_an_empty_document() -> None:
    end = ended(Settlement(7, 2, Done(ok=True, latency_ms=1.5, code=200), 10, 20))
    assert (end.state, end.latency_ms, end.code, end.detail) == ("ok", 1.5, 200, "{}")


def test_promise_5_claimed_run_has_the_computed_id() -> None:
    assert Claimed(1, 1, "ada", "web", 7, 3).run_id == "ada/web#7@3"


def test_entries_that_moved_made_a_run_or_skipped_one() -> None:
    assert Moved(Counter({5: 2, 6: 1}), 4).entries == 7
