"""The queue ``ticks``: an alarm makes its entry advance; the other messages release a run when its time has come."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType
from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
from aws_lambda_powertools.utilities.typing import LambdaContext

from paceline.core.monitors.due import Advance
from paceline.ports.queue_messages import Alarm, CallWake, CheckWake, ProviderRelease, Start, read_tick
from paceline.shells.aws_lambda.runtime import Event, FunctionEngine, answer, engine, logger
from paceline.steps.monitors.tick import advance_due

LOOK_MS = 60_000


@logger.inject_lambda_context
def handler(event: Event, context: LambdaContext) -> dict[str, Any]:
    """Handles all messages in one pass. A message that cannot be read fails alone."""
    del context
    processor = BatchProcessor(event_type=EventType.SQS)
    with processor(event["Records"], _tick):
        done = processor.process()
    read = [message for status, message, _ in done if status == "success"]
    now = engine()
    made, lost = _advance(now, [one for one in read if isinstance(one, Alarm)])
    released = release_or_tell(now, [one for one in read if isinstance(one, ProviderRelease | Start)])
    logger.info("ticked", extra={"runs": made, "lost": lost, "released": released})
    return answer(processor)


def _tick(record: SQSRecord) -> Alarm | ProviderRelease | Start:
    return read_tick(record.body)


def _advance(now: FunctionEngine, alarms: Sequence[Alarm]) -> tuple[int, int]:
    """Advances the entries. Returns how many runs were made, and how many entries had already moved.

    An entry has moved if it was edited, or if the same message came before.
    """
    if not alarms:
        return 0, 0
    now_ms = now.now_ms()
    dues = now.store.alarmed_entries(alarms, now_ms=now_ms)
    moved = advance_due(now.store, dues, now_ms=now_ms, catch_up=now.system.catch_up)
    release(now, _starts(now, moved, now_ms=now_ms))
    return sum(len(advance.firings) for advance in moved), len(alarms) - len(moved)


def _starts(now: FunctionEngine, moved: Sequence[Advance], *, now_ms: int) -> list[Start]:
    """Returns starts for checks that Paceline makes; the store has told the checkers of ``outgoing`` runs."""
    entries = now.store.entries([advance.due.generation for advance in moved], now_ms=now_ms) if moved else {}
    return [
        Start(advance.due.generation, firing.counter, firing.after_ms)
        for advance in moved
        if (entry := entries.get(advance.due.generation)) is not None and not entry.outgoing
        for firing in advance.firings
    ]


def release(now: FunctionEngine, releases: Sequence[ProviderRelease | Start]) -> int:
    """Sends due releases to runs.fifo, and delays the others. Returns how many were due."""
    now_ms = now.now_ms()
    ripe = [one for one in releases if one.at <= now_ms]
    now.outbox.wake(_wake(one, now_ms) for one in ripe)
    now.outbox.later((one for one in releases if one.at > now_ms), now_ms=now_ms)
    return len(ripe)


def release_or_tell(now: FunctionEngine, releases: Sequence[ProviderRelease | Start]) -> int:
    """Like ``release``, but tells workers of due runs of the providers that they claim from."""
    now_ms = now.now_ms()
    named = {one.provider for one in releases if isinstance(one, ProviderRelease) and one.at <= now_ms}
    theirs = now.store.offer_work(named, now_ms=now_ms) if named else set()
    offered = [
        one for one in releases if isinstance(one, ProviderRelease) and one.at <= now_ms and one.provider in theirs
    ]
    return len(offered) + release(now, [one for one in releases if one not in offered])


def _wake(ripe: ProviderRelease | Start, now_ms: int) -> CallWake | CheckWake:
    if isinstance(ripe, ProviderRelease):
        return CallWake(ripe.provider, ripe.at, now_ms // LOOK_MS)
    return CheckWake(ripe.generation, ripe.counter, ripe.attempt)
