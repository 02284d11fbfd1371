"""Queue of a provider: its pace, and its first runs that have not ended, in due order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from paceline.core.batches.pace import Pace
from paceline.core.batches.provider import Policy
from paceline.core.batches.records.options import call_timeout_ms, parse_options
from paceline.core.batches.unwanted import DayFacts

QUEUE_READ_MAX = 1_000
"""Maximum number of a provider's waiting runs that are read to say what is before one of them."""


DUES_READ_MAX = 10_000
"""Maximum number of due times that are read beyond those: they cost less to read than the runs themselves."""


class QueuedCall(NamedTuple):
    """A run in a provider's queue. ``at_ms``: its due time, its next try, or its lease's end.

    ``run`` is ``CallRun.handle``. ``end_ms``: the end of its day's window.
    """

    run: int
    state: Literal["waiting", "out", "retry"]
    due_ms: int
    at_ms: int
    end_ms: int
    timeout_ms: int
    sure: bool
    """True if it surely starts here when its time comes: its record and batch want it, and no other run comes first."""


class ProviderQueue(NamedTuple):
    """Queue of a provider. ``more``: other runs wait behind those that were read."""

    pace: Pace
    calls: list[QueuedCall]
    more: bool


class QueuedRun(NamedTuple):
    """A run as a store finds it in a queue, with its record: ``record_provider`` None if the record is not to run."""

    run: int
    state: Literal["waiting", "out", "retry"]
    due_ms: int
    at_ms: int
    provider: int
    record_provider: int | None
    options: str | None


def queued_call(found: QueuedRun, day: DayFacts, policy: Policy) -> QueuedCall:
    """Return the run with the facts of its day and its provider."""
    wanted = found.record_provider == found.provider and parse_options(found.options).after is None
    sure = found.state == "out" or (wanted and not day.paused and not day.skips)
    timeout_ms = call_timeout_ms(found.options, policy)
    return QueuedCall(found.run, found.state, found.due_ms, found.at_ms, day.end_ms, timeout_ms, sure)


def with_dues(queue: ProviderQueue, dues_ms: Sequence[int], mine: QueuedCall, policy: Policy) -> ProviderQueue:
    """Return the queue up to a run that is behind those that were read, with ``dues_ms`` of those between.

    Nothing is known of these but when they are due; each may start or end without a call, and is given the time-out of
    its provider.
    """
    known = {call.due_ms for call in queue.calls} | {mine.due_ms}
    between = [
        QueuedCall(-index, "waiting", due_ms, due_ms, mine.end_ms, policy.timeout_ms, sure=False)
        for index, due_ms in enumerate(dues_ms, start=1)
        if due_ms not in known
    ]
    return ProviderQueue(queue.pace, sorted([*queue.calls, *between, mine], key=_due_ms), queue.more)


def _due_ms(call: QueuedCall) -> int:
    return call.due_ms
