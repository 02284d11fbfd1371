"""Order of sends: whose turn it is, which queued measurement is tried next, and which are skipped or parked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from paceline.core.jobs.answers import Gates
from paceline.core.jobs.measurement import is_overdue, kinds_of
from paceline.core.jobs.pool import Gate, Pool, Wait, closed_gate, is_exhausted, pick, was_passed_too_long
from paceline.core.jobs.values import StoredMeasurement

OVERDUE = "its stop time passed before it could be sent"
ROOM_LEFT_MS = 5_000
"""Time until the next look while there is room that nothing queued fits into: a parked measurement may fit then."""

Waiting = tuple[StoredMeasurement, Wait]


class Turn(NamedTuple):
    """A user in the queue of users. Turns compare in its order: the user who was served longest ago comes first.

    ``served`` is the number of the user's last turn. A user who joins gets the number of the newest turn, and so comes
    behind everybody who waits: otherwise a user who often submits little would pass the others.
    """

    served: int
    owner: int
    has_queued: bool
    disabled: bool | None
    """True for a disabled user; None: the user was removed."""

    @property
    def is_ready(self) -> bool:
        return self.has_queued and self.disabled is False


class NextTurns(NamedTuple):
    """``ready``: users who may send next, in order. ``leaving``: users who leave the queue; they may join it again."""

    ready: list[Turn]
    leaving: list[Turn]


def next_turns(queue: Iterable[Turn], *, users_max: int) -> NextTurns:
    """Read the queue of users in order until ``users_max`` users are found who may send.

    A user with nothing queued leaves the queue. Disabled and removed users keep their places and are passed over.
    """
    found = NextTurns([], [])
    for turn in queue:
        if turn.is_ready:
            found.ready.append(turn)
        elif not turn.has_queued:
            found.leaving.append(turn)
        if len(found.ready) >= users_max:
            break
    return found


class QueuedUser(NamedTuple):
    """A user who may send, in the order of turns. ``queued``: number of measurements, as far as they were counted."""

    owner: str
    queued: int
    first: tuple[StoredMeasurement, ...]
    """Measurements that are tried first, in order."""


class Sorted(NamedTuple):
    """Queued measurements by what happens to them now."""

    may_go: list[StoredMeasurement]
    overdue: list[StoredMeasurement]
    """Measurements that fail because their stop time has passed."""
    gated: dict[Gate, list[StoredMeasurement]]
    """Measurements that are parked until the gate opens."""


def sort_queued(items: Iterable[StoredMeasurement], gates: Gates, *, now_ms: int) -> Sorted:
    """Return the measurements that may be sent now, those that are overdue, and those whose target is full."""
    found = Sorted([], [], {})
    for item in items:
        gate = closed_gate(gates.of_targets(item.measurement), now_ms=now_ms)
        if is_overdue(item.measurement, now_ms=now_ms):
            found.overdue.append(item)
        elif gate is not None:
            found.gated.setdefault(gate, []).append(item)
        else:
            found.may_go.append(item)
    return found


def most_passed(items: Iterable[StoredMeasurement], *, now_ms: int) -> StoredMeasurement | None:
    """Return the measurement that others passed for too long, the first of several: it is tried before all others."""
    late = [item for item in items if was_passed_too_long(item.passed_ms, now_ms=now_ms)]
    return min(late, key=lambda item: (item.passed_ms, item.handle), default=None)


def in_turn(
    items: Iterable[StoredMeasurement], pool: Pool, first: StoredMeasurement | None, *, now_ms: int
) -> list[StoredMeasurement]:
    """Return ``first``, then the others user by user in the order of turns.

    Within each user the measurement that keeps the accounts even comes first: see ``core.jobs.pool.pick``.
    """
    ordered = [] if first is None else [first]
    rest = [item for item in items if first is None or item.handle != first.handle]
    for _, group in groupby(rest, key=lambda item: item.owner):
        those = list(group)
        ordered.append(those.pop(pick([item.cost for item in those], pool, now_ms=now_ms)))
        ordered += those
    return ordered


def waits_behind(item: StoredMeasurement, waits: Iterable[Waiting]) -> Wait | None:
    """Return why the measurement must wait; None: it has to be tried.

    It must wait if another one waits that takes no more of any meter and has no other type.
    """
    cost, types = item.cost, kinds_of(item.measurement)
    for other, wait in waits:
        least = other.cost
        if (
            cost.concurrent >= least.concurrent
            and cost.daily_results >= least.daily_results
            and cost.daily_credits >= least.daily_credits
            and types >= kinds_of(other.measurement)
        ):
            return wait
    return None


def passed_by(sent: StoredMeasurement, waits: Iterable[Waiting]) -> list[StoredMeasurement]:
    """Return the measurements that this one passes for the first time: of each user the first that did not fit."""
    first: dict[str, StoredMeasurement] = {}
    for item, _ in waits:
        first.setdefault(item.owner, item)
    return [item for item in first.values() if item.passed_ms is None and item.handle != sent.handle]


def next_look(waits: Sequence[Waiting], pool: Pool, *, now_ms: int) -> tuple[str, int]:
    """Return why nothing could be sent, and when to look again."""
    until_ms = min(wait.until_ms for _, wait in waits)
    if not is_exhausted(pool, now_ms=now_ms):
        until_ms = min(until_ms, now_ms + ROOM_LEFT_MS)
    return waits[0][1].reason, until_ms


def may_fit_behind(
    items: Sequence[StoredMeasurement], pool: Pool, *, users_max: int, each_max: int, now_ms: int
) -> bool:
    """Return whether an account has room for something and the queue is longer than the part that was read."""
    counts = Counter(item.owner for item in items)
    whole = len(counts) < users_max and max(counts.values()) < each_max
    return not whole and not is_exhausted(pool, now_ms=now_ms)
