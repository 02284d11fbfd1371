"""Thousands of steps in CI; more on demand: PACELINE_WORLD_SEEDS=100-200 PACELINE_WORLD_STEPS=20000 pytest tests/world.

A failure names its seed; PACELINE_WORLD_SEEDS=17 pytest tests/world -k promises tells that story again.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.world.world import World

STEPS = int(os.environ.get("PACELINE_WORLD_STEPS", "1500"))


def seeds() -> list[int]:
    first, _, last = os.environ.get("PACELINE_WORLD_SEEDS", "1-6").partition("-")
    return list(range(int(first), int(last or first) + 1))


@pytest.mark.parametrize("seed", seeds())
def test_the_promises_hold_whatever_happens(seed: int, tmp_path: Path) -> None:
    world = World(seed, tmp_path)
    try:
        world.run(STEPS)
    finally:
        world.close()
