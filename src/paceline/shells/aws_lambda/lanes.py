"""Which providers may start a run soon: read from the index ``ready``, which is a hint; the claim is the judge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import boto3

from paceline.shells.aws_lambda.messages import Release

SHARDS = 4
LANE = "lane"
PAGES_MAX = 1_000


class Lanes:
    def __init__(self, prefix: str) -> None:
        self.dynamodb = boto3.session.Session().client("dynamodb")
        self._table = f"{prefix}-runs"

    def ready(self, *, until_ms: int) -> Iterator[Release]:
        """Providers with something to start up to then, those first that have waited longest, shard by shard."""
        for shard in range(SHARDS):
            for row in self._rows(f"lane#{shard}", until_ms):
                yield Release(int(row["pk"]["S"].removeprefix("q#")), int(row["at"]["N"]))

    def ready_ms(self, provider: int) -> int | None:
        """When this one may start its next run; None: it has none, or it rests."""
        found = self.dynamodb.get_item(
            TableName=self._table,
            Key={"pk": {"S": f"q#{provider}"}, "sk": {"S": LANE}},
            ConsistentRead=True,
            ProjectionExpression="#at",
            ExpressionAttributeNames={"#at": "at"},
        )
        at = found.get("Item", {}).get("at")
        return None if at is None else int(at["N"])

    def _rows(self, shard: str, until_ms: int) -> Iterator[dict[str, Any]]:
        start: dict[str, Any] = {}
        for _ in range(PAGES_MAX):
            page = self.dynamodb.query(
                TableName=self._table,
                IndexName="ready",
                KeyConditionExpression="#shard = :shard AND #at <= :until",
                ExpressionAttributeNames={"#shard": "shard", "#at": "at"},
                ExpressionAttributeValues={":shard": {"S": shard}, ":until": {"N": str(until_ms)}},
                **start,
            )
            yield from page["Items"]
            if "LastEvaluatedKey" not in page:
                return
            start = {"ExclusiveStartKey": page["LastEvaluatedKey"]}
