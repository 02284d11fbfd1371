"""REST behind API Gateway: the daemon's own application, one request for each event."""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any, cast

from aws_lambda_powertools.utilities.typing import LambdaContext
from mangum import Mangum

from paceline import __version__
from paceline.shells.api.http.app import build_app
from paceline.shells.api.http.context import ApiHooks
from paceline.shells.aws_lambda.runtime import Event, engine, logger
from paceline.shells.daemon.metrics import Metrics
from paceline.wiring import keep_check_value

TEXT = ["text/", "application/json", "application/problem+json", "application/x-ndjson", "application/javascript"]


@logger.inject_lambda_context
def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Answers a request in the payload format 2.0 of API Gateway's HTTP API."""
    return _adapter()(event, cast("Any", context))


@cache
def _adapter() -> Mangum:
    """Makes the adapter, without a lifespan: its end would close the writing thread after the first request."""
    asyncio.set_event_loop(asyncio.new_event_loop())
    system = engine().system
    keep_check_value(system)  # only this function is allowed to write that item
    app = build_app(system, ApiHooks(metrics=Metrics(version=__version__)))
    return Mangum(app, lifespan="off", text_mime_types=TEXT)
