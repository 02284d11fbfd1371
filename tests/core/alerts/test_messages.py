"""Alerts of batches, jobs and accounts, and how each is worded for programs and for people."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from msgspec.structs import replace

from paceline.core.alerts.alert import ADMINS, REASON_CHARS_MAX, Alert, Event
from paceline.core.alerts.events import account_quarantined, day_ended, dead_letters, job_finished, open_runs
from paceline.core.alerts.message import Severity, delivery_handle, severity_of, text_of, title_of, webhook_body
from paceline.core.batches.batch import Batch, BatchSpec, Day
from paceline.core.batches.values import DayCount
from paceline.core.jobs.values import StoredJob

NOW_MS = 1_800_000_000_000
BATCH = Batch("daily", 4, 1, BatchSpec(channels=("ops",)), NOW_MS, NOW_MS)
DAY = Day(9, "daily", "2026-11-15", NOW_MS, NOW_MS, "planned", None, 10, 0)
JOB = StoredJob("j1", 1, "ada", "survey", None, "d", 0, 3, 0, 3, 0, 0, 60, 0, 0, finished_ms=NOW_MS)
ALERT = Alert("al_1", "monitor.failing", NOW_MS, "ada", "web", "status 503", {"failures": 3, "since": "", "run": "r"})


def test_open_runs_of_a_day_are_those_that_have_not_ended() -> None:
    counts = [DayCount("shop", "waiting", 2), DayCount("bank", "done", 7), DayCount("bank", "failed", 1)]
    assert open_runs(counts) == 2
    assert open_runs(counts[1:]) == 0


def test_alert_of_a_days_end_sums_up_the_providers_and_counts_failures() -> None:
    counts = [DayCount("shop", "done", 5), DayCount("bank", "done", 2), DayCount("bank", "failed", 1)]
    counts.append(DayCount("bank", "unknown", 2))
    alert = day_ended(BATCH, DAY, counts, now_ms=NOW_MS)
    assert (alert.user, alert.subject, alert.channels) == (ADMINS, "daily/2026-11-15", ("ops",))
    assert alert.reason == "3 of 10 runs did not end well"
    assert (alert.data["runs"], alert.data["done"], alert.data["failed"], alert.data["unknown"]) == (10, 7, 1, 2)


def test_alert_of_a_good_day_has_no_reason_and_the_same_id_each_time() -> None:
    alert = day_ended(BATCH, DAY, [DayCount("shop", "done", 5)], now_ms=NOW_MS)
    assert alert.reason == ""
    assert day_ended(BATCH, DAY, [], now_ms=NOW_MS + 9).id == alert.id
    assert day_ended(replace(BATCH, number=5), DAY, [], now_ms=NOW_MS).id != alert.id


def test_alert_of_dead_letters_has_their_number_and_one_id_for_each_look() -> None:
    alert = dead_letters("daily", 7, example="x" * 999, channels=("ops",), since_ms=5, now_ms=NOW_MS)
    assert alert.reason.startswith("7 new dead letters; one of them: xxx")
    assert len(alert.reason) == REASON_CHARS_MAX
    assert alert.data == {"batch": "daily", "count": 7}
    again = dead_letters("daily", 8, example="y", channels=(), since_ms=5, now_ms=NOW_MS + 1)
    later = dead_letters("daily", 8, example="y", channels=(), since_ms=6, now_ms=NOW_MS + 1)
    assert again.id == alert.id != later.id


def test_alert_of_a_refused_key_names_account_and_key_and_is_new_each_time_it_is_refused() -> None:
    first = account_quarantined("a1", "k1", reason="x" * 999, number=1, now_ms=NOW_MS)
    assert (first.user, first.subject, first.data) == (ADMINS, "a1", {"account": "a1", "key": "k1"})
    assert len(first.reason) == REASON_CHARS_MAX
    assert account_quarantined("a1", "k1", reason="", number=2, now_ms=NOW_MS).id != first.id


def test_promise_11_alert_of_a_finished_job_says_whether_it_was_successful() -> None:
    good = job_finished(JOB, now_ms=NOW_MS)
    assert good is not None
    assert (good.user, good.subject, good.reason, good.data["success"]) == ("ada", "j1", "", True)
    bad = job_finished(replace(JOB, done=1, failed=1, cancelled=1), now_ms=NOW_MS)
    assert bad is not None
    assert bad.reason == "2 of 3 measurements did not succeed"
    assert (bad.data["success"], bad.data["failed"], bad.data["cancelled"]) == (False, 1, 1)
    assert bad.id == good.id


def test_finished_job_of_a_removed_user_makes_no_alert() -> None:
    assert job_finished(replace(JOB, owner=""), now_ms=NOW_MS) is None


def test_webhook_body_is_the_alert_in_json_and_the_same_at_each_try() -> None:
    body = webhook_body(ALERT)
    assert json.loads(body) == {
        "id": "al_1",
        "event": "monitor.failing",
        "at": "2027-01-15T08:00:00.000Z",
        "user": "ada",
        "subject": "web",
        "reason": "status 503",
        "data": {"failures": 3, "since": "", "run": "r"},
    }
    assert webhook_body(ALERT) == body


@pytest.mark.parametrize("event", get_args(Event))
def test_every_event_has_a_title_that_names_its_subject_and_a_severity(event: Event) -> None:
    alert = replace(ALERT, event=event)
    assert "web" in title_of(alert)
    assert severity_of(alert) in get_args(Severity)


def test_alert_text_has_reason_time_figures_and_id_and_omits_empty_parts() -> None:
    alert = replace(ALERT, data=ALERT.data | {"long_name": "x" * 999, "list": [1]})
    assert text_of(alert).split("\n") == [
        "status 503",
        "at 2027-01-15T08:00:00.000Z",
        "failures: 3",
        "run: r",
        "long name: " + "x" * 200,
        "alert al_1 of Paceline for ada",
    ]
    assert text_of(replace(ALERT, reason="", data={})).startswith("at 2027")


def test_deliveries_have_handles_of_their_own() -> None:
    handles = {delivery_handle(alert, name) for alert in ("al_1", "al_2") for name in ("a", "b")}
    assert len(handles) == 4
    assert all(0 <= handle < 2**56 for handle in handles)
