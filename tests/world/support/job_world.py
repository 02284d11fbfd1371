"""The seeded world of jobs: the real steps on a real store, a clock we choose, and RIPE with all that it does to us.

As in the other worlds, one seed is one story: at any write and at any question to RIPE another actor may cut in or the
process may die, writes are delivered again, the clock is set back. RIPE's lists lag, its counters lag by hours, replies
are lost before and after the effect, keys are revoked, targets fill up, and one account has another user. At the end
everything comes to rest: every job has its true end, every credit is accounted for.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

from paceline.ports import Clock, Store
from paceline.simulators.ripe_atlas import AtlasSimulator, SimulatorClock, SimulatorModel
from tests.world.support.job_actors import OWNERS, PLACES, JobDaemon, JobUsers, Operators, Place, Ripe
from tests.world.support.job_ledger import (
    SITE,
    JobBooks,
    Truth,
    WatchedJobs,
    check_budgets,
    check_duplicates,
    check_quotas,
    check_true_end,
    look,
)
from tests.world.support.job_wire import Wire, WiredAtlas
from tests.world.support.ledger import demand
from tests.world.support.seeded import HOUR_MS, MINUTE_MS, SECOND_MS, T0_MS, Damage, Opener, Seeded
from tests.world.support.stores import Perilous

JOB_WRITES = frozenset(
    {"put_account", "add_key", "change_key", "remove_key", "sync_account", "submit", "begin_send"}
    | {"park", "refuse", "answer", "lose_sends", "note_progress", "end", "free_slots", "cancel_job", "finish_jobs"}
    | {"cancel_measurement", "purge_jobs", "take_duty", "edit_user", "remove_user", "next_to_send", "pull_back_sends"}
)
JOB_REPEATED = ("answer", "end", "free_slots")
FREEZE_CHANCE = 0.004
REST_MS_MAX = 4 * 24 * HOUR_MS
REST_STEPS_MS = (30 * SECOND_MS, 3 * MINUTE_MS, 20 * MINUTE_MS)
"""The longer nothing happens, the longer the steps."""


class WorldClock:
    """The daemons'. RIPE's own is always right."""

    def __init__(self, world: JobWorld) -> None:
        self._world = world

    def now_ms(self) -> int:
        return self._world.now_ms


class JobWorld(Seeded):
    """``damage`` may put a broken store in the real one's place, to prove that the world notices."""

    ONLY = "jobs"
    TRACE_LINES = 40
    LOOK_EVERY = 25
    FLOWS = (
        (0.60, 5 * SECOND_MS),
        (0.93, 45 * SECOND_MS),
        (0.98, 10 * MINUTE_MS),
        (0.99, 5 * HOUR_MS),  # nobody was there for so long
    )

    def __init__(
        self,
        seed: int,
        folder: Path,
        *,
        places: tuple[Place, ...] = PLACES,
        target_cap: int = 5,
        lag_ms: int | None = None,
        damage: Damage | None = None,
        opener: Opener | None = None,
    ) -> None:
        super().__init__(seed)
        self.places = places
        self.clock: Clock = WorldClock(self)
        self.line_is_bad = self.random.choice((0.04, 0.08, 0.2))
        self.sending_max = self.random.choice((1, 1, 3))
        self.freezes = 0
        lag_ms = lag_ms or self.random.choice((2_000, 5_000, 40_000, 100_000))
        model = SimulatorModel(seed=seed, probes=400, target_cap=target_cap, index_lag_ms=lag_ms)
        self.simulator = AtlasSimulator(model, clock=SimulatorClock(source=lambda: self.true_ms))
        self.truth = Truth(self.simulator.world, SITE)
        self.books = JobBooks(self.truth)
        self.wire = Wire(self, self.simulator)
        self._atlases = [WiredAtlas(self.wire) for _ in range(self.DAEMONS)]
        self._real = self._open(opener, folder / f"jobs-{seed}.db")
        damaged = [damage(store) if damage else store for store in self._real]
        self._watched = [WatchedJobs(store, self.books, self._past) for store in damaged]
        self._stores = [cast("Store", Perilous(store, self._peril, writes=JOB_WRITES)) for store in self._watched]
        self._operators = Operators(self, self._stores[0])
        self._users = [JobUsers(self, store) for store in self._stores]
        self._ripe = Ripe(self)
        self._daemons = [self._start(number) for number in range(self.DAEMONS)]

    @property
    def store(self) -> Store:
        """As it is, without danger."""
        return self._real[0]

    @property
    def daemons(self) -> list[JobDaemon]:
        return self._daemons

    @property
    def _accounts(self) -> list[tuple[str, bool]]:
        return [(place.name, place.ours) for place in self.places]

    def begin(self) -> None:
        self._operators.begin()

    def run(self, steps: int) -> None:
        """The story, and its end."""
        self.live(steps)
        with self._telling(steps):
            self._come_to_rest()

    def live(self, steps: int) -> None:
        """The story alone."""
        with self._telling(steps):
            self.begin()
            self._live(steps)

    def close(self) -> None:
        for atlas in self._atlases:
            atlas.close()
        super().close()

    def peril(self, moment: str) -> None:
        self._peril(moment)

    # -- what happens

    def _start(self, number: int) -> JobDaemon:
        return JobDaemon(self, self._stores[number], self._atlases[number])

    def _restart(self) -> None:
        self._daemons[self._acting_number] = self._start(self._acting_number)

    def _act(self) -> None:
        roll = self.random.random()
        if roll < 0.78:
            if (said := self._turn(self._daemons, JobDaemon.TURNS)) not in (None, "idle"):
                self._note(f"  {_short(said)}")
        elif roll < 0.90:
            self._acting = "a user"
            self._note(f"user {self.random.choice(self._users).act()}")
        elif roll < 0.93:
            self._acting = "an operator"
            self._note(f"operator {self._operators.act()}")
        elif roll < 0.96:
            self._note(f"at RIPE: {self._ripe.act()}")
        else:
            self._deliver_again(self._watched[0], JOB_REPEATED)

    def _peril(self, moment: str) -> None:
        super()._peril(moment)
        # Who is frozen when the request is on its way may come too late for everything, and nobody could know.
        if self.calm or self._cut_in or moment.startswith("before POST") or self.random.random() >= FREEZE_CHANCE:
            return
        self._cut_in = True
        self.freezes += 1
        acting, number = self._acting, self._acting_number
        self._note(f"  {acting} is frozen {moment}:")
        for _ in range(self.random.randint(3, 25)):
            self._step()
        self._note(f"  {acting} goes on {moment}")
        self._acting, self._acting_number, self._cut_in = acting, number, False

    def _jump(self) -> None:
        """Never forward: what is said to have been 24 hours would not have been, and RIPE would count it."""
        self.jumps += 1
        ms = self.random.choice((3 * SECOND_MS, 2 * MINUTE_MS, HOUR_MS, 7 * HOUR_MS))
        self._note(f"the clock is set back by {ms // 1000} s")
        self.set_backs.append((self.now_ms, self.now_ms - ms))
        self._set_clock(self.now_ms - ms)

    # -- what must be true

    def _check(self) -> None:
        store = self._real[self.random.randrange(self.DAEMONS)]
        problems = store.verify()
        demand(8, not problems, f"the store says {problems}")
        sending = store.send_counts().sending
        demand(9, sending <= self.sending_max, f"{sending} are being sent at once, and may be {self.sending_max}")
        check_duplicates(self.truth)
        look(self.books, store)
        check_budgets(self.books, store, OWNERS, now_ms=self.now_ms)
        check_quotas(self.truth, store, self._accounts, now_ms=self.now_ms)

    def _come_to_rest(self) -> None:
        """Nothing goes wrong any more, days pass: every job reaches its end."""
        self._note("all comes to rest")
        self.calm = True
        self._operators.put_all_right()
        self._ripe.put_all_right()
        self._daemons = [self._start(number) for number in range(self.DAEMONS)]
        store = self._real[0]
        began_ms, until_ms, quiet, round_number = self.true_ms, self.true_ms + REST_MS_MAX, 0, 0
        while self.true_ms < until_ms and not self._is_quiet(store):
            before = self.books.events
            self._daemons[round_number % self.DAEMONS].whole_turn()
            if round_number % 16 == 0:
                self._daemons[round_number % self.DAEMONS].reconcile()
            if self.true_ms > began_ms + 10 * MINUTE_MS:
                demand(
                    10, store.send_counts().sending == 0, f"a send is waited for, and nobody sends: {self._left(store)}"
                )
            quiet = quiet + 1 if before == self.books.events else 0
            self.let_pass(REST_STEPS_MS[min(quiet // 4, len(REST_STEPS_MS) - 1)])
            round_number += 1
        self._check()
        counts = store.send_counts()
        demand(10, counts[:6] == (0,) * 6, f"something never ended: {counts}\n  {self._left(store)}")
        self._judge_quiet(store)
        self.let_pass(HOUR_MS)
        check_true_end(self.books)

    def _is_quiet(self, store: Store) -> bool:
        held = [store.account(name, now_ms=self.now_ms) for name, _ in self._accounts]
        slots = sum(account.concurrent.held for account in held if account is not None)
        return store.send_counts()[:6] == (0,) * 6 and slots == 0

    def _judge_quiet(self, store: Store) -> None:
        for name, _ in self._accounts:
            account = store.account(name, now_ms=self.now_ms)
            assert account is not None
            held = [meter.held for meter in (account.concurrent, account.results, account.credits)]
            demand(8, held == [0, 0, 0], f"{name} holds {held} for nobody")
        for day_ms in range(T0_MS - 10 * HOUR_MS, self.now_ms + HOUR_MS, HOUR_MS):
            for owner in OWNERS:
                budget = store.budget(owner, now_ms=day_ms)
                demand(8, budget is None or budget.held == 0, f"{owner} has {budget} held for nothing")

    def _left(self, store: Store) -> str:
        jobs = [job for job in store.jobs(None, before=None, limit=1_000) if not job.finished]
        items = [item for job in jobs for item in store.measurements(job.number, after=-1, limit=1_000)]
        rows = [(one.job, one.index, one.state, one.reason, one.next_ms) for one in items if one.ended_ms is None]
        return "\n  ".join(str(row) for row in rows[:8])


def _short(said: Any) -> str:
    return str(said)[:160]
