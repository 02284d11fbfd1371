from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.calls import (
    RETRY_AFTER_MS_MAX,
    Call,
    CallRefusal,
    CallResult,
    CallSettlement,
    decide_call,
    is_missed,
    retry_pause_ms,
    settle_call,
)
from paceline.core.batches.provider import Method, Policy
from tests.core.batches.test_pace import POLICY

T0_MS = 1_800_000_000_000
CALL = Call(7, 1, "b/r@2027-01-15", "POST", "https://example.org/", {}, None, 1_000)


def policy(**changes: Any) -> Policy:
    return msgspec.structs.replace(POLICY, **changes)


def settle(
    *, by: Policy = POLICY, method: Method = "POST", attempt: int = 1, looks_up: bool = False, **more: Any
) -> CallSettlement:
    call = msgspec.structs.replace(CALL, method=method, attempt=attempt, looks_up=looks_up)
    result = CallResult(7, attempt, T0_MS, T0_MS + 40, 40.0, **({"reason": "why"} | more))
    return settle_call(call, result, by, chance=0.5)


@pytest.mark.parametrize("code", [200, 201, 204, 299])
def test_call_with_a_good_status_is_done(code: int) -> None:
    settled = settle(code=code, payload="{}")
    assert (settled.state, settled.verdict, settled.code, settled.payload) == ("done", "good", code, "{}")
    assert (settled.started_ms, settled.ended_ms, settled.latency_ms) == (T0_MS, T0_MS + 40, 40.0)


@pytest.mark.parametrize("code", [301, 400, 401, 404, 409, 422])
def test_call_with_any_other_status_fails_without_counting_against_the_provider(code: int) -> None:
    settled = settle(code=code)
    assert (settled.state, settled.verdict, settled.reason) == ("failed", "good", "why")


@pytest.mark.parametrize("code", [500, 502, 504, 429, 503])
def test_an_overloaded_provider_is_tried_again_until_the_last_attempt(code: int) -> None:
    settled = settle(code=code, attempt=4)
    assert (settled.state, settled.verdict, settled.lost) == ("retry", "bad", False)
    assert T0_MS + 40 <= settled.not_before_ms <= T0_MS + 40 + POLICY.retry_cap_ms
    last = settle(code=code, attempt=5)
    assert (last.state, last.verdict) == ("failed", "bad")
    assert "5 attempts" in last.reason


@pytest.mark.parametrize("code", [429, 503])
def test_status_429_or_503_closes_the_provider_for_a_while(code: int) -> None:
    settled = settle(code=code, attempt=3)
    assert settled.closed_until_ms == settled.not_before_ms > T0_MS + 40
    assert settle(code=500, attempt=3).closed_until_ms == 0


def test_retry_after_is_kept_and_bounded() -> None:
    settled = settle(code=500, retry_after_ms=90_000)
    assert settled.not_before_ms == settled.closed_until_ms == T0_MS + 40 + 90_000
    assert settle(code=429, retry_after_ms=10**12).closed_until_ms == T0_MS + 40 + RETRY_AFTER_MS_MAX
    assert settle(code=429, retry_after_ms=90_000, attempt=5).closed_until_ms == T0_MS + 40 + 90_000


def test_call_that_never_left_the_machine_fails_without_blaming_the_provider() -> None:
    settled = settle(fault="refused", arrived=False)
    assert (settled.state, settled.verdict) == ("failed", "none")


@pytest.mark.parametrize("unknown", ["retry", "hold", "look_up"])
@pytest.mark.parametrize(("method", "arrived"), [("GET", True), ("PUT", True), ("POST", False)])
def test_a_call_that_may_be_repeated_is_repeated_whatever_the_policy(
    unknown: str, method: Method, *, arrived: bool
) -> None:
    settled = settle(by=policy(unknown=unknown), method=method, fault="time_out", arrived=arrived)
    assert (settled.state, settled.lost) == ("retry", False)


def test_promise_9_a_call_that_may_have_arrived_follows_the_policy() -> None:
    assert settle(fault="time_out", by=policy(unknown="retry")).lost
    held = settle(fault="time_out", by=policy(unknown="hold"))
    assert (held.state, held.verdict) == ("unknown", "bad")
    assert settle(fault="time_out", attempt=5).state == "unknown"
    asked = settle(fault="time_out", attempt=5, by=policy(unknown="look_up"))
    assert (asked.state, asked.lost) == ("retry", True)


def test_promise_9_lookup_settles_an_unknown_call() -> None:
    by = policy(unknown="look_up")
    assert settle(by=by, looks_up=True, method="GET", code=200).state == "done"
    not_seen = settle(by=by, looks_up=True, method="GET", code=404)
    assert (not_seen.state, not_seen.lost, not_seen.not_before_ms) == ("retry", False, T0_MS + 40)
    assert settle(by=by, looks_up=True, method="GET", code=404, attempt=6).state == "failed"
    assert settle(by=by, looks_up=True, method="GET", code=403).state == "unknown"
    unsure = settle(by=by, looks_up=True, method="GET", fault="network")
    assert (unsure.state, unsure.lost) == ("retry", True)
    assert settle(by=by, looks_up=True, method="GET", code=500, attempt=6).state == "unknown"


def test_promise_9_lost_attempt_is_sent_again_looked_up_or_held_by_policy() -> None:
    assert decide_call("POST", policy(unknown="retry"), attempt=2, lost=True) == "send"
    assert decide_call("POST", policy(unknown="look_up"), attempt=2, lost=True) == "look_up"
    assert decide_call("GET", policy(unknown="hold"), attempt=2, lost=True) == "send"
    assert decide_call("POST", policy(unknown="hold"), attempt=1, lost=False) == "send"
    held = decide_call("POST", policy(unknown="hold"), attempt=2, lost=True)
    assert isinstance(held, CallRefusal)
    assert held.state == "unknown"


def test_attempt_beyond_the_maximum_is_not_sent_but_may_be_looked_up() -> None:
    given_up = decide_call("GET", POLICY, attempt=6, lost=True)
    assert isinstance(given_up, CallRefusal)
    assert given_up.state == "failed"
    unsure = decide_call("POST", POLICY, attempt=6, lost=True)
    assert isinstance(unsure, CallRefusal)
    assert unsure.state == "unknown"
    by = policy(unknown="look_up")
    assert decide_call("POST", by, attempt=6, lost=True) == "look_up"
    assert isinstance(decide_call("POST", by, attempt=7, lost=True), CallRefusal)


@given(st.integers(1, 100), st.floats(0, 1, exclude_max=True))
def test_a_pause_is_exponential_with_full_jitter_and_capped(attempt: int, chance: float) -> None:
    pause_ms = retry_pause_ms(attempt, POLICY, chance=chance)
    ceiling_ms = min(POLICY.retry_cap_ms, POLICY.retry_base_ms * 2 ** (attempt - 1))
    assert 0 <= pause_ms < ceiling_ms
    assert pause_ms == int(ceiling_ms * chance)


@given(
    st.sampled_from([{"code": code} for code in (200, 302, 404, 429, 500, 503)])
    | st.fixed_dictionaries({"fault": st.sampled_from(["time_out", "network", "refused"]), "arrived": st.booleans()}),
    st.integers(1, 12),
    st.sampled_from(["retry", "hold", "look_up"]),
    st.sampled_from(["GET", "POST", "look-up"]),
)
def test_promise_10_every_result_ends_the_run_or_brings_it_back_and_attempts_run_out(
    facts: dict[str, Any], attempt: int, unknown: str, kind: str
) -> None:
    by = policy(unknown=unknown)
    method: Method = "GET" if kind == "GET" else "POST"
    settled = settle(by=by, method=method, attempt=attempt, looks_up=kind == "look-up", **facts)
    assert (settled.handle, settled.attempt) == (7, attempt)
    if settled.state == "retry":
        assert settled.not_before_ms >= T0_MS + 40
        assert attempt < by.attempts_max or decide_call(method, by, attempt=attempt + 1, lost=settled.lost) != "send"
    if settled.state in ("failed", "unknown"):
        assert settled.reason


def test_a_run_is_missed_after_one_part_in_96_of_its_window() -> None:
    day_ms = 86_400_000
    assert not is_missed(T0_MS, T0_MS, T0_MS + day_ms, now_ms=T0_MS + day_ms // 96)
    assert is_missed(T0_MS, T0_MS, T0_MS + day_ms, now_ms=T0_MS + day_ms // 96 + 1)
