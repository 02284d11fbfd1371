"""The stream of ``items``: definitions changed, so their entries follow."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from paceline.shells.aws_lambda.runtime import Event, engine, logger
from paceline.steps.monitors.react import react_to_all

CHANGES = "changes#"
"""How the partition key of a recorded change begins; the mapping's filter says the same."""


@logger.inject_lambda_context
def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """The records say that there is something to follow; what it is stands in the table. So a record twice is nothing.

    An error fails them all, which costs one more look: there is no part of it that would be done twice.
    """
    del context
    if any(_is_change(record) for record in event["Records"]):
        now = engine()
        report = react_to_all(now.store, now_ms=now.now_ms())
        logger.info("reacted", extra={"reacted": report.reacted, "lost": report.lost})
    return {"batchItemFailures": []}


def _is_change(record: Event) -> bool:
    """Not one that was just forgotten, because an entry has followed it."""
    name = str(record["dynamodb"]["Keys"]["pk"]["S"])
    return record["eventName"] != "REMOVE" and name.startswith(CHANGES)
