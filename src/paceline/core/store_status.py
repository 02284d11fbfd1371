"""Figures of a whole store, for people and metrics."""

from __future__ import annotations

import msgspec


class StoreStatus(msgspec.Struct, frozen=True):
    """Counts for people and metrics, read in bounded time: writers keep them, or they are counted up to a limit."""

    users: int
    monitors: int
    entries: int
    changes: int
    runs_waiting: int
    runs_out: int
    next_due_ms: int | None
    oldest_waiting_due_ms: int | None
    """Since when the oldest waiting run of a monitor waits, by ``core.monitors.wait_reasons``; None: none waits."""
    file_bytes: int
    providers: int = 0
    batches: int = 0
    calls_waiting: int = 0
    """Runs of batches that have not ended, those that are out among them. At least so many: a store on DynamoDB counts
    a hundred thousand at most, in a hundred queues, so that a status costs a bounded number of requests."""
    calls_aside: int = 0
    dead_letters: int = 0
    oldest_call_due_ms: int | None = None
    check_start_ms: int | None = None
    """Since when the first waiting check could have started; it may lie ahead. None: no check waits."""
    outgoing_start_ms: int | None = None
    """The same of runs for users' own checkers."""
    call_start_ms: int | None = None
    """The same of batches' runs: their provider's order, rate, pauses and breaker would let the first one start."""
    worker_start_ms: int | None = None
    """The same of batches' runs for users' own workers."""
