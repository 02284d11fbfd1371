"""Histories of acts: recorded while a machine runs, shortened after a failure, and shown as calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from random import Random
from typing import Any, NamedTuple

from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

REPLAYS_MAX = 400


class Act(NamedTuple):
    """One call of a method of a machine."""

    name: str
    arguments: dict[str, Any]

    def __str__(self) -> str:
        return f"{self.name}({', '.join(f'{name}={value!r}' for name, value in self.arguments.items())})"


class Choices(NamedTuple):
    """An act with all arguments that it may have."""

    name: str
    weight: int
    arguments: dict[str, Sequence[Any]]


def act(weight: int, /, **choices: Sequence[Any]) -> Callable[[Callable[..., None]], Any]:
    """An act of a machine, chosen in proportion to its weight, with one of the choices for each argument.

    It writes itself down in the machine's ``history``.
    """

    def make(function: Callable[..., None]) -> Any:
        @wraps(function)
        def recorded(self: Any, **arguments: Any) -> None:
            self.history.append(Act(function.__name__, arguments))
            function(self, **arguments)

        vars(recorded)["choices"] = Choices(function.__name__, weight, choices)
        return recorded

    return make


def choose_act(machine: type, chance: Random) -> Act:
    """Any act of the machine with any arguments."""
    found = [one for name in dir(machine) if (one := getattr(getattr(machine, name), "choices", None))]
    (chosen,) = chance.choices(found, [one.weight for one in found])
    return Act(chosen.name, {name: chance.choice(values) for name, values in chosen.arguments.items()})


class Failure(NamedTuple):
    """``history``: up to the act that failed."""

    history: tuple[Act, ...]
    error: Exception


class Disagreement(AssertionError):
    """A history on which two stores do not agree, as short as it was found, as calls that can be pasted."""


def explore(machine: type[Any], *, examples: int, steps: int, seeded: int | None) -> None:
    """Tries so many histories; None: the same ones each time. Raises Disagreement with a short failing history.

    Hypothesis chooses the histories. It does not shorten them: that would change every argument too, and each try asks
    a store over the network. Leaving out acts is enough, and takes seconds.
    """
    failures: list[Failure] = []

    class Watched(machine):  # type: ignore[misc]
        def teardown(self) -> None:
            try:
                super().teardown()
            finally:
                if self.failure is not None:
                    failures.append(Failure(tuple(self.history), self.failure))

    chosen = settings(
        max_examples=examples,
        stateful_step_count=steps,
        derandomize=seeded is None,
        database=None,
        deadline=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    try:
        run_state_machine_as_test(Watched if seeded is None else seed(seeded)(Watched), settings=chosen)
    except Exception:
        if not failures:
            raise
    if failures:
        shortest = min(failures, key=lambda one: len(one.history))
        raise Disagreement(show(machine, shorten(machine, shortest))) from None


def replay(machine: type[RuleBasedStateMachine], acts: Sequence[Act]) -> Failure | None:
    """Does the acts on empty stores. None: nothing failed."""
    scene: Any = machine()
    try:
        try:
            for one in acts:
                scene.do(one)
        finally:
            scene.teardown()
    except Exception as error:  # noqa: BLE001  whatever fails is what is looked for
        return Failure(tuple(scene.history), scene.failure or error)
    return None


def shorten(machine: type[RuleBasedStateMachine], failure: Failure) -> Failure:
    """Leaves out acts, many at a time and then one by one, as long as the rest fails too."""
    best, size, left = failure, max(1, len(failure.history) // 2), REPLAYS_MAX
    while left:
        start, shorter = 0, False
        while start < len(best.history) and left:
            left -= 1
            found = replay(machine, best.history[:start] + best.history[start + size :])
            if found is not None and type(found.error) is type(best.error):
                best, shorter = found, True
            else:
                start += size
        if size == 1 and not shorter:
            break
        size = max(1, size // 2)
    return best


def show(machine: type[RuleBasedStateMachine], failure: Failure) -> str:
    lines = [f"machine = {machine.__name__}()", *(f"machine.{one}" for one in failure.history), "machine.teardown()"]
    return "\n".join([f"{type(failure.error).__name__}: {failure.error}", "The shortest history found:", *lines])
