"""The emulator for a clock that runs fast: it tells what is left to do at this time, and when there is more to do.

The test that moves the clock asks, and pending work starts then: the emulator's own pauses last real seconds, in which
hours of the clock pass.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

from ministack import app as ministack  # type: ignore[import-untyped]
from ministack.services import dynamodb, eventbridge, lambda_svc, scheduler, sqs  # type: ignore[import-untyped]

BUSY = "/_busy"
NAP_S = 0.02


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http" or scope["path"] != BUSY:
        await ministack.app(scope, receive, send)
        return
    now_s = time.time()
    times = dict(_times())
    busy = [*_running(), *(name for name, at_s in times.items() if at_s <= now_s)]
    if busy:
        lambda_svc._esm_wake.set()  # no event marks the end of a message's delay: mappings have to poll
    later_s = min((at_s for at_s in times.values() if at_s > now_s), default=None)
    body = json.dumps({"busy": busy, "next_s": later_s}).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


def _running() -> Iterator[str]:
    _, functions = lambda_svc.executions_in_flight()
    yield from (str(name) for name in functions)
    yield from (str(mapping) for mapping, batches in list(lambda_svc._esm_inflight.items()) if batches)


def _times() -> Iterator[tuple[str, float]]:
    """When something would make a function run: messages, records of a stream, schedules."""
    for account, region, mapping in lambda_svc._iter_all_esms():
        source = str(mapping["EventSourceArn"])
        lambda_svc._request_account_id.set(account)
        lambda_svc._request_region.set(region)
        if ":sqs:" in source:
            queue = sqs._queues.get(sqs._queue_url(source.rpartition(":")[2]))
            yield from ((f"{source} {message['id']}", message["visible_at"]) for message in list(queue["messages"]))
        else:
            table = source.split("/")[1]
            if lambda_svc._dynamodb_stream_positions.get(mapping["UUID"], 0) < dynamodb.stream_end_position(table):
                yield source, 0.0
    for key, schedule in list(scheduler._schedules._data.items()):
        every_s = eventbridge._parse_rate_seconds(schedule["ScheduleExpression"])
        assert every_s is not None, "a clock that leaps knows rates only"
        if schedule["State"] == "ENABLED":
            yield f"schedule {key}", scheduler._schedule_last_fired.get(key, schedule["CreationDate"]) + every_s


scheduler._SCHEDULE_TICK_INTERVAL = NAP_S
lambda_svc._ESM_IDLE_WAKE_GAP_SECONDS = 0.0
