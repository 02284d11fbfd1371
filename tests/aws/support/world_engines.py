"""The seeded worlds, brief enough for an emulator that takes a few hundred requests a second, and what they tell."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import msgspec

from paceline.core.monitors.due import Due, OnTime
from paceline.core.monitors.places import Places
from paceline.core.monitors.values import Claimed, Moved, PurgeReport, RunQueue, Settlement
from paceline.ports import Store
from tests.aws.support.monitor_stage import WRITES
from tests.world.support.batch_world import BatchWorld
from tests.world.support.job_world import JobWorld
from tests.world.support.seeded import HOUR_MS, MINUTE_MS, SECOND_MS, Seeded
from tests.world.support.world import World

RUNS_MAX = 1_000


class Agreed:
    """A store without the liberties that the port leaves to each engine, so that two of them tell one story.

    It may advance none of what is on time in one act; of what may start at once it may hand out any first, and so a
    claim that leaves nothing behind, in one order for all, is the same on every engine. How soon after its time a run
    expires or is forgotten is each engine's own, so here none is.
    """

    def __init__(self, inner: Store, *, seen_by: Store | None = None) -> None:
        """``seen_by``: the same data as they are, for those who keep the books."""
        self._inner = inner
        self._seen_by = seen_by or inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def armed_after(self, after: Due | None, *, from_ms: int, limit: int) -> list[Due]:
        return self._seen_by.armed_after(after, from_ms=from_ms, limit=limit)

    def advance_on_time(self, rule: OnTime, *, limit: int) -> Moved:
        del rule, limit
        return Moved(Counter(), 0)

    def claim(
        self, queue: RunQueue, *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None = None
    ) -> list[Claimed]:
        del runs_max
        claimed = self._inner.claim(queue, now_ms=now_ms, runs_max=RUNS_MAX, lease_ms=lease_ms, places=places)
        return in_order(claimed)

    def settle_and_claim(
        self, settlements: Sequence[Settlement], *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None
    ) -> tuple[list[bool], list[Claimed]]:
        del runs_max
        won, claimed = self._inner.settle_and_claim(
            settlements, now_ms=now_ms, runs_max=RUNS_MAX, lease_ms=lease_ms, places=places
        )
        return won, in_order(claimed)

    def purge(self, *, settled_before_ms: int, due_before_ms: int, now_ms: int, limit: int) -> PurgeReport:
        del settled_before_ms, due_before_ms
        return self._inner.purge(settled_before_ms=0, due_before_ms=0, now_ms=now_ms, limit=limit)


def in_order(claimed: Sequence[Claimed]) -> list[Claimed]:
    return sorted(claimed, key=lambda run: (run.due_ms, run.owner, run.monitor, run.counter))


class BriefWorld(World):
    """Looked at less often, and listened to for less time: each look asks all shards."""

    REST_DAEMONS = 1
    CHECK_EVERY, LOOK_EVERY = 10, 40
    REST_MS = (6 * SECOND_MS, 12 * SECOND_MS)

    TESTS, ONLY = "tests/aws/test_world.py", "monitors_have"
    set_back = 0

    def _jump(self) -> None:
        """Where it is set back, all look at the clock at once: until they do, what may start is each engine's own."""
        if self._parked_past_its_moment():
            self.jumps += 1
            self._set_clock(self.now_ms + self.random.choice((MINUTE_MS, HOUR_MS // 2, 6 * HOUR_MS)))
            return
        before_ms = self.now_ms
        super()._jump()
        if self.now_ms < before_ms:
            self.set_back += 1
            self.calm = True
            for daemon in self._daemons:
                daemon.watch_clock()
            self.calm = False

    def _parked_past_its_moment(self) -> bool:
        """A run that is caught up later, whose moment has come while it was behind another.

        If the clock is then set back, one engine remembers that it had come, and another does not; both may.
        """
        runs = (run for life in self.ledger.lives.values() for run in life.runs.values())
        return any(run.after_ms and run.state == "waiting" and run.after_ms <= self.ledger.latest_ms for run in runs)

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
    TESTS, ONLY = "tests/aws/test_world.py", "batches"
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
    TESTS, ONLY = "tests/aws/test_world.py", "jobs"
    LOOK_EVERY = 40

    def history(self) -> list[Any]:
        """Every job, every measurement when it was last looked at, and what is so at RIPE."""
        order = {job.number: place for place, job in enumerate(self.books.jobs.values())}
        jobs = [asdict(job) | {"id": "", "number": order[job.number]} for job in self.books.jobs.values()]
        return [jobs, list(self.books.last.values()), self.simulator.audit()]


class Rivals(Seeded):
    """An act that cuts in often wants the very same."""

    CUT_IN_CHANCE = 0.3
    _daemons: list[Any]

    def _act(self) -> None:
        who, _, turn = self._acting.rpartition(" ")
        if not self._cut_in or not who.startswith("daemon ") or self.random.random() < 0.5:
            super()._act()
            return
        rival = 1 - int(who.removeprefix("daemon "))
        self._acting = f"daemon {rival} {turn}"
        self._note(self._acting)
        self._daemons[rival].turn(turn)


class RivalBatchWorld(Rivals, BriefBatchWorld):
    """Two daemons that plan and call the same batches."""

    ONLY = "in_between"


class LaggingWorld(Rivals, BriefWorld):
    """A world whose indexes lag until it comes to rest: due entries are seen late, so its history differs."""

    ONLY = "lag"
    catch_up: Callable[[], None]
    """Brings the indexes up to date with their tables."""

    def _come_to_rest(self) -> None:
        self.catch_up()
        super()._come_to_rest()


class Gap:
    """The time between the reads of an act and its first write: others may act then, and the write must notice."""

    def __init__(self, dynamodb: Any) -> None:
        self.peril: Callable[[str], None] = lambda _moment: None
        self.entered = 0
        self._act = ""
        self._events = dynamodb.meta.events
        self._events.register("before-call.dynamodb", self._enter)

    def close(self) -> None:
        self._events.unregister("before-call.dynamodb", self._enter)

    def within(self, name: str, act: Callable[..., Any]) -> Callable[..., Any]:
        def acted(*args: Any, **kwargs: Any) -> Any:
            before, self._act = self._act, name
            try:
                return act(*args, **kwargs)
            finally:
                self._act = before

        return acted

    def _enter(self, model: Any, params: Any, **_: Any) -> None:
        # A world is told in one thread: what several do at once is left alone.
        alone = threading.current_thread() is threading.main_thread()
        if not self._act or not alone or model.name not in WRITES or b"number#" in params["body"]:
            return
        name, self._act = self._act, ""
        self.entered += 1
        self.peril(f"within {name}")


class Interrupted:
    """A store that lets others act between its reads and writes."""

    ACTS = frozenset({"react", "commit", "claim", "take", "extend", "settle", "release"}) | frozenset(
        {"settle_and_claim", "make_extra_runs", "claim_calls", "settle_calls", "release_calls"}
    )

    def __init__(self, inner: Store, gap: Gap) -> None:
        self._inner = inner
        self._gap = gap

    def __getattr__(self, name: str) -> Any:
        act = getattr(self._inner, name)
        return self._gap.within(name, act) if name in self.ACTS else act
