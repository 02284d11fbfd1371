"""The stream of ``items``: when definitions change, their entries follow."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from paceline.shells.aws_lambda.runtime import Event, engine, logger
from paceline.steps.monitors.react import react_to_all

CHANGES = "changes#"
"""Beginning of the partition key of a recorded change; the mapping's filter has the same."""


@logger.inject_lambda_context
def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Lets entries follow their changed definitions. A record only says that there is a change; the table says which.

    So a record that comes twice does no harm. An error fails all records, and the repetition does nothing twice.
    """
    del context
    if any(_is_change(record) for record in event["Records"]):
        now = engine()
        report = react_to_all(now.store, now_ms=now.now_ms())
        logger.info("reacted", extra={"reacted": report.reacted, "lost": report.lost})
    return {"batchItemFailures": []}


def _is_change(record: Event) -> bool:
    """True if a change was recorded; False if one was deleted because its entry has followed it."""
    name = str(record["dynamodb"]["Keys"]["pk"]["S"])
    return record["eventName"] != "REMOVE" and name.startswith(CHANGES)
