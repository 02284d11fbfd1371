"""A DynamoDB table with records, read by pages of a scan."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.record_table import DynamoRecords
from paceline.core.batches.batch import parse_record
from paceline.errors import NotFound


@pytest.fixture
def table(clients: Clients, prefix: str) -> Iterator[str]:
    """A table as the daily scheduler has one: its key is the id."""
    name = f"{prefix}-records"
    clients.dynamodb.create_table(
        TableName=name,
        KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        BillingMode="PAY_PER_REQUEST",
    )
    yield name
    clients.dynamodb.delete_table(TableName=name)


def fill(clients: Clients, table: str, items: list[dict[str, Any]]) -> None:
    for item in items:
        clients.dynamodb.put_item(TableName=table, Item=item)


def read(records: DynamoRecords) -> list[Any]:
    found: list[Any] = []
    cursor: str | None = None
    while True:
        page = records.page(cursor)
        found += [msgspec.json.decode(item) for item in page.items]
        cursor = page.cursor
        if cursor is None:
            return sorted(found, key=lambda record: record["id"])


def test_every_item_is_read_once_by_pages(clients: Clients, table: str) -> None:
    fill(clients, table, [{"id": {"S": f"id{n:03}"}, "provider": {"S": "provA"}} for n in range(25)])
    records = DynamoRecords(table, page_items=10, client=clients.dynamodb)
    assert [record["id"] for record in read(records)] == [f"id{n:03}" for n in range(25)]
    assert len(records.page(None).items) == 10


def test_attributes_of_an_item_are_those_of_a_record(clients: Clients, table: str) -> None:
    body = {"M": {"n": {"N": "1.5"}, "tags": {"L": [{"S": "a"}, {"NULL": True}]}}}
    whole = {
        "id": {"S": "a"},
        "provider": {"S": "provA"},
        "endpoint": {"S": "/a/{date}"},
        "body": body,
        "active": {"BOOL": False},
        "priority": {"N": "3"},
        "ttl": {"N": "1790000000"},
        "labels": {"SS": ["x", "y"]},
    }
    text = {"id": {"S": "b"}, "provider": {"S": "provB"}, "body": {"S": '{"big": 12345678901234567890}'}}
    plain = {"id": {"S": "c"}, "provider": {"S": "provB"}, "body": {"S": "hello {{"}}
    fill(clients, table, [whole, text, plain])
    records = DynamoRecords(table, client=clients.dynamodb)
    found = {record["id"]: record for record in read(records)}
    specs = {spec.id: spec for spec in map(parse_record, records.page(None).items)}
    assert found["a"]["body"] == {"n": 1.5, "tags": ["a", None]}
    assert set(found["a"]) == {"id", "provider", "endpoint", "body", "active", "priority"}
    assert (specs["a"].active, specs["a"].options.priority, specs["a"].options.templated) == (False, 3, True)
    assert specs["b"].body == '{"big": 12345678901234567890}'
    assert specs["c"].body == '"hello {{"'


def test_missing_table_is_named(clients: Clients, table: str) -> None:
    with pytest.raises(NotFound, match=f"{table}-not"):
        DynamoRecords(f"{table}-not", client=clients.dynamodb).page(None)
