"""The proxy does what it says, as often as it says, and the same for the same seed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectionClosedError

from paceline.adapters.aws.client.items import put
from paceline.adapters.aws.store import AwsStore
from tests.aws.support.fault_proxy import FAULTS, Fault, FaultProxy, Faults, fault_proxy
from tests.aws.support.ministack import Emulator, plain_client

ONCE = Config(retries={"total_max_attempts": 1})


@pytest.fixture
def proxy(aws: Emulator) -> Iterator[FaultProxy]:
    with fault_proxy(aws.url) as made:
        yield made


@pytest.fixture
def dynamodb(proxy: FaultProxy) -> Any:
    return plain_client("dynamodb", proxy.url, ONCE)


@pytest.fixture
def sqs(proxy: FaultProxy) -> Any:
    return plain_client("sqs", proxy.url, ONCE)


def add_one(client: Any, store: AwsStore) -> int:
    answer = client.update_item(
        TableName=store._database.table("items"),
        Key={"pk": {"S": "a"}, "sk": {"S": "b"}},
        UpdateExpression="ADD #n :one",
        ExpressionAttributeNames={"#n": "n"},
        ExpressionAttributeValues={":one": {"N": "1"}},
        ReturnValues="ALL_NEW",
    )
    return int(answer["Attributes"]["n"]["N"])


def test_proxy_without_faults_passes_and_counts_every_request(
    aws_store: AwsStore, proxy: FaultProxy, dynamodb: Any
) -> None:
    assert [add_one(dynamodb, aws_store) for _ in range(5)] == [1, 2, 3, 4, 5]
    assert proxy.requests == {"UpdateItem": 5}
    assert not proxy.hits


@pytest.mark.parametrize(("fault", "count"), [("drop_before", 1), ("drop_after", 2), ("throttle", 1)])
def test_failed_request_has_taken_effect_or_not_depending_on_the_fault(
    aws_store: AwsStore, proxy: FaultProxy, dynamodb: Any, fault: Fault, count: int
) -> None:
    proxy.faults = replace(Faults(), **{fault: 1.0})  # type: ignore[arg-type]
    error: type[Exception] = ClientError if fault == "throttle" else ConnectionClosedError
    with pytest.raises(error, match="Throughput" if fault == "throttle" else "closed"):
        add_one(dynamodb, aws_store)
    proxy.faults = Faults()
    assert add_one(dynamodb, aws_store) == count


def test_throttling_of_sqs_uses_its_own_error_code(aws_store: AwsStore, proxy: FaultProxy, sqs: Any) -> None:
    proxy.faults = Faults(throttle=1.0)
    with pytest.raises(ClientError) as caught:
        sqs.send_message(QueueUrl=aws_store._queues.url("ticks"), MessageBody="x")
    assert caught.value.response["Error"]["Code"] == "RequestThrottled"


def test_a_request_that_arrives_twice_has_its_effect_twice(
    aws_store: AwsStore, proxy: FaultProxy, dynamodb: Any, sqs: Any
) -> None:
    proxy.faults = Faults(duplicate=1.0)
    assert add_one(dynamodb, aws_store) == 1
    sqs.send_message(QueueUrl=aws_store._queues.url("ticks"), MessageBody="x")
    proxy.faults = Faults()
    assert add_one(dynamodb, aws_store) == 3
    assert aws_store._queues.depth("ticks") == 2


def test_proxy_injects_faults_only_into_named_requests(
    aws_store: AwsStore, proxy: FaultProxy, dynamodb: Any, sqs: Any
) -> None:
    proxy.faults = Faults(drop_before=1.0, only=frozenset({"SendMessage"}))
    assert add_one(dynamodb, aws_store) == 1
    with pytest.raises(ConnectionClosedError):
        sqs.send_message(QueueUrl=aws_store._queues.url("ticks"), MessageBody="x")
    assert aws_store._queues.depth("ticks") == 0


def test_batch_request_is_processed_by_half_and_returns_the_rest(
    aws_store: AwsStore, proxy: FaultProxy, sqs: Any
) -> None:
    proxy.faults = Faults(partial=1.0)
    entries = [{"Id": str(number), "MessageBody": "x"} for number in range(5)]
    answer = sqs.send_message_batch(QueueUrl=aws_store._queues.url("ticks"), Entries=entries)
    assert [one["Id"] for one in answer["Successful"]] == ["0", "1", "2"]
    assert [(one["Id"], one["SenderFault"]) for one in answer["Failed"]] == [("3", False), ("4", False)]
    assert aws_store._queues.depth("ticks") == 3


def test_index_answers_with_old_items_or_none(aws_store: AwsStore, proxy: FaultProxy, dynamodb: Any) -> None:
    def found() -> int:
        answer = dynamodb.query(
            TableName=aws_store._database.table("runs"),
            IndexName="ready",
            KeyConditionExpression="#s = :s",
            ExpressionAttributeNames={"#s": "shard"},
            ExpressionAttributeValues={":s": {"S": "x"}},
        )
        return int(answer["Count"])

    def add(name: str) -> None:
        aws_store._database.write(put("runs", {"pk": name, "sk": "-", "shard": "x", "at": 1}))

    add("a")
    proxy.faults = Faults(stale=1.0)
    assert found() == 0
    proxy.faults = Faults()
    assert found() == 1
    add("b")
    proxy.faults = Faults(stale=1.0)
    assert found() == 1
    assert add_one(dynamodb, aws_store) == 1  # base tables are never stale
    proxy.faults = Faults()
    assert found() == 2


def test_the_same_seed_chooses_the_same_faults(aws: Emulator) -> None:
    weather = Faults(**dict.fromkeys(FAULTS, 0.1))  # type: ignore[arg-type]
    chosen = []
    for seed in (7, 7, 8):
        with fault_proxy(aws.url, seed=seed, faults=weather) as proxy:
            chosen.append([proxy.choose("BatchWriteItem", index="i") for _ in range(200)])
    assert chosen[0] == chosen[1] != chosen[2]
    assert set(chosen[0]) == {None, *FAULTS}


def test_reads_can_have_fewer_faults_and_excluded_requests_none(aws: Emulator) -> None:
    with fault_proxy(aws.url, faults=Faults(throttle=1.0, reads=0.0, spared="number#a")) as proxy:
        assert [proxy.choose(name) for name in ("Query", "GetItem", "PutItem")] == [None, None, "throttle"]
        assert proxy.choose("UpdateItem", body=b'{"S": "number#a"}') is None
        assert proxy.choose("UpdateItem", body=b'{"S": "number#b"}') == "throttle"
        proxy.faults = Faults(throttle=0.5, reads=0.1)
        hits = [proxy.choose("Query") for _ in range(1_000)].count("throttle")
        assert 20 < hits < 90


def test_restarted_proxy_chooses_the_same_faults(aws: Emulator) -> None:
    weather = Faults(**dict.fromkeys(FAULTS, 0.1))  # type: ignore[arg-type]
    with fault_proxy(aws.url) as proxy:
        chosen = []
        for _ in range(2):
            proxy.begin(7, weather)
            chosen.append([proxy.choose("BatchWriteItem", index="i") for _ in range(100)])
            assert proxy.requests == {"BatchWriteItem": 100}
            assert proxy.hits.total() == 100 - chosen[-1].count(None)
    assert chosen[0] == chosen[1]
