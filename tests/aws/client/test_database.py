"""Conditional writes that return whether they succeeded, and complete reads, with and without network faults."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest
from botocore.exceptions import ClientError

from paceline.adapters.aws.client.database import DynamoDatabase, Transacted, WriteResult
from paceline.adapters.aws.client.items import ABSENT, PRESENT, DynamoKey, check, delete, padded, put, update
from paceline.adapters.aws.client.tables import ITEMS, LEDGER, READY_INDEX, RUNS
from paceline.adapters.aws.store import AwsStore
from paceline.ports.queue_messages import Letter
from tests.aws.support.fault_proxy import FaultProxy, Faults, fault_proxy
from tests.aws.support.ministack import Emulator, guarded_clients

A, B = DynamoKey("a", "1"), DynamoKey("b", "1")


@contextmanager
def weather(aws: Emulator, store: AwsStore, faults: Faults, *, seed: int = 1) -> Iterator[tuple[AwsStore, FaultProxy]]:
    """The same tables, through a proxy."""
    with (
        fault_proxy(aws.url, seed=seed, faults=faults) as proxy,
        guarded_clients(proxy.url) as clients,
        closing(AwsStore(store._database.prefix, clients=clients)) as shaky,
    ):
        yield shaky, proxy


def row(key: DynamoKey, **more: object) -> dict[str, object]:
    return {"pk": key.pk, "sk": key.sk, **more}


def test_put_if_absent_succeeds_once_and_returns_the_existing_item(database: DynamoDatabase) -> None:
    assert database.write(put(ITEMS, row(A, counter=1), when=ABSENT)) == WriteResult(True, None)
    lost = database.write(put(ITEMS, row(A, counter=2), when=ABSENT))
    assert not lost.won
    assert lost.item is not None
    assert lost.item["counter"] == 1


def test_update_succeeds_only_if_its_condition_holds(database: DynamoDatabase) -> None:
    database.write(put(ITEMS, row(A, counter=1, url="x")))
    advance = update(ITEMS, A, "SET #counter = :next", when="#counter = :seen", seen=1, next=2)
    won = database.write(advance)
    assert won.won
    assert won.item is not None
    assert (won.item["counter"], won.item["url"]) == (2, "x")
    assert not database.write(advance).won


def test_promise_3_update_does_not_create_a_deleted_item_again(database: DynamoDatabase) -> None:
    assert database.write(update(ITEMS, A, "ADD #counter :one", when=PRESENT, one=1)) == WriteResult(False, None)
    assert database.get(ITEMS, A) is None


def test_conditional_delete_succeeds_only_once(database: DynamoDatabase) -> None:
    database.write(put(ITEMS, row(A)))
    assert database.write(delete(ITEMS, A, when=PRESENT)).won
    assert not database.write(delete(ITEMS, A, when=PRESENT)).won


def test_a_transaction_happens_whole_or_not_at_all(database: DynamoDatabase) -> None:
    database.write(put(ITEMS, row(A, free=5)))
    take = update(ITEMS, A, "SET #free = #free - :cost", when="#free >= :cost", cost=3)
    assert database.transact([take, put(LEDGER, row(B), when=ABSENT)]) == Transacted(True)
    again = database.transact([take, put(LEDGER, row(DynamoKey("b", "2")), when=ABSENT)])
    assert (again.won, again.lost) == (False, (True, False))
    assert again.items[0] is not None
    assert again.items[0]["free"] == 2
    assert database.get(LEDGER, DynamoKey("b", "2")) is None
    assert database.get_together([(ITEMS, A), (LEDGER, B), (LEDGER, DynamoKey("b", "2"))])[1:] == [row(B), None]


def test_a_check_guards_a_transaction_and_writes_nothing(database: DynamoDatabase) -> None:
    assert not database.transact([check(ITEMS, A, when=PRESENT), put(LEDGER, row(B))]).won
    database.write(put(ITEMS, row(A)))
    assert database.transact([check(ITEMS, A, when=PRESENT), put(LEDGER, row(B))]).won
    assert database.get(ITEMS, A) == row(A)


def test_exactly_one_of_many_conditional_writes_at_once_wins(database: DynamoDatabase) -> None:
    database.write(put(ITEMS, row(A, counter=0)))

    def race(number: int) -> bool:
        counter = database.transact(
            [
                update(
                    ITEMS, A, "SET #counter = :next", when="#counter = :seen", seen=number // 8, next=number // 8 + 1
                ),
                put(RUNS, row(DynamoKey("r", padded(number // 8))), when=ABSENT),
            ]
        )
        return counter.won

    with ThreadPoolExecutor(8) as pool:
        for turn in range(5):
            assert sum(pool.map(race, range(turn * 8, turn * 8 + 8))) == 1
    assert database.count(RUNS, "r", limit=100) == 5


def test_a_query_goes_on_over_pages_and_stops_at_its_limit(database: DynamoDatabase) -> None:
    database.write_many(
        put(RUNS, row(DynamoKey("q", padded(at)), shard="s", at=at, body="x" * 20_000)) for at in range(120)
    )  # more than one page of a megabyte
    found = database.page(RUNS, "q", limit=1_000)
    assert [item["at"] for item in found] == list(range(120))
    newest = database.page(RUNS, "q", limit=3, newest_first=True)
    assert [item["at"] for item in newest] == [119, 118, 117]
    assert [item["at"] for item in database.page(RUNS, "q", filtered="#at > :at", given={"at": 115}, limit=2)] == [
        116,
        117,
    ]
    ready = database.page(RUNS, "s", index=READY_INDEX, last=4, limit=100)
    assert [set(item) for item in ready] == [{"pk", "sk", "shard", "at"}] * 5
    assert database.count(RUNS, "q", limit=1_000) == 120
    assert database.count(RUNS, "q", limit=7) == 7
    assert len(list(database.scan(RUNS))) == 120
    assert database.page(RUNS, "q", limit=0) == []


def test_bulk_read_leaves_out_missing_items(database: DynamoDatabase) -> None:
    database.write_many(put(RUNS, row(DynamoKey("q", padded(at)))) for at in range(0, 250, 2))
    keys = [DynamoKey("q", padded(at)) for at in [*range(250), 0, 2]]
    assert database.get_many(RUNS, keys).keys() == set(keys[:250:2])


def test_invalid_request_raises_the_client_error_and_not_store_unavailable(database: DynamoDatabase) -> None:
    with pytest.raises(ClientError, match="ValidationException"):
        database.write(put(ITEMS, {"pk": "a", "sk": 5}))


LOSSES = Faults(drop_after=0.3, duplicate=0.2, drop_before=0.1, throttle=0.1)


def test_promise_9_a_write_whose_reply_was_lost_is_won_and_not_lost(aws: Emulator, aws_store: AwsStore) -> None:
    with weather(aws, aws_store, LOSSES, seed=3) as (shaky, proxy):
        database = shaky._database
        assert database.write(put(ITEMS, row(A, counter=0), when=ABSENT)).won
        for turn in range(30):
            change = update(ITEMS, A, "SET #counter = :next", when="#counter = :seen", seen=turn, next=turn + 1)
            assert database.write(change).won
        assert database.write(delete(ITEMS, A, when=PRESENT)).won
        assert proxy.hits["drop_after"] > 3


def test_promise_9_a_transaction_whose_reply_was_lost_is_won_and_done_once(aws: Emulator, aws_store: AwsStore) -> None:
    with weather(aws, aws_store, LOSSES, seed=2) as (shaky, proxy):
        database = shaky._database
        database.write(put(ITEMS, row(A, spent=0)))
        for turn in range(20):
            spend = update(ITEMS, A, "ADD #spent :cost", when=PRESENT, cost=10)
            assert database.transact([spend, put(LEDGER, row(DynamoKey("p", padded(turn))), when=ABSENT)]).won
        item = database.get(ITEMS, A)
        assert item is not None
        assert item["spent"] == 200
        assert proxy.hits["drop_after"] > 3


def test_promise_10_unprocessed_items_of_a_batch_write_are_written_after_all(
    aws: Emulator, aws_store: AwsStore
) -> None:
    with weather(aws, aws_store, Faults(partial=0.6, reorder=0.1)) as (shaky, proxy):
        database = shaky._database
        database.write_many(put(RUNS, row(DynamoKey("q", padded(at)))) for at in range(100))
        assert len(database.get_many(RUNS, [DynamoKey("q", padded(at)) for at in range(100)])) == 100
        shaky._queues.send("ticks", [Letter(str(at)) for at in range(40)])
        assert proxy.hits["partial"] > 3
    seen: set[str] = set()
    while received := aws_store._queues.receive("ticks", messages_max=10):
        seen |= {message.body for message in received}
    assert seen == {str(at) for at in range(40)}


def test_messages_of_a_group_come_in_the_order_of_sending(aws_store: AwsStore) -> None:
    queues = aws_store._queues
    queues.send("runs.fifo", [Letter(str(at), group="g", once=str(at)) for at in range(25)])
    found: list[str] = []
    while received := queues.receive("runs.fifo", messages_max=10):
        found += [message.body for message in received]
        assert all((message.group, message.received) == ("g", 1) for message in received)
        queues.forget("runs.fifo", [message.receipt for message in received])
    assert found == [str(at) for at in range(25)]
    assert queues.depth("runs.fifo") == 0


def test_a_batch_of_messages_stays_within_a_megabyte(aws_store: AwsStore) -> None:
    aws_store._queues.send("ticks", [Letter("x" * 300_000) for _ in range(7)])
    assert aws_store._queues.depth("ticks") == 7


@pytest.mark.parametrize("key", [DynamoKey("x" * 2_049, "-"), DynamoKey("a", "ü" * 513), DynamoKey("a", "")])
def test_name_that_is_too_long_for_a_key_is_not_found(database: DynamoDatabase, key: DynamoKey) -> None:
    """A name of any length may be requested; the longest valid one is still looked up."""
    longest = DynamoKey("x" * 2_048, "ü" * 512)
    assert database.write(put(ITEMS, row(longest, n=1))).won
    assert database.get(ITEMS, key) is None
    assert database.get_many(ITEMS, [key, longest]).keys() == {longest}
    assert not database.write(update(ITEMS, key, "SET #n = :n", when=PRESENT, n=2)).won
    gone = database.transact([delete(ITEMS, longest), delete(ITEMS, key, when=PRESENT)])
    assert gone == Transacted(False, (False, True), (None, None))
    assert database.page(ITEMS, "x" * 2_049, limit=9) == []
    assert database.get(ITEMS, longest) is not None
