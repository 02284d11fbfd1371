"""Why a batch's run waits, on both engines: the facts are read from the store, the chain is one function of core."""

from __future__ import annotations

import msgspec
import pytest

from paceline.core.batches.batch import RecordSpec
from paceline.core.batches.provider import BreakerSpec
from paceline.core.batches.records.options import RecordOptions
from paceline.core.daemons import Daemon
from paceline.core.ids import call_run_id
from paceline.core.instants import to_text
from paceline.errors import NotFound
from paceline.ports import Store
from paceline.steps.batches.batches import get_batch
from paceline.steps.upkeep.daemons import beat
from paceline.steps.why.runs import explain_run
from paceline.steps.why.view import LinkView, WhyView
from paceline.steps.why.why_not import explain_record
from tests.contract.support.call_stage import DATE, SECOND_MS, claim, every, make_batch, plan, provide, settle
from tests.contract.support.stage import T0_MS

DAY_MS = 86_400_000
DAEMON = Daemon("up-1", "up", "host", 7, "", T0_MS, T0_MS, every_ms=600_000)


def why(store: Store, record: str = "r0", *, now_ms: int = T0_MS) -> WhyView:
    view = explain_run(store, call_run_id("daily", record, DATE), viewer=None, now_ms=now_ms)
    assert view.chain
    assert all(link.text and link.change for link in view.chain)
    return view


def links(view: WhyView) -> list[str]:
    return [link.link for link in view.chain]


def link(view: WhyView, name: str) -> LinkView:
    return next(one for one in view.chain if one.link == name)


@pytest.fixture
def staged(store: Store) -> Store:
    """Five runs of provider a, ten seconds apart; the first is due now. A daemon has just written its row."""
    beat(store, DAEMON)
    provide(store, "a")
    plan(store, make_batch(store), every(10 * SECOND_MS, 5))
    return store


def test_run_that_is_not_due_waits_for_its_time_and_its_eta_is_exact(staged: Store) -> None:
    view = why(staged, "r2")
    due = to_text(T0_MS + 20 * SECOND_MS)
    assert (view.state, link(view, "due").until) == ("waiting", due)
    assert link(view, "order").text == "It waits behind 2 earlier calls of a."
    assert view.eta is not None
    assert (view.eta.from_, view.eta.to) == (due, due)


def test_run_that_may_start_says_so(staged: Store) -> None:
    view = why(staged)
    assert links(view) == ["due", "place"]
    assert "nothing is in its way" in view.chain[-1].text
    assert view.eta is not None
    assert (view.eta.from_, view.eta.to) == (to_text(T0_MS), to_text(T0_MS))


def test_due_run_without_a_daemon_says_that_no_process_takes_it(store: Store) -> None:
    """On AWS functions may do the work, which write no row."""
    provide(store, "a")
    plan(store, make_batch(store), every(10 * SECOND_MS, 5))
    view = why(store)
    assert (links(view)[-1], view.eta is None) == (("place", False) if store.traits.remote else ("lease", True))


def test_run_behind_a_call_in_flight_waits_for_the_place_of_its_provider(staged: Store) -> None:
    (call,) = claim(staged)
    assert (why(staged, call.record).state, links(why(staged, call.record))) == ("out", ["due", "lease"])
    view = why(staged, "r1", now_ms=T0_MS + 10 * SECOND_MS)
    assert "The one place of a is taken" in link(view, "place").text
    assert settle(staged, call)
    assert "nothing is in its way" in link(why(staged, "r1", now_ms=T0_MS + 10 * SECOND_MS), "place").text


def test_paused_provider_holds_a_run_until_it_is_resumed(staged: Store) -> None:
    provide(staged, "a", paused=True)
    view = why(staged)
    assert link(view, "pause").text == "a is paused by an operator."
    assert link(view, "pause").change == "an admin: `paceline provider resume a`"
    assert (link(view, "pause").until, view.eta) == (None, None)


def test_run_in_back_off_and_those_behind_it_name_the_pause(staged: Store) -> None:
    (call,) = claim(staged)
    again_ms = T0_MS + 60 * SECOND_MS
    assert settle(staged, call, "retry", not_before_ms=again_ms, closed_until_ms=again_ms)
    view = why(staged)
    assert (view.state, links(view)) == ("retry", ["due", "retry_after", "retry_after"])
    assert [one.until for one in view.chain[1:]] == [to_text(again_ms)] * 2
    assert "Attempt 1 of 3 did not succeed: it is retry" in view.chain[1].text
    assert view.eta is not None
    assert (view.eta.from_, view.eta.to) == (to_text(again_ms), to_text(again_ms))
    behind = why(staged, "r1")
    assert behind.eta is not None
    assert behind.eta.from_ >= to_text(again_ms)


def test_provider_that_failed_too_often_is_closed_by_its_breaker(staged: Store) -> None:
    now_ms = T0_MS
    for _ in range(2):
        (call,) = claim(staged, now_ms)
        assert settle(staged, call, "retry", now_ms=now_ms, not_before_ms=now_ms + 1)
        now_ms += 1
    provide(staged, "a", breaker=BreakerSpec(failures=3, open_for="1m"))
    (call,) = claim(staged, now_ms)
    assert settle(staged, call, "failed", now_ms=now_ms, verdict="bad")
    view = why(staged, "r1", now_ms=now_ms)
    assert link(view, "breaker").text == "a is closed after 3 bad calls in a row; then one call is tried."
    assert link(view, "breaker").until == to_text(now_ms + 60 * SECOND_MS)
    ended = why(staged, now_ms=now_ms)
    assert (ended.state, links(ended), ended.eta) == ("failed", ["due", "place", "provider"], None)
    assert "it is failed" in ended.chain[-1].text
    assert "paceline dead redrive" in ended.chain[-1].change


def test_rate_is_named_with_the_moment_of_the_next_token(store: Store) -> None:
    beat(store, DAEMON)
    provide(store, "a", rate="1/30s", max_in_flight=5)
    plan(store, make_batch(store), every(SECOND_MS, 3))
    claim(store)
    view = why(store, "r1", now_ms=T0_MS + SECOND_MS)
    assert "at most 1/30s calls" in link(view, "rate").text
    until = link(view, "rate").until
    assert until is not None
    assert view.eta is not None
    assert view.eta.from_ >= until


def test_paused_batch_deleted_and_sleeping_records_are_named(staged: Store) -> None:
    batch = get_batch(staged, "daily")
    staged.remove_record(batch, "r1")
    staged.put_records(batch, [RecordSpec("r2", "a", active=False)], now_ms=T0_MS)
    paused = msgspec.structs.replace(batch.spec, paused=True)
    staged.put_batch("daily", paused, expected_revision=None, now_ms=T0_MS + 1)
    view = why(staged)
    assert (link(view, "pause").text, link(view, "pause").since) == ("Batch daily is paused.", to_text(T0_MS + 1))
    assert view.eta is None
    assert "Its record was deleted" in link(why(staged, "r1"), "order").text
    assert "Its record is not active" in link(why(staged, "r2"), "order").text


def test_run_of_a_record_that_comes_after_another_waits_for_that(staged: Store) -> None:
    batch = get_batch(staged, "daily")
    follower = RecordSpec("r1", "a", options=RecordOptions(after="r4"))
    staged.put_records(batch, [follower], now_ms=T0_MS)
    view = why(staged, "r1", now_ms=T0_MS + 10 * SECOND_MS)
    assert "It waits for r4, which comes first and is waiting." in [one.text for one in view.chain]
    assert view.eta is None


def test_run_that_its_batch_would_skip_says_so(store: Store) -> None:
    provide(store, "a")
    plan(store, make_batch(store, missed="skip"), every(10 * SECOND_MS, 2))
    view = why(store, now_ms=T0_MS + DAY_MS // 2)
    assert "at its turn it ends as skipped" in view.chain[1].text
    assert view.eta is None


def test_done_run_says_when_it_started_and_how_it_ended(staged: Store) -> None:
    (call,) = claim(staged, T0_MS + 200)
    assert settle(staged, call, now_ms=T0_MS + 400, code=200)
    view = why(staged, now_ms=T0_MS + SECOND_MS)
    assert (view.state, links(view)) == ("done", ["due", "place", "provider"])
    assert view.chain[1].text.startswith("It started 0.")
    assert view.chain[2].text == "a answered with 200, as expected."


def test_why_of_a_missing_or_hidden_run_is_not_found(staged: Store) -> None:
    for run in (f"daily/nothing@{DATE}", f"nothing/r0@{DATE}", "nothing", "nothing/0", "ann/nothing#1@0"):
        with pytest.raises(NotFound):
            explain_run(staged, run, viewer=None, now_ms=T0_MS)
    with pytest.raises(NotFound):
        explain_run(staged, f"daily/r0@{DATE}", viewer="ann", now_ms=T0_MS)


def test_record_without_a_run_today_says_what_keeps_it(store: Store) -> None:
    provide(store, "a")
    batch = make_batch(store)
    store.put_records(batch, [RecordSpec("x", "a"), RecordSpec("y", "a", active=False)], now_ms=T0_MS)
    tomorrow_ms = T0_MS + DAY_MS
    early = explain_record(store, batch, "x", now_ms=T0_MS)
    assert (early.run, early.state) == (None, "absent")
    assert "began before the batch was made" in early.chain[-1].text
    assert "is not planned yet" in explain_record(store, batch, "x", now_ms=tomorrow_ms).chain[-1].text
    asleep = explain_record(store, batch, "y", now_ms=tomorrow_ms)
    assert "not active" in asleep.chain[0].text
    paused = msgspec.structs.replace(batch.spec, paused=True)
    put = store.put_batch("daily", paused, expected_revision=None, now_ms=T0_MS + 1).batch
    assert put is not None
    assert links(explain_record(store, put, "x", now_ms=tomorrow_ms))[0] == "pause"
    with pytest.raises(NotFound):
        explain_record(store, batch, "nothing", now_ms=T0_MS)


def test_record_with_a_run_today_has_the_chain_of_that_run(staged: Store) -> None:
    batch = get_batch(staged, "daily")
    assert explain_record(staged, batch, "r0", now_ms=T0_MS) == why(staged)
