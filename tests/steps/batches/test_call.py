from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.batches.batch import RecordSpec, parse_record
from paceline.core.batches.calls import CallResult
from paceline.core.batches.provider import RetrySpec
from paceline.core.batches.records.options import RecordOptions
from paceline.core.instants import to_text
from paceline.errors import InvalidInput, WrongSetting
from paceline.ports import Store
from paceline.steps.batches import redrive
from paceline.steps.batches.batches import put_records
from paceline.steps.batches.call import ProviderBook, SentCall, claim_calls, settle_and_claim, settle_calls
from paceline.steps.batches.headers import seal_headers
from tests.contract.support.call_stage import DATE, LEASE_MS, every, make_batch, plan, provide, run_of
from tests.contract.support.stage import T0_MS


class BackwardsVault:
    """What it seals is written backwards; what begins with '?' was sealed by another."""

    def seal(self, secret: str) -> str:
        return secret[::-1]

    def unseal(self, sealed: str) -> str:
        if sealed.startswith("?"):
            raise WrongSetting("PACELINE_SECRET_KEY is not the key that this was sealed with.")
        return sealed[::-1]


@pytest.fixture
def store() -> Iterator[Store]:
    with closing(SqliteStore(":memory:")) as store:
        yield store
        assert store.verify() == []


@pytest.fixture
def book(store: Store) -> ProviderBook:
    return ProviderBook(store, BackwardsVault())


def claim(store: Store, book: ProviderBook, now_ms: int = T0_MS) -> list[SentCall]:
    return claim_calls(store, book, now_ms=now_ms, runs_max=10, lease_ms=LEASE_MS)


def ended(sent: SentCall, *, now_ms: int = T0_MS, **facts: Any) -> CallResult:
    return CallResult(sent.call.handle, sent.call.attempt, now_ms, now_ms, 1.0, **facts)


def by_fence(*sent: SentCall) -> dict[tuple[int, int], SentCall]:
    return {(item.call.handle, item.call.attempt): item for item in sent}


def half() -> float:
    return 0.5


def test_a_call_carries_the_run_id_and_the_provider_s_opened_headers(store: Store, book: ProviderBook) -> None:
    provide(store, "a", headers={"X-Key": "terces"}, base_url="http://example.org/api/", verify_tls=False)
    batch = make_batch(store)
    plan(store, batch, {"r@1": T0_MS})
    store.put_records(batch, [RecordSpec("r@1", "a", "/items?id=1", '{"n": 1}')], now_ms=T0_MS)
    (sent,) = claim(store, book)
    call = sent.call
    assert call.run_id == f"daily/r%401@{DATE}"
    assert call.headers == {"X-Key": "secret", "Idempotency-Key": call.run_id}
    assert (call.method, call.url, call.body) == ("POST", "http://example.org/api/items?id=1", '{"n": 1}')
    assert (call.timeout_ms, call.looks_up, call.verify_tls) == (1_000, False, False)
    assert (sent.provider, sent.due_ms) == ("a", T0_MS)


def test_a_call_fills_in_the_placeholders_of_its_record_and_its_provider(store: Store, book: ProviderBook) -> None:
    headers = seal_headers({"X-Try": "{attempt}/{record}", "X-Plain": "plain"}, BackwardsVault())
    provide(store, "a", headers=headers | {"X-Old": "}etad{"})
    batch = make_batch(store)
    plan(store, batch, {"r@1": T0_MS})
    record = b'{"id": "r@1", "provider": "a", "endpoint": "/{date}?r={run}", "body": {"{date}": "{due} {{"}}'
    store.put_records(batch, [parse_record(record)], now_ms=T0_MS)
    (sent,) = claim(store, book)
    assert sent.call.url == f"http://example.org/{DATE}?r=daily%2Fr%25401%40{DATE}"
    assert json.loads(sent.call.body or "") == {"{date}": f"{to_text(T0_MS)} {{"}
    assert sent.call.headers["X-Try"] == "1/r@1"
    assert sent.call.headers["X-Plain"] == "plain"
    assert sent.call.headers["X-Old"] == "{date}"  # sealed before there were placeholders
    retry = ended(sent, code=500)
    settle_calls(store, by_fence(sent), [retry], chance=half)
    (again,) = claim(store, book, T0_MS + 500)
    assert again.call.headers["X-Try"] == "2/r@1"
    assert again.call.headers["Idempotency-Key"] == sent.call.run_id


def test_method_headers_timeout_and_expect_of_a_record_come_before_those_of_its_provider(
    store: Store, book: ProviderBook
) -> None:
    vault = BackwardsVault()
    provide(store, "a", headers=seal_headers({"X-Key": "shared", "X-Both": "provider"}, vault))
    batch = make_batch(store)
    plan(store, batch, {"r": T0_MS})
    record = b"""{"id": "r", "provider": "a", "endpoint": "/r", "method": "PUT", "timeout": "2s",
                  "headers": {"x-both": "{record}"}, "expect": {"done": [404]}}"""
    (put,) = put_records(store, batch, [record], now_ms=T0_MS, vault=vault)
    assert put.disposition == "replaced"
    stored = store.record(batch, "r")
    assert stored is not None
    assert "{record}" not in stored.options.headers.values()
    (sent,) = claim(store, book)
    assert (sent.call.method, sent.call.timeout_ms) == ("PUT", 2_000)
    assert sent.lease_until_ms == T0_MS + 2_000 + LEASE_MS
    assert sent.call.headers == {"X-Key": "shared", "x-both": "r", "Idempotency-Key": sent.call.run_id}
    report = settle_calls(store, by_fence(sent), [ended(sent, code=404)], chance=half)
    assert report.settled[0][1].state == "done"


def test_header_of_a_record_given_back_as_it_is_shown_stays(store: Store) -> None:
    provide(store, "a")
    batch, vault = make_batch(store), BackwardsVault()
    first = b'{"id": "r", "provider": "a", "headers": {"X-A": "secret", "X-B": "b"}}'
    again = b'{"id": "r", "provider": "a", "headers": {"X-A": "***"}}'
    unknown = b'{"id": "r", "provider": "a", "headers": {"X-C": "***"}}'
    puts = [put_records(store, batch, [body], now_ms=T0_MS, vault=vault)[0] for body in (first, again, again, unknown)]
    assert [put.disposition for put in puts] == ["created", "replaced", "unchanged", "refused"]
    assert puts[3].error is not None
    assert puts[3].error.errors[0].pointer == "/headers/X-C"
    stored = store.record(batch, "r")
    assert stored is not None
    assert stored.options.headers == {"X-A": "terces"}


def test_record_whose_header_cannot_be_opened_fails_alone(store: Store, book: ProviderBook) -> None:
    provide(store, "a")
    batch = make_batch(store)
    plan(store, batch, {"r": T0_MS})
    store.put_records(batch, [RecordSpec("r", "a", options=RecordOptions(headers={"X-A": "?"}))], now_ms=T0_MS)
    assert claim(store, book) == []
    run = run_of(store, "r")
    assert (run.state, "PACELINE_SECRET_KEY" in run.reason) == ("failed", True)
    provider = store.provider("a")
    assert provider is not None
    assert store.provider_standing(provider.number, now_ms=T0_MS).pace.failures == 0


def test_record_of_before_placeholders_is_sent_as_it_is(store: Store, book: ProviderBook) -> None:
    provide(store, "a")
    batch = make_batch(store)
    plan(store, batch, {"r": T0_MS})
    store.put_records(batch, [RecordSpec("r", "a", "/{date}/{x}", '{"a": "{run}"}')], now_ms=T0_MS)
    (sent,) = claim(store, book)
    assert (sent.call.url, sent.call.body) == ("http://example.org/{date}/{x}", '{"a": "{run}"}')


def test_call_without_a_body_is_a_get_unless_the_provider_sets_a_method(store: Store, book: ProviderBook) -> None:
    provide(store, "a")
    plan(store, make_batch(store), every(10, 2))
    (first,) = claim(store, book)
    assert first.call.method == "GET"
    provide(store, "a", method="PUT")
    settle_calls(store, by_fence(first), [ended(first, code=200)], chance=half)
    (second,) = claim(store, book, T0_MS + 10)
    assert second.call.method == "PUT"  # the newest definition, though the provider was known before


def test_results_are_settled_once_and_stale_ones_are_counted(store: Store, book: ProviderBook) -> None:
    provide(store, "a")
    plan(store, make_batch(store), every(10, 2))
    (sent,) = claim(store, book)
    report = settle_calls(store, by_fence(sent), [ended(sent, code=200)], chance=half)
    assert [(item.provider, settled.state) for item, settled in report.settled] == [("a", "done")]
    assert settle_calls(store, by_fence(sent), [ended(sent, code=200)], chance=half).stale == 1
    assert settle_calls(store, {}, [], chance=half) == ([], 0)


def test_settle_and_claim_settles_a_call_and_starts_the_next(store: Store, book: ProviderBook) -> None:
    provide(store, "a")
    plan(store, make_batch(store), every(10, 2))
    (sent,) = claim(store, book)
    report, (following,) = settle_and_claim(
        store,
        book,
        by_fence(sent),
        [ended(sent, code=200)],
        chance=half,
        now_ms=T0_MS + 10,
        runs_max=10,
        lease_ms=LEASE_MS,
    )
    assert len(report.settled) == 1
    assert following.call.run_id == f"daily/r1@{DATE}"


def test_a_poisoned_run_is_a_dead_letter_after_its_attempts_and_the_rest_goes_on(
    store: Store, book: ProviderBook
) -> None:
    provide(store, "a", retry=RetrySpec(max_attempts=3, base="10ms", cap="10ms"))
    plan(store, make_batch(store), every(10, 2))
    for attempt in range(1, 4):
        (sent,) = claim(store, book, T0_MS + attempt * 20)
        assert sent.call.attempt == attempt
        settle_calls(
            store, by_fence(sent), [ended(sent, now_ms=T0_MS + attempt * 20, code=500, reason="HTTP 500")], chance=half
        )
    run = run_of(store, "r0")
    assert (run.state, run.dead, run.attempt) == ("failed", True, 3)
    (following,) = claim(store, book, T0_MS + 100)
    assert following.call.run_id.startswith("daily/r1@")


def test_run_is_dead_after_its_workers_vanish_too_often(store: Store, book: ProviderBook) -> None:
    provide(store, "a", retry=RetrySpec(max_attempts=2))
    plan(store, make_batch(store), every(10, 1))
    now_ms, begun = T0_MS, 0
    for _ in range(10):
        begun += len(claim(store, book, now_ms))
        now_ms = store.next_call_ms() or now_ms
    assert begun == 2
    run = run_of(store, "r0")
    assert (run.state, run.dead) == ("failed", True)
    assert "2 attempts" in run.reason


def lose(store: Store, book: ProviderBook, **changes: Any) -> int:
    """A POST is out when its worker vanishes; when its lease ends."""
    provide(store, "a", method="POST", look_up="/calls/{run}", **changes)
    plan(store, make_batch(store), every(10, 1))
    (sent,) = claim(store, book)
    assert sent.call.method == "POST"
    ready_ms = store.next_call_ms()
    assert ready_ms is not None
    return ready_ms


def test_promise_9_a_lost_post_is_looked_up_before_it_is_sent_again(store: Store, book: ProviderBook) -> None:
    now_ms = lose(store, book, unknown="look_up", headers={"X-Key": "terces"})
    (question,) = claim(store, book, now_ms)
    run_id = question.call.run_id
    assert (question.call.looks_up, question.call.method, question.call.body) == (True, "GET", None)
    assert question.call.url == f"http://example.org/calls/{run_id.replace('/', '%2F').replace('@', '%40')}"
    assert question.call.headers == {"X-Key": "secret", "Idempotency-Key": run_id}
    settle_calls(store, by_fence(question), [ended(question, now_ms=now_ms, code=404)], chance=half)
    (again,) = claim(store, book, now_ms)
    assert (again.call.method, again.call.looks_up, again.call.run_id) == ("POST", False, run_id)


def test_promise_9_a_lost_post_that_arrived_is_done(store: Store, book: ProviderBook) -> None:
    now_ms = lose(store, book, unknown="look_up")
    (question,) = claim(store, book, now_ms)
    settle_calls(store, by_fence(question), [ended(question, now_ms=now_ms, code=200)], chance=half)
    assert run_of(store, "r0").state == "done"


def test_promise_9_a_lost_post_is_held_for_a_person_where_that_is_the_policy(store: Store, book: ProviderBook) -> None:
    now_ms = lose(store, book, unknown="hold")
    assert claim(store, book, now_ms) == []
    run = run_of(store, "r0")
    assert (run.state, run.dead) == ("unknown", True)


def test_headers_that_cannot_be_opened_fail_the_run_with_the_reason_and_open_the_breaker(
    store: Store, book: ProviderBook
) -> None:
    provide(store, "a", headers={"X-Key": "?"})
    plan(store, make_batch(store), every(1, 30))
    for now_ms in range(T0_MS, T0_MS + 60):
        assert claim(store, book, now_ms) == []
    run = run_of(store, "r0")
    assert (run.state, run.dead) == ("failed", True)
    assert "PACELINE_SECRET_KEY" in run.reason
    assert run_of(store, "r29").state == "waiting"


def test_chosen_dead_letters_are_redriven_once_however_often_redrive_is_called(
    store: Store, book: ProviderBook
) -> None:
    provide(store, "a")
    plan(store, make_batch(store), every(1, 3))
    for now_ms in range(T0_MS, T0_MS + 3):
        (sent,) = claim(store, book, now_ms)
        settle_calls(store, by_fence(sent), [ended(sent, now_ms=now_ms, code=404, reason="HTTP 404")], chance=half)
    page = redrive.list_dead(store, redrive.choose(store, provider="a"), after=0, limit=2)
    assert [run.record for run in page.runs] == ["r0", "r1"]
    assert page.next_after is not None
    one = redrive.choose(store, runs=[f"daily/r1@{DATE}", f"daily/nobody@{DATE}"])
    assert redrive.redrive(store, one, now_ms=T0_MS + 10) == 1
    assert redrive.redrive(store, one, now_ms=T0_MS + 10) == 0
    day = redrive.choose(store, batch="daily", date=DATE)
    assert redrive.discard(store, day) == 2
    assert redrive.discard(store, day) == 0


@pytest.mark.parametrize(("choice", "pointer"), [({}, ""), ({"date": DATE}, ""), ({"runs": ["nonsense"]}, "/runs/0")])
def test_redrive_without_a_complete_choice_or_with_an_invalid_run_id_is_refused(
    store: Store, choice: dict[str, Any], pointer: str
) -> None:
    with pytest.raises(InvalidInput) as caught:
        redrive.choose(store, **choice)
    assert [problem.pointer for problem in caught.value.errors] == [pointer]
