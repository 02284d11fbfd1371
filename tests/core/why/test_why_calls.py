"""Why a batch's run waits, or went as it did: the reason, who can change it, and when it starts."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from paceline.core.batches.batch import Batch, BatchSpec, Day, Deletion, RecordSpec
from paceline.core.batches.calls import CallState
from paceline.core.batches.pace import Pace
from paceline.core.batches.provider import ProviderDefinition, ProviderSpec, policy_of
from paceline.core.batches.records.options import RecordOptions, options_text
from paceline.core.batches.unwanted import DayFacts
from paceline.core.batches.values import CallRun
from paceline.core.why.calls import CAN_START, CallFacts, why_call
from paceline.core.why.chain import Eta, LinkName, Why
from paceline.core.why.queued import ProviderQueue, QueuedCall, QueuedRun, queued_call

NOW_MS = 1_800_000_000_000
HOUR_MS = 3_600_000
RUN = CallRun(1, "daily", "r1", "2027-01-15", "shop", NOW_MS - 500, "waiting")
BATCH = Batch("daily", 1, 1, BatchSpec(), NOW_MS - HOUR_MS, NOW_MS)
DAY = Day(1, "daily", "2027-01-15", NOW_MS - HOUR_MS, NOW_MS + HOUR_MS, "planned", None, 1, 0)
RECORD = RecordSpec("r1", "shop")
PROVIDER = ProviderDefinition("shop", 1, 1, ProviderSpec("http://example.org", timeout="2s"), NOW_MS, NOW_MS)
MINE = QueuedCall(1, "waiting", RUN.due_ms, RUN.due_ms, DAY.end_ms, 2_000, sure=True)
FACTS = CallFacts(RUN, BATCH, DAY, RECORD, PROVIDER, ProviderQueue(Pace(), [MINE], more=False))


def why(facts: CallFacts = FACTS, **run: Any) -> Why:
    found = why_call(facts._replace(run=replace(facts.run, **run)), now_ms=NOW_MS)
    assert all(link.text and link.change for link in found.chain)
    return found


def texts(found: Why, link: LinkName) -> list[str]:
    return [one.text for one in found.chain if one.link == link]


def provider(**spec: Any) -> ProviderDefinition:
    return replace(PROVIDER, spec=replace(PROVIDER.spec, **spec))


def queue(*calls: QueuedCall, more: bool = False, **pace: Any) -> ProviderQueue:
    return ProviderQueue(Pace(**pace), sorted([*calls, MINE], key=lambda call: call.due_ms), more)


def test_run_that_nothing_holds_back_starts_at_the_next_look_of_a_daemon() -> None:
    found = why()
    assert (found.run, found.state) == ("daily/r1@2027-01-15", "waiting")
    assert texts(found, "place") == [CAN_START]
    assert found.eta == Eta(NOW_MS, NOW_MS)


def test_run_that_is_not_due_yet_waits_for_its_plan() -> None:
    later = FACTS._replace(
        queue=ProviderQueue(Pace(), [MINE._replace(due_ms=NOW_MS + 9, at_ms=NOW_MS + 9)], more=False)
    )
    found = why(later, due_ms=NOW_MS + 9)
    assert [link.link for link in found.chain] == ["due"]
    assert found.chain[0].since_ms == DAY.start_ms
    assert found.eta == Eta(NOW_MS + 9, NOW_MS + 9)


def test_run_without_a_daemon_waits_for_one_and_has_no_eta() -> None:
    for facts in (
        FACTS._replace(daemons=0),
        FACTS._replace(daemons=0, batch=replace(BATCH, spec=BatchSpec(paused=True))),
    ):
        found = why(facts)
        assert texts(found, "lease") == ["No daemon runs that would make the call."]
        assert found.eta is None


def test_run_of_an_outgoing_provider_waits_for_a_worker() -> None:
    found = why(FACTS._replace(provider=provider(kind="outgoing", base_url="")))
    assert texts(found, "lease")[0].startswith("It may start, and waits for a worker of yours")
    assert found.eta is None


@pytest.mark.parametrize(
    ("facts", "link", "words"),
    [
        (FACTS._replace(record=None), "order", "Its record was deleted"),
        (FACTS._replace(record=replace(RECORD, active=False)), "order", "Its record is not active"),
        (FACTS._replace(batch=replace(BATCH, deleting=Deletion(NOW_MS, 0, 0))), "pause", "is being deleted"),
        (FACTS._replace(batch=replace(BATCH, spec=BatchSpec(paused=True))), "pause", "Batch daily is paused"),
        (FACTS._replace(record=replace(RECORD, provider="bank")), "provider", "Its record names bank by now"),
        (FACTS._replace(provider=None), "provider", "Provider shop is gone"),
        (FACTS._replace(provider=provider(paused=True)), "pause", "shop is paused by an operator"),
    ],
)
def test_run_that_would_not_start_even_at_its_turn_has_no_eta(facts: CallFacts, link: LinkName, words: str) -> None:
    found = why(facts)
    assert any(words in text for text in texts(found, link))
    assert found.eta is None


def test_run_after_another_waits_until_that_is_done() -> None:
    after = FACTS._replace(record=replace(RECORD, options=RecordOptions(after="r0")))
    other = replace(RUN, record="r0")
    assert "which has no run on this day" in texts(why(after), "order")[0]
    waits = why(after._replace(before=replace(other, state="retry")))
    assert texts(waits, "order") == ["It waits for r0, which comes first and is retry."]
    assert "paceline why daily/r0@2027-01-15" in waits.chain[-1].change
    done = why(after._replace(before=replace(other, state="done")))
    assert not texts(done, "order")
    assert done.eta is None, "it depends on a run that may be another provider's"


def test_closed_provider_says_whether_its_breaker_is_open_or_it_asked_for_a_pause() -> None:
    until_ms = NOW_MS + 5_000
    opened = why(FACTS._replace(queue=queue(closed_until_ms=until_ms, failures=10)))
    assert texts(opened, "breaker") == ["shop is closed after 10 bad calls in a row; then one call is tried."]
    paused = why(FACTS._replace(queue=queue(closed_until_ms=until_ms, failures=9)))
    assert texts(paused, "retry_after") == ["shop asked for a pause, and takes nothing until it is over."]
    assert (opened.eta, paused.eta) == (Eta(until_ms, until_ms), Eta(until_ms, until_ms))


def test_run_waits_behind_earlier_calls_and_for_a_place() -> None:
    before = [QueuedCall(2, "waiting", RUN.due_ms - 9, RUN.due_ms - 9, DAY.end_ms, 2_000, sure=True)]
    assert texts(why(FACTS._replace(queue=queue(*before))), "order") == ["It waits behind 1 earlier call of shop."]
    out = [QueuedCall(n, "out", RUN.due_ms - n, NOW_MS + 900, DAY.end_ms, 2_000, sure=True) for n in (2, 3)]
    taken = texts(why(FACTS._replace(queue=queue(*out[:1]))), "place")
    assert taken == ["The one place of shop is taken: 1 call is out."]
    facts = FACTS._replace(queue=queue(*out), provider=provider(max_in_flight=2))
    assert texts(why(facts), "place") == ["All 2 places of shop are taken: 2 calls are out."]


def test_run_behind_more_calls_than_are_read_has_no_eta_and_says_so_also_before_it_is_due() -> None:
    unread = FACTS._replace(queue=ProviderQueue(Pace(), [], more=True))
    for due_ms, since_ms in ((RUN.due_ms, RUN.due_ms), (NOW_MS + 9, None)):
        found = why(unread, due_ms=due_ms)
        [link] = [one for one in found.chain if one.link == "order"]
        assert "more than" in link.text
        assert link.since_ms == since_ms
        assert found.eta is None


def test_rate_and_bounded_pace_hold_a_run_back_until_their_time() -> None:
    rated = FACTS._replace(queue=queue(rate_us=(NOW_MS + 700) * 1_000), provider=provider(rate="1/1s"))
    assert texts(why(rated), "rate") == ["shop takes at most 1/1s calls, and the next one is free then."]
    paced = why(FACTS._replace(queue=queue(paced_ms=NOW_MS + 800)))
    assert texts(paced, "rate")[0].startswith("shop is behind its plan and catches up at a bounded pace")
    assert [link.until_ms for link in paced.chain if link.link == "rate"] == [NOW_MS + 800]


def test_retried_run_says_how_its_last_attempt_ended() -> None:
    again = {"attempt": 2, "reason": "status 503", "until_ms": NOW_MS + 70, "started_ms": NOW_MS - 9}
    retry = FACTS._replace(queue=ProviderQueue(Pace(), [MINE._replace(state="retry", at_ms=NOW_MS + 70)], more=False))
    found = why(retry, state="retry", **again)
    assert texts(found, "retry_after")[0].startswith("Attempt 2 of 5 did not succeed: status 503. It is tried again")
    assert found.eta == Eta(NOW_MS + 70, NOW_MS + 70)
    back = why(attempt=2, reason="")
    assert texts(back, "retry_after") == ["Attempt 2 of 5 did not succeed. It was put back."]


def test_policy_skip_for_missed_runs_bounds_the_start_or_ends_the_run() -> None:
    skips = FACTS._replace(batch=replace(BATCH, spec=BatchSpec(missed="skip")))
    assert why(skips).eta == Eta(NOW_MS, NOW_MS)
    missed = why(skips, due_ms=NOW_MS - HOUR_MS)
    assert "at its turn it ends as skipped" in texts(missed, "due")[1]
    assert missed.eta is None
    slow = QueuedCall(2, "out", RUN.due_ms - 9, NOW_MS + HOUR_MS, DAY.end_ms, 2_000, sure=True)
    may_miss = why(skips._replace(queue=queue(slow)))
    assert "If it does not start by then it is missed" in texts(may_miss, "due")[1]
    assert may_miss.eta is not None
    assert may_miss.eta.to_ms == may_miss.chain[1].until_ms


def test_run_in_flight_names_its_provider_its_worker_or_an_expired_lease() -> None:
    out: dict[str, Any] = {"state": "out", "attempt": 1, "started_ms": NOW_MS - 5, "until_ms": NOW_MS + 5}
    assert "is on its way to shop" in texts(why(**out), "lease")[0]
    worker = FACTS._replace(provider=provider(kind="outgoing", base_url=""))
    assert "is with a worker of yours" in texts(why(worker, **out), "lease")[0]
    assert "was not reported before its lease ended" in texts(why(**out | {"until_ms": NOW_MS}), "lease")[0]


@pytest.mark.parametrize(
    ("state", "fields", "started", "ended"),
    [
        (
            "done",
            {"attempt": 1, "code": 200},
            "It started 0.5 s after it was due",
            "shop answered with 200, as expected.",
        ),
        ("done", {"attempt": 2, "code": 200}, "Attempt 2 started 0.5 s after it was due", "as expected."),
        ("failed", {"attempt": 1, "code": 404, "reason": "gone"}, "It started", "shop answered with 404: gone."),
        ("unknown", {"attempt": 1, "reason": "cut short"}, "It started", "It ended as unknown: cut short."),
    ],
)
def test_ended_run_says_when_it_started_and_how_it_ended(
    state: CallState, fields: dict[str, Any], started: str, ended: str
) -> None:
    found = why(state=state, started_ms=NOW_MS, ended_ms=NOW_MS + 9, **fields)
    assert texts(found, "place")[0].startswith(started)
    assert texts(found, "provider")[0].endswith(ended)
    assert found.eta is None


def test_ended_run_says_how_it_can_be_made_to_run_again() -> None:
    dead = why(state="failed", dead=True, attempt=1, started_ms=RUN.due_ms, ended_ms=NOW_MS)
    assert "paceline dead redrive daily/r1@2027-01-15" in dead.chain[-1].change
    assert "when it was due" in texts(dead, "place")[0]
    skipped = why(state="skipped", ended_ms=NOW_MS)
    assert "paceline batch rerun daily 2027-01-15 --record r1" in skipped.chain[-1].change
    assert not texts(skipped, "place")


@pytest.mark.parametrize(
    ("found", "day", "sure"),
    [
        ({}, {}, True),
        ({"record_provider": 6}, {}, False),
        ({"record_provider": None}, {}, False),
        ({"options": options_text(RecordOptions(after="r0"))}, {}, False),
        ({}, {"paused": True}, False),
        ({}, {"skips": True}, False),
        ({"state": "out", "record_provider": None}, {"paused": True, "skips": True}, True),
    ],
)
def test_queued_run_surely_starts_if_record_and_batch_want_it(
    found: dict[str, Any], day: dict[str, Any], *, sure: bool
) -> None:
    one = QueuedRun(1, "waiting", NOW_MS, NOW_MS + 5, 5, 5, None)._replace(**found)
    facts = DayFacts("daily", 1, "2027-01-15", DAY.start_ms, DAY.end_ms, paused=False, skips=False)._replace(**day)
    call = queued_call(one, facts, policy_of(PROVIDER.spec))
    assert (call.sure, call.at_ms, call.end_ms, call.timeout_ms) == (sure, NOW_MS + 5, DAY.end_ms, 2_000)
