"""Jobs, every minute: ``dispatch`` sends measurements, ``follow`` follows them, ``tell`` calls webhooks; and alerts.

These are the daemon's own loops, turned for as long as there is something to do and time to do it in. ``dispatch`` is
also called with new jobs by the stream of the ledger, so that they need not wait for the minute.
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
from paceline.steps.jobs.webhook import Hook
from paceline.wiring import open_atlas, open_caller, open_messenger

TURNS_MAX = 1_000
TELL_S = 32.0
"""With less time left nothing is begun: a message through apprise may take half a minute."""
JOB = "job#"
"""How the partition key of a job begins; those of its measurements do too, and have another sort key."""
JOB_SORT = "-"
LATE_S = 1.0
"""So much later than the stream the index may show a job."""


@logger.inject_lambda_context
def dispatch(event: Event, context: LambdaContext) -> dict[str, Any]:
    """One measurement after the other. How many are being sent at once is held down by the store, for all functions.

    A record of the stream says only that there is a new job, so one that comes twice or late is nothing.
    """
    left = time_of(context)
    if "Records" not in event:
        return {"turns": _dispatch_on(left)}
    if any(_is_new_job(record) for record in event["Records"]):
        logger.info("dispatched", extra={"turns": _send_new(left)})
    return {"batchItemFailures": []}


@logger.inject_lambda_context
def follow(event: Event, context: LambdaContext) -> dict[str, Any]:
    """What was lost is looked up, what runs is followed, accounts are kept beside RIPE's, jobs are finished."""
    del event, context
    _follower().turn()
    return {"turns": 1}


@logger.inject_lambda_context
def tell(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Webhooks of finished jobs, and alerts. One that is cut short is tried again when its time comes."""
    del event
    hooks, alerts = _webhooks(), _alerts()
    cut_short: list[InFlight[Any, Any]] = carry_out([hooks, alerts], time_of(context), claim_s=TELL_S)
    for loop, made in ((hooks, _webhooks), (alerts, _alerts)):
        if loop in cut_short:
            made.cache_clear()
    return {"webhooks": hooks.settled, "alerts": alerts.settled}


def _is_new_job(record: Event) -> bool:
    """As the mapping's filter has it: a job that moves on is none, or each call would bring up the next."""
    keys = record["dynamodb"]["Keys"]
    is_job = str(keys["pk"]["S"]).startswith(JOB) and keys["sk"]["S"] == JOB_SORT
    return record["eventName"] == "INSERT" and is_job


def _send_new(left: Time) -> int:
    """All that can go now. Where others send as much as may be sent at once, they go on with it, or the next minute."""
    turns = _dispatch_on(left, sleep_ms_max=0)
    if turns > 1:
        return turns
    time.sleep(LATE_S)
    return turns + _dispatch_on(left, sleep_ms_max=0)


def _dispatch_on(left: Time, *, sleep_ms_max: int = LOOK_MS - 1) -> int:
    """Turns the dispatcher until it has nothing to do for longer than that. Returns how many turns there were."""
    dispatcher = _dispatcher()
    dispatcher.tell()  # others may have made room since its last call
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
def _webhooks() -> InFlight[Hook, CallResult]:
    system = engine().system
    webhooks = Webhooks(system, open_caller(system.settings, system.clock), loop_metrics(), chance=chance)
    return InFlight(webhooks, clock=system.clock, remote=system.traits.remote)
