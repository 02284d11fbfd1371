"""Phases for monitors that need one, and the counts of phases, kept as entries move.

A circle (``core.monitors.phases``) is one named item for each interval. It is read when a monitor needs a phase, and
written in the commit in which the entry is armed, moved or removed. A store that cannot put both into one commit loses
a count if the process dies between the two. Counts are hints: a lost one leaves its circle a little uneven, until the
next recount (``steps.upkeep.recount``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from msgspec.structs import replace

from paceline.core.monitors.checks import Check
from paceline.core.monitors.definition import cadence_of
from paceline.core.monitors.phases.allot import allot_one, allot_together, notes_after
from paceline.core.monitors.phases.circle import Circle, CirclePosition, after_moves
from paceline.core.monitors.phases.hosts import HostNote, HostNotes, after_come, notes_in, shard_of
from paceline.core.monitors.places import target_of
from paceline.core.monitors.schedule import Arm, Keep, Phase, allotted_ms
from paceline.core.monitors.values import PutMonitor, Reacted
from paceline.ports import Store
from paceline.ports.items import GETS_MAX, WRITES_MAX, ItemStore, ItemWrite
from paceline.ports.monitors import Beside
from paceline.steps.collection import Collection, FoundItem, find_both, write

CIRCLES = Collection("phases", Circle)
HOSTS = Collection("phase-hosts", HostNotes)
Page = dict[int, dict[int, list[str]]]
"""Hosts by shard, by interval."""
TRIES_MAX = 10
"""Maximum number of attempts to write a count while others write it, too."""


class Allot(Protocol):
    """Proposes phases for monitors that need one."""

    def __call__(self, store: Store, puts: Sequence[PutMonitor], *, now_ms: int) -> list[PutMonitor]: ...


class Move(NamedTuple):
    """Change of the circles by a reaction: the interval and place that an entry leaves, and those it gets."""

    gone: tuple[int, CirclePosition] | None
    come: tuple[int, CirclePosition] | None


def allot_each(store: Store, puts: Sequence[PutMonitor], *, now_ms: int) -> list[PutMonitor]:
    """Return the puts with a phase each, as monitors that come one by one: first checks are due at once."""
    known = {every_ms: (one.circle, one.notes) for every_ms, one in _read(store, puts).items()}
    placed: list[PutMonitor] = []
    for put in puts:
        every_ms, host = cadence_of(put.spec).every_ms, host_of(put.spec.check)
        circle, notes = known[every_ms]
        phase = allot_one(circle, notes.get(host), every_ms, now_ms=now_ms)
        if len(puts) > 1:  # the next one must know of it
            come = [CirclePosition(host, phase.ms)]
            after = after_moves(circle, every_ms, come=come, hosts=host not in notes)
            known[every_ms] = after, notes | notes_after(circle, notes, every_ms, come)
        placed.append(_with_phase(put, phase))
    return placed


def allot_all(store: Store, puts: Sequence[PutMonitor], *, now_ms: int) -> list[PutMonitor]:
    """Return the puts with a phase each, as monitors that come together: first checks take turns."""
    known = _read(store, puts)
    members: dict[int, list[int]] = {}
    for index, put in enumerate(puts):
        members.setdefault(cadence_of(put.spec).every_ms, []).append(index)
    placed = list(puts)
    for every_ms, mine in members.items():
        hosts = [host_of(puts[index].spec.check) for index in mine]
        phases = allot_together(known[every_ms].circle, known[every_ms].notes, every_ms, hosts, now_ms=now_ms)
        for index, phase in zip(mine, phases, strict=True):
            placed[index] = _with_phase(puts[index], phase)
    return placed


def allot_list(store: Store, puts: Sequence[PutMonitor], *, now_ms: int) -> list[PutMonitor]:
    """Return the puts of a list with a phase each. In a list of one, the first check is due at once."""
    return (allot_all if len(puts) > 1 else allot_each)(store, puts, now_ms=now_ms)


def count_moves(reacted: Sequence[Reacted]) -> Beside | None:
    """Return a writer that counts these reactions on their circles, once it is known which won; None: nothing to do."""
    moves = {position: move for position, item in enumerate(reacted) if (move := move_of(item)) is not None}
    if not moves:
        return None

    def count(items: ItemStore, won: Sequence[bool]) -> None:
        count_on_circles(items, [move for position, move in moves.items() if won[position]])

    return count


def count_on_circles(items: ItemStore, moves: Iterable[Move]) -> int:
    """Count the moves. Return how many circles were given up because others wrote them all the time."""
    gone: dict[int, list[CirclePosition]] = {}
    come: dict[int, list[CirclePosition]] = {}
    for move in moves:
        if move.gone is not None:
            gone.setdefault(move.gone[0], []).append(move.gone[1])
        if move.come is not None:
            come.setdefault(move.come[0], []).append(move.come[1])
    hosts = {one: {place.host for place in come.get(one, ())} for one in gone.keys() | come.keys()}
    pages = _pages(hosts, items_max=WRITES_MAX)
    return sum(0 if _count_page(items, page, come, gone) else len(page) for page in pages)


def move_of(item: Reacted) -> Move | None:
    """Return the change of the circles by a reaction; None: none."""
    entry, monitor = item.change.entry, item.change.monitor
    if isinstance(item.reaction, Keep):
        return None
    gone = come = None
    if entry is not None and (phase_ms := allotted_ms(entry)) is not None:
        gone = entry.cadence.every_ms, CirclePosition("", phase_ms, generation=entry.generation)
    if isinstance(item.reaction, Arm) and item.reaction.lead_ms is not None:
        assert monitor is not None
        assert monitor.spec.phase is not None
        phase, host = monitor.spec.phase, host_of(monitor.spec.check)
        come = (
            item.reaction.cadence.every_ms,
            CirclePosition(host, phase.ms, phase.first_ms or 0, item.change.generation),
        )
    if gone and come and (gone[0], gone[1].phase_ms) == (come[0], come[1].phase_ms):
        return None
    return Move(gone, come) if gone or come else None


def host_of(check: Check) -> str:
    """Return the host that a check connects to; empty if it has none of its own."""
    return target_of(check).rpartition(":")[0]


def _count_page(
    items: ItemStore, page: Page, come: Mapping[int, list[CirclePosition]], gone: Mapping[int, list[CirclePosition]]
) -> bool:
    for _ in range(TRIES_MAX):
        writes: list[ItemWrite] = []
        for every_ms, known in _find(items, page).items():
            writes += known.after(every_ms, come=come.get(every_ms, ()), gone=gone.get(every_ms, ()))
        if not writes or write(items, writes):
            return True
    return False


class _Known(NamedTuple):
    """A circle and the notes of some hosts on it, as they were read."""

    found: FoundItem[Circle]
    shards: dict[int, FoundItem[HostNotes]]
    notes: dict[str, HostNote]

    @property
    def circle(self) -> Circle | None:
        return self.found.value

    def after(
        self, every_ms: int, *, come: Sequence[CirclePosition], gone: Sequence[CirclePosition]
    ) -> list[ItemWrite]:
        """Return the writes after these monitors have come and gone."""
        new = {place.host for place in come} - self.notes.keys()
        circle = after_moves(self.circle, every_ms, come=come, gone=gone, hosts=len(new))
        writes = [CIRCLES.change(self.found, circle)] if circle != self.circle else []
        if circle is None or not come:
            return writes
        by_shard: dict[int, dict[str, HostNote]] = {}
        for host, note in notes_after(self.circle, self.notes, every_ms, come).items():
            by_shard.setdefault(shard_of(host), {})[host] = note
        for shard, notes in by_shard.items():
            found = self.shards[shard]
            writes.append(HOSTS.change(found, after_come(found.value, notes, born=circle.born)))
        return writes


def _read(store: Store, puts: Sequence[PutMonitor]) -> dict[int, _Known]:
    hosts: dict[int, set[str]] = {}
    for put in puts:
        hosts.setdefault(cadence_of(put.spec).every_ms, set()).add(host_of(put.spec.check))
    found: dict[int, _Known] = {}
    for page in _pages(hosts, items_max=GETS_MAX):
        found |= _find(store, page)
    return found


def _find(items: ItemStore, page: Page) -> dict[int, _Known]:
    """Read the circles of the intervals, and the notes of the hosts on each, in one read."""
    keys = [f"{every_ms}/{shard}" for every_ms, shards in page.items() for shard in shards]
    circles, notes = find_both(items, (CIRCLES, [str(every_ms) for every_ms in page]), (HOSTS, keys))
    left = iter(notes)
    known: dict[int, _Known] = {}
    for (every_ms, shards), circle in zip(page.items(), circles, strict=True):
        here, found = {shard: next(left) for shard in shards}, dict[str, HostNote]()
        if circle.value is not None:
            for shard, mine in shards.items():
                found |= notes_in(here[shard].value, mine, born=circle.value.born)
        known[every_ms] = _Known(circle, here, found)
    return known


def _pages(hosts: Mapping[int, Iterable[str]], *, items_max: int) -> list[Page]:
    """Divide the intervals into pages whose circles and notes are at most ``items_max`` items each."""
    pages: list[Page] = [{}]
    held = 0
    for every_ms, mine in hosts.items():
        shards: dict[int, list[str]] = {}
        for host in mine:
            shards.setdefault(shard_of(host), []).append(host)
        held += 1 + len(shards)
        if held > items_max:
            held = 1 + len(shards)
            pages.append({})
        pages[-1][every_ms] = shards
    return pages


def _with_phase(put: PutMonitor, phase: Phase) -> PutMonitor:
    return replace(put, spec=replace(put.spec, phase=phase))
