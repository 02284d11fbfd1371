"""Schedule of an entry: its cadence, its first firing, and the effect of an edit.

An entry's grid is its due times. The next due time always follows from the previous one, never from when it was
handled, so nothing drifts.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from paceline.core.ids import stable_fraction
from paceline.core.monitors.checks import DEFAULT_QUEUE
from paceline.core.monitors.cron import next_cron_ms

SLOT_MS = 50
"""Raster on which due times lie, so that a store may cluster its due table by a small integer."""

SOON_MS = 1_000
"""Distance within which a first check waits for its grid, and within which no grid point follows a firing beside it."""

Missed = Literal["skip", "once", "all"]
Overlap = Literal["skip", "queue"]


class Cadence(msgspec.Struct, frozen=True):
    """Part of a definition that says when it fires. Equal cadences are shared by all entries that have them."""

    every_ms: int = 0
    cron: str = ""
    timezone: str = "UTC"
    jitter_ms: int = 0
    missed: Missed = "skip"
    overlap: Overlap = "skip"


class Phase(msgspec.Struct, frozen=True, gc=False):
    """Place of an interval monitor's grid, as ``core.monitors.phases`` allotted it.

    Due times are ``ms`` after a whole number of intervals, counted from 1970.
    """

    ms: int
    first_ms: int | None = None
    """Due time of its first check, before it joins the grid. None: the first point of the grid."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """Schedulable state of one definition: a row of ``Schedulers``.

    ``generation`` is new at each creation and unique in the store, so it also names the entry. ``counter`` counts the
    runs made. ``revision`` is that of the definition it was armed from. Together with ``due_ms`` they are the
    compare-and-set token: an advance that has any of them wrong loses. A paused entry has no due time.
    """

    generation: int
    counter: int
    revision: int
    due_ms: int | None
    cadence: Cadence
    outgoing: bool
    last_due_ms: int | None = None
    """Due time of the newest firing; None if there was none, or its record is gone. Extra runs do not count."""
    overlapped: int = 0
    """Number of firings in a row, up to now, that found an earlier run of this entry that had not ended."""
    queue: str = DEFAULT_QUEUE
    """Queue of its outgoing runs, by the name that its check gives."""
    lead_ms: int | None = None
    """Time from a due time beside its allotted grid to the first point of the grid; 0: the due time is on the grid.

    None: no grid is allotted.
    """


class Arm(msgspec.Struct, frozen=True, gc=False):
    """Reaction: the entry fires next at ``due_ms``, in this cadence; ``lead_ms`` as in ``Entry``."""

    due_ms: int
    cadence: Cadence
    outgoing: bool
    queue: str = DEFAULT_QUEUE
    lead_ms: int | None = None


class Rest(msgspec.Struct, frozen=True, gc=False):
    """Reaction: the entry keeps its place and counter and does not fire: it is paused, or its owner is disabled."""

    cadence: Cadence
    outgoing: bool
    queue: str = DEFAULT_QUEUE


class Keep(msgspec.Struct, frozen=True, gc=False):
    """Reaction: the change does not affect the schedule."""


class Remove(msgspec.Struct, frozen=True, gc=False):
    """Reaction: the definition is gone."""


Reaction = Arm | Rest | Keep | Remove


class WantedSchedule(msgspec.Struct, frozen=True, gc=False):
    """Schedule that the newest definition asks for."""

    cadence: Cadence
    initial_delay_ms: int
    resting: bool
    outgoing: bool
    created_ms: int
    queue: str = DEFAULT_QUEUE
    phase: Phase | None = None
    """Allotted phase; None: the grid begins with the first firing."""


def react(wish: WantedSchedule | None, entry: Entry | None, *, generation: int, now_ms: int) -> Reaction:
    """Return the reaction of the entry to a recorded change.

    Deciding twice on the same change gives the same result.
    """
    if wish is None:
        return Remove()
    if wish.resting:
        at_rest = entry is not None and entry.due_ms is None and _same_shape(wish, entry)
        return Keep() if at_rest else Rest(wish.cadence, wish.outgoing, wish.queue)
    if entry is None:
        return arm(wish, _first_due_ms(wish, generation=generation, now_ms=now_ms), generation=generation)
    due_ms = _due_after_edit(wish, entry, generation=generation, now_ms=now_ms)
    # Before the first firing the initial delay may have been edited, which is not part of the shape.
    settled = not _awaits_first(wish, entry, now_ms=now_ms) or entry.due_ms == due_ms
    if entry.due_ms is not None and settled and _same_shape(wish, entry):
        as_it_is = arm(wish, entry.due_ms, generation=generation)
        if entry.lead_ms == as_it_is.lead_ms:
            return Keep()
    return arm(wish, due_ms, generation=generation)


def arm(wish: WantedSchedule, due_ms: int, *, generation: int) -> Arm:
    """Return the reaction that lets the entry fire at ``due_ms``, and then on its allotted grid if it has one."""
    lead_ms, every_ms = None, wish.cadence.every_ms
    if wish.phase is not None:
        lead_ms = (_grid_ms(wish.cadence, wish.phase, generation) - due_ms) % every_ms
        if 0 < lead_ms <= min(SOON_MS, every_ms // 4):
            lead_ms += every_ms
    return Arm(due_ms, wish.cadence, wish.outgoing, wish.queue, lead_ms)


def next_due_ms(cadence: Cadence, *, after_ms: int, due_ms: int, generation: int) -> int:
    """Return the first due time of the grid through ``due_ms`` that lies strictly after ``after_ms``."""
    if cadence.every_ms:
        if after_ms < due_ms:
            return due_ms
        return due_ms + ((after_ms - due_ms) // cadence.every_ms + 1) * cadence.every_ms
    offset_ms = jitter_offset_ms(cadence, generation)
    return next_cron_ms(cadence.cron, cadence.timezone, after_ms - offset_ms) + offset_ms


def upcoming_ms(entry: Entry, *, count: int, now_ms: int) -> list[int]:
    """Return the next ``count`` due times of the entry, if nothing is edited; none if it is paused.

    The first lies in the past if a firing is owed; those after it are in the future.
    """
    if entry.due_ms is None:
        return []
    times, grid_ms = [entry.due_ms], entry.due_ms + (entry.lead_ms or 0)
    while len(times) < count:
        after_ms = max(times[-1], now_ms)
        times.append(next_due_ms(entry.cadence, after_ms=after_ms, due_ms=grid_ms, generation=entry.generation))
    return times


def jitter_offset_ms(cadence: Cadence, generation: int) -> int:
    """Return the entry's own shift within the jitter: always the same, different between entries.

    A jitter longer than the interval is cut to the interval.
    """
    if not cadence.jitter_ms:
        return 0
    width_ms = min(cadence.jitter_ms, cadence.every_ms or cadence.jitter_ms)
    return int(stable_fraction(f"jitter:{generation}") * width_ms) // SLOT_MS * SLOT_MS


def allotted_ms(entry: Entry) -> int | None:
    """Return the phase on which the entry fires, if it was allotted; None while the entry is paused."""
    if entry.due_ms is None or entry.lead_ms is None:
        return None
    return (entry.due_ms + entry.lead_ms - jitter_offset_ms(entry.cadence, entry.generation)) % entry.cadence.every_ms


def on_raster(ms: int) -> int:
    """Return the first raster point at or after the instant."""
    return -(-ms // SLOT_MS) * SLOT_MS


def too_far_ahead(entry: Entry, *, now_ms: int, tolerance_ms: int) -> bool:
    """Return whether the entry waits for a firing that its cadence would not have reached yet: the clock was set back.

    An interval counts real seconds, so it returns at once; a cron time that has fired must not fire again because of a
    small correction of the clock, so it is given the tolerance.
    """
    if entry.due_ms is None or entry.counter == 0:
        return False
    if every_ms := entry.cadence.every_ms:
        # An edit of the jitter may have moved the grid by up to a period.
        return entry.due_ms - now_ms > every_ms + min(entry.cadence.jitter_ms, every_ms) + SLOT_MS
    following_ms = next_due_ms(
        entry.cadence, after_ms=now_ms + tolerance_ms, due_ms=entry.due_ms, generation=entry.generation
    )
    return entry.due_ms > following_ms


def pulled_back_ms(entry: Entry, *, now_ms: int) -> int:
    """Return the due time of an entry that waits too far ahead: the next point of its own grid after now."""
    assert entry.due_ms is not None
    grid_ms = _grid_start_ms(entry.cadence, entry.due_ms + (entry.lead_ms or 0), now_ms)
    return next_due_ms(entry.cadence, after_ms=now_ms, due_ms=grid_ms, generation=entry.generation)


def _same_shape(wish: WantedSchedule, entry: Entry) -> bool:
    return (entry.cadence, entry.outgoing, entry.queue) == (wish.cadence, wish.outgoing, wish.queue)


def _due_after_edit(wish: WantedSchedule, entry: Entry, *, generation: int, now_ms: int) -> int:
    cadence = wish.cadence
    if entry.due_ms is not None and entry.due_ms <= now_ms:
        return entry.due_ms  # a firing is owed already: the edit must not lose it
    if _awaits_first(wish, entry, now_ms=now_ms):
        return _first_due_ms(wish, generation=generation, now_ms=now_ms)
    if not cadence.every_ms:
        return next_due_ms(cadence, after_ms=now_ms, due_ms=0, generation=generation)
    at_once_ms = now_ms // SLOT_MS * SLOT_MS  # never ahead of now: from this moment on the firing is owed
    due_ms = max(_interval_after_edit_ms(cadence, entry, now_ms=at_once_ms), at_once_ms)
    return due_ms if due_ms != entry.last_due_ms else due_ms + cadence.every_ms  # fired a moment ago: not twice


def _awaits_first(wish: WantedSchedule, entry: Entry, *, now_ms: int) -> bool:
    """Return whether the entry has not fired yet. Before its initial delay is over it may have had an extra run."""
    start_ms = wish.created_ms + wish.initial_delay_ms
    return entry.counter == 0 or (entry.last_due_ms is None and now_ms < start_ms + SLOT_MS)


def _first_due_ms(wish: WantedSchedule, *, generation: int, now_ms: int) -> int:
    if wish.phase is not None:
        return _first_allotted_ms(wish.cadence, wish.phase, generation=generation, now_ms=now_ms)
    start_ms = wish.created_ms + wish.initial_delay_ms
    if wish.cadence.every_ms:
        return on_raster(max(now_ms, start_ms + jitter_offset_ms(wish.cadence, generation)))
    return next_due_ms(wish.cadence, after_ms=max(now_ms, start_ms), due_ms=0, generation=generation)


def _first_allotted_ms(cadence: Cadence, phase: Phase, *, generation: int, now_ms: int) -> int:
    """Return the time of the first check; the next grid point if there is none, or if that comes within SOON_MS."""
    grid_ms, first_ms = _grid_ms(cadence, phase, generation), on_raster(max(now_ms, phase.first_ms or 0))
    point_ms = first_ms + (grid_ms - first_ms) % cadence.every_ms
    return point_ms if phase.first_ms is None or point_ms - first_ms <= SOON_MS else first_ms


def _grid_ms(cadence: Cadence, phase: Phase, generation: int) -> int:
    """Return a point of the allotted grid, shifted by the jitter."""
    return phase.ms + jitter_offset_ms(cadence, generation)


def _interval_after_edit_ms(cadence: Cadence, entry: Entry, *, now_ms: int) -> int:
    """Return one new period after the previous slot, so that repeated edits neither delay a firing nor double it."""
    before = entry.cadence
    if entry.due_ms is not None and before.every_ms:
        slot_ms = entry.due_ms - before.every_ms
        if cadence.every_ms != before.every_ms and entry.last_due_ms and slot_ms < entry.last_due_ms < entry.due_ms:
            slot_ms = entry.last_due_ms  # a run beside the grid, due later than the previous slot
        slot_ms -= jitter_offset_ms(before, entry.generation)
        return slot_ms + cadence.every_ms + jitter_offset_ms(cadence, entry.generation)
    return now_ms if entry.last_due_ms is None else entry.last_due_ms + cadence.every_ms


def _grid_start_ms(cadence: Cadence, due_ms: int, now_ms: int) -> int:
    """Return a point of the interval's grid at or before now; cron needs none."""
    if not cadence.every_ms or due_ms <= now_ms:
        return due_ms
    return due_ms - -(-(due_ms - now_ms) // cadence.every_ms) * cadence.every_ms
