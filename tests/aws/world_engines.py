"""The seeded worlds, brief enough for an emulator that takes a few hundred requests a second, and what they tell."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from typing import Any

import msgspec

from paceline.core.due import OnTime
from paceline.ports import Claimed, Queue, Store
from tests.world.batch_world import BatchWorld
from tests.world.job_world import JobWorld
from tests.world.seeded import HOUR_MS, MINUTE_MS, SECOND_MS
from tests.world.world import World

RUNS_MAX = 1_000


class Agreed:
    """A store without the liberties that the port leaves to each engine, so that two of them tell one story.

    It may advance none of what is on time in one act; of what may start at once it may hand out any first, and so a
    claim that leaves nothing behind, in one order for all, is the same on every engine.
    """

    def __init__(self, inner: Store) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def advance_on_time(self, rule: OnTime, *, limit: int) -> Counter[int]:
        del rule, limit
        return Counter()

    def claim(self, queue: Queue, *, now_ms: int, runs_max: int, lease_ms: int) -> list[Claimed]:
        del runs_max
        claimed = self._inner.claim(queue, now_ms=now_ms, runs_max=RUNS_MAX, lease_ms=lease_ms)
        return sorted(claimed, key=lambda run: (run.due_ms, run.owner, run.monitor, run.counter))


class BriefWorld(World):
    """Looked at less often, and listened to for less time: each look asks all shards."""

    REST_DAEMONS = 1
    CHECK_EVERY, LOOK_EVERY = 10, 40
    REST_MS = (6 * SECOND_MS, 12 * SECOND_MS)

    def _jump(self) -> None:
        """Only forward: after a step back, how long what is parked may wait is each engine's own, within its bound."""
        self.jumps += 1
        self._set_clock(self.now_ms + self.random.choice((MINUTE_MS, HOUR_MS // 2, 6 * HOUR_MS)))

    def history(self) -> list[Any]:
        """Every life of a monitor and all its runs. A generation is only a name, and each engine gives its own."""
        return [
            [
                msgspec.structs.replace(life.monitor, generation=0),
                (life.deleted, life.has_entry, life.due_ms, life.cadence, life.counter),
                [asdict(run) | {"handle": 0} for run in life.runs.values()],
            ]
            for life in self.ledger.lives.values()
        ]


class BriefBatchWorld(BatchWorld):
    REST_DAEMONS = 1
    LOOK_EVERY = 40
    DAYS_TO_REST = 1
    REST_STEP_MS = 3 * HOUR_MS

    def history(self) -> list[Any]:
        """Every run that was handed out, and every effect it had outside, in the order in which they came."""
        names = {number: book.name for number, book in self.ledger.providers.items()}
        runs = [asdict(run) | {"handle": 0, "provider": names[run.provider]} for run in self.ledger.runs.values()]
        return [runs, list(self.outside.effects.items())]


class BriefJobWorld(JobWorld):
    LOOK_EVERY = 40

    def history(self) -> list[Any]:
        """Every job, every measurement when it was last looked at, and what is so at RIPE."""
        order = {job.number: place for place, job in enumerate(self.books.jobs.values())}
        jobs = [asdict(job) | {"id": "", "number": order[job.number]} for job in self.books.jobs.values()]
        return [jobs, list(self.books.last.values()), self.simulator.audit()]
