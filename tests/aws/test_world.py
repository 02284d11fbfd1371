"""The seeded worlds on DynamoDB and SQS: the promises hold, and one seed tells the same story as on SQLite.

More on demand: PACELINE_WORLD_SEEDS=20-25 PACELINE_WORLD_STEPS=200 pytest tests/aws/test_world.py.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from paceline.adapters.aws import monitors_keys, tables
from paceline.adapters.aws.connect import Clients
from paceline.adapters.aws.store import AwsStore
from paceline.adapters.sqlite.store import SqliteStore
from paceline.ports import Store
from tests.aws.world_engines import Agreed, BriefBatchWorld, BriefJobWorld, BriefWorld
from tests.world.seeded import Opener
from tests.world.test_world import seeds

pytestmark = [pytest.mark.aws, pytest.mark.slow]

Brief = BriefWorld | BriefBatchWorld | BriefJobWorld
STEPS = int(os.environ.get("PACELINE_WORLD_STEPS", "0"))
CHOSEN = seeds() if "PACELINE_WORLD_SEEDS" in os.environ else None


def stories(seed: int) -> list[int]:
    """Without a choice, the one that tells much in few requests."""
    return [seed] if CHOSEN is None else CHOSEN


@pytest.fixture
def on_aws(clients: Clients, prefix: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Opener]:
    # Each look asks every shard, and the world looks all the time: two are as good as sixteen, and much faster here.
    for name in ("DUE_SHARDS", "CHECK_SHARDS", "CHANGE_SHARDS"):
        monkeypatch.setattr(monitors_keys, name, 2)
    tables.create(clients, prefix)
    yield lambda: AwsStore(prefix, clients=clients)
    tables.destroy(clients, prefix)


def tell(world: Brief, steps: int) -> tuple[list[str], list[Any]]:
    """All that happened, and what came of it."""
    world.trace = deque()
    with closing(world):
        world.run(STEPS or steps)
        return list(world.trace), world.history()


def eventful(world: Brief) -> bool:
    """Only those that were chosen for it are sure to be."""
    return min(world.crashes, world.interruptions, world.repeats) > 0


@pytest.mark.parametrize("seed", stories(7))
def test_monitors_tell_the_same_story_on_both_engines(seed: int, on_aws: Opener, tmp_path: Path) -> None:
    def agreed(store: Store) -> Store:
        return cast("Store", Agreed(store))

    path = str(tmp_path / "w.db")
    here = BriefWorld(seed, tmp_path, opener=lambda: agreed(SqliteStore(path, synchronous="normal")))
    there = BriefWorld(seed, tmp_path, opener=lambda: agreed(on_aws()))
    assert tell(there, 150) == tell(here, 150)
    assert CHOSEN or eventful(there)
    assert CHOSEN or sum(len(life.runs) for life in there.ledger.lives.values()) > 20


@pytest.mark.parametrize("seed", stories(26))
def test_batches_tell_the_same_story_on_both_engines(seed: int, on_aws: Opener, tmp_path: Path) -> None:
    here, there = BriefBatchWorld(seed, tmp_path), BriefBatchWorld(seed, tmp_path, opener=on_aws)
    assert tell(there, 80) == tell(here, 80)
    assert CHOSEN or eventful(there)
    assert CHOSEN or sum(run.state == "done" for run in there.ledger.runs.values()) > 4


@pytest.mark.parametrize("seed", stories(3))
def test_jobs_tell_the_same_story_on_both_engines(seed: int, on_aws: Opener, tmp_path: Path) -> None:
    here, there = BriefJobWorld(seed, tmp_path), BriefJobWorld(seed, tmp_path, opener=on_aws)
    assert tell(there, 40) == tell(here, 40)
    assert CHOSEN or eventful(there)
    assert CHOSEN or min(there.books.outcomes["sent_again"], len(there.books.ended)) > 2
