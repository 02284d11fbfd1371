"""What every seeded world has: chance, a clock, a trace of what happened, and the danger at every write."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from random import Random
from typing import Any, Protocol

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.instants import to_text
from paceline.ports import Store
from tests.world.support.ledger import Broken
from tests.world.support.stores import Call, Crash

T0_MS = 1_792_800_000_000  # a day before Berlin sets its clocks back
SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
CRASH_CHANCE = 0.02
Damage = Callable[[Store], Store]
Opener = Callable[[], Store]
"""Each call gives another process's view of the same data."""


class Turning(Protocol):
    """A daemon, as a world sees it."""

    def turn(self, name: str, /) -> object: ...


class Seeded:
    """One seed is one story. Within an act, at any write, another actor may cut in or the process may die."""

    DAEMONS = 2
    REST_DAEMONS = 2
    """How many of them still turn when all comes to rest."""
    TRACE_LINES = 30
    CUT_IN_CHANCE = 0.08
    """Beside that of a crash."""
    LOOK_EVERY = 10
    FLOWS: tuple[tuple[float, int], ...] = ()
    """How time passes before a step: up to this chance, so long at most. Beyond the last one the clock jumps."""
    TESTS, ONLY = "tests/world", ""
    """Where this world's tests are, and what chooses it among them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.trace: deque[str] = deque(maxlen=self.TRACE_LINES)
        self.now_ms = self.true_ms = T0_MS
        self.crashes = self.interruptions = self.repeats = self.jumps = 0
        self.set_backs: list[tuple[int, int]] = []
        """From and to which time the clock was set back."""
        self.calm = True
        self._seed = seed
        self._step_number = 0
        self._past: deque[Call] = deque(maxlen=60)
        self._cut_in = False
        self._acting = ""
        self._acting_number = 0
        self._real: list[Store] = []

    def _open(self, opener: Opener | None, path: Path) -> list[Store]:
        """One for each daemon, of a SQLite file unless another engine is given."""
        opener = opener or (lambda: SqliteStore(str(path), synchronous="normal"))
        return [opener() for _ in range(self.DAEMONS)]

    def close(self) -> None:
        for store in self._real:
            with closing(store):
                pass

    def _live(self, steps: int) -> None:
        """Performs so many steps, with looks at the store between them."""
        self.calm = False
        for number in range(steps):
            self._step_number = number
            self._step()
            self._look(number)

    def _look(self, number: int) -> None:
        if number % self.LOOK_EVERY == 0:
            self._check()

    def _check(self) -> None:
        """Demands what must be true at any time."""
        raise NotImplementedError

    def _step(self) -> None:
        self._pass_time()
        try:
            self._act()
        except Crash as crash:
            self._note(f"crash {crash}")
            self._restart()

    def _act(self) -> None:
        """Performs one act of one actor."""
        raise NotImplementedError

    def _restart(self) -> None:
        """Replaces a daemon that died; it is gone with all it knew."""
        raise NotImplementedError

    def _turn(self, daemons: Sequence[Turning], names: Sequence[str]) -> object:
        """Performs a turn of one of the daemons; what it returns."""
        self._acting_number = self.random.randrange(self.DAEMONS)
        name = self.random.choice(names)
        self._acting = f"daemon {self._acting_number} {name}"
        self._note(self._acting)
        return daemons[self._acting_number].turn(name)

    def _pass_time(self) -> None:
        roll = self.random.random()
        for chance, most_ms in self.FLOWS:
            if roll < chance:
                self.let_pass(self.random.randint(0, most_ms))
                return
        self._jump()

    def let_pass(self, ms: int) -> None:
        self.true_ms += ms
        self._set_clock(self.now_ms + ms)

    @contextmanager
    def _telling(self, steps: int) -> Iterator[None]:
        """Broken tells the seed and the last things that happened."""
        try:
            yield
        except Broken as broken:
            story = "\n  ".join(self.trace)
            said = f"{broken}\n  at step {self._step_number}; again with: {self.again(steps)}"
            raise Broken(f"{said}\n  the last of it:\n  {story}") from broken

    def again(self, steps: int) -> str:
        """Returns the command that repeats this story."""
        return f"PACELINE_WORLD_SEEDS={self._seed} PACELINE_WORLD_STEPS={steps} pytest {self.TESTS} -k {self.ONLY}"

    def _peril(self, moment: str) -> None:
        if self.calm:
            return
        roll = self.random.random()
        if roll < CRASH_CHANCE:
            self.crashes += 1
            raise Crash(f"of {self._acting} {moment}")
        if roll < CRASH_CHANCE + self.CUT_IN_CHANCE and not self._cut_in:
            self._cut_in = True
            self.interruptions += 1
            acting = self._acting
            self._note(f"  cutting in {moment}:")
            try:
                self._act()
            finally:
                self._cut_in = False
                self._acting = acting

    def _deliver_again(self, store: Any, allowed: tuple[str, ...]) -> None:
        if self._past:
            name, args, kwargs = self.random.choice(list(self._past))
            assert name in allowed
            self.repeats += 1
            self._note(f"delivered again: {name}")
            getattr(store, name)(*args, **kwargs)

    def _jump(self) -> None:
        self.jumps += 1
        ms = self.random.choice(
            (-3 * SECOND_MS, -2 * MINUTE_MS, -HOUR_MS, -7 * HOUR_MS, HOUR_MS // 2, 6 * HOUR_MS, 26 * HOUR_MS)
        )
        self._note(f"the clock jumps by {ms / 1000:+.0f} s")
        if ms < 0:
            self.set_backs.append((self.now_ms, self.now_ms + ms))
        self._set_clock(self.now_ms + ms)

    def _set_clock(self, now_ms: int) -> None:
        self.now_ms = now_ms

    def _note(self, text: str) -> None:
        self.trace.append(f"{to_text(self.now_ms)} {text}")
