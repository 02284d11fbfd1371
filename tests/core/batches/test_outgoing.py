"""What follows from a worker's report."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.calls import CallRefusal
from paceline.core.batches.outgoing import WorkReport, refuse_to_hand_out, settle_report, why_not_moved
from paceline.core.batches.provider import ProviderSpec, RetrySpec, policy_of, provider_problems
from paceline.core.batches.values import OutCall

POLICY = policy_of(ProviderSpec(kind="outgoing", retry=RetrySpec(max_attempts=3, base="1s", cap="10s")))
RUN = OutCall(77, 1, 5, "daily", "r", "2026-09-21", started_ms=1_000)


def test_outgoing_provider_adds_no_time_out_of_its_own_to_a_lease() -> None:
    assert POLICY.timeout_ms == 0
    assert policy_of(ProviderSpec("https://a.test")).timeout_ms == 30_000


def test_report_of_success_is_done_and_speaks_for_the_provider() -> None:
    settled = settle_report(RUN, WorkReport("ok", payload="{}"), POLICY, ended_ms=1_250, chance=0.5)
    assert (settled.handle, settled.attempt, settled.state, settled.verdict) == (77, 1, "done", "good")
    assert (settled.started_ms, settled.ended_ms, settled.latency_ms, settled.payload) == (1_000, 1_250, 250.0, "{}")


def test_report_of_failure_is_a_dead_letter_and_does_not_count_against_the_provider() -> None:
    settled = settle_report(RUN, WorkReport("failed"), POLICY, ended_ms=1_250, chance=0.5)
    assert (settled.state, settled.verdict, settled.reason) == ("failed", "good", "the worker reported a failure")


@given(attempt=st.integers(1, 4), after_ms=st.none() | st.integers(0, 100_000), chance=st.floats(0, 0.999))
def test_retry_waits_for_its_back_off_and_the_workers_delay_until_attempts_are_used_up(
    attempt: int, after_ms: int | None, chance: float
) -> None:
    run = msgspec.structs.replace(RUN, attempt=attempt)
    settled = settle_report(run, WorkReport("retry", after_ms=after_ms), POLICY, ended_ms=2_000, chance=chance)
    assert settled.verdict == "bad"
    assert settled.closed_until_ms == 0
    if attempt >= 3:
        assert settled.state == "failed"
        assert settled.reason == f"the worker asked for a retry; given up after {attempt} attempts"
        return
    pause_ms = settled.not_before_ms - 2_000
    assert settled.state == "retry"
    assert pause_ms >= (after_ms or 0)
    assert pause_ms <= max(after_ms or 0, 1_000 << (attempt - 1))


@pytest.mark.parametrize(
    ("unknown", "attempt", "lost", "state"),
    [
        ("retry", 2, True, None),
        ("retry", 4, True, "unknown"),
        ("retry", 4, False, "failed"),
        ("hold", 1, False, None),
        ("hold", 2, True, "unknown"),
    ],
)
def test_run_that_may_have_been_done_is_handed_out_as_the_policy_says(
    unknown: Any, attempt: int, state: str | None, *, lost: bool
) -> None:
    policy = msgspec.structs.replace(POLICY, unknown=unknown)
    refusal = refuse_to_hand_out(policy, attempt=attempt, lost=lost)
    assert (refusal.state if isinstance(refusal, CallRefusal) else None) == state


def test_outgoing_provider_cannot_be_asked_whether_a_run_has_arrived() -> None:
    problems = provider_problems(ProviderSpec(kind="outgoing", unknown="look_up"))
    assert [problem.pointer for problem in problems] == ["/unknown"]


@pytest.mark.parametrize(
    ("spec", "attempt", "until_ms", "why"),
    [
        (ProviderSpec(kind="outgoing"), 1, 1_001, "out"),
        (ProviderSpec(kind="outgoing"), 1, 1_000, None),
        (ProviderSpec(kind="outgoing", unknown="hold"), 1, 1_000, "unreported"),
        (ProviderSpec(kind="outgoing", retry=RetrySpec(max_attempts=3)), 2, 1_000, None),
        (ProviderSpec(kind="outgoing", retry=RetrySpec(max_attempts=3)), 3, 1_000, "unreported"),
        (ProviderSpec("https://a.test"), 1, 1_000, "out"),
        (ProviderSpec(kind="outgoing"), 1, None, "out"),
    ],
)
def test_run_whose_worker_may_report_or_that_becomes_a_dead_letter_is_not_moved(
    spec: ProviderSpec, attempt: int, until_ms: int | None, why: str | None
) -> None:
    assert why_not_moved(spec, attempt=attempt, until_ms=until_ms, now_ms=1_000) == why
