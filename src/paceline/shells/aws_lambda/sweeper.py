"""Called every minute: finds everything whose message was lost, so that no message is indispensable."""

from __future__ import annotations

from typing import Any

from aws_lambda_powertools.utilities.typing import LambdaContext

from paceline.ports.queue_messages import MinuteWake, ProviderRelease
from paceline.shells.aws_lambda.runtime import Event, FunctionEngine, engine, logger
from paceline.shells.aws_lambda.ticks import LOOK_MS, release, release_or_tell
from paceline.steps.monitors.look_after import LateReport, is_any_late, tell_late
from paceline.steps.monitors.react import react_to_all

AHEAD_MS = 150_000
"""Providers that become ready within this time get their message now. One minute of the scheduler may take two."""
LATE_PAGES_MAX = 4


@logger.inject_lambda_context
def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Repairs changes that were given up, entries without an alarm, providers without a message, and unclaimed runs.

    Tells of runs that could have started five minutes ago.
    """
    del event, context
    now, now_ms = engine(), engine().now_ms()
    reacted = react_to_all(now.store, now_ms=now_ms)
    swept = now.store.sweep_alarms(now_ms=now_ms)
    released = release_ready(now) + release_work(now)
    now.outbox.wake([MinuteWake(now_ms // LOOK_MS)])
    alerted = tell_late_runs(now)
    report = {
        "reacted": reacted.reacted,
        "armed": swept.armed,
        "late": swept.late,
        "released": released,
        "told": alerted,
    }
    logger.info("swept", extra=report)
    return report


def tell_late_runs(now: FunctionEngine) -> int:
    """Tells of monitors whose runs nobody claims.

    Returns how many. If there are very many, the keeper tells of the rest.
    """
    now_ms, alerted = now.now_ms(), 0
    late = LateReport(0, 0 if is_any_late(now.store.status(), now_ms=now_ms) else None)
    for _ in range(LATE_PAGES_MAX):
        if late.after is None:
            break
        late = tell_late(now.store, after=late.after, now_ms=now_ms)
        alerted += late.reported
    return alerted


def release_ready(now: FunctionEngine) -> int:
    """Sends messages for providers that may start a run before the next sweep. Returns how many may start one now."""
    ready = now.store.ready_lanes(until_ms=now.now_ms() + AHEAD_MS)
    return release(now, [ProviderRelease(provider, at) for provider, at in ready])


def release_work(now: FunctionEngine) -> int:
    """Like ``release_ready``, for providers whose runs are for workers: the workers are told what may start now."""
    ready = now.store.ready_work(until_ms=now.now_ms() + AHEAD_MS)
    return release_or_tell(now, [ProviderRelease(provider, at) for provider, at in ready])
