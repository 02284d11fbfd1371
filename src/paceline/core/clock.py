"""Detect that the wall clock was set back: a later time was read before."""

from __future__ import annotations

STEP_BACK_MS = 1_000
"""Largest correction that is no step back: small ones happen all the time, and nothing waits much longer for them."""


def set_back_ms(now_ms: int, *, latest_ms: int | None, apart_ms: int = 0) -> int:
    """Return by how much the clock was set back since a process read ``latest_ms``; 0 if it was not.

    Due times prove nothing: plans, leases and retries lie ahead of every clock that is right. ``apart_ms``: by how much
    the clocks of processes that use one store may differ.
    """
    if latest_ms is None:
        return 0
    back_ms = latest_ms - now_ms
    return back_ms if back_ms > STEP_BACK_MS + apart_ms else 0
