"""Phases for monitors that need one, and the count of who has which, kept as entries move.

A circle (``core.monitors.phases``) is one named item for each interval. It is read when a monitor needs a phase, and
written in the commit in which the entry is armed, moved or removed. A store that cannot put both into one commit loses
a count if the process dies between the two. Counts are hints: a lost one leaves its circle a little uneven, until the
next recount (``steps.upkeep.recount``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from paceline.core.monitors.checks import Check
from paceline.core.monitors.definition import cadence_of
from paceline.core.monitors.phases.allot import allot_one, allot_together
from paceline.core.monitors.phases.circle import Circle, Place, after_moves
from paceline.core.monitors.places import target_of
from paceline.core.monitors.schedule import Arm, Keep, Phase, allotted_ms
from paceline.core.monitors.values import PutMonitor, Reacted
from paceline.ports import Store
from paceline.ports.items import GETS_MAX, WRITES_MAX, ItemStore
from paceline.ports.monitors import Beside
from paceline.steps.collection import Collection, write

CIRCLES = Collection("phases", Circle)
TRIES_MAX = 10
"""After so many writes of others in between, a count is given up."""


class Allot(Protocol):
    """Proposes phases for monitors that need one."""

    def __call__(self, store: Store, puts: Sequence[PutMonitor], *, now_ms: int) -> list[PutMonitor]: ...


class Move(NamedTuple):
    """What a reaction changes on the circles: the interval and the place that an entry leaves, and those it gets."""

    gone: tuple[int, Place] | None
    come: tuple[int, Place] | None


def allot_each(store: Store, puts: Sequence[PutMonitor], *, now_ms: int) -> list[PutMonitor]:
    """Return the puts with a phase each, as monitors that come one by one: first checks are due at once."""
    circles = _read(store, puts)
    placed: list[PutMonitor] = []
    for put in puts:
        every_ms, host = cadence_of(put.spec).every_ms, host_of(put.spec.check)
        phase = allot_one(circles[every_ms], every_ms, host, now_ms=now_ms)
        if len(puts) > 1:  # the next one shall know of it
            circles[every_ms] = after_moves(circles[every_ms], every_ms, come=[Place(host, phase.ms)])
        placed.append(_with_phase(put, phase))
    return placed


def allot_all(store: Store, puts: Sequence[PutMonitor], *, now_ms: int) -> list[PutMonitor]:
    """Return the puts with a phase each, as monitors that come together: first checks take turns."""
    circles = _read(store, puts)
    members: dict[int, list[int]] = {}
    for index, put in enumerate(puts):
        members.setdefault(cadence_of(put.spec).every_ms, []).append(index)
    placed = list(puts)
    for every_ms, mine in members.items():
        hosts = [host_of(puts[index].spec.check) for index in mine]
        phases = allot_together(circles[every_ms], every_ms, hosts, now_ms=now_ms)
        for index, phase in zip(mine, phases, strict=True):
            placed[index] = _with_phase(puts[index], phase)
    return placed


def allot_list(store: Store, puts: Sequence[PutMonitor], *, now_ms: int) -> list[PutMonitor]:
    """Return the puts of a list with a phase each. A list of one is no crowd: its first check is due at once."""
    return (allot_all if len(puts) > 1 else allot_each)(store, puts, now_ms=now_ms)


def count_moves(reacted: Sequence[Reacted]) -> Beside | None:
    """Return what counts these reactions on their circles, once it is known which of them won; None: nothing to do."""
    moves = {position: move for position, item in enumerate(reacted) if (move := move_of(item)) is not None}
    if not moves:
        return None

    def count(items: ItemStore, won: Sequence[bool]) -> None:
        count_on_circles(items, [move for position, move in moves.items() if won[position]])

    return count


def count_on_circles(items: ItemStore, moves: Iterable[Move]) -> int:
    """Count the moves. Returns how many circles were given up because others wrote them all the time."""
    gone: dict[int, list[Place]] = {}
    come: dict[int, list[Place]] = {}
    for move in moves:
        if move.gone is not None:
            gone.setdefault(move.gone[0], []).append(move.gone[1])
        if move.come is not None:
            come.setdefault(move.come[0], []).append(move.come[1])
    intervals = sorted(gone.keys() | come.keys())
    pages = [intervals[start : start + WRITES_MAX] for start in range(0, len(intervals), WRITES_MAX)]
    return sum(0 if _count_page(items, page, come, gone) else len(page) for page in pages)


def move_of(item: Reacted) -> Move | None:
    """Return what a reaction changes on the circles; None: nothing."""
    entry, monitor = item.change.entry, item.change.monitor
    if isinstance(item.reaction, Keep):
        return None
    gone = come = None
    if entry is not None and (phase_ms := allotted_ms(entry)) is not None:
        gone = entry.cadence.every_ms, Place("", phase_ms, generation=entry.generation)
    if isinstance(item.reaction, Arm) and item.reaction.lead_ms is not None:
        assert monitor is not None
        assert monitor.spec.phase is not None
        phase, host = monitor.spec.phase, host_of(monitor.spec.check)
        come = item.reaction.cadence.every_ms, Place(host, phase.ms, phase.first_ms or 0, item.change.generation)
    if gone and come and (gone[0], gone[1].phase_ms) == (come[0], come[1].phase_ms):
        return None
    return Move(gone, come) if gone or come else None


def host_of(check: Check) -> str:
    """Return the host that a check connects to; empty if it has none of its own."""
    return target_of(check).rpartition(":")[0]


def _count_page(
    items: ItemStore, intervals: Sequence[int], come: dict[int, list[Place]], gone: dict[int, list[Place]]
) -> bool:
    for _ in range(TRIES_MAX):
        found = CIRCLES.find_many(items, [str(every_ms) for every_ms in intervals])
        after = [
            after_moves(one.value, every_ms, come=come.get(every_ms, ()), gone=gone.get(every_ms, ()))
            for every_ms, one in zip(intervals, found, strict=True)
        ]
        changes = [CIRCLES.change(one, value) for one, value in zip(found, after, strict=True) if one.value != value]
        if not changes or write(items, changes):
            return True
    return False


def _read(store: Store, puts: Sequence[PutMonitor]) -> dict[int, Circle | None]:
    intervals = sorted({cadence_of(put.spec).every_ms for put in puts})
    circles: dict[int, Circle | None] = {}
    for start in range(0, len(intervals), GETS_MAX):
        page = intervals[start : start + GETS_MAX]
        found = CIRCLES.find_many(store, [str(every_ms) for every_ms in page])
        circles |= {every_ms: one.value for every_ms, one in zip(page, found, strict=True)}
    return circles


def _with_phase(put: PutMonitor, phase: Phase) -> PutMonitor:
    return replace(put, spec=replace(put.spec, phase=phase))
