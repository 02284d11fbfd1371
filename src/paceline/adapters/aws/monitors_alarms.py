"""Alarms: delayed messages that wake a tick, and messages for checkers that read the outgoing queue themselves.

A message says what its sender believed; the row is the truth. One that is stale, doubled or early is dropped or sent
once more, and one that is lost is replaced by the sweep: nothing depends on a single message.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import Item, Key, update
from paceline.adapters.aws.monitors_due import pages
from paceline.adapters.aws.monitors_keys import (
    GENERATION_MASK,
    due_ms_of,
    due_of,
    due_shards,
    is_outgoing,
)
from paceline.adapters.aws.numbers import last_generation
from paceline.adapters.aws.queues import Queues
from paceline.adapters.aws.tables import LEDGER, OUTGOING, TICKS
from paceline.core.ids import run_id
from paceline.core.instants import to_text
from paceline.errors import StoreUnavailable
from paceline.ports.messages import DELAY_MS_MAX, Alarm, Letter, Waiting, delay_s, write

LATE_MS = 60_000
"""An entry that is overdue by so much has lost its alarm, or the ticks are behind: then one more does no harm."""
LATE_MAX = 10_000
"""After an outage all are overdue: so many get an alarm in one pass, the first ones, and the others in the next."""
OVERLAP_MS = 10_000
"""So far a pass looks back: an entry armed just beyond the horizon, by a clock behind ours or not in the index yet."""
SWEPT_PAGE = 1_000
_CURSOR = Key("alarms", "-")


class Swept(NamedTuple):
    armed: int
    """Entries that came into their last 15 minutes."""
    late: int
    """Entries that are overdue."""
    offered: int = 0
    """Outgoing runs that were offered once more."""


class Bell:
    """Sends alarms, by itself behind each write unless it is told not to.

    ``rings`` is turned off where something else arms entries, such as their stream, or where loops look by themselves;
    ``offers`` where no checker reads the outgoing queue.
    """

    def __init__(self, queues: Queues) -> None:
        self.rings = True
        self.offers = True
        self.unsent = 0
        """Messages that may not have been sent behind a write, since the start."""
        self._queues = queues
        self._now_ms: int | None = None

    def told(self, now_ms: int) -> None:
        """The time, as the last caller knew it: a reaction is not told, and has to count its delay from something."""
        self._now_ms = now_ms

    def arm(self, alarms: Iterable[Alarm]) -> None:
        """For those due in the next 15 minutes. The others stand in the due index, and the sweep comes for them."""
        if not self.rings or self._now_ms is None:
            return
        horizon_ms = self._now_ms + DELAY_MS_MAX
        soon = [alarm for alarm in alarms if alarm.due <= horizon_ms]
        with self._left_to_the_sweep(len(soon)):
            self.send(soon, now_ms=self._now_ms)

    def offer(self, runs: Iterable[Item], *, now_ms: int | None) -> None:
        """Runs that may start, now or in their time, to checkers that read the queue. Others are left out.

        Without the time all of them at once: one that was told of too early is offered again when it is asked for.
        """
        messages = [_waiting(run, now_ms) for run in runs if self.offers and is_outgoing(run["queue"])]
        if messages:
            with self._left_to_the_sweep(len(messages)):
                self._queues.send(OUTGOING, messages)

    def send(self, alarms: Sequence[Alarm], *, now_ms: int) -> None:
        """Raises StoreUnavailable if some stay unsent."""
        messages = [Letter(write(alarm), delay_s(alarm.due, now_ms)) for alarm in alarms]
        if messages:
            self._queues.send(TICKS, messages)

    @contextmanager
    def _left_to_the_sweep(self, messages: int) -> Iterator[None]:
        """What was written stays written when its message cannot be sent: the caller must not think that it failed."""
        try:
            yield
        except StoreUnavailable:
            self.unsent += messages


def sweep(db: Database, bell: Bell, *, now_ms: int, late_ms: int = LATE_MS) -> Swept:
    """One pass over the due index: alarms for what came into its last 15 minutes, and for what lost its own.

    A cursor remembers how far ahead was armed, so that an entry gets one alarm and not one for each pass. What is armed
    closer than the horizon has its alarm from its own reaction or commit. A pass that dies is done again as a whole.
    """
    item = db.get(LEDGER, _CURSOR)
    horizon_ms, overdue_ms = now_ms + DELAY_MS_MAX, now_ms - late_ms
    swept_ms = min(item["swept_ms"], horizon_ms) if item else overdue_ms
    late = _ring(db, bell, first_ms=0, last_ms=overdue_ms, now_ms=now_ms, most=LATE_MAX)
    first_ms = max(swept_ms - OVERLAP_MS, overdue_ms) + 1
    armed = _ring(db, bell, first_ms=first_ms, last_ms=horizon_ms, now_ms=now_ms, most=sys.maxsize)
    # To this pass's own horizon, always: after the clock was set back it has to come back, too.
    db.write(update(LEDGER, _CURSOR, "SET #swept_ms = :swept_ms", when="", swept_ms=horizon_ms))
    return Swept(armed, late)


def _ring(db: Database, bell: Bell, *, first_ms: int, last_ms: int, now_ms: int, most: int) -> int:
    if first_ms > last_ms:
        return 0
    shards = due_shards(last_generation(db))
    most_each = -(-most // len(shards))

    def ring(shard: str) -> int:
        sent = 0
        first, last = due_of(first_ms, 0), due_of(last_ms, GENERATION_MASK)
        for rows in pages(db, shard, first=first, last=last, page=min(SWEPT_PAGE, most_each)):
            alarms = [Alarm(int(row["pk"]), row["counter"], due_ms_of(row["due"])) for row in rows]
            bell.send(alarms, now_ms=now_ms)
            sent += len(alarms)
            if sent >= most_each:
                break
        return sent

    return sum(db.threads.fan_out(ring, shards))


def _waiting(run: Item, now_ms: int | None) -> Letter:
    name = run_id(run["owner"], run["monitor"], generation=run["generation"], counter=run["counter"])
    body = Waiting(name, run["generation"], run["counter"], to_text(run["due_ms"]), run["attempt"] + 1)
    return Letter(write(body), delay_s(run["at"], now_ms) if now_ms is not None else 0)
