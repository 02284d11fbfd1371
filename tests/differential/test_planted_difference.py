"""The machine itself: it finds a difference that was planted, and shows a short history of it that can be pasted."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from paceline.ports import Store
from tests.contract.conftest import memory_engine
from tests.differential.support.history import Disagreement, explore
from tests.differential.support.machine import Machine
from tests.differential.support.monitor_rules import MonitorRules
from tests.differential.support.pair import Different

ACTS_MAX = 5


class Wrapper:
    """A store in front of another one."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def __getattr__(self, name: str) -> Any:
        return getattr(self.store, name)


class WrongAnswer(Wrapper):
    """Answers rightly twice; from then on no user that it removes was there."""

    removed = 0

    def remove_user(self, user_id: str) -> bool:
        self.removed += self.store.remove_user(user_id)
        return self.removed < 3


class WrongState(Wrapper):
    """Answers every act rightly and shows two users at most."""

    def users(self, *, after: str, limit: int) -> list[Any]:
        return self.store.users(after=after, limit=limit)[:2]


class AnswerMachine(MonitorRules):
    wrapper: type[Wrapper] = WrongAnswer

    @classmethod
    def opener(cls, stack: ExitStack) -> tuple[Store, Any]:
        right, wrong = (memory_engine(stack, Path())() for _ in range(2))
        return right, cls.wrapper(wrong)


class StateMachine(AnswerMachine):
    wrapper = WrongState


@pytest.mark.parametrize("machine", [AnswerMachine, StateMachine])
def test_machine_finds_planted_difference_and_shows_short_history(machine: type[Machine]) -> None:
    with pytest.raises(Disagreement) as found:
        explore(machine, examples=50, steps=40, seeded=None)
    shown = str(found.value)
    calls = [line for line in shown.splitlines() if line.startswith("machine")]
    assert "the stores disagree on" in shown
    assert len(calls) <= ACTS_MAX + 2, shown  # and two for the begin and the end
    with pytest.raises(Different):
        exec("\n".join(calls), {machine.__name__: machine})  # noqa: S102  what a person would paste
