"""The stream of ``schedulers``: when an entry moves, its alarm is sent, if a message can wait that long."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType
from aws_lambda_powertools.utilities.typing import LambdaContext

from paceline.ports.queue_messages import DELAY_MS_MAX, Alarm
from paceline.shells.aws_lambda.runtime import Event, answer, engine, logger


@logger.inject_lambda_context
def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Sends the alarms of entries that moved.

    Entries that are due later stay in the due index; the sweeper sends their alarms 15 minutes ahead.
    """
    del context
    processor = BatchProcessor(event_type=EventType.DynamoDBStreams)
    with processor(event["Records"], _alarm):
        done = processor.process()
    now, now_ms = engine(), engine().now_ms()
    horizon_ms = now_ms + DELAY_MS_MAX
    moved = [alarm for status, alarm, _ in done if status == "success" and isinstance(alarm, Alarm)]
    soon = [alarm for alarm in moved if alarm.due <= horizon_ms]
    # If this raises, all records come again; the tick drops an alarm that was sent twice.
    now.store.alarms.send(soon, now_ms=now_ms)
    logger.info("armed", extra={"armed": len(soon), "later": len(moved) - len(soon)})
    return answer(processor)


def _alarm(record: Any) -> Alarm | None:
    """Returns the alarm of an entry that moved. None: it is paused, or nothing changed that a tick looks at."""
    images = record.raw_event["dynamodb"]
    before, after = _standing(images.get("OldImage")), _standing(images.get("NewImage"))
    return after if after != before else None


def _standing(image: Event | None) -> Alarm | None:
    if image is None or "due_ms" not in image:
        return None
    return Alarm(*(int(image[name]["N"]) for name in ("generation", "counter", "due_ms")))
