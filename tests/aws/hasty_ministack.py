"""The emulator for a clock that runs fast: with short naps, and it tells whether anything is left to do at this time.

Its own naps are seconds of real time, in which hours of the clock pass.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

from ministack import app as ministack  # type: ignore[import-untyped]
from ministack.services import dynamodb, lambda_svc, scheduler, sqs  # type: ignore[import-untyped]

BUSY = "/_busy"
NAP_S = 0.02


async def app(scope: Any, receive: Any, send: Any) -> None:
    if scope["type"] != "http" or scope["path"] != BUSY:
        await ministack.app(scope, receive, send)
        return
    body = json.dumps(list(_left_to_do())).encode()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


def _left_to_do() -> Iterator[str]:
    """Functions that run, and what would make one run: messages whose time has come, records of a stream."""
    _, running = lambda_svc.executions_in_flight()
    yield from (str(name) for name in running)
    for account, region, mapping in lambda_svc._iter_all_esms():
        source = str(mapping["EventSourceArn"])
        lambda_svc._request_account_id.set(account)
        lambda_svc._request_region.set(region)
        if ":sqs:" in source:
            queue = sqs._queues.get(sqs._queue_url(source.rpartition(":")[2]))
            if any(message["visible_at"] <= time.time() for message in queue["messages"]):
                yield source
        else:
            table = source.split("/")[1]
            if lambda_svc._dynamodb_stream_positions.get(mapping["UUID"], 0) < dynamodb.stream_end_position(table):
                yield source


def _nudge() -> None:
    """A message whose delay has ended tells nobody: mappings have to look."""
    while True:
        time.sleep(NAP_S)
        lambda_svc._esm_wake.set()


scheduler._SCHEDULE_TICK_INTERVAL = NAP_S
lambda_svc._ESM_IDLE_WAKE_GAP_SECONDS = 0.0
threading.Thread(target=_nudge, daemon=True).start()
