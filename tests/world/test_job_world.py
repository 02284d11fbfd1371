"""Jobs: some seeds in CI; more on demand, as for monitors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.world.history.support.verified import judged
from tests.world.support.damage import Faulty
from tests.world.support.job_damage import JOB_FAULTS
from tests.world.support.job_world import JobWorld
from tests.world.support.seeded import Damage
from tests.world.support.stories import STEPS, noticed, seeds, worlds

Maker = Callable[..., JobWorld]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Maker]:
    with worlds(JobWorld, tmp_path) as make:
        yield make


@pytest.mark.parametrize("seed", seeds())
def test_jobs_keep_the_promises_in_random_histories(seed: int, make_world: Maker) -> None:
    world = make_world(seed)
    world.run(STEPS)
    assert judged(world).passed, judged(world)
    came = world.books.outcomes
    assert min(world.crashes, world.interruptions, world.repeats, world.freezes) > STEPS // 300
    assert min(came["sent"], sum(world.wire.struck.values())) > STEPS // 100
    assert min(came["adopted"], came["sent_again"], came["rejected"], came["not_sent"], world.jumps) > 0
    assert len(world.books.ended) > STEPS // 30


@pytest.mark.parametrize(("fault", "says"), JOB_FAULTS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_world_of_jobs_notices_a_broken_store(fault: type[Faulty], says: str, make_world: Maker) -> None:
    def tell(seed: int, damage: Damage) -> None:
        make_world(seed, damage=damage, lag_ms=100_000).live(400)

    seed, words = noticed(fault, tell, tried=range(100, 112))
    assert re.search(says, words)
    assert f"PACELINE_WORLD_SEEDS={seed} PACELINE_WORLD_STEPS=400 " in words


def test_same_seed_gives_the_same_history_of_jobs(make_world: Maker) -> None:
    worlds = [make_world(7, folder_name=folder) for folder in ("once", "again")]
    for world in worlds:
        world.run(100)
    assert worlds[0].trace == worlds[1].trace
    assert worlds[0].books.last == worlds[1].books.last
