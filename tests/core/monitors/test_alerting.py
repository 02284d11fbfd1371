"""Health follows outcomes: thresholds, alerts, the hourly limit, lateness and certificates."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from paceline.core.alerts.alert import Alert
from paceline.core.instants import to_text
from paceline.core.monitors.alerting.observe import all_but_good, observe, verdict
from paceline.core.monitors.alerting.policy import AlertPolicy, policy_problems
from paceline.core.monitors.alerting.record import (
    ALERTS_PER_HOUR_MAX,
    HOUR_MS,
    NO_RECORD,
    HealthRecord,
    Observed,
    Subject,
    after_outcome,
    close_hour,
    hour_ends_ms,
    turn_late,
)
from paceline.core.monitors.alerting.stored import decode_health, encode_health
from paceline.core.monitors.checks import HttpCheck, TlsCheck
from paceline.core.monitors.outcome import Dead, Done, Outcome, Retry, Unknown
from paceline.core.monitors.values import Settlement

T0_MS = 1_790_000_000_000
MINUTE_MS, DAY_MS = 60_000, 86_400_000
HOME = Subject("ann", "home", 7, AlertPolicy())


def subject(*, after: int = 1, recover: int = 1) -> Subject:
    return HOME._replace(policy=AlertPolicy(after, recover, ("ops",)))


def fold(
    outcomes: str, who: Subject, *, every_ms: int = HOUR_MS, record: HealthRecord = NO_RECORD
) -> tuple[HealthRecord, list[Alert]]:
    """``+`` is a good outcome, ``-`` a bad one. An hour apart, no alert is held back."""
    told: list[Alert] = []
    for counter, sign in enumerate(outcomes):
        seen = Observed(counter, sign == "+", "" if sign == "+" else f"bad {counter}", T0_MS + counter * every_ms)
        record, alerts = after_outcome(record, who, seen)
        told += alerts
    return record, told


def naive(outcomes: str, *, after: int, recover: int) -> tuple[bool, int, list[str]]:
    """Health after a history, recomputed from all of it at each step."""
    failing, events = False, []
    for length in range(1, len(outcomes) + 1):
        history = outcomes[:length]
        if not failing and len(history) - len(history.rstrip("-")) >= after:
            failing = True
            events.append("monitor.failing")
        elif failing and len(history) - len(history.rstrip("+")) >= recover:
            failing = False
            events.append("monitor.recovered")
    return failing, len(outcomes) - len(outcomes.rstrip("-")), events


@given(outcomes=st.text("+-", max_size=40), after=st.integers(1, 4), recover=st.integers(1, 4))
def test_health_equals_a_naive_fold_over_the_history(outcomes: str, after: int, recover: int) -> None:
    record, told = fold(outcomes, subject(after=after, recover=recover))
    failing, failures, events = naive(outcomes, after=after, recover=recover)
    assert (record.failing, record.failures) == (failing, failures)
    assert [alert.event for alert in told] == events
    assert len({alert.id for alert in told}) == len(told)
    assert decode_health(encode_health(record)) == record


@given(outcomes=st.text("+-", max_size=200), every_ms=st.integers(1_000, 20 * MINUTE_MS))
def test_alerts_of_an_hour_are_limited_and_none_is_forgotten(outcomes: str, every_ms: int) -> None:
    record, told = fold(outcomes, HOME, every_ms=every_ms)
    hours: list[list[int]] = []
    for alert in told:
        if not hours or alert.at_ms >= hours[-1][0] + HOUR_MS:
            hours.append([])
        hours[-1].append(alert.at_ms)
    assert all(len(hour) <= ALERTS_PER_HOUR_MAX for hour in hours)
    held_back = sum(alert.data.get("held_back", 0) for alert in told)
    closed = close_hour(record, HOME, now_ms=T0_MS + len(outcomes) * every_ms + HOUR_MS)
    held_back += sum(alert.data["held_back"] for alert in closed.alerts)
    assert len(told) + held_back == len(naive(outcomes, after=1, recover=1)[2])
    assert closed.record.held_back == 0


def test_failing_alert_says_why_since_when_and_through_which_channels() -> None:
    _, (failing, recovered) = fold("+--++", subject(after=2, recover=2))
    assert (failing.event, failing.user, failing.subject, failing.channels) == (
        "monitor.failing",
        "ann",
        "home",
        ("ops",),
    )
    assert failing.reason == "bad 2"
    assert failing.data == {"run": "ann/home#7@2", "failures": 2, "since": to_text(T0_MS + HOUR_MS)}
    assert recovered.reason == "it failed for 3h: 2 runs, the last with: bad 2"
    assert recovered.data["failed_for_s"] == 3 * 3_600
    assert recovered.data["since"] == failing.data["since"]


def test_health_record_of_a_healthy_monitor_is_empty() -> None:
    assert fold("++-+-+++", subject(after=2))[0] == NO_RECORD
    assert encode_health(NO_RECORD) is None
    record, _ = fold("-+", subject(), every_ms=MINUTE_MS)
    assert record.told == 2  # within the hour; then the next good outcome forgets it
    assert after_outcome(record, HOME, Observed(2, True, "", T0_MS + HOUR_MS)).record == NO_RECORD


def test_edit_of_the_policy_counts_from_the_next_outcome() -> None:
    record, told = fold("---", subject(after=5))
    assert (record.failing, record.failures, told) == (False, 3, [])
    record, (alert,) = fold("-", subject(after=2), record=record)
    assert (record.failing, record.failures, alert.event) == (True, 4, "monitor.failing")
    record, told = fold("-", subject(after=100), record=record)
    assert (record.failing, told) == (True, [])


def test_late_alert_is_sent_once_and_ends_with_the_next_outcome() -> None:
    record, (late,) = turn_late(NO_RECORD, HOME, counter=3, due_ms=T0_MS, now_ms=T0_MS + 6 * MINUTE_MS)
    assert (late.event, late.reason) == ("monitor.late", "nobody has started its run for 6m")
    assert late.data == {"run": "ann/home#7@3", "since": to_text(T0_MS), "late_for_s": 360.0}
    assert turn_late(record, HOME, counter=4, due_ms=T0_MS + MINUTE_MS, now_ms=T0_MS + HOUR_MS).alerts == ()
    seen = Observed(3, True, "", T0_MS + 8 * MINUTE_MS)
    after, (recovered,) = after_outcome(record, HOME, seen)
    assert (recovered.event, recovered.data["late_for_s"]) == ("monitor.recovered", 480.0)
    assert recovered.reason == "it runs again, 8m after the run was due that nobody had started"
    assert after.late_ms == 0


def test_late_monitor_that_is_still_failing_raises_a_failing_alert() -> None:
    failing, _ = fold("-", HOME)
    late, _ = turn_late(failing, HOME, counter=1, due_ms=T0_MS + 1, now_ms=T0_MS + 6 * MINUTE_MS)
    after, (alert,) = after_outcome(late, HOME, Observed(1, False, "bad", T0_MS + 7 * MINUTE_MS))
    assert (alert.event, after.failing, after.late_ms) == ("monitor.failing", True, 0)
    under, (again,) = after_outcome(
        replace(NO_RECORD, late_ms=T0_MS), subject(after=3), Observed(1, False, "bad", T0_MS + 7 * MINUTE_MS)
    )
    assert (again.event, under.failing, under.failures) == ("monitor.recovered", False, 1)


def test_closing_alert_has_the_health_and_counts_as_the_first_of_the_next_hour() -> None:
    record, told = fold("-+" * 6, HOME, every_ms=MINUTE_MS)
    assert (len(told), record.held_back) == (ALERTS_PER_HOUR_MAX, 6)
    ends_ms = hour_ends_ms(record)
    assert ends_ms == T0_MS + HOUR_MS
    assert close_hour(record, HOME, now_ms=ends_ms - 1) == (record, ())
    after, (alert,) = close_hour(record, HOME, now_ms=ends_ms)
    assert (alert.event, alert.data["held_back"], alert.data["health"]) == ("monitor.flapping", 6, "ok")
    assert (after.hour_ms, after.told, hour_ends_ms(after)) == (ends_ms, 1, None)


def test_first_alert_after_the_hour_counts_the_alerts_held_back() -> None:
    record, _ = fold("-+" * 6, HOME, every_ms=MINUTE_MS)
    after, (alert,) = after_outcome(record, HOME, Observed(99, False, "bad", T0_MS + 2 * HOUR_MS))
    assert (alert.event, alert.data["held_back"]) == ("monitor.failing", 6)
    assert hour_ends_ms(after) is None


def settled(outcome: Outcome, *, at_ms: int = T0_MS) -> Settlement:
    return Settlement(1, 1, outcome, started_ms=at_ms, ended_ms=at_ms)


@pytest.mark.parametrize(
    ("outcome", "ok"),
    [
        (Done(ok=True), True),
        (Done(ok=False), False),
        (Dead("given up after 5 attempts"), False),
        (Dead("the check became 'outgoing'", edited=True), None),
        (Unknown("cut short"), None),
        (Retry("later", 1), None),
    ],
)
def test_each_outcome_is_good_bad_or_says_nothing(outcome: Outcome, *, ok: bool | None) -> None:
    assert verdict(outcome) is ok
    seen = observe(settled(outcome), counter=0, check=HttpCheck(url="http://example.org/"))
    assert (seen.ok if seen is not None else None) is ok
    assert bool(all_but_good([settled(outcome)])) is (ok is not True)


def test_certificate_alert_is_sent_once_a_day_beside_the_failure() -> None:
    check = TlsCheck(host="example.org", min_days=14)
    detail = {"days_left": 9, "not_after": "2026-12-01T00:00:00.000Z"}
    record, events = NO_RECORD, []
    for counter, at_ms in enumerate((T0_MS, T0_MS + MINUTE_MS, T0_MS + DAY_MS)):
        seen = observe(settled(Done(ok=False, detail=detail), at_ms=at_ms), counter=counter, check=check)
        assert seen is not None
        record, alerts = after_outcome(record, HOME, seen)
        events.append([alert.event for alert in alerts])
    assert events == [["monitor.failing", "certificate.expiring"], [], ["certificate.expiring"]]
    assert alerts[0].reason == "its certificate ends in 9 days, on 2026-12-01"
    assert alerts[0].data == {"days_left": 9, "not_after": "2026-12-01T00:00:00.000Z"}


@pytest.mark.parametrize("detail", [{}, {"days_left": 20, "not_after": "x"}, {"days_left": "9", "not_after": 3}])
def test_failure_for_another_reason_says_nothing_of_the_certificate(detail: dict[str, object]) -> None:
    seen = observe(settled(Done(ok=False, detail=detail)), counter=0, check=TlsCheck(host="example.org", min_days=14))
    assert seen is not None
    assert not seen.certificate


@pytest.mark.parametrize(
    ("policy", "pointers"),
    [
        (AlertPolicy(), []),
        (AlertPolicy(0, 1_001), ["/alert/after", "/alert/recover"]),
        (AlertPolicy(channels=("ops", "a b", "ops")), ["/alert/channels/1", "/alert/channels/2"]),
        (AlertPolicy(channels=tuple(f"c{number}" for number in range(11))), ["/alert/channels"]),
    ],
)
def test_problems_of_a_policy_name_their_fields(policy: AlertPolicy, pointers: list[str]) -> None:
    assert [problem.pointer for problem in policy_problems(policy)] == pointers
