"""Tick: due entries advance. Each makes its runs and moves to its next due time, in one conditional write."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from paceline.core.monitors.catch_up import HORIZON_S
from paceline.core.monitors.due import Advance, CatchUp, Due, OnTime, advance_all, at_times, missed_runs
from paceline.core.monitors.schedule import Entry, pulled_back_ms, too_far_ahead
from paceline.ports import Store

ENTRIES_MAX = 1_000
ENTRIES_BEHIND_MAX = 10_000
"""Number of entries in a pass when many are due: a larger pass waits once for its turn, and costs less per entry."""
LATE_MAX = 2_000
"""Number of entries that are advanced one by one in a pass: others wait for their turn to write meanwhile."""
LOOKED_THROUGH_MAX = 10_000
"""Number of entries in a page: if entries are spread over many shards, each page asks all of them."""
REST_SHARE = 10
CLOCK_TOLERANCE_MS = 300_000
"""Time by which the clock may be set back without a cron time firing again."""


class TickReport(NamedTuple):
    entries: int
    runs: int
    lost: int
    """Number of races lost to another process, or to an edit: normal and harmless."""
    late_ms: list[int]
    """Delays between the due time of each run and when it was made."""
    more: bool
    skipped: int = 0
    """Number of firings that made no run because the previous run of their monitor had not ended."""
    superseded: int = 0
    """Number of waiting runs that were ended, because more waited than are kept."""
    not_made_up: int = 0
    """Number of missed firings without a run, because the common pace of all monitors had no room."""

    @property
    def skipped_by(self) -> dict[str, int]:
        """Return how many firings made no run, by the name of the rule."""
        return {
            "overlap": self.skipped,
            "waiting_runs_max": self.superseded,
            "catch_up_per_second": self.not_made_up,
        }


class PullBackReport(NamedTuple):
    scanned: int
    moved: int
    runs: int


def tick(store: Store, *, now_ms: int, catch_up: CatchUp, limit: int = ENTRIES_MAX) -> TickReport:
    """Make one bounded pass: first the entries on time, in one act; then the others that are due, one by one.

    However many are on time, those that were due before have their turn in the same pass.
    """
    rule = OnTime(now_ms, catch_up.grace_ms)
    on_time = store.advance_on_time(rule, limit=limit)
    gone, skipped = on_time.entries, on_time.skipped
    late_ms = [now_ms - due_ms for due_ms in on_time.made.elements()]
    late_max = min(limit, LATE_MAX)
    dues = store.due(now_ms=now_ms, limit=late_max if gone < limit else max(1, late_max // REST_SHARE))
    if gone == limit:
        # The rest of those on time go with the next pass, except those that the store may have left out.
        dues = [due for due in dues if not rule.covers(due) or due.cadence.overlap == "queue"]
    if not dues:
        return TickReport(gone, len(late_ms), 0, late_ms, more=gone == limit, skipped=skipped)
    superseded = store.superseded()
    moved, not_made_up = _advance(store, dues, now_ms=now_ms, catch_up=catch_up)
    superseded = store.superseded() - superseded
    late_ms += [now_ms - firing.due_ms for advance in moved for firing in advance.firings]
    skipped += sum(max(0, one.overlapped - one.due.overlapped) for one in moved if not one.firings)
    lost = len(dues) - len(moved)
    more = gone == limit or len(dues) == late_max
    return TickReport(gone + len(moved), len(late_ms), lost, late_ms, more, skipped, superseded, not_made_up)


def next_entries_max(*, full: bool) -> int:
    """Return how many entries the next pass takes: more, if the last one was full."""
    return ENTRIES_BEHIND_MAX if full else ENTRIES_MAX


def advance_due(store: Store, dues: Sequence[Due], *, now_ms: int, catch_up: CatchUp) -> list[Advance]:
    """Advance entries that are due, however that became known. Return the advances that won."""
    return _advance(store, dues, now_ms=now_ms, catch_up=catch_up)[0]


def _advance(store: Store, dues: Sequence[Due], *, now_ms: int, catch_up: CatchUp) -> tuple[list[Advance], int]:
    """Return the advances that won, and how many missed firings the pace had no room for."""
    wanted = advance_all(dues, now_ms=now_ms, catch_up=catch_up)
    advances = _paced(store, list(wanted), now_ms=now_ms, catch_up=catch_up)
    won = store.commit(advances, now_ms=now_ms) if advances else []
    moved = [advance for advance, happened in zip(advances, won, strict=True) if happened]
    made = sum(len(advance.firings) for advance in moved)
    not_made_up = sum(len(one.firings) for one, happened in zip(wanted, won, strict=True) if happened) - made
    return moved, not_made_up


def _paced(store: Store, advances: list[Advance], *, now_ms: int, catch_up: CatchUp) -> list[Advance]:
    """Book times for missed runs, so that all monitors together catch up at a bounded pace.

    Times of an advance that then loses stay booked: a little of the pace is unused.
    """
    late = {position: missed for position, one in enumerate(advances) if (missed := missed_runs(one)).times}
    if not late:
        return advances
    booked = store.book_catch_up(list(late.values()), per_second=catch_up.per_second, now_ms=now_ms)
    for position, times in zip(late, booked, strict=True):
        advances[position] = at_times(advances[position], times, now_ms=now_ms)
    return advances


def pull_back(
    store: Store,
    *,
    read_ms: Callable[[], int],
    wait_ms_max: int,
    later_ms_max: int = HORIZON_S * 1_000,
    limit: int = LOOKED_THROUGH_MAX,
) -> PullBackReport:
    """Bring entries and runs back that wait further ahead than they ever would, after the clock was set back.

    ``wait_ms_max``: no retry is further ahead than this by a clock that is right, and no run that is to start later
    (caught up, or queued) further than this or ``later_ms_max``, whichever is more. ``read_ms`` is called after each
    page is read: others go on meanwhile, and by an older time entries that they have just armed would seem too far
    ahead, come back to a time that has fired, and fire twice.
    """
    scanned = moved = 0
    after = None
    while dues := store.armed_after(after, from_ms=read_ms(), limit=limit):
        now_ms = read_ms()
        scanned += len(dues)
        after = dues[-1]
        advances = [
            Advance(due, pulled_back_ms(entry, now_ms=now_ms), (), due.overlapped)
            for due in dues
            if too_far_ahead(entry := _entry(due), now_ms=now_ms, tolerance_ms=CLOCK_TOLERANCE_MS)
        ]
        moved += sum(store.commit(advances, now_ms=now_ms)) if advances else 0
    runs = store.pull_back_runs(read_ms, wait_ms_max=wait_ms_max, later_ms_max=later_ms_max)
    return PullBackReport(scanned, moved, runs)


def _entry(due: Due) -> Entry:
    """Return an entry with the fields that matter for the clock; where its runs go does not."""
    entry = Entry(due.generation, due.counter, due.revision, due.due_ms, due.cadence, outgoing=False)
    return replace(entry, lead_ms=due.lead_ms)
