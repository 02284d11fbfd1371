"""Retention of jobs, duties of one process at a time, and times that move when the clock was set back."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.core.jobs.meters import DAY_MS

LEFT_BEHIND_MAX = 100
"""Maximum number of open jobs that one pass reads to find those whose user was removed."""


def may_be_removed(*, finished_ms: int | None, hook_ms: int | None, slots: int, before_ms: int) -> bool:
    """Return whether a job's measurements may be deleted: finished long enough ago, webhook called, no slot held."""
    return finished_ms is not None and finished_ms < before_ms and hook_ms is None and not slots


def days_before(before_ms: int) -> int:
    """Return the first day whose meters stay: those of earlier days are deleted, once no job names them."""
    return before_ms // DAY_MS


def is_duty_due(taken_ms: int | None, *, every_ms: int, now_ms: int, apart_ms_max: int) -> bool:
    """Return whether a duty that was last taken at ``taken_ms`` is to be taken now.

    A caller that waited for another to write comes with an older time than the one it finds, which does not mean that
    the clock was set back; a time further ahead than ``apart_ms_max`` does, and counts as long ago.
    """
    return taken_ms is None or not now_ms - every_ms < taken_ms <= now_ms + min(every_ms, apart_ms_max)


def pulled_back_ms(at_ms: int, *, latest_ms: int) -> int | None:
    """Return where a time moves after the clock was set back: to the latest that it can have meant; None: it stays."""
    return latest_ms if at_ms > latest_ms else None


def next_send_ms(*, queued: bool, later_ms: Iterable[int | None]) -> int | None:
    """Return when there is something to send or to look up: 0 at once, None if nothing waits."""
    return 0 if queued else min((one for one in later_ms if one is not None), default=None)
