"""Progress of a batch's day, and when the day will end."""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.batches.pace import SPEED_MAX


class DayProgress(NamedTuple):
    """Progress of a day.

    ``planned``: runs whose time has come. ``behind``: those of them that have not ended. ``ends_ms``: the earliest and
    the latest time at which the last run ends, if nothing delays it; None: all have ended.
    """

    planned: int
    behind: int
    ends_ms: tuple[int, int] | None


def day_progress(*, runs: int, left: int, start_ms: int, end_ms: int, now_ms: int) -> DayProgress:
    """Return the progress of a day of ``runs`` runs, of which ``left`` have not ended.

    A day is spread evenly, so the share of its time that has passed is the share of its runs that should have started.
    Late runs are caught up at least at the usual pace and at most at ``SPEED_MAX`` times that; the last run is not due
    before the day's end.
    """
    window_ms = max(1, end_ms - start_ms)
    passed_ms = min(max(0, now_ms - start_ms), window_ms)
    planned = runs * passed_ms // window_ms
    if not left:
        return DayProgress(planned, 0, None)
    behind = max(0, planned - (runs - left))
    last_ms = max(now_ms, end_ms)
    if not behind:
        return DayProgress(planned, 0, (last_ms, last_ms))
    usual_ms = left * window_ms // max(1, runs)
    return DayProgress(planned, behind, (max(last_ms, now_ms + usual_ms // SPEED_MAX), max(last_ms, now_ms + usual_ms)))
