"""Extra runs that somebody asks for now, and a preview of the times at which the cadence will fire."""

from __future__ import annotations

from typing import Literal, assert_never

import msgspec

from paceline.core.ids import run_id
from paceline.core.instants import to_text
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.due import AlreadyOpen, CatchUp, ExtraRun, FiringOwed, decide_extra
from paceline.core.monitors.health import Glance
from paceline.core.monitors.schedule import Entry, upcoming_ms
from paceline.core.schema import Instant
from paceline.errors import FieldProblem, InvalidInput, OwnerDisabled, StoreUnavailable
from paceline.ports import Store
from paceline.steps import access
from paceline.steps.monitors.define import get_monitor
from paceline.steps.monitors.react import react_to_all
from paceline.steps.monitors.tick import advance_due

TRIES_MAX = 10
"""Maximum number of tries; a lost one means that somebody else has moved the entry meanwhile."""
TIMES_DEFAULT, TIMES_MAX = 5, 1_000


class RunNowView(msgspec.Struct, frozen=True):
    """The id of the run that was started; of the monitor's open run, if it had one already."""

    run: str


def run_now(store: Store, owner: str, monitor_id: str, *, now_ms: int, catch_up: CatchUp) -> RunNowView:
    """Make a run of the monitor now, whether it is paused or not. Return the open one, if there is one.

    However many ask at once, one run is made: making it is a compare-and-set on the entry's counter.
    """
    for _ in range(TRIES_MAX):
        monitor = get_monitor(store, owner, monitor_id)
        if access.get_user(store, owner).disabled:
            raise OwnerDisabled(f"User {owner!r} is disabled: nothing of theirs runs. An admin can enable them.")
        # Read before the entry: a run that is open here is then counted there.
        glance = store.glances([monitor.generation], now_ms=now_ms).get(monitor.generation, Glance())
        entry = _entry_of(store, monitor, now_ms=now_ms)
        if entry is None:
            continue
        match decide_extra(entry, glance, now_ms=now_ms):
            case AlreadyOpen(counter):
                return RunNowView(run_id(owner, monitor_id, generation=entry.generation, counter=counter))
            case FiringOwed(due):
                advance_due(store, [due], now_ms=now_ms, catch_up=catch_up)
            case ExtraRun() as extra:
                if store.make_extra_runs([extra], now_ms=now_ms) == [True]:
                    return RunNowView(run_id(owner, monitor_id, generation=entry.generation, counter=entry.counter))
            case never:
                assert_never(never)
    raise StoreUnavailable(f"Too many move the monitor {monitor_id!r} at once: try again in a moment.")


class UpcomingView(msgspec.Struct, frozen=True, omit_defaults=True):
    """Next times at which a monitor fires. ``reason``: why there are none: it is paused, or its user is disabled."""

    items: list[Instant]
    reason: Literal["paused", "owner_disabled"] | None = None


def upcoming(store: Store, owner: str, monitor_id: str, *, count: int, now_ms: int) -> UpcomingView:
    """Return when the monitor will fire, the next time first, if nothing is edited."""
    if not 1 <= count <= TIMES_MAX:
        raise InvalidInput.of(FieldProblem("/query/count", f"a whole number from 1 to {TIMES_MAX}"))
    monitor = get_monitor(store, owner, monitor_id)
    if monitor.spec.paused:
        return UpcomingView([], "paused")
    if access.get_user(store, owner).disabled:
        return UpcomingView([], "owner_disabled")
    entry = store.entries([monitor.generation], now_ms=now_ms).get(monitor.generation)
    times_ms = upcoming_ms(entry, count=count, now_ms=now_ms) if entry else []
    return UpcomingView([to_text(ms) for ms in times_ms])


def _entry_of(store: Store, monitor: Monitor, *, now_ms: int) -> Entry | None:
    """Return the monitor's entry. If a new definition has none yet, recorded changes are reacted to first."""
    found = store.entries([monitor.generation], now_ms=now_ms)
    if not found:
        react_to_all(store, now_ms=now_ms)
        found = store.entries([monitor.generation], now_ms=now_ms)
    return found.get(monitor.generation)
