"""Lookups of sends whose answer was lost: adopted, looked for again, sent again, or given up."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.core.jobs.atlas import Lost, Marker, Refused, marker_prefix
from paceline.core.jobs.atlas_replies import ListedMeasurement
from paceline.core.jobs.lookups import (
    ABSENT_ONCE,
    PART_LOOKS_MAX,
    PARTS_SEEN,
    ListedWithTag,
    NoKey,
    Reply,
    judge_lookup,
    lookup_result,
    put_off,
)
from paceline.core.jobs.pool import LOOK_AGAIN_MS
from paceline.core.jobs.values import NotSent, Paused, Rejected, SendOutcome, Sent, StoredMeasurement, Unsure
from tests.contract.support.job_stage import COST, ping

NOW_MS, SETTLE_MS = 1_790_000_000_000, 30_000
SITE, JOB = "01234567", "j1"


def sent(*, definitions: int = 2, **more: Any) -> StoredMeasurement:
    values: dict[str, Any] = {"attempt": 1, "state": "unknown"} | more
    return StoredMeasurement(
        handle=7, job=JOB, index=3, owner="ann", measurement=ping(definitions=definitions), cost=COST, **values
    )


def listed(number: int, *, attempt: int = 1, site: str = SITE, index: int = 3) -> ListedMeasurement:
    return ListedMeasurement(number, 2, f"{marker_prefix(Marker(site, JOB, index, attempt))} resolver")


def judged(item: StoredMeasurement, reply: Reply, paused: Paused | None = None) -> tuple[SendOutcome, Paused | None]:
    return judge_lookup(item, reply, paused, site=SITE, settle_ms=SETTLE_MS, now_ms=NOW_MS, chance=0.5)


def test_send_whose_definitions_are_all_listed_is_adopted_in_order() -> None:
    outcome, pause = judged(sent(), ListedWithTag((listed(12), listed(11))))
    assert (outcome, pause) == (Sent((11, 12)), None)
    assert lookup_result(outcome, ListedWithTag(())) == "adopted"


def test_earliest_whole_attempt_is_adopted_and_nothing_of_others() -> None:
    others = (listed(1, site="ffff"), listed(2, index=4))
    found = ListedWithTag((*others, listed(31, attempt=3), listed(32, attempt=3), listed(21, attempt=2)))
    assert judged(sent(attempt=3), found)[0] == Sent((31, 32))


def test_listed_measurement_with_a_changed_description_counts_for_this_attempt() -> None:
    found = ListedWithTag((ListedMeasurement(5, 2, "renamed"), listed(6)))
    assert judged(sent(), found)[0] == Sent((5, 6))


def test_absent_send_is_looked_for_once_more_before_it_is_sent_again() -> None:
    first, _ = judged(sent(), ListedWithTag(()))
    assert isinstance(first, Unsure)
    assert (first.look_ms, first.lookups) == (NOW_MS + SETTLE_MS, ABSENT_ONCE)
    assert lookup_result(first, ListedWithTag(())) == "absent_once"
    second, _ = judged(sent(lookups=ABSENT_ONCE), ListedWithTag(()))
    assert second == NotSent("RIPE does not list it: sent again", None)
    assert lookup_result(second, ListedWithTag(())) == "sent_again"


def test_send_that_is_lost_again_waits_before_its_next_attempt() -> None:
    outcome, _ = judged(sent(attempt=2, lookups=ABSENT_ONCE), ListedWithTag(()))
    assert isinstance(outcome, NotSent)
    assert outcome.next_ms is not None
    assert outcome.next_ms > NOW_MS


@pytest.mark.parametrize("lookups", range(PARTS_SEEN + PART_LOOKS_MAX))
def test_send_that_is_listed_in_part_is_looked_for_a_bounded_number_of_times(lookups: int) -> None:
    outcome, _ = judged(sent(lookups=lookups), ListedWithTag((listed(11),)))
    if lookups < PARTS_SEEN + PART_LOOKS_MAX - 1:
        assert isinstance(outcome, Unsure)
        assert (outcome.lookups, outcome.look_ms) == (max(lookups + 1, PARTS_SEEN), NOW_MS + SETTLE_MS)
        assert lookup_result(outcome, ListedWithTag(())) == "partly"
    else:
        assert isinstance(outcome, Rejected)
        assert "RIPE lists 1 of its 2 definitions" in outcome.reason
        assert lookup_result(outcome, ListedWithTag(())) == "rejected"


def test_parts_that_were_seen_are_not_sent_again_when_the_list_is_empty() -> None:
    assert isinstance(judged(sent(lookups=PARTS_SEEN), ListedWithTag(()))[0], Unsure)


@pytest.mark.parametrize(
    ("reply", "look_ms"),
    [
        (NoKey("add a key"), NOW_MS + LOOK_AGAIN_MS),
        (Lost("timed out"), NOW_MS + LOOK_AGAIN_MS),
        (Lost("timed out", retry_after_ms=9_000), NOW_MS + 9_000),
        (Refused("key", "no such key"), NOW_MS + LOOK_AGAIN_MS),
    ],
)
def test_lookup_without_an_answer_is_made_again_later(reply: Reply, look_ms: int) -> None:
    outcome, pause = judged(sent(), reply)
    assert isinstance(outcome, Unsure)
    assert (outcome.look_ms, pause) == (look_ms, None)
    assert lookup_result(outcome, reply) == "unanswered"


def test_refusal_for_everybody_pauses_everybody() -> None:
    outcome, pause = judged(sent(), Refused("global", "maintenance", retry_after_ms=60_000))
    assert isinstance(outcome, Unsure)
    assert pause is not None
    assert outcome.look_ms == pause.until_ms >= NOW_MS + 60_000


def test_only_silence_of_ripe_puts_the_other_lookups_off() -> None:
    lost = Lost("timed out")
    outcome, _ = judged(sent(), lost)
    assert put_off(lost, outcome) == Paused(NOW_MS + LOOK_AGAIN_MS, 0, "not looked up: timed out")
    assert put_off(ListedWithTag(()), outcome) is None
