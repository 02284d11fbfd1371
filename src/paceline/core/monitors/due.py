"""Advance of a due entry: which runs it makes, and when it is due next.

An advance never leaves an entry due, however late it comes. Missed firings follow the cadence's policy, and a catch-up
is spread, never sent in one spike. A firing that finds an earlier run of its entry unsettled follows the cadence's
overlap policy. An extra run is one that somebody asks for beside the cadence; the due time stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple, assert_never

import msgspec
from msgspec.structs import replace

from paceline.core.ids import stable_fraction
from paceline.core.monitors.catch_up import MissedRuns
from paceline.core.monitors.health import Glance
from paceline.core.monitors.overlap import is_skipped
from paceline.core.monitors.schedule import Cadence, Entry, next_due_ms

LATE_MS = 1_000
"""Lateness up to which a firing counts as on time, also after an outage."""


class Due(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Facts of one due entry for a tick; the first four are the compare-and-set token.

    ``place`` is the store's own note of where it found the entry; it is handed back untouched and is not part of the
    token. ``busy``: its newest run is not settled. It may settle any moment, but no run is made unless the token
    changes.
    """

    generation: int
    counter: int
    revision: int
    due_ms: int
    cadence: Cadence
    place: Any = None
    busy: bool = False
    overlapped: int = 0
    lead_ms: int = 0
    """Lead as in ``Entry``: a due time beside the grid is followed by the first point of the grid."""

    @property
    def step_ms(self) -> int:
        """Return how long after this due time the next one of an interval comes."""
        return self.lead_ms or self.cadence.every_ms

    @property
    def token(self) -> tuple[int, int, int, int]:
        return self.generation, self.counter, self.revision, self.due_ms

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Due) and self.token == other.token and self.cadence == other.cadence

    def __ne__(self, other: object) -> bool:
        return not self == other  # a Struct's own __ne__ would compare identities

    def __hash__(self) -> int:
        return hash(self.token)


class Firing(msgspec.Struct, frozen=True, gc=False):
    """One run to be made. ``after_ms`` is its earliest start: 0, or a moment of the catch-up."""

    counter: int
    due_ms: int
    after_ms: int


class Advance(msgspec.Struct, frozen=True, gc=False):
    """Conditional write of a tick: make the runs and move the entry, if the store still holds ``due``."""

    due: Due
    next_due_ms: int
    firings: tuple[Firing, ...]
    overlapped: int = 0
    """New value of ``Entry.overlapped`` after this advance."""
    waiting_max: int = 0
    """Number of runs kept behind the oldest open one, the newest first; 0: all of them."""


class CatchUp(NamedTuple):
    """Settings for missed firings."""

    grace_ms: int = 30_000
    """Delay up to which a firing is late, not missed."""
    runs_max: int = 100
    """Maximum number of missed runs that ``missed: all`` makes up for: the newest."""
    window_ms: int = 600_000
    """Time over which missed runs are spread; shorter if twice the cadence's usual pace is done sooner."""
    per_second: int = 20
    """Maximum number of missed runs of all monitors together that start in one second."""
    waiting_max: int = 100
    """Maximum number of runs of a monitor that wait behind the first, under ``overlap: queue``."""


class OnTime(NamedTuple):
    """Rule for the common case, for stores that can apply it to many entries in one act.

    An entry with an interval is on time when its following due time has not come yet and it is late by no more than the
    grace. It then makes one run, due when it was, and moves on by its interval, or onto its grid.
    """

    now_ms: int
    grace_ms: int

    def covers(self, due: Due) -> bool:
        return _is_on_time(due, self.now_ms, self.grace_ms)


def advance(due: Due, *, now_ms: int, catch_up: CatchUp) -> Advance:
    """Return the step forward of one due entry: the runs it makes, and when it is due next."""
    if _is_on_time(due, now_ms, catch_up.grace_ms):
        firing = Firing(due.counter, due.due_ms, 0)
        wanted = Advance(due, due.due_ms + due.step_ms, (firing,))
    else:
        wanted = _advance_late(due, now_ms=now_ms, catch_up=catch_up)
    return overlap(wanted, waiting_max=catch_up.waiting_max) if due.busy else wanted


def advance_all(dues: Iterable[Due], *, now_ms: int, catch_up: CatchUp) -> list[Advance]:
    return [advance(due, now_ms=now_ms, catch_up=catch_up) for due in dues]


def _is_on_time(due: Due, now_ms: int, grace_ms: int) -> bool:
    late_ms = now_ms - due.due_ms
    return 0 <= late_ms < due.step_ms and late_ms <= grace_ms


def missed_runs(advance: Advance) -> MissedRuns:
    """Return when the missed runs would start, as far as this entry alone is concerned.

    Under ``missed: all`` each run is wanted, however late. Otherwise there is one run, and it is dropped if the next
    firing comes sooner.
    """
    times = [firing.after_ms for firing in advance.firings if firing.after_ms]
    wants_all = advance.due.cadence.missed == "all"
    return MissedRuns(advance.due.generation, times, None if wants_all else advance.next_due_ms)


def at_times(advance: Advance, times: Sequence[int], *, now_ms: int) -> Advance:
    """Return the advance with its missed runs at these times, which may be fewer: then the newest runs are made.

    A run whose time has come starts like any other.
    """
    firings = advance.firings
    kept = firings[len(firings) - len(times) :]
    made = (
        Firing(advance.due.counter + n, kept[n].due_ms, after_ms if after_ms > now_ms else 0)
        for n, after_ms in enumerate(times)
    )
    return replace(advance, firings=tuple(made))


def overlap(advance: Advance, *, waiting_max: int) -> Advance:
    """Return the advance of a busy entry, whose newest run is not settled, after its overlap policy."""
    due, firings = advance.due, advance.firings
    made_up = bool(firings) and firings[0].after_ms > 0
    if is_skipped(due.cadence, busy=due.busy, made_up=made_up):
        return replace(advance, firings=(), overlapped=due.overlapped + len(firings))
    return replace(advance, overlapped=due.overlapped + len(firings), waiting_max=waiting_max)


def _advance_late(due: Due, *, now_ms: int, catch_up: CatchUp) -> Advance:
    """Return the advance for any cadence and any delay."""
    following_ms = next_due_ms(
        due.cadence, after_ms=max(now_ms, due.due_ms), due_ms=due.due_ms + due.lead_ms, generation=due.generation
    )
    slots = _slots(due, now_ms=now_ms, kept_max=catch_up.runs_max)
    return Advance(due, following_ms, _firings(due, slots, following_ms, now_ms=now_ms, catch_up=catch_up))


def _slots(due: Due, *, now_ms: int, kept_max: int) -> list[int]:
    """Return the newest grid points from the due time up to now, oldest first, at most ``kept_max``."""
    if every_ms := due.cadence.every_ms:
        grid_ms = due.due_ms + due.lead_ms
        passed = (now_ms - grid_ms) // every_ms
        first = max(0, passed - kept_max + 1)
        slots = [grid_ms + index * every_ms for index in range(first, passed + 1)]
        return slots if not due.lead_ms or len(slots) == kept_max else [due.due_ms, *slots]
    return _cron_slots(due, now_ms=now_ms, kept_max=kept_max if due.cadence.missed == "all" else 1)


def _cron_slots(due: Due, *, now_ms: int, kept_max: int) -> list[int]:
    """Return the newest slots of a cron entry.

    It looks back over spans that double, so that a long outage is not walked minute by minute.
    """
    span_ms = 60_000 * kept_max
    while True:
        start_ms = now_ms - span_ms
        slots = [due.due_ms] if start_ms <= due.due_ms else []
        slot_ms = max(start_ms, due.due_ms)
        while (slot_ms := next_due_ms(due.cadence, after_ms=slot_ms, due_ms=0, generation=due.generation)) <= now_ms:
            slots.append(slot_ms)
        if start_ms <= due.due_ms or len(slots) >= kept_max:
            return slots[-kept_max:]
        span_ms *= 2


def _firings(due: Due, slots: list[int], following_ms: int, *, now_ms: int, catch_up: CatchUp) -> tuple[Firing, ...]:
    newest_ms = slots[-1]
    on_time = now_ms - newest_ms <= catch_up.grace_ms
    missed = slots[:-1] if on_time else slots
    match due.cadence.missed:
        case "skip":
            missed = []
        case "once":
            missed = [] if on_time else [newest_ms]
        case "all":
            pass
        case _:
            assert_never(due.cadence.missed)
    period_ms = max(following_ms - newest_ms, 1)
    window_ms = min(max(len(missed) * period_ms // 2, period_ms), catch_up.window_ms)
    phase = stable_fraction(f"catch-up:{due.generation}")
    firings = [
        Firing(due.counter + index, slot_ms, now_ms + int((index + phase) / len(missed) * window_ms))
        for index, slot_ms in enumerate(missed)
    ]
    if on_time:
        # In order: the newest run waits for the caught-up runs before it.
        after_ms = firings[-1].after_ms if firings else 0
        if not after_ms and not due.busy and now_ms - due.due_ms > catch_up.grace_ms and now_ms - newest_ms > LATE_MS:
            # After an outage all entries with a short interval are here at once: each starts as soon as the pace of all
            # of them allows. Behind an open run, the overlap policy decides instead.
            after_ms = now_ms
        firings.append(Firing(due.counter + len(firings), newest_ms, after_ms))
    return tuple(firings)


class ExtraRun(msgspec.Struct, frozen=True, gc=False):
    """A run to be made now. It counts only if the entry is still as it was read, and none of its runs is open.

    It takes the entry's counter, which rises by one; the entry's due time and ``last_due_ms`` stay.
    """

    entry: Entry
    due_ms: int


class AlreadyOpen(NamedTuple):
    """A run of the monitor has not ended: that run is the check now, and no other is made beside it."""

    counter: int


class FiringOwed(NamedTuple):
    """A firing is due and not handled yet: it comes first, so that runs stay in the order of their due times."""

    due: Due


def decide_extra(entry: Entry, glance: Glance, *, now_ms: int) -> ExtraRun | AlreadyOpen | FiringOwed:
    """Decide on a request for a check now.

    A paused entry gets its extra run as any other: the user who asks wants to know now. Runs of a monitor end in order,
    so if any run is open, the newest is.
    """
    if glance.open_due_ms is not None:
        return AlreadyOpen(entry.counter - 1)
    if entry.due_ms is not None and entry.due_ms <= now_ms:
        token = entry.generation, entry.counter, entry.revision, entry.due_ms
        lead_ms = entry.lead_ms or 0
        return FiringOwed(Due(*token, entry.cadence, overlapped=entry.overlapped, lead_ms=lead_ms))
    return ExtraRun(entry, now_ms)
