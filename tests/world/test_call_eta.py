"""The ETA of every waiting run of a batch, with arrivals frozen: exact, or a range that holds the truth.

A seeded history leaves providers in many states: behind their plan, closed, in back-off, with calls out, with records
that were deleted or edited. Then nothing more arrives. The ETA of each run that waits is asked for, and the store is
driven on through virtual time: claims at the moments that it names, calls that are answered within their time-out.
"""

from __future__ import annotations

import random
from contextlib import closing
from typing import NamedTuple

import msgspec

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.batches.batch import BatchSpec, RecordSpec, day_at
from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.provider import BreakerSpec, ProviderSpec, RetrySpec
from paceline.core.batches.values import ClaimedCall, PutProvider
from paceline.core.daemons import Daemon
from paceline.core.ids import call_run_id
from paceline.core.instants import parse_instant_ms
from paceline.core.monitors.schedule import Missed
from paceline.ports import Store
from paceline.steps.batches.plan import plan_day
from paceline.steps.upkeep.daemons import beat
from paceline.steps.why.runs import explain_run
from paceline.steps.why.view import WhyView
from tests.world.support.stories import seeds

T0_MS = 1_790_035_200_000  # 2026-09-22 00:00
LEASE_MS = 5_000
BATCH = "daily"
TIMEOUT_MS = {"30s": 30_000, "2s": 2_000, "5s": 5_000}

DAEMON = Daemon("up-1", "up", "host", 7, "", T0_MS, T0_MS, every_ms=10**9)


class Started(NamedTuple):
    run: str
    at_ms: int


class World:
    """Providers with limits of every kind and one day of runs, driven by hand."""

    def __init__(self, store: Store, seed: int) -> None:
        self.store, self.chance = store, random.Random(seed)
        self.now_ms = T0_MS
        beat(store, DAEMON)
        self.started: list[Started] = []
        self._out: list[tuple[int, ClaimedCall, bool]] = []
        self.window_ms = self.chance.choice([60_000, 600_000, 3_600_000])
        self.specs = {name: self._spec() for name in "abc"}
        for name, spec in self.specs.items():
            store.put_provider(PutProvider(name, spec), now_ms=T0_MS)
        missed: tuple[Missed, ...] = ("once", "once", "skip")
        declared = BatchSpec(window=f"{self.window_ms // 1_000}s", missed=self.chance.choice(missed))
        batch = store.put_batch(BATCH, declared, expected_revision=None, now_ms=T0_MS).batch
        assert batch is not None
        self.batch = batch
        self.records = [
            RecordSpec(f"r{index:02}", self.chance.choice("abc"), f"/{index}")
            for index in range(self.chance.randint(5, 60))
        ]
        store.put_records(batch, self.records, now_ms=T0_MS)
        plan_day(store, batch, day_at(batch.spec, T0_MS), now_ms=T0_MS)

    def _spec(self) -> ProviderSpec:
        chance = self.chance
        return ProviderSpec(
            base_url="http://example.org",
            timeout=chance.choice([*TIMEOUT_MS]),
            max_in_flight=chance.choice([1, 1, 1, 2, 5]),
            rate=chance.choice([None, None, "5/1s", "1/2s", "3/10s"]),
            retry=RetrySpec(max_attempts=3, base="500ms", cap="20s"),
            breaker=BreakerSpec(failures=2, open_for="20s"),
        )

    def live(self) -> None:
        """A stretch of time in which anything happens, also nothing for a while."""
        end_ms = T0_MS + int(self.window_ms * self.chance.random() * 1.2)
        idle_ms = int((end_ms - T0_MS) * self.chance.choice([0, 0.3, 0.9]))
        self.now_ms += idle_ms
        while self.now_ms < end_ms:
            self.step(well=False)
            self.now_ms += self.chance.randint(1, max(1, (end_ms - T0_MS) // 20))
        self.now_ms = max(self.now_ms, end_ms)

    def edit(self) -> None:
        """Deletes some records, and sends others to sleep."""
        for record in self.chance.sample(self.records, k=self.chance.choice([0, 0, len(self.records) // 6])):
            if self.chance.choice(["delete", "sleep"]) == "delete":
                self.store.remove_record(self.batch, record.id)
            else:
                asleep = msgspec.structs.replace(record, active=False)
                self.store.put_records(self.batch, [asleep], now_ms=self.now_ms)

    def step(self, *, well: bool) -> None:
        """Settles what has ended by now, then claims."""
        for entry in sorted(self._out, key=lambda one: one[0]):
            ends_ms, call, good = entry
            if ends_ms <= self.now_ms:
                self._out.remove(entry)
                self.store.settle_calls([self._settlement(call, ends_ms, good=good)])
        for call in self.store.claim_calls(now_ms=self.now_ms, runs_max=1_000, lease_ms=LEASE_MS):
            self.started.append(Started(call_run_id(call.batch, call.record, call.date), self.now_ms))
            provider = self.specs[self._provider(call)]
            timeout_ms = TIMEOUT_MS[provider.timeout]
            good = well or self.chance.random() < 0.6
            if not well and self.chance.random() < 0.1:
                continue  # its worker died
            self._out.append((self.now_ms + self.chance.choice([0, 1, timeout_ms // 10, timeout_ms]), call, good))

    def _provider(self, call: ClaimedCall) -> str:
        found = self.store.provider(call.provider)
        assert found is not None
        return found.id

    def _settlement(self, call: ClaimedCall, ended_ms: int, *, good: bool) -> CallSettlement:
        if good:
            return CallSettlement(call.handle, call.attempt, "done", ended_ms, ended_ms, verdict="good")
        closed_ms = ended_ms + self.chance.choice([0, 0, 15_000])
        return CallSettlement(
            call.handle,
            call.attempt,
            "retry",
            ended_ms,
            ended_ms,
            reason="status 503",
            not_before_ms=ended_ms + self.chance.randint(100, 20_000),
            verdict="bad",
            closed_until_ms=closed_ms if closed_ms > ended_ms else 0,
        )

    def thaw(self) -> None:
        """From now on calls that are out are answered for good."""
        self._out = [(ends_ms, call, True) for ends_ms, call, _ in self._out]

    def drive(self) -> None:
        """Goes on until nothing is left, from moment to moment."""
        for _ in range(20_000):
            self.step(well=True)
            next_ms = [ends_ms for ends_ms, _, _ in self._out]
            if (look_ms := self.store.next_call_ms()) is not None:
                next_ms.append(look_ms)
            if not next_ms:
                return
            self.now_ms = max(self.now_ms, min(next_ms))
        raise AssertionError("it does not come to an end")


class Tally(NamedTuple):
    """How many ETAs were exact, how many held the truth, and what was wrong."""

    exact: int
    held: int
    wrong: list[str]


def judge(seed: int) -> Tally:
    """Lives, freezes, asks for every ETA, and drives on to see when each run starts."""
    with closing(SqliteStore(":memory:")) as store:
        world = World(store, seed)
        world.live()
        world.edit()
        world.thaw()
        told = ask(world)
        before = len(world.started)
        world.drive()
        truth: dict[str, int] = {}
        for start in world.started[before:]:
            truth.setdefault(start.run, start.at_ms)
        return compare(seed, told, truth)


def ask(world: World) -> dict[str, WhyView]:
    day = world.store.day(world.batch, day_at(world.batch.spec, T0_MS).isoformat())
    assert day is not None
    runs, _ = world.store.day_runs(day, state=None, provider=None, after=0, limit=1_000)
    names = [call_run_id(run.batch, run.record, run.date) for run in runs if run.state in ("waiting", "retry")]
    told = {name: explain_run(world.store, name, viewer=None, now_ms=world.now_ms) for name in names}
    assert all(view.chain for view in told.values())
    return told


def compare(seed: int, told: dict[str, WhyView], truth: dict[str, int]) -> Tally:
    exact, held, wrong = 0, 0, []
    for name, view in told.items():
        at_ms = truth.get(name)
        if view.eta is None or at_ms is None:
            skips = any("skips what it missed" in link.text for link in view.chain)
            if at_ms is not None or (view.eta is not None and not skips):
                wrong.append(f"seed {seed}, {name}: started at {at_ms}, told {view}")
            continue
        first, last = parse_instant_ms(view.eta.from_), parse_instant_ms(view.eta.to)
        assert first is not None
        assert last is not None
        if not first <= at_ms <= last:
            wrong.append(f"seed {seed}, {name}: {at_ms} is not in {first}..{last}")
        exact += first == last == at_ms
        held += first <= at_ms <= last
    return Tally(exact, held, wrong)


def test_every_eta_of_a_batch_holds_the_truth_and_about_two_in_five_are_exact() -> None:
    """Over 1,000 seeds 8,389 of 19,577 were exact, and all held the truth: PACELINE_WORLD_SEEDS=0-999."""
    tallies = [judge(seed) for seed in (*seeds(), *range(7, 19))]
    assert [line for tally in tallies for line in tally.wrong] == []
    told, exact = sum(tally.held for tally in tallies), sum(tally.exact for tally in tallies)
    assert told > 100, "too few waited to say anything"
    assert exact >= 0.35 * told, f"{exact} of {told}"
