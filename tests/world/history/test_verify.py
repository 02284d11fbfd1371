"""``paceline verify`` notices stores that broke a promise, from the ledger alone: every damage that left a trace.

What a store only says, and does not write, no ledger tells; ``UNSEEN`` lists these faults.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

import pytest

from paceline.errors import PacelineError
from paceline.ports import Store
from tests.world.history.support.verified import BlindWorld, SteadyWorld
from tests.world.support import damage
from tests.world.support.damage import FAULTS, Faulty
from tests.world.support.stories import worlds

Maker = Callable[..., BlindWorld]
UNSEEN: dict[type[Faulty], str] = {
    damage.TellsOfExtraRunsTooSoon: "the answer was wrong, and the store is as it should be",
    damage.DeletesOnlyOnPaper: "the answer was wrong, and the monitor is as if nobody had deleted it",
    damage.FoldsTwice: "the answer was wrong, and the roll-up in the store is right",
}
SEEN: dict[type[Faulty], set[str]] = {
    damage.BelievesAnyCounter: {"once", "in order", "on the grid", "nothing lost"},
    damage.SettlesWithoutFence: {"once"},
    damage.ForgetsWhatWasLost: {"once"},
    damage.ForgetsFailures: {"nothing lost"},
    damage.ForgetsChanges: {"nothing lost"},
    damage.LeasesTooShort: {"once"},
    damage.KeepsDeletedEntries: {"nothing lost"},
    damage.Drifts: {"on the grid", "once"},
    damage.PurgesTooMuch: {"nothing lost"},
    damage.ExpiresTooEarly: {"nothing lost"},
}


STEADY = frozenset({damage.SettlesWithoutFence})
"""They show by a comparison of times, which a clock that is set back often excuses."""


def test_verify_knows_every_fault_of_monitors() -> None:
    assert FAULTS.keys() == SEEN.keys() | UNSEEN.keys()


@pytest.mark.parametrize(("fault", "promises"), SEEN.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_verify_notices_a_damaged_store_of_monitors(fault: type[Faulty], promises: set[str], tmp_path: Path) -> None:
    with worlds(SteadyWorld if fault in STEADY else BlindWorld, tmp_path) as make_world:
        _is_noticed(fault, promises, make_world)


def _is_noticed(fault: type[Faulty], promises: set[str], make_world: Maker) -> None:
    for seed in range(100, 124):
        world = make_world(seed, damage=lambda store: cast("Store", fault(store)))
        try:
            world.live(300)
        except PacelineError as error:
            assert fault is damage.ForgetsChanges, error  # noqa: PT017  # it refuses to go on, and leaves its trace
        broken = {verdict.promise for verdict in world.judged().verdicts if not verdict.passed}
        if broken:
            assert broken <= promises
            return
    raise AssertionError(f"{fault.__name__} went unnoticed")
