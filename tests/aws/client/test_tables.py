"""Tables and queues are created once; a second call reports differences."""

from __future__ import annotations

from paceline.adapters.aws.client import tables
from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.client.tables import QUEUES, TABLES
from tests.aws.support.ministack import make_tables


def test_creating_the_tables_a_second_time_changes_nothing(clients: Clients, prefix: str) -> None:
    first = tables.create(clients, prefix)
    names = tuple(f"{prefix}-{part.name}" for part in (*TABLES, *QUEUES))
    assert first == tables.TablesReport(created=names, existing=(), differences=())
    assert tables.create(clients, prefix) == tables.TablesReport(created=(), existing=names, differences=())


def test_test_tables_equal_those_that_aws_init_creates(clients: Clients, prefix: str) -> None:
    make_tables(clients, prefix)
    report = tables.create(clients, prefix)
    assert (report.created, report.differences) == ((), ())


def test_partly_created_tables_and_queues_are_completed(clients: Clients, prefix: str) -> None:
    tables.create(clients, prefix)
    clients.dynamodb.delete_table(TableName=f"{prefix}-runs")
    clients.sqs.delete_queue(QueueUrl=clients.sqs.get_queue_url(QueueName=f"{prefix}-ticks")["QueueUrl"])
    assert tables.create(clients, prefix).created == (f"{prefix}-runs", f"{prefix}-ticks")


def test_differences_of_tables_are_reported_and_not_changed(clients: Clients, prefix: str) -> None:
    clients.dynamodb.create_table(
        TableName=f"{prefix}-schedulers",
        BillingMode="PAY_PER_REQUEST",
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
    )
    clients.sqs.create_queue(QueueName=f"{prefix}-ticks", Attributes={"VisibilityTimeout": "1"})
    told = tables.create(clients, prefix).differences
    assert [words.split(": ")[1].split(" is ")[0] for words in told] == [
        "its key",
        "index due",
        "its stream",
        "VisibilityTimeout",
        "MessageRetentionPeriod",
        "ReceiveMessageWaitTimeSeconds",
        "RedrivePolicy",
    ]
    url = clients.sqs.get_queue_url(QueueName=f"{prefix}-ticks")["QueueUrl"]
    found = clients.sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["VisibilityTimeout"])["Attributes"]
    assert found == {"VisibilityTimeout": "1"}


def test_a_table_has_its_stream_its_time_to_live_and_is_billed_by_request(clients: Clients, prefix: str) -> None:
    tables.create(clients, prefix)
    for table in TABLES:
        told = clients.dynamodb.describe_table(TableName=f"{prefix}-{table.name}")["Table"]
        assert bool(told.get("LatestStreamArn")) == table.streamed
        assert told["BillingModeSummary"]["BillingMode"] == "PAY_PER_REQUEST"
        expiry = clients.dynamodb.describe_time_to_live(TableName=f"{prefix}-{table.name}")["TimeToLiveDescription"]
        assert (expiry.get("AttributeName") == tables.EXPIRES) == table.expiring


def test_every_queue_for_work_has_a_dead_one_of_its_own_kind() -> None:
    named = {queue.name: queue for queue in QUEUES}
    for name in (tables.TICKS, tables.OUTGOING, tables.RUNS_FIFO):
        dead = named[named[name].dead or ""]
        assert dead.fifo == named[name].fifo
        assert dead.dead is None
        assert dead.kept_s > named[name].kept_s  # a message's age goes on counting when it moves
