"""Small values: durations, instants, outcomes, health, dispatch."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from paceline.core.durations import format_duration, parse_duration_ms
from paceline.core.instants import parse_instant_ms, to_datetime, to_ms, to_text, to_text_or_none
from paceline.core.monitors.alerting.record import HealthRecord
from paceline.core.monitors.checks import Check, DnsCheck, HttpCheck, Method, OutgoingCheck, TcpCheck, TlsCheck
from paceline.core.monitors.dispatch import MakeCheck, RefuseCheck, RetryPolicy, decide, retry_delay_ms
from paceline.core.monitors.health import Glance, Health, judge
from paceline.core.monitors.outcome import Dead, Done, OpenState, RunState, TerminalState, Unknown, terminal_state

NOW_MS = 1_790_000_000_000


@given(ms=st.integers(0, 10**12 - 1))
def test_a_formatted_duration_is_exact(ms: int) -> None:
    assert parse_duration_ms(format_duration(ms)) == ms


@pytest.mark.parametrize(
    ("text", "ms"), [("500ms", 500), ("30s", 30_000), ("5m", 300_000), ("6h", 21_600_000), ("1d", 86_400_000)]
)
def test_a_duration_reads_as_people_write_it(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms
    assert format_duration(ms) == text


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "-5s", "1.5s", "1e9s", " 5s", "5s ", "5 s", "5S", "\u0665s", "5s\n", "9" * 13 + "s", "NaN", "1w"],
)
def test_text_that_is_no_duration_is_none(text: str) -> None:
    assert parse_duration_ms(text) is None


@given(text=st.text(max_size=20))
def test_any_text_is_a_duration_or_none(text: str) -> None:
    ms = parse_duration_ms(text)
    assert ms is None or parse_duration_ms(format_duration(ms)) == ms


@given(ms=st.integers(0, to_ms(datetime(9999, 1, 1, tzinfo=UTC))))
def test_an_instant_survives_datetime_and_text(ms: int) -> None:
    assert to_ms(to_datetime(ms)) == ms
    assert to_ms(datetime.fromisoformat(to_text(ms))) == ms
    assert to_text(ms).endswith("Z")
    assert parse_instant_ms(to_text(ms)) == ms
    assert to_text_or_none(ms) == to_text(ms)


@pytest.mark.parametrize(
    "text",
    ["", "2026-11-15", "2026-11-15T08:00:00", "2026-11-15T08:00:00+01:00", "2026-11-15 08:00:00Z", "2026-02-30T08:00Z"],
)
def test_text_that_is_no_instant_in_utc_is_none(text: str) -> None:
    assert parse_instant_ms(text) is None


def test_instant_that_is_missing_has_no_text() -> None:
    assert to_text_or_none(None) is None


def test_every_run_state_is_waiting_or_open_or_terminal() -> None:
    states = {"waiting", *get_args(OpenState), *get_args(TerminalState)}
    assert states == set(get_args(RunState))
    assert len(get_args(RunState)) == 1 + len(get_args(OpenState)) + len(get_args(TerminalState))


def test_each_outcome_has_its_terminal_state() -> None:
    assert terminal_state(Done(ok=True)) == "ok"
    assert terminal_state(Done(ok=False)) == "failed"
    assert terminal_state(Dead("x")) == "dead"
    assert terminal_state(Unknown("x")) == "unknown"


@given(
    attempt=st.integers(1, 10_000),
    base_ms=st.integers(1, 10_000),
    cap_ms=st.integers(1, 10**7),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_a_retry_waits_no_longer_than_the_doubled_base_and_the_cap(
    attempt: int, base_ms: int, cap_ms: int, chance: float
) -> None:
    policy = RetryPolicy(base_ms=base_ms, cap_ms=cap_ms)
    delay_ms = retry_delay_ms(attempt, policy=policy, chance=chance)
    assert 0 <= delay_ms <= cap_ms
    assert delay_ms <= base_ms * 2 ** min(attempt - 1, 64)


def test_the_whole_range_of_a_retry_is_used() -> None:
    policy = RetryPolicy(base_ms=1_000, cap_ms=300_000)
    assert [retry_delay_ms(attempt, policy=policy, chance=0.5) for attempt in (1, 2, 3, 20)] == [
        500,
        1_000,
        2_000,
        150_000,
    ]
    assert retry_delay_ms(3, policy=policy, chance=0.0) == 0


CHECKS: list[Check] = [
    *(HttpCheck(url="http://a/", method=method) for method in get_args(Method)),
    TcpCheck(host="a", port=1),
    DnsCheck(name="a"),
    TlsCheck(host="a"),
    OutgoingCheck(document={"kind": "outgoing"}),
]
REPEATABLE_METHODS = ("GET", "HEAD", "OPTIONS")


@pytest.mark.parametrize("check", CHECKS, ids=str)
@pytest.mark.parametrize("attempt", [1, 5, 6])
@pytest.mark.parametrize("lost", [False, True])
def test_promise_9_interrupted_call_that_is_not_safe_to_repeat_is_unknown(
    *, check: Check, attempt: int, lost: bool
) -> None:
    decision = decide(check, attempt=attempt, lost=lost, policy=RetryPolicy(attempts_max=5))
    if lost and isinstance(check, HttpCheck) and check.method not in REPEATABLE_METHODS:
        assert isinstance(decision, RefuseCheck)
        assert isinstance(decision.outcome, Unknown)
    elif attempt == 6:
        assert isinstance(decision, RefuseCheck)
        assert isinstance(decision.outcome, Dead)
    else:
        assert decision == MakeCheck(check)


@pytest.mark.parametrize("lost", [False, True])
def test_promise_3_a_run_of_a_deleted_monitor_is_never_sent(*, lost: bool) -> None:
    decision = decide(None, attempt=1, lost=lost, policy=RetryPolicy())
    assert isinstance(decision, RefuseCheck)
    assert isinstance(decision.outcome, Dead)


@pytest.mark.parametrize(
    ("due_ago_ms", "open_ago_ms", "settled", "expected"),
    [
        (-60_000, None, None, "new"),
        (-60_000, None, "ok", "ok"),
        (-60_000, None, "failed", "ok"),
        (-60_000, None, "unknown", "ok"),
        (-60_000, 9_999, "ok", "ok"),
        (-60_000, 10_001, "ok", "late"),
        (10_000, None, "ok", "ok"),
        (10_001, None, "ok", "late"),
        (10_001, None, "failed", "late"),
        (None, None, "ok", "ok"),
    ],
)
def test_health_depends_on_due_time_open_run_and_last_outcome(
    due_ago_ms: int | None, open_ago_ms: int | None, settled: RunState | None, expected: Health
) -> None:
    glance = Glance(open_due_ms=None if open_ago_ms is None else NOW_MS - open_ago_ms, settled=settled)
    due_ms = None if due_ago_ms is None else NOW_MS - due_ago_ms
    assert judge(resting=False, due_ms=due_ms, glance=glance, now_ms=NOW_MS, late_after_ms=10_000) == expected
    assert judge(resting=True, due_ms=due_ms, glance=glance, now_ms=NOW_MS, late_after_ms=10_000) == "paused"
    failing = replace(glance, record=HealthRecord(failing=True, failures=3))
    worse = "late" if expected == "late" else "failing"
    assert judge(resting=False, due_ms=due_ms, glance=failing, now_ms=NOW_MS, late_after_ms=10_000) == worse
