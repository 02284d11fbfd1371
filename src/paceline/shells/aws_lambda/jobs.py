"""Jobs, every minute: ``dispatch`` sends measurements, ``follow`` follows them to their end, ``tell`` calls webhooks.

These are the daemon's own loops, turned for as long as there is something to do and time to do it in.
"""

from __future__ import annotations

import secrets
import time
from functools import cache
from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from paceline import __version__
from paceline.core.definition import duration_ms
from paceline.shells.aws_lambda.runtime import Event, Time, chance, engine, logger, time_of
from paceline.shells.job_loops import LOOK_MS, SEND_S, Dispatcher, Follower, Herald, WatchedAtlas
from paceline.shells.loops import Turn
from paceline.shells.metrics import Metrics
from paceline.steps.dispatch import Desk
from paceline.wiring import open_atlas, open_caller

TURNS_MAX = 1_000
HOOK_S = 12.0


@logger.inject_lambda_context
def dispatch(event: Event, context: LambdaContext) -> dict[str, Any]:
    """One measurement after the other. How many are being sent at once is held down by the store, for all functions."""
    del event
    return {"turns": _turn_on(_dispatcher(), time_of(context), spare_s=SEND_S)}


@logger.inject_lambda_context
def follow(event: Event, context: LambdaContext) -> dict[str, Any]:
    """What was lost is looked up, what runs is followed, accounts are kept beside RIPE's, jobs are finished."""
    del event, context
    _follower().turn()
    return {"turns": 1}


@logger.inject_lambda_context
def tell(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Webhooks of finished jobs. One that is cut short is tried again when its time comes."""
    del event
    return {"turns": _turn_on(_herald(), time_of(context), spare_s=HOOK_S)}


def _turn_on(loop: Dispatcher | Herald, left: Time, *, spare_s: float) -> int:
    """Until a turn has nothing to do for a second; how many there were."""
    for turns in range(1, TURNS_MAX + 1):
        turn: Turn = loop.turn()
        if turn.sleep_ms >= LOOK_MS or left.left_s < spare_s:
            return turns
        time.sleep(turn.sleep_ms / 1_000)
    return TURNS_MAX


@cache
def _metrics() -> Metrics:
    """Counted for the loops' sake: nobody asks a function for its figures. Its log has them."""
    return Metrics(version=__version__)


@cache
def _desk() -> Desk:
    system = engine().system
    return Desk(
        site=system.store.site(secrets.token_hex(4)),
        secret=system.secret_key,
        sending_max=system.settings.atlas_sends_max,
        settle_ms=duration_ms(system.settings.atlas_settle),
    )


@cache
def _atlas() -> WatchedAtlas:
    return WatchedAtlas(open_atlas(engine().system.settings), _metrics(), beat=lambda _seconds: None)


@cache
def _dispatcher() -> Dispatcher:
    return Dispatcher(engine().system, _atlas(), _desk(), _metrics(), chance=chance)


@cache
def _follower() -> Follower:
    return Follower(engine().system, _atlas(), _desk(), _metrics(), chance=chance, finished=lambda: None)


@cache
def _herald() -> Herald:
    system = engine().system
    return Herald(system, open_caller(system.settings, system.clock), _metrics(), chance=chance)
