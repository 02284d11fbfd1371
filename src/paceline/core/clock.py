"""Whether the wall clock was set back, by what is known for sure: a later time was read before."""

from __future__ import annotations

STEP_BACK_MS = 1_000
"""Less is no step: clocks are put right by so little all the time, and nothing waits noticeably longer for it."""


def set_back_ms(now_ms: int, *, latest_ms: int | None, apart_ms: int = 0) -> int:
    """By how much the clock was set back since somebody read ``latest_ms``; 0: it was not.

    What is due in the future says nothing: plans, leases and retries lie ahead of every clock that is right.
    ``apart_ms``: by so much the clocks of those who use one store may differ.
    """
    if latest_ms is None:
        return 0
    back_ms = latest_ms - now_ms
    return back_ms if back_ms > STEP_BACK_MS + apart_ms else 0
