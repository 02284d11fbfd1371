"""A provider's queue as it stands: its pace, and its first runs that have not ended, in due order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from paceline.core.batches.pace import Pace
from paceline.core.batches.provider import Policy
from paceline.core.batches.records.options import call_timeout_ms, parse_options
from paceline.core.batches.unwanted import DayFacts

QUEUE_READ_MAX = 1_000
"""So many waiting runs of a provider are looked at to say what is before one of them."""


DUES_READ_MAX = 10_000
"""Where more wait, the due times of so many are looked at: they cost less to read than the runs themselves."""


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
    """When its time comes it starts here: its record and its batch want it, and no other run has to be done first."""


class ProviderQueue(NamedTuple):
    """``more``: other runs wait behind those that were read."""

    pace: Pace
    calls: list[QueuedCall]
    more: bool


class QueuedRun(NamedTuple):
    """A run as a store finds it in a queue, with its record: ``record_provider`` None if that does not want to run."""

    run: int
    state: Literal["waiting", "out", "retry"]
    due_ms: int
    at_ms: int
    provider: int
    record_provider: int | None
    options: str | None


def queued_call(found: QueuedRun, day: DayFacts, policy: Policy) -> QueuedCall:
    """Returns the run with what its day and its provider say of it."""
    wanted = found.record_provider == found.provider and parse_options(found.options).after is None
    sure = found.state == "out" or (wanted and not day.paused and not day.skips)
    timeout_ms = call_timeout_ms(found.options, policy)
    return QueuedCall(found.run, found.state, found.due_ms, found.at_ms, day.end_ms, timeout_ms, sure)


def with_dues(queue: ProviderQueue, dues_ms: Sequence[int], mine: QueuedCall, policy: Policy) -> ProviderQueue:
    """Returns the queue up to a run that stands behind those that were read, with ``dues_ms`` of those between.

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
