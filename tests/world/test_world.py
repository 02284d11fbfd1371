"""Thousands of steps in CI; more on demand: PACELINE_WORLD_SEEDS=100-200 PACELINE_WORLD_STEPS=20000 pytest tests/world.

A failure tells the seed, the last things that happened, and the line that tells that story again.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import cast

import pytest

from paceline.ports import Store
from tests.world.support.damage import FAULTS, Faulty
from tests.world.support.ledger import Broken
from tests.world.support.world import Damage, World

STEPS = int(os.environ.get("PACELINE_WORLD_STEPS", "1500"))
Maker = Callable[..., World]


def seeds() -> list[int]:
    first, _, last = os.environ.get("PACELINE_WORLD_SEEDS", "1-6").partition("-")
    return list(range(int(first), int(last or first) + 1))


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Maker]:
    with ExitStack() as stack:

        def make(seed: int, *, damage: Damage | None = None, folder: str = "world") -> World:
            place = tmp_path / folder
            place.mkdir(exist_ok=True)
            return stack.enter_context(closing(World(seed, place, damage=damage)))

        yield make


@pytest.mark.parametrize("seed", seeds())
def test_the_promises_hold_whatever_happens(seed: int, make_world: Maker) -> None:
    world = make_world(seed)
    world.run(STEPS)
    assert min(world.crashes, world.interruptions, world.repeats, world.jumps) > STEPS // 200
    assert sum(len(life.runs) for life in world.ledger.lives.values()) > STEPS // 10
    assert world.ledger.superseded


@pytest.mark.parametrize(("fault", "says"), FAULTS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_the_world_notices_a_store_that_breaks_a_promise(fault: type[Faulty], says: str, make_world: Maker) -> None:
    def damage(store: Store) -> Store:
        return cast("Store", fault(store))

    noticed: list[str] = []
    for seed in range(100, 108):
        try:
            make_world(seed, damage=damage).run(400)
        except Broken as broken:
            noticed.append(str(broken))
            break
    assert noticed, f"{fault.__name__} went unnoticed"
    assert re.search(says, noticed[0])
    assert f"PACELINE_WORLD_SEEDS={seed} PACELINE_WORLD_STEPS=400 " in noticed[0]


def test_the_same_seed_tells_the_same_story(make_world: Maker) -> None:
    worlds = [make_world(7, folder=folder) for folder in ("once", "again")]
    for world in worlds:
        world.run(100)
    assert worlds[0].trace == worlds[1].trace
    assert worlds[0].ledger.lives == worlds[1].ledger.lives
