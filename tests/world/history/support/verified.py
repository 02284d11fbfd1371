"""What ``paceline verify`` says of the store that a world leaves behind."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from paceline.core.verify.rules import Rules
from paceline.ports import Store
from paceline.steps.history.notes import note_set_back
from paceline.steps.history.verify import VerifyReport, verify
from tests.world.support.actors import EXPIRE_MS, KEEP_MS
from tests.world.support.broken import Broken
from tests.world.support.job_world import JobWorld
from tests.world.support.seeded import Damage, Opener, Seeded
from tests.world.support.world import World

GOES_ON = (Broken, AssertionError, LookupError)
"""Errors that a world ignores to go on with a broken store."""


def judged(world: Seeded, store: Store | None = None) -> VerifyReport:
    """Judges the world's store. Every daemon sees its own clock go back, so each set-back is noted first."""
    store = store or world._real[0]
    for from_ms, to_ms in world.set_backs:
        note_set_back(store, from_ms=from_ms, to_ms=to_ms)
    rules = Rules(world.now_ms, keep_ms=KEEP_MS, expire_ms=EXPIRE_MS)
    return verify(store, rules, progress=lambda _done, _total: None)


class Blind:
    """Books that ignore broken promises."""

    def __init__(self, books: Any) -> None:
        self._books = books

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._books, name)
        if not callable(found):
            return found

        def kept(*args: Any, **more: Any) -> Any:
            with suppress(*GOES_ON):
                return found(*args, **more)

        return kept


class BlindWorld(World):
    """The world of monitors with books that ignore broken promises."""

    def __init__(self, seed: int, folder: Path, *, damage: Damage | None = None, opener: Opener | None = None) -> None:
        super().__init__(seed, folder, damage=damage, opener=opener)
        self.ledger = cast("Any", Blind(self.ledger))
        for watched in self._watched:
            watched._ledger = self.ledger

    def begin(self) -> None:
        self._set_clock(self.now_ms)
        for owner in ("ann", "bob", "1-a", "1"):
            self._users.add(owner)

    def live(self, steps: int) -> None:
        self.begin()
        self._live(steps)

    def judged(self) -> VerifyReport:
        return judged(self, cast("Any", self._watched[0])._inner)

    def _step(self) -> None:
        try:
            super()._step()
        except GOES_ON:
            self._cut_in = False

    def _look(self, number: int) -> None:
        """Checks nothing."""


class SteadyWorld(BlindWorld):
    """A world whose clock is right."""

    FLOWS = ((0.70, 1_500), (0.94, 20_000), (1.0, 480_000))


class SteadyJobWorld(JobWorld):
    """A world of jobs whose clock is right."""

    def _jump(self) -> None:
        self.let_pass(3_600_000)


class BlindJobWorld(JobWorld):
    """The world of jobs with books that ignore broken promises."""

    def __init__(self, seed: int, folder: Path, **more: Any) -> None:
        super().__init__(seed, folder, **more)
        self.books = cast("Any", Blind(self.books))
        for watched in self._watched:
            watched._books = self.books

    def judged(self) -> VerifyReport:
        return judged(self)

    def _step(self) -> None:
        try:
            super()._step()
        except GOES_ON:
            self._cut_in = False

    def _look(self, number: int) -> None:
        """Checks nothing."""
