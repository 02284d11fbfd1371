"""Line of measurements that wait to be sent to RIPE, and how many sends come before one of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from paceline.core.jobs.cost import Cost
from paceline.core.jobs.measurement import is_overdue, kinds_of, stops_ms
from paceline.core.jobs.pool import Gate, Pool, closed_gate
from paceline.core.jobs.send_order import QueuedUser
from paceline.core.jobs.values import StoredMeasurement

LINE_USERS_MAX = 128
LINE_EACH_MAX = 8
"""Maximum number of users that are read, and of measurements of each: as many as the dispatcher chooses among."""
PLACES_MAX = 10_000
"""Limit up to which the measurements of one user before one of them are counted."""


class SendLine(NamedTuple):
    """Measurements that wait to be sent: ``users`` in the order of turns.

    ``unread``: how many measurements of users behind those are queued. ``not_queued``: how many are parked or unknown,
    and may come back to the queue. ``sending``: how many are on their way. ``paused``: RIPE's newest pause for
    everybody. ``gated``: True if a target of a measurement that was read is full.
    """

    users: Sequence[QueuedUser]
    pool: Pool
    unread: int = 0
    not_queued: int = 0
    sending: int = 0
    paused: Gate | None = None
    gated: bool = False

    @property
    def queued(self) -> int:
        return self.unread + sum(user.queued for user in self.users)


class WaitingSend(NamedTuple):
    """A measurement that is to be sent, or the next one of a job.

    ``before``: how many of the same user are queued before it. ``open_ms``: its earliest send, if it is parked or its
    target is full. ``passed``: others were sent before it because no account had room for it. ``stop_ms``: if it is not
    sent by then, it fails.
    """

    owner: str
    before: int
    cost: Cost
    types: frozenset[str]
    open_ms: int = 0
    parked: bool = False
    passed: bool = False
    stop_ms: int | None = None


def waiting_of(item: StoredMeasurement, before: int, targets: Sequence[Gate], *, now_ms: int) -> WaitingSend:
    """Return the facts of a queued or parked measurement. ``targets``: the gates of its targets."""
    closed = closed_gate(targets, now_ms=now_ms)
    parked_ms = item.next_ms if item.state == "parked" and item.next_ms is not None else 0
    open_ms = max(parked_ms, closed.until_ms if closed is not None else 0)
    types, stop_ms = kinds_of(item.measurement), stops_ms(item.measurement)
    passed = item.passed_ms is not None
    return WaitingSend(item.owner, before, item.cost, types, open_ms, item.state == "parked", passed, stop_ms)


def place_of(line: SendLine, owner: str, before: int) -> int:
    """Return how many sends come before it if all have room: users take turns, and each sends one at a turn.

    A user who is not in the queue joins at its end.
    """
    mine = next((at for at, user in enumerate(line.users) if user.owner == owner), len(line.users))
    others = sum(min(user.queued, before + (at < mine)) for at, user in enumerate(line.users) if user.owner != owner)
    return before + others + min(line.unread, before)


def in_order(line: SendLine, *, now_ms: int) -> list[StoredMeasurement]:
    """Return the part of the queue that was read, in the order in which it is sent if all have room."""
    deepest = max((len(user.first) for user in line.users), default=0)
    rounds = [user.first[turn] for turn in range(deepest) for user in line.users if turn < len(user.first)]
    return [item for item in rounds if not is_overdue(item.measurement, now_ms=now_ms)]
