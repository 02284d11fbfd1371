"""Large numbers: long stretches of ended runs, many days, one provider's whole day."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from paceline.adapters.aws.batches import lanes as batches_lanes
from paceline.adapters.aws.batches import upkeep as batches_upkeep
from paceline.adapters.aws.batches.keys import queue_partition
from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.store import AwsStore
from paceline.core.batches.batch import RecordSpec
from paceline.core.batches.values import DeadChoice
from paceline.steps.batches import redrive
from paceline.steps.batches.plan import plan_day
from tests.contract.batches.test_dead_letters import bury
from tests.contract.support import batch_stage
from tests.contract.support.call_stage import claim, every, make_batch, names, plan, provide, settle
from tests.contract.support.stage import DAY_MS, HOUR_MS, T0_MS

pytestmark = pytest.mark.aws


def run_all(store: AwsStore, now_ms: int) -> list[str]:
    """Claims and settles until nothing more starts."""
    done: list[str] = []
    while calls := claim(store, now_ms):
        assert all(settle(store, call, now_ms=now_ms) for call in calls)
        done += names(calls)
    return done


def test_promise_10_run_behind_more_ended_runs_than_one_look_reads_still_starts(
    aws_store: AwsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_lanes, "LOOKS_MAX", 1)
    number = provide(aws_store, "a")
    batch = make_batch(aws_store)
    day = plan(aws_store, batch, every(10, 8) | {"last": T0_MS + HOUR_MS})
    assert run_all(aws_store, T0_MS + 80) == [f"r{index}" for index in range(8)]
    aws_store.put_records(batch, [RecordSpec("late", "a", "/late")], now_ms=T0_MS + 80)
    (newcomer,) = aws_store.late_records(batch, limit=9)
    aws_store.plan_late_records(day, batch_stage.placements((newcomer.record, number, T0_MS - 10)))
    assert run_all(aws_store, T0_MS + 90) == ["late"]
    for _ in range(8):
        claim(aws_store, T0_MS + 100)
    assert aws_store.verify_batches() == []
    assert aws_store.remove_provider("a") == "in_use"
    assert names(claim(aws_store, T0_MS + HOUR_MS)) == ["last"]


@contextmanager
def meanwhile(clients: Clients, operation: str, act: Any) -> Iterator[None]:
    """Runs ``act`` before the first request of this kind."""
    event, left = f"before-call.dynamodb.{operation}", [act]
    lock = threading.Lock()

    def once(**_: object) -> None:
        with lock:
            acts = left[:]
            left.clear()
        for one in acts:
            one()

    clients.dynamodb.meta.events.register(event, once)
    yield
    clients.dynamodb.meta.events.unregister(event, once)


def test_promise_10_redrive_that_loses_one_dead_letter_redrives_the_others(
    aws_store: AwsStore, clients: Clients, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redrive, "PASS_RUNS", 2)
    bury(aws_store, 5)
    runs, _ = aws_store.dead(DeadChoice(), after=0, limit=9)
    other = AwsStore(prefix, clients=clients)
    first = DeadChoice(handles=(runs[0].handle,))
    now_ms = T0_MS + 60_000
    with meanwhile(clients, "TransactWriteItems", lambda: other.redrive(first, gap_ms=1_000, now_ms=now_ms, limit=1)):
        assert redrive.redrive(aws_store, DeadChoice(batch="daily"), now_ms=now_ms) == 4
    assert aws_store.dead(DeadChoice(), after=0, limit=9) == ([], None)
    bury(aws_store, 5, provider="b", batch="second")
    runs, _ = aws_store.dead(DeadChoice(), after=0, limit=9)
    first = DeadChoice(handles=(runs[0].handle,))
    with meanwhile(clients, "UpdateItem", lambda: other.discard(first, limit=1)):
        assert redrive.discard(aws_store, DeadChoice(batch="second")) == 4
    assert aws_store.dead(DeadChoice(), after=0, limit=9) == ([], None)
    other.close()


def test_promise_10_no_record_is_left_with_a_provider_removed_at_the_same_time(
    aws_store: AwsStore, clients: Clients, prefix: str
) -> None:
    other = AwsStore(prefix, clients=clients)
    for name in ("a", "b", "c"):
        provide(aws_store, name)
    batch = batch_stage.put_records(aws_store, {"old": "b"})
    removed: list[str] = []
    with meanwhile(clients, "TransactWriteItems", lambda: removed.append(other.remove_provider("a"))):
        put = aws_store.put_records(
            batch,
            [RecordSpec("new", "a", "/new"), RecordSpec("old", "a", "/old"), RecordSpec("kept", "c", "/kept")],
            now_ms=T0_MS,
        )
    assert (removed, put) == (["removed"], ["no_provider", "no_provider", "created"])
    assert [record.id for record in aws_store.find_records(batch, after="", limit=9)[0]] == ["kept", "old"]
    old = aws_store.record(batch, "old")
    assert old is not None
    assert old.provider == "b"
    late = [RecordSpec("late", "d", "/late")]
    provide(aws_store, "d")
    with meanwhile(clients, "TransactWriteItems", lambda: other.put_records(batch, late, now_ms=T0_MS)):
        assert aws_store.remove_provider("d") == "in_use"
    assert aws_store.provider("d") is not None
    assert aws_store.verify_batches() == []
    other.close()


def test_promise_5_a_removed_record_keeps_its_name_while_a_day_names_it_however_many_days_there_were(
    aws_store: AwsStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_upkeep, "PURGED_DAYS_MAX", 3)
    batch_stage.put_provider(aws_store, "a")
    batch = batch_stage.put_records(aws_store, {"x": "a"})
    for number in range(1, 6):
        aws_store.open_day(batch, f"2026-01-0{number}", start_ms=T0_MS, end_ms=T0_MS + DAY_MS)
    batch_stage.plan(aws_store, batch)
    assert aws_store.remove_record(batch, "x")
    assert aws_store.purge_records(after=0).deleted == 0
    (run,), _ = aws_store.day_runs(batch_stage.day_of(aws_store, batch), state=None, provider=None, after=0, limit=9)
    assert run.record == "x"


def test_promise_10_a_removed_record_is_kept_while_a_plan_that_saw_it_is_under_way(aws_store: AwsStore) -> None:
    batch_stage.put_provider(aws_store, "a")
    batch = batch_stage.put_records(aws_store, {"x": "a", "y": "a"})
    date = batch_stage.DATE.isoformat()
    day = aws_store.open_day(batch, date, start_ms=T0_MS, end_ms=T0_MS + DAY_MS)
    order = aws_store.plan_order(batch, None)
    assert aws_store.remove_record(batch, "x")
    assert aws_store.purge_records(after=0).deleted == 0
    rows = [(record, 1, T0_MS + record * 10) for record in order.records]
    page = batch_stage.placements(*rows)
    made = aws_store.plan_page(day, page, cursor=(1, rows[-1][0]), skipped=batch_stage.placements(), now_ms=T0_MS)
    assert made.enqueued == 2
    assert {record for _, record in batch_stage.due_runs(aws_store)} == {"x", "y"}
    assert aws_store.close_day(batch_stage.day_of(aws_store, batch))


def test_a_providers_queue_is_written_by_one_transaction_at_a_time(aws_store: AwsStore, clients: Clients) -> None:
    """The queue is one partition: transactions use its capacity one after the other, so that a call gets in between."""
    records = 2 * 147
    for name in ("a", "b"):
        batch_stage.put_provider(aws_store, name)
    batch = batch_stage.put_records(aws_store, {f"r{number}": "ab"[number % 2] for number in range(records)})
    with at_once(clients) as planning:
        assert plan_day(aws_store, batch, batch_stage.DATE, now_ms=T0_MS).enqueued == records
    assert planning == {queue_partition(1): 1, queue_partition(2): 1}
    later_ms = T0_MS + 9 * DAY_MS
    make_batch(aws_store, missed="skip")
    assert claim(aws_store, later_ms) == []
    with at_once(clients) as purging:
        purged = aws_store.purge_calls(
            ended_before_ms=later_ms + 1, dead_before_ms=later_ms + 1, after=0, limit=2 * records
        )
    assert purged.deleted > 200
    assert max(purging.values()) <= 3, "one, and those with what was left of both"


@contextmanager
def at_once(clients: Clients) -> Iterator[Counter[str]]:
    """Returns the largest number of concurrent transactions on one provider's partition."""
    lock, open_at, most = threading.Lock(), Counter[str](), Counter[str]()

    def partitions(params: dict[str, Any]) -> set[str]:
        parts = [part for action in params["TransactItems"] for part in action.values()]
        keys = [part.get("Item", part.get("Key"))["pk"]["S"] for part in parts]
        return {key for key in keys if key.startswith("q#")}

    def begin(params: dict[str, Any], context: dict[str, Any], **_: object) -> None:
        context["partitions"] = partitions(params)
        with lock:
            open_at.update(context["partitions"])
            for name in context["partitions"]:
                most[name] = max(most[name], open_at[name])

    def end(context: dict[str, Any], **_: object) -> None:
        with lock:
            open_at.subtract(context["partitions"])

    events = clients.dynamodb.meta.events
    events.register("provide-client-params.dynamodb.TransactWriteItems", begin)
    events.register("after-call.dynamodb.TransactWriteItems", end)
    try:
        yield most
    finally:
        events.unregister("provide-client-params.dynamodb.TransactWriteItems", begin)
        events.unregister("after-call.dynamodb.TransactWriteItems", end)


def test_status_takes_a_bounded_number_of_requests_however_many_runs_wait(
    aws_store: AwsStore, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches_upkeep, "QUEUES_MAX", 2)
    monkeypatch.setattr(batches_upkeep, "PAGE_MAX", 4)
    for provider in ("a", "b", "c", "d"):
        provide(aws_store, provider)
        plan(aws_store, make_batch(aws_store, provider), every(10, 9), provider=provider)
    requests: list[str] = []

    def note(model: Any, **_: Any) -> None:
        requests.append(model.name)

    events = clients.dynamodb.meta.events
    events.register("before-call.dynamodb", note)
    counts = aws_store.batch_counts()
    events.unregister("before-call.dynamodb", note)
    assert (counts.providers, counts.batches, counts.oldest_call_due_ms) == (4, 4, T0_MS)
    assert counts.calls_waiting == 8, "four of each of two queues: at least so many"
    assert 1 <= len(requests) <= 2 + 2 + 2 + 8 + 1 + 2
