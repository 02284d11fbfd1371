"""The seeded world: the real steps on a real store, on a clock we choose, with everything going wrong that can.

One seed is one story. Each step is one turn of one actor; within it, at any write, another actor may cut in or the
process may die; calls are delivered again; the clock jumps. After each step the promises are checked against the
ledger's books, and at the end everything must come to rest: every run ended, every living monitor firing on its grid.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import cast

from paceline.core.monitors.definition import duration_ms
from paceline.core.monitors.schedule import Cadence
from paceline.core.users import UserEdit
from paceline.ports import Store
from paceline.steps import access
from paceline.steps.monitors.phases import CIRCLES
from tests.world.support.actors import CATCH_UP, OWNERS, Checker, Daemon, Users
from tests.world.support.ledger import TERMINAL, Ledger, Life, demand
from tests.world.support.seeded import MINUTE_MS, SECOND_MS, Damage, Opener, Seeded
from tests.world.support.stores import REPEATED, Perilous, Watched
from tests.world.support.uptime_books import judge_uptime

QUIET_ROUNDS = 20
DAILY = "30 2 * * *"
"""It hardly ever fires in a quiet time, and then once."""


class World(Seeded):
    """``damage`` may put a broken store in the real one's place, to prove that the world notices."""

    ONLY = "monitors_keep"
    TRACE_LINES = 25
    CUT_IN_CHANCE = 0.10
    CHECK_EVERY, LOOK_EVERY = 1, 20
    FLOWS = ((0.70, 1_500), (0.94, 20 * SECOND_MS), (0.985, 8 * MINUTE_MS))
    REST_MS = (4 * MINUTE_MS, 6 * MINUTE_MS)
    """Time limit for coming to rest, and how long firings are watched afterwards."""

    def __init__(self, seed: int, folder: Path, *, damage: Damage | None = None, opener: Opener | None = None) -> None:
        super().__init__(seed)
        self.ledger = Ledger(CATCH_UP)
        self._real = self._open(opener, folder / f"{seed}.db")
        damaged = [damage(store) if damage else store for store in self._real]
        self._watched = [Watched(store, self.ledger, self._past) for store in damaged]
        perilous = [cast("Store", Perilous(store, self._peril)) for store in self._watched]
        self._stores = perilous
        self._users = Users(self, perilous[0])
        self._daemons = [Daemon(self, store) for store in perilous]
        self._checkers = [
            Checker(self, perilous[0], None),
            *(Checker(self, perilous[1], owner) for owner in OWNERS[:2]),
        ]

    def run(self, steps: int) -> None:
        """The story, and its end. Broken tells the seed and the last things that happened."""
        with self._telling(steps):
            self._set_clock(self.now_ms)
            for owner in OWNERS:
                self._users.add(owner)
            self._live(steps)
            self._come_to_rest()

    # -- what happens

    def _act(self) -> None:
        roll = self.random.random()
        if roll < 0.62:
            self._turn(self._daemons, Daemon.TURNS)
        elif roll < 0.82:
            checker = self.random.choice(self._checkers)
            name = self.random.choice(("claim", "claim", "take", "settle", "settle", "settle", "extend", "repeat"))
            self._acting = f"checker {self._checkers.index(checker)} {name}"
            self._note(self._acting)
            getattr(checker, name)()
        elif roll < 0.94:
            self._acting = "a user"
            self._note(f"user {self._users.act()}")
        elif roll < 0.965:
            self._acting = "a user who cannot wait"
            self._note(f"user {self._users.run_now()}")
        else:
            self._deliver_again(self._watched[0], REPEATED)

    def _restart(self) -> None:
        """The process is gone with all it knew; the checkers live elsewhere and remember."""
        number = self.random.randrange(self.DAEMONS)
        self._daemons[number] = Daemon(self, self._stores[number])

    def _set_clock(self, now_ms: int) -> None:
        super()._set_clock(now_ms)
        self.ledger.set_clock(now_ms)

    # -- what must be true

    def _look(self, number: int) -> None:
        if number % self.CHECK_EVERY == 0:
            self._check(thoroughly=number % self.LOOK_EVERY == 0)

    def _check(self, *, thoroughly: bool = False) -> None:
        store = self._real[self.random.randrange(self.DAEMONS)]
        armed = store.armed_after(None, from_ms=0, limit=10_000)
        found = {due.generation: (due.due_ms, due.counter) for due in armed}
        demand(1, len(found) == len(armed), "an entry has two next firings")
        believed = {
            generation: (life.due_ms, life.counter)
            for generation, life in self.ledger.lives.items()
            if life.due_ms is not None
        }
        demand(4, found == believed, f"entries moved on their own: {found.items() ^ believed.items()}")
        pending = {change.generation for change in store.changes(limit=10_000, now_ms=self.now_ms)}
        for generation, life in self.ledger.lives.items():
            if generation in pending:
                continue
            demand(3, not (life.deleted and life.has_entry), f"{life.name} is deleted and still has an entry")
            if not life.deleted:
                demand(10, life.has_entry, f"{life.name} has no entry and no recorded change: it will never fire")
                rests = life.due_ms is None
                demand(1, rests == self.ledger.resting(life), f"{life.name} rests: {rests}, and should not")
        if thoroughly:
            self._look_closely(store)

    def _look_closely(self, store: Store) -> None:
        counted = {
            found.key: Counter({bucket: count for bucket, count in enumerate(found.value.counts) if count})
            for found in CIRCLES.walk(store)
            if found.value is not None
        }
        expected = self.ledger.circles()
        demand(7, counted == expected, f"circles count {counted} instead of {expected}")
        problems = store.verify()
        demand(10, not problems, f"the store says {problems}")
        self.ledger.alerts.compare(store, OWNERS, list(self.ledger.lives.values()))
        for life in self.ledger.living():
            judge_uptime(cast("Store", self._watched[0]), life, now_ms=self.now_ms)
            found = store.monitor(life.monitor.owner, life.monitor.id)
            demand(10, found == life.monitor, f"{life.name} is not as it was acknowledged")
            runs = store.monitor_runs(life.monitor, before=None, limit=10_000, now_ms=self.now_ms)
            counters = [run.counter for run in runs]
            books = [run.counter for run in life.runs.values() if run.state != "gone"]
            demand(10, counters == sorted(books, reverse=True), f"{life.name}: runs {counters} are not {books}")
            for run in runs:
                record = life.runs[run.counter]
                demand(
                    10,
                    (run.state in TERMINAL) == (record.state == "ended"),
                    f"{life.name}@{run.counter} is {run.state}",
                )
                again = self.ledger.may_wait_again(record, run.state)
                demand(
                    10,
                    again or (run.state == "out") == (record.state == "out"),
                    f"{life.name}@{run.counter} is {run.state}",
                )

    # -- how it ends

    def _come_to_rest(self) -> None:
        """Nobody edits, nothing crashes, the clock goes on; then nothing may be stuck."""
        self._note("all comes to rest")
        self.calm = True
        for number in range(self.DAEMONS):
            self._daemons[number] = Daemon(self, self._stores[number])
        for owner in sorted(self.ledger.disabled):
            access.edit_user(self._stores[0], owner, UserEdit(disabled=False), now_ms=self.now_ms)
        self._set_clock(max(self.ledger.latest_ms, self.ledger.latest_until_ms) + MINUTE_MS)
        self._live_on(self.REST_MS[0])
        since_ms = self.now_ms
        self._live_on(self.REST_MS[1])
        for life in self.ledger.living():
            self._judge_rhythm(life, since_ms=since_ms)
        self._work_off()
        self._check(thoroughly=True)
        for life in self.ledger.living():
            left = [run.counter for run in life.runs.values() if not run.over]
            demand(10, not left, f"{life.name}: runs {left} never ended")
        status = self._real[0].status()
        left_over = (status.runs_waiting, status.runs_out)
        demand(10, left_over == (0, 0), f"{left_over[0]} wait and {left_over[1]} are out for ever")

    def _work_off(self) -> None:
        """Until nothing is left, or nothing happens any more."""
        quiet, at_jump = 0, -1
        for _ in range(20_000):
            self.let_pass(200)
            before = self.ledger.events
            self._work_once()
            # A claim may also just move runs aside, so one quiet round says little.
            quiet = quiet + 1 if before == self.ledger.events else 0
            if quiet > QUIET_ROUNDS and self.now_ms > self.ledger.latest_until_ms:
                if not self.ledger.follow_ms or at_jump == self.ledger.events:
                    return
                # Runs that queue follow one another at a pace.
                quiet, at_jump = 0, self.ledger.events
                self.let_pass(self.ledger.follow_ms)

    def _live_on(self, span_ms: int) -> None:
        until_ms = self.now_ms + span_ms
        while self.now_ms < until_ms:
            self.let_pass(SECOND_MS)
            for daemon in self._daemons[: self.REST_DAEMONS]:
                daemon.whole_turn()
            self._work_once()
            if self.now_ms // SECOND_MS % self.CHECK_EVERY == 0:
                self._check()

    def _work_once(self) -> None:
        for daemon in self._daemons:
            daemon.collect()
            daemon.send()
        for checker in self._checkers:
            checker.claim()
            checker.settle_all()

    def _judge_rhythm(self, life: Life, *, since_ms: int) -> None:
        """In a quiet time every slot of a living monitor fires, once, or is skipped while its run before is open."""
        if self.ledger.resting(life) or life.cadence.cron == DAILY:
            return
        assert life.due_ms is not None
        # Nothing is owed before its initial delay is over.
        since_ms = max(since_ms, life.monitor.created_ms + duration_ms(life.monitor.spec.initial_delay or "0s") - 1)
        fired = sorted(run.due_ms for run in life.firings() if run.due_ms > since_ms)
        expected = expected_slots(life.cadence, life.due_ms, since_ms=since_ms)
        skips = life.cadence.overlap == "skip"
        right = set(fired) <= set(expected) if skips else fired == expected
        demand(10, right, f"{life.name} fired {fired}, expected {expected}")
        # Runs that queued before an edit made it skip are worked off first.
        behind = any(run.due_ms <= since_ms and not 0 < run.ended_ms <= since_ms for run in life.runs.values())
        demand(10, fired or behind or not expected[:-1], f"{life.name} has not fired at all of {expected}")


def expected_slots(cadence: Cadence, next_ms: int, *, since_ms: int) -> list[int]:
    """Backwards from the next due time; a cron of this world fires every one or five minutes, or once a day."""
    periods = {"* * * * *": MINUTE_MS, "*/5 * * * *": 5 * MINUTE_MS}
    period_ms = cadence.every_ms or periods[cadence.cron]
    return sorted(range(next_ms - period_ms, since_ms, -period_ms))
