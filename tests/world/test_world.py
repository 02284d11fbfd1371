"""Thousands of steps in CI; more on demand: PACELINE_WORLD_SEEDS=100-200 PACELINE_WORLD_STEPS=20000 pytest tests/world.

A failure tells the seed, the last things that happened, and the line that tells that story again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from paceline.adapters.sqlite.monitors import uptime
from tests.world.history.support.verified import judged
from tests.world.support.damage import FAULTS, Faulty
from tests.world.support.seeded import Damage
from tests.world.support.stories import STEPS, noticed, seeds, worlds
from tests.world.support.world import World

Maker = Callable[..., World]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Maker]:
    with pytest.MonkeyPatch.context() as patch, worlds(World, tmp_path) as make:
        patch.setattr(uptime, "FOLD_EVERY", 5)  # else few lives would be long enough to be folded
        yield make


@pytest.mark.parametrize("seed", seeds())
def test_monitors_keep_the_promises_in_random_histories(seed: int, make_world: Maker) -> None:
    world = make_world(seed)
    world.run(STEPS)
    assert min(world.crashes, world.interruptions, world.repeats, world.jumps) > STEPS // 200
    assert sum(len(life.runs) for life in world.ledger.lives.values()) > STEPS // 10
    assert judged(world).passed, judged(world)
    assert world.ledger.superseded
    assert min(world.ledger.alerts.told[event] for event in ("monitor.failing", "monitor.recovered")) > STEPS // 200


@pytest.mark.parametrize(("fault", "says"), FAULTS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_world_of_monitors_notices_a_broken_store(fault: type[Faulty], says: str, make_world: Maker) -> None:
    def tell(seed: int, damage: Damage) -> None:
        make_world(seed, damage=damage).run(400)

    seed, words = noticed(fault, tell, tried=range(100, 124))
    assert re.search(says, words)
    assert f"PACELINE_WORLD_SEEDS={seed} PACELINE_WORLD_STEPS=400 " in words


def test_same_seed_gives_the_same_history_of_monitors(make_world: Maker) -> None:
    worlds = [make_world(7, folder_name=folder) for folder in ("once", "again")]
    for world in worlds:
        world.run(100)
    assert worlds[0].trace == worlds[1].trace
    assert worlds[0].ledger.lives == worlds[1].ledger.lives
