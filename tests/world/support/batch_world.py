"""The seeded world of batches: the real steps on a real store, a clock we choose, providers that cannot be trusted.

As in the world of monitors, one seed is one story: at any write another actor may cut in or the process may die, calls
are delivered again, the clock jumps. At the end everything must come to rest: every planned run has ended once.
"""

from __future__ import annotations

from pathlib import Path
from typing import cast

from paceline.core.batches.provider import ProviderSpec
from paceline.core.batches.run_keys import NEVER_MS
from paceline.ports import Store
from paceline.steps.batches import providers
from paceline.steps.batches.deletion import go_on_deleting
from tests.world.support.batch_actors import BATCHES, PROVIDERS, BatchDaemon, ModelProviders, OpenVault, Operators
from tests.world.support.batch_ledger import ENDED, BatchLedger
from tests.world.support.batch_stores import BATCH_REPEATED, BATCH_WRITES, WatchedBatches
from tests.world.support.batch_workers import KINDS, as_outgoing
from tests.world.support.ledger import demand
from tests.world.support.seeded import HOUR_MS, MINUTE_MS, SECOND_MS, Damage, Opener, Seeded
from tests.world.support.stores import Perilous


class BatchWorld(Seeded):
    """``damage`` may put a broken store in the real one's place, to prove that the world notices."""

    ONLY = "batch"
    FLOWS = ((0.50, 1_500), (0.90, 30 * SECOND_MS), (0.985, 40 * MINUTE_MS))
    DAYS_TO_REST = 4
    REST_STEP_MS = HOUR_MS // 2

    def __init__(self, seed: int, folder: Path, *, damage: Damage | None = None, opener: Opener | None = None) -> None:
        super().__init__(seed)
        self.ledger = BatchLedger()
        self.outside = ModelProviders(self)
        self._real = self._open(opener, folder / f"batch-{seed}.db")
        damaged = [damage(store) if damage else store for store in self._real]
        self._watched = [WatchedBatches(store, self.ledger, self._past, self) for store in damaged]
        self._stores = [cast("Store", Perilous(store, self._peril, writes=BATCH_WRITES)) for store in self._watched]
        self._operators = Operators(self, self._stores[0])
        self._daemons = [BatchDaemon(self, store, self.outside) for store in self._stores]

    def run(self, steps: int) -> None:
        with self._telling(steps):
            self._operators.begin()
            self._live(steps)
            self._come_to_rest()

    # -- what happens

    def _restart(self) -> None:
        number = self.random.randrange(self.DAEMONS)
        self._daemons[number] = BatchDaemon(self, self._stores[number], self.outside)

    def _act(self) -> None:
        roll = self.random.random()
        if roll < 0.80:
            self._turn(self._daemons, BatchDaemon.TURNS)
        elif roll < 0.94:
            self._acting = "an operator"
            self._note(f"operator {self._operators.act()}")
        else:
            self._deliver_again(self._watched[0], BATCH_REPEATED)

    # -- what must be true

    def _check(self) -> None:
        store = self._real[self.random.randrange(self.DAEMONS)]
        problems = store.verify()
        demand(10, not problems, f"the store says {problems}")
        for name, book in self.ledger.runs.items():
            batch, _, rest = name.partition("/")
            record, _, date = rest.rpartition("@")
            run = store.find_call_run(batch, record, date)
            demand(10, run is not None, f"{name} is lost")
            assert run is not None
            demand(10, run.state == book.state or book.state not in ENDED, f"{name} is {run.state}, not {book.state}")

    def _come_to_rest(self) -> None:
        """Everything is resumed, nothing goes wrong any more, days pass: every run ends, once."""
        self.calm = True
        for name in PROVIDERS:
            spec = ProviderSpec(base_url=f"http://{name}.example.org", timeout="60s")
            spec = as_outgoing(spec) if name == KINDS[0] else spec
            providers.put_provider_spec(
                self._stores[0], OpenVault(), name, spec, expected_revision=None, now_ms=self.now_ms
            )
        self._finish_deletions()
        for name in BATCHES:
            self._operators.put_batch(name, paused=False)
        until_ms = self.now_ms + self.DAYS_TO_REST * 24 * HOUR_MS
        while self.now_ms < until_ms:
            for daemon in self._daemons[: self.REST_DAEMONS]:
                daemon.whole_turn()
            self.let_pass(self._step_ms())
        self._check()
        self._judge_end(self._real[0])

    def _finish_deletions(self) -> None:
        """What is out comes to its end, or its lease does: then batches that are being deleted are gone."""
        for _ in range(100):
            go_on_deleting(self._stores[0], now_ms=self.now_ms)
            if not any(batch.deleting for batch in self._real[0].batches(after="", limit=100)):
                return
            self.now_ms += MINUTE_MS
            self.true_ms += MINUTE_MS
        demand(10, False, "a deletion does not come to its end")

    def _step_ms(self) -> int:
        """To the next moment at which something may happen, but not much further."""
        store = self._real[0]
        workers = store.provider(KINDS[0])
        assert workers is not None
        nexts_ms = [ms for ms in (store.next_call_ms(), store.next_for_worker_ms(workers.number)) if ms is not None]
        return min(max(min(nexts_ms, default=NEVER_MS) - self.now_ms, 10), self.REST_STEP_MS)

    def _judge_end(self, store: Store) -> None:
        last_ms = self.now_ms - 25 * HOUR_MS
        for name in BATCHES:
            batch = store.batch(name)
            assert batch is not None
            for day in store.days(batch, before=None, limit=100):
                runs, _ = store.day_runs(day, state=None, provider=None, after=0, limit=10_000)
                for run in runs:
                    ended = run.state in ENDED
                    demand(10, ended or run.due_ms > last_ms, f"{run.record} of {day.date} never ended: {run}")
                    if run.state == "done":
                        effects = self.outside.effects.get(f"{run.batch}/{run.record}@{run.date}", 0)
                        demand(9, effects > 0, f"{run.record} of {day.date} is done without an effect")
