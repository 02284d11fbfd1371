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
    """Start of the longest wait of a monitor's run, by ``core.monitors.wait_reasons``; None: none waits."""
    file_bytes: int
    providers: int = 0
    batches: int = 0
    calls_waiting: int = 0
    """Number of batches' runs that have not ended, including those that are out; at least this many.

    A store on DynamoDB counts at most a hundred thousand, in a hundred queues, so that a status costs a bounded number
    of requests.
    """
    calls_aside: int = 0
    dead_letters: int = 0
    oldest_call_due_ms: int | None = None
    check_start_ms: int | None = None
    """Time since which the first waiting check could have started; it may lie ahead. None: no check waits."""
    outgoing_start_ms: int | None = None
    """Like ``check_start_ms``, for runs of users' own checkers."""
    call_start_ms: int | None = None
    """Like ``check_start_ms``, for batches' runs, by their provider's order, rate, pauses and breaker."""
    worker_start_ms: int | None = None
    """Like ``check_start_ms``, for batches' runs of users' own workers."""
