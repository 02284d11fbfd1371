"""What every machine has: two stores, one clock, users, and the comparison of everything the stores show."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from paceline.core.daemons import Daemon
from paceline.core.users import Role, UserEdit
from paceline.ports import Store
from paceline.steps import access
from paceline.steps.upkeep.clock import LongestWaits, watch_clock
from paceline.steps.upkeep.daemons import beat
from tests.contract.conftest import aws_engine, memory_engine
from tests.contract.support.stage import DAY_MS, HOUR_MS, MINUTE_MS, T0_MS
from tests.differential.support import views
from tests.differential.support.history import Act, act, choose_act
from tests.differential.support.pair import Both, Damaged, Pair, Side

SECRET_KEY = b"k" * 32
USERS = ("ann", "bob", "cy")
STEPS_MS = (1, 1_000, 1_000, 5_000, 30_000, MINUTE_MS, MINUTE_MS, 61_000, 2 * MINUTE_MS, 5 * MINUTE_MS, HOUR_MS, DAY_MS)
WAITS = LongestWaits(run_ms_max=5 * MINUTE_MS, call_ms_max=HOUR_MS, send_ms_max=HOUR_MS)

a_user = USERS
a_pick = (0, 0, 0, 0, 1, 1, 2, 3, 5, 7)
"""Which of the things at hand, counted from the newest."""


@contextmanager
def one_phase() -> Iterator[None]:
    """Chance that follows from a name is the same for all names: some have a store's own number in them."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in sys.modules if name.startswith("paceline.")]:
            if hasattr(sys.modules[name], "stable_fraction"):
                patch.setattr(sys.modules[name], "stable_fraction", lambda _name: 0.5)
        yield


@contextmanager
def deleted_at_once() -> Iterator[None]:
    """AWS keeps settled runs for up to an hour longer, to delete several of a monitor together: here it does not."""
    from paceline.adapters.aws.monitors import upkeep

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(upkeep, "KEPT_MORE_MS", 0)
        yield


def open_both(stack: ExitStack) -> tuple[Store, Store]:
    """An empty SQLite store in memory and an empty AWS store with tables of its own."""
    return memory_engine(stack, Path())(), aws_engine(stack, Path())()


class Machine(RuleBasedStateMachine):
    """Each rule does the same to both stores at the same virtual time. A failing history can be pasted as it is."""

    opener: ClassVar[Any] = staticmethod(open_both)

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.now_ms = T0_MS
        self.failure: Exception | None = None
        self.drawn = 0
        self.history: list[Act] = []
        self.stack.enter_context(one_phase())
        self.stack.enter_context(deleted_at_once())
        sqlite, aws = type(self).opener(self.stack)
        self.pair = Pair(sqlite=sqlite, aws=aws)
        daemon = Daemon("up-1", "up", "host", 7, "", T0_MS, T0_MS, every_ms=10**12)
        for store in (sqlite, aws):  # without one nothing is sent from a file, while on AWS there may be functions
            beat(store, daemon)
        for user in USERS[:2]:
            self.add_user(user=user, role="user")
        self.furnish()
        self.history.clear()

    def furnish(self) -> None:
        """Makes what the acts of a machine work on."""

    def ask(self, act: str, ask: Callable[[Side], object], *, arrange: Callable[[Any], object] | None = None) -> Both:
        try:
            return self.pair.ask(f"{act} at T0 + {self.now_ms - T0_MS} ms", ask, arrange=arrange)
        except Exception as error:
            self.failure = error
            raise

    @initialize(chance=st.randoms(use_true_random=True))
    def begin(self, chance: Random) -> None:
        """Chance of its own: what hypothesis chooses itself is often the same again, and such histories are shallow."""
        self.chance = chance

    @rule()
    def step(self) -> None:
        self.do(choose_act(type(self), self.chance))

    def do(self, act: Act) -> None:
        if self.can(act.name):
            getattr(self, act.name)(**act.arguments)

    def can(self, act: str) -> bool:
        """Whether the act has something to work on."""
        del act
        return True

    def draw_bytes(self) -> bytes:
        """Bytes that were not drawn before, as chance would give them."""
        self.drawn += 1
        return str(self.drawn).encode().rjust(32, b".")

    def teardown(self) -> None:
        try:
            if self.failure is None:
                self.compare()
        finally:
            self.stack.close()

    # -- time

    @act(10, ms=STEPS_MS)
    def pass_time(self, ms: int) -> None:
        self.now_ms += ms

    @act(1, ms=STEPS_MS)
    def set_clock_back(self, ms: int) -> None:
        """A daemon sees its own clock go back."""
        self.now_ms -= ms
        self._watch_clock(stepped_ms=ms)

    @act(1)
    def note_time(self) -> None:
        """A daemon sees nothing of its own clock, and may see by the store that it was set back before."""
        self._watch_clock(stepped_ms=0)

    def _watch_clock(self, *, stepped_ms: int) -> None:
        def watch(side: Side) -> object:
            return watch_clock(side.store, read_ms=lambda: self.now_ms, stepped_ms=stepped_ms, apart_ms=0, waits=WAITS)

        self.ask("watch_clock", watch)

    # -- users and tokens

    @act(1, user=a_user, role=("user", "admin"))
    def add_user(self, user: str, role: Role) -> None:
        drawn = self.draw_bytes()

        def add(side: Side) -> object:
            return access.add_user(
                side.store,
                user,
                role=role,
                daily_credits=1_000,
                token_bytes=drawn,
                secret_key=SECRET_KEY,
                now_ms=self.now_ms,
            )

        self.ask("add_user", add)

    @act(
        2,
        user=a_user,
        role=(None, "user", "admin"),
        daily_credits=(None, 0, 100, 10_000),
        disabled=(None, True, False),
    )
    def edit_user(self, user: str, role: Role | None, daily_credits: int | None, *, disabled: bool | None) -> None:
        edit = UserEdit(role, daily_credits, disabled)
        self.ask("edit_user", lambda side: access.edit_user(side.store, user, edit, now_ms=self.now_ms))

    @act(1, user=a_user)
    def remove_user(self, user: str) -> None:
        self.ask("remove_user", lambda side: access.remove_user(side.store, user, now_ms=self.now_ms))

    @act(1, user=a_user)
    def add_token(self, user: str) -> None:
        drawn = self.draw_bytes()

        def add(side: Side) -> object:
            return access.add_token(
                side.store, user, label="more", token_bytes=drawn, secret_key=SECRET_KEY, now_ms=self.now_ms
            )

        self.ask("add_token", add)

    @act(1, user=a_user, pick=a_pick)
    def revoke_token(self, user: str, pick: int) -> None:
        def revoke(side: Side) -> object:
            tokens = side.store.tokens(user)
            token_id = tokens[pick % len(tokens)].id if tokens else "none"
            access.revoke_token(side.store, user, token_id)
            return token_id

        self.ask("revoke_token", revoke)

    # -- everything that is shown

    def compare(self) -> None:
        """The exported state, all views, and that both stores are in order."""
        for name, view in views.ALL.items():
            self.ask(name, partial(_show, view, self.now_ms))
        for side in (self.pair.sqlite, self.pair.aws):
            wrong = side.store.verify()
            if wrong:
                self.failure = Damaged(f"{side.name} is not in order: {wrong}")
                raise self.failure


def _show(view: Callable[[Store, int], object], now_ms: int, side: Side) -> object:
    return view(side.store, now_ms)
