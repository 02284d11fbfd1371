"""Functions of jobs, called every minute: ``dispatch`` sends measurements, ``follow`` follows them, ``tell`` reports.

They turn the daemon's own loops for as long as there is work and time. The stream of the ledger also calls ``dispatch``
with new jobs, so that they do not wait for the minute. ``tell`` calls webhooks and sends alerts.
"""

from __future__ import annotations

import secrets
import time
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from paceline.core.batches.calls import CallResult
from paceline.core.monitors.definition import duration_ms
from paceline.ports import Atlas
from paceline.shells.aws_lambda.carry_out import carry_out, loop_metrics
from paceline.shells.aws_lambda.runtime import Event, Time, chance, engine, logger, time_of
from paceline.shells.daemon.alerts import Alerts
from paceline.shells.daemon.in_flight import InFlight
from paceline.shells.daemon.jobs import LOOK_MS, SEND_S, Dispatcher, Follower, watched_atlas
from paceline.shells.daemon.webhooks import Webhooks
from paceline.steps.alerts.deliver import Message
from paceline.steps.jobs.dispatch import DispatchSettings
from paceline.steps.jobs.webhook import WebhookTry
from paceline.wiring import open_atlas, open_caller, open_messenger

TURNS_MAX = 1_000
TELL_S = 32.0
"""With less time left nothing is begun: a message through apprise may take half a minute."""
JOB = "job#"
"""Beginning of the partition key of a job. Its measurements have the same partition key, but other sort keys."""
JOB_SORT = "-"
LATE_S = 1.0
"""How much later than the stream the index may show a job."""


@logger.inject_lambda_context
def dispatch(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Sends one measurement after the other. The store limits how many all functions send at once.

    A record of the stream only says that there is a new job, so a record that comes twice or late does no harm.
    """
    left = time_of(context)
    if "Records" not in event:
        return {"turns": _dispatch_on(left)}
    if any(_is_new_job(record) for record in event["Records"]):
        logger.info("dispatched", extra={"turns": _send_new(left)})
    return {"batchItemFailures": []}


@logger.inject_lambda_context
def follow(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Looks up lost sends, follows running measurements, compares accounts with RIPE's, and finishes jobs."""
    del event, context
    _follower().turn()
    return {"turns": 1}


@logger.inject_lambda_context
def tell(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Calls the webhooks of finished jobs and sends alerts.

    A try that is cut short is made again when its time comes.
    """
    del event
    hooks, alerts = _webhooks(), _alerts()
    cut_short: list[InFlight[Any, Any]] = carry_out([hooks, alerts], time_of(context), claim_s=TELL_S)
    for loop, made in ((hooks, _webhooks), (alerts, _alerts)):
        if loop in cut_short:
            made.cache_clear()
    return {"webhooks": hooks.settled, "alerts": alerts.settled}


def _is_new_job(record: Event) -> bool:
    """True for a new job, as in the mapping's filter. If changed jobs counted too, each call would cause the next."""
    keys = record["dynamodb"]["Keys"]
    is_job = str(keys["pk"]["S"]).startswith(JOB) and keys["sk"]["S"] == JOB_SORT
    return record["eventName"] == "INSERT" and is_job


def _send_new(left: Time) -> int:
    """Sends all that can go now.

    At the limit of concurrent sends, the senders or the next minute's call go on with it.
    """
    turns = _dispatch_on(left, sleep_ms_max=0)
    if turns > 1:
        return turns
    time.sleep(LATE_S)
    return turns + _dispatch_on(left, sleep_ms_max=0)


def _dispatch_on(left: Time, *, sleep_ms_max: int = LOOK_MS - 1) -> int:
    """Turns the dispatcher until it wants to sleep longer than ``sleep_ms_max``. Returns the number of turns."""
    dispatcher = _dispatcher()
    dispatcher.tell()  # other processes may have made room since its last call
    for turns in range(1, TURNS_MAX + 1):
        turn = dispatcher.turn()
        if turn.sleep_ms > sleep_ms_max or left.left_s < SEND_S:
            return turns
        time.sleep(turn.sleep_ms / 1_000)
    return TURNS_MAX


@cache
def _desk() -> DispatchSettings:
    system = engine().system
    return DispatchSettings(
        site=system.store.site(secrets.token_hex(4)),
        secret=system.secret_key,
        sending_max=system.settings.atlas_sends_max,
        settle_ms=duration_ms(system.settings.atlas_settle),
    )


@cache
def _atlas() -> Atlas:
    return watched_atlas(open_atlas(engine().system.settings), loop_metrics(), beat=lambda _seconds: None)


@cache
def _dispatcher() -> Dispatcher:
    return Dispatcher(engine().system, _atlas(), _desk(), loop_metrics(), chance=chance)


@cache
def _follower() -> Follower:
    return Follower(engine().system, _atlas(), _desk(), loop_metrics(), chance=chance, finished=lambda: None)


@cache
def _alerts() -> InFlight[Message, CallResult]:
    system = engine().system
    alerts = Alerts(system, open_messenger(system.settings, system.clock), loop_metrics(), chance=chance)
    return InFlight(alerts, clock=system.clock, remote=system.traits.remote)


@cache
def _webhooks() -> InFlight[WebhookTry, CallResult]:
    system = engine().system
    webhooks = Webhooks(system, open_caller(system.settings, system.clock), loop_metrics(), chance=chance)
    return InFlight(webhooks, clock=system.clock, remote=system.traits.remote)
