"""A DynamoDB table with records, such as the RECORDS_TABLE of a user's own scheduler, read by pages of a scan."""

from __future__ import annotations

import base64
from typing import Any

import boto3
import msgspec

from paceline.adapters.aws.client.connect import call, faults
from paceline.adapters.aws.client.items import Wire, decode
from paceline.errors import NoStore, NotFound
from paceline.ports.record_table import TablePage

PAGE_ITEMS = 1_000
FIELDS = (
    *("id", "provider", "endpoint", "body", "active"),
    *("method", "headers", "timeout", "expect", "priority", "after"),
)
"""Attributes of a record; other attributes of the table are ignored."""


class DynamoRecords:
    """Fills ``ports.record_table.RecordTable``. boto3 finds region, credentials and endpoint in its usual ways."""

    def __init__(self, table: str, *, page_items: int = PAGE_ITEMS, client: Any = None) -> None:
        self._table = table
        self._page_items = page_items
        with faults():
            self._client = client or boto3.session.Session().client("dynamodb")

    def page(self, cursor: str | None) -> TablePage:
        params: dict[str, Any] = {"TableName": self._table, "Limit": self._page_items}
        if cursor is not None:
            params["ExclusiveStartKey"] = _start_key(cursor)
        try:
            answer = call(self._client.scan, **params)
        except NoStore:
            raise NotFound(f"There is no DynamoDB table {self._table!r} in this account and region.") from None
        last = answer.get("LastEvaluatedKey")
        return TablePage(
            [_document(item) for item in answer["Items"]],
            None if last is None else msgspec.json.encode(last).decode(),
        )


def _start_key(cursor: str) -> dict[str, Any]:
    """Return the key from which DynamoDB continues. In JSON, bytes are text."""
    key: dict[str, dict[str, Any]] = msgspec.json.decode(cursor)
    return {
        name: {kind: base64.b64decode(value) if kind == "B" else value for kind, value in typed.items()}
        for name, typed in key.items()
    }


def _document(item: Wire) -> bytes:
    """Return the record in an item. A body that is a text with JSON becomes that JSON, as in a CSV file."""
    record = {name: decode(item[name]) for name in FIELDS if name in item}
    if isinstance(record.get("body"), str):
        record["body"] = _body(record["body"])
    return msgspec.json.encode(record)


def _body(text: str) -> Any:
    try:
        msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    return msgspec.Raw(text.encode())
