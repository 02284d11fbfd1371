"""Why a measurement waits or went as it did, and why a record has no run."""

from __future__ import annotations

from typing import Any, get_args

import pytest
from msgspec.structs import replace

from paceline.core.batches.batch import Batch, BatchSpec, Day, Deletion, RecordSpec, Window
from paceline.core.jobs.measurement import MeasurementState
from paceline.core.jobs.meters import NEVER_MS
from paceline.core.jobs.pool import PASSED_MS_MAX, Gate, Refuse, Send, Wait
from paceline.core.jobs.values import AtlasMeasurement, StoredJob
from paceline.core.why.chain import LinkName, Why
from paceline.core.why.measurements import MeasurementFacts, why_measurement
from paceline.core.why.records import RecordFacts, why_no_run
from tests.core.support.measurements import NOW_MS, NOW_S, measurement, stored

JOB = StoredJob("j1", 1, "ada", "", None, "d", NOW_MS - 90_000, 2, 2, 0, 0, 0, 120, 0, 0)
STATES: tuple[MeasurementState, ...] = get_args(MeasurementState)


def why(state: MeasurementState = "queued", *, job: StoredJob = JOB, now_ms: int = NOW_MS, **fields: Any) -> Why:
    of_item = {name: fields.pop(name) for name in list(fields) if name not in MeasurementFacts._fields}
    return why_measurement(MeasurementFacts(job, stored(state=state, **of_item), **fields), now_ms=now_ms)


def texts(found: Why, link: LinkName) -> list[str]:
    return [one.text for one in found.chain if one.link == link]


@pytest.mark.parametrize("state", STATES)
def test_every_measurement_names_its_reservation_and_the_reason_of_its_state(state: MeasurementState) -> None:
    found = why(state)
    assert (found.run, found.state) == ("j1/1", state)
    assert texts(found, "budget") == ["Its 60 credits were reserved on the day of ada when it came."]
    assert len(found.chain) > 1
    assert all(link.text and link.change for link in found.chain)
    assert "the day of its user" in texts(why(state, job=replace(JOB, owner="")), "budget")[0]


def test_queued_measurement_that_nothing_holds_back_waits_for_its_users_turn() -> None:
    [text] = texts(why(decision=Send("a", "k")), "turn")
    assert text.startswith("Nothing is in its way")


def test_measurement_of_a_cancelled_job_is_not_sent_any_more() -> None:
    for found in (why(job=replace(JOB, cancelled_ms=NOW_MS)), why(stopping=True)):
        assert texts(found, "turn") == ["Its job is cancelled: it is not sent any more."]


def test_measurement_waits_for_its_user_its_stop_its_place_and_a_daemon() -> None:
    late = measurement(stop_time=NOW_S + 100)
    found = why(asked=late, disabled=True, ahead=3, daemons=0, now_ms=NOW_MS + 200_000)
    assert texts(found, "pause") == ["Its user ada is disabled."]
    assert texts(found, "due") == ["Its stop time has passed: it fails at its next turn, and is refunded."]
    assert texts(found, "turn")[0].startswith("3 measurements of the same user came before it")
    assert texts(found, "lease") == ["No daemon runs that would send it."]


def test_measurement_waits_for_a_full_target_and_for_a_pause_of_everybody_while_they_last() -> None:
    full, over = Gate(NOW_MS + 5, "the target a is full"), Gate(NOW_MS, "the target b is full")
    found = why("parked", targets=[full, over], ripe=[Gate(NOW_MS + 7, "slow down"), Gate(NOW_MS - 1, "before")])
    assert texts(found, "target") == ["The target a is full."]
    assert texts(found, "provider") == ["RIPE asked everybody to wait: slow down."]
    assert not texts(found, "retry_after")


def test_parked_measurement_without_a_gate_is_tried_again_at_its_time() -> None:
    found = why("parked", next_ms=NOW_MS + 9, reason="RIPE said no.")
    assert texts(found, "retry_after") == ["It is tried again then: RIPE said no."]
    assert [link.until_ms for link in found.chain if link.link == "retry_after"] == [NOW_MS + 9]


def test_promise_12_accounts_are_named_only_to_those_who_may_see_them() -> None:
    wait = Wait(NOW_MS + 5, "every account is full: 9 of 9 in use", NOW_MS + 99, (("acc1", "9 of 9 in use"),))
    assert texts(why(decision=wait), "account") == ["Every account is full: 9 of 9 in use."]
    assert texts(why(decision=wait, account_names=True), "account")[1] == "acc1: 9 of 9 in use."
    assert "acc1" not in str(why("sending", account="acc1"))
    assert "with account acc1" in str(why("sending", account="acc1", account_names=True))


def test_wait_for_room_ends_when_room_is_known_to_come() -> None:
    known, unknown = Wait(NOW_MS, "full", NOW_MS + 99), Wait(NOW_MS, "full", NEVER_MS)
    until = [[link.until_ms for link in why(decision=one).chain if link.link == "account"] for one in (known, unknown)]
    assert until == [[NOW_MS + 99], [None]]


def test_measurement_that_was_passed_too_long_has_room_kept_for_it() -> None:
    wait = Wait(NOW_MS, "full")
    found = why(decision=wait, passed_ms=NOW_MS - PASSED_MS_MAX)
    assert "Others were sent before it for long enough: room is kept free for it." in texts(found, "turn")
    assert not texts(why(decision=wait, passed_ms=NOW_MS - 1), "turn")


def test_measurement_that_no_account_can_take_says_so() -> None:
    [text] = texts(why(decision=Refuse("it takes 9 slots")), "account")
    assert text.startswith("It can never be sent: it takes 9 slots.")


def test_promise_9_lost_reply_is_looked_up_before_anything_is_sent_again() -> None:
    [text] = texts(why("unknown", reason="timed out"), "provider")
    assert text == "RIPE's reply was lost: timed out. It is looked up before anything is sent again."


def test_running_measurement_names_its_ids_at_ripe_and_how_long_it_waited() -> None:
    atlas = (AtlasMeasurement(101, 2, 0), AtlasMeasurement(102, 2, 0))
    found = why("ongoing", atlas=atlas, answered_ms=NOW_MS, stopping=True)
    assert texts(found, "turn") == ["It was sent to RIPE 90 s after it was submitted, at its user's turn."]
    [text] = texts(found, "provider")
    assert "RIPE has it as 101, 102" in text
    assert text.endswith("It is being stopped.")
    assert found.chain[-1].change == "nobody: it passes by itself"
    assert why("ongoing", atlas=atlas, answered_ms=NOW_MS).chain[-1].change == "its user: cancel the job"
    assert not texts(why("ongoing", answered_ms=NOW_MS), "turn")


def test_ended_measurement_says_how_it_ended_and_its_cost() -> None:
    [text] = texts(why("done", settled=40, ended_ms=NOW_MS), "provider")
    assert text == "It ended as done. 40 of 60 credits were spent."
    failed = why("failed", reason="no suitable probes").chain[-1]
    assert (failed.text, failed.change) == ("It ended as failed: no suitable probes.", "its user: submit it again")


BATCH = Batch("daily", 1, 1, BatchSpec(), NOW_MS - 10**9, NOW_MS)
DAY = Day(1, "daily", "2027-01-15", NOW_MS - 100, NOW_MS + 100, "planned", None, 1, 0)
RECORD = RecordSpec("r1", "shop")
FACTS = RecordFacts(BATCH, "2027-01-15", Window(NOW_MS - 100, NOW_MS + 100), NOW_MS + 500, RECORD, DAY)


def no_run(facts: RecordFacts) -> list[tuple[LinkName, str]]:
    found = why_no_run(facts, now_ms=NOW_MS)
    assert (found.run, found.state) == (None, "absent")
    assert all(link.text and link.change for link in found.chain)
    return [(link.link, link.text) for link in found.chain]


def test_record_of_a_batch_that_is_being_deleted_or_that_was_deleted_has_one_reason() -> None:
    deleting = replace(BATCH, deleting=Deletion(NOW_MS, 0, 0))
    assert no_run(FACTS._replace(batch=deleting)) == [("pause", "Batch daily is being deleted.")]
    assert no_run(FACTS._replace(record=None)) == [("order", "The record was deleted.")]


def test_record_names_each_reason_that_alone_keeps_it_from_running() -> None:
    facts = FACTS._replace(
        batch=replace(BATCH, spec=BatchSpec(paused=True)), record=replace(RECORD, active=False), provider_gone=True
    )
    assert [link for link, _ in no_run(facts)] == ["order", "pause", "provider", "due"]


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (FACTS._replace(day=replace(DAY, state="planning")), "is being planned, page by page"),
        (FACTS, "a daemon adds it as a late record"),
        (FACTS._replace(day=replace(DAY, end_ms=NOW_MS)), "and its window is over"),
        (FACTS._replace(day=None, batch=replace(BATCH, created_ms=NOW_MS)), "began before the batch was made"),
        (FACTS._replace(day=None), "is not planned yet: a daemon plans it at its start"),
    ],
)
def test_record_without_a_run_describes_the_plan_of_its_day(facts: RecordFacts, words: str) -> None:
    [(link, text)] = no_run(facts)
    assert link == "due"
    assert words in text


@pytest.mark.parametrize("day", [None, DAY])
def test_record_that_waits_for_a_daemon_says_that_one_must_be_started(day: Day | None) -> None:
    changes = [
        why_no_run(FACTS._replace(day=day, daemons=daemons), now_ms=NOW_MS).chain[-1].change for daemons in (0, 1)
    ]
    assert "paceline up" in changes[0]
    assert changes[1].startswith("nobody")
