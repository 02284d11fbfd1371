"""The seeded worlds on DynamoDB and SQS with network faults: the promises hold, with the same history as on SQLite.

Between boto3 and the emulator a proxy loses, doubles, delays, reorders, throttles and halves requests by seed:
its faults must not show in the history. SQLite runs without faults.

More on demand: PACELINE_WORLD_SEEDS=20-25 PACELINE_WORLD_STEPS=200 pytest tests/aws/test_world.py.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple, cast

import pytest

from paceline.adapters.aws import uptime as aws_uptime
from paceline.adapters.aws.client import tables
from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.monitors import keys as monitors_keys
from paceline.adapters.aws.store import AwsStore
from paceline.adapters.sqlite.monitors import uptime as sqlite_uptime
from paceline.adapters.sqlite.store import SqliteStore
from paceline.ports import Store
from tests.aws.support.fault_proxy import FaultProxy, Faults, fault_proxy
from tests.aws.support.ministack import Emulator, delete_tables, guarded_clients
from tests.aws.support.world_engines import (
    Agreed,
    BriefBatchWorld,
    BriefJobWorld,
    BriefWorld,
    Gap,
    Interrupted,
    LaggingWorld,
    RivalBatchWorld,
)
from tests.world.support.seeded import Opener
from tests.world.support.stories import seeds

pytestmark = [pytest.mark.aws, pytest.mark.slow]

Brief = BriefWorld | BriefBatchWorld | BriefJobWorld
Story = tuple[list[str], list[Any]]
STEPS = int(os.environ.get("PACELINE_WORLD_STEPS", "0"))
CHOSEN = seeds() if "PACELINE_WORLD_SEEDS" in os.environ else None
WEATHER = Faults(
    drop_before=0.04,
    drop_after=0.1,
    throttle=0.04,
    duplicate=0.08,
    delay=0.04,
    reorder=0.04,
    partial=0.1,
    delay_s=0.01,
    overtaken_s_max=0.02,
    reads=0.05,
    # One that is taken twice leaves a gap. That is allowed, but names are made of them, and the jitter of names.
    spared="number#",
)


class Engine(NamedTuple):
    """``near``: for those who only look. ``far``: for those who act, through the proxy."""

    near: Opener
    far: Callable[[Store], Store]
    dynamodb: Any
    proxy: FaultProxy


def stories(seed: int) -> list[int]:
    """Without a choice, the one that tells much in few requests."""
    return [seed] if CHOSEN is None else CHOSEN


@pytest.fixture(scope="module")
def proxy(aws: Emulator) -> Iterator[FaultProxy]:
    with fault_proxy(aws.url) as made:
        yield made


@pytest.fixture(scope="module")
def far_clients(proxy: FaultProxy) -> Iterator[Clients]:
    with guarded_clients(proxy.url) as made:
        yield made


@pytest.fixture
def engine(
    clients: Clients, far_clients: Clients, proxy: FaultProxy, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Engine]:
    # Each look asks every shard, and the world looks all the time: two are as good as sixteen, and much faster here.
    for name, value in {"SHARDS_MAX": 2, "CHANGE_SHARDS": 2, "GENERATIONS_EACH": 3}.items():
        monkeypatch.setattr(monitors_keys, name, value)
    for module in (aws_uptime, sqlite_uptime):  # lives are short here
        monkeypatch.setattr(module, "FOLD_EVERY", 3)
    tables.create(clients, prefix)
    with ExitStack() as opened:

        def far(_near: Store) -> Store:
            return opened.enter_context(closing(AwsStore(prefix, clients=far_clients)))

        yield Engine(lambda: AwsStore(prefix, clients=clients), far, far_clients.dynamodb, proxy)
    proxy.faults = Faults()
    delete_tables(clients, prefix)


def tell(world: Brief, steps: int) -> Story:
    """All that happened, and what came of it."""
    world.trace = deque()
    with closing(world):
        world.run(steps)
        return list(world.trace), world.history()


def tell_twice(seed: int, steps: int, *, here: Brief, there: Brief, proxy: FaultProxy) -> None:
    steps = STEPS or steps
    print(f"seed {seed}: {there.again(steps)}")
    calm = tell(here, steps)
    proxy.begin(seed, WEATHER)
    try:
        stormy = tell(there, steps)
    finally:
        hits = dict(proxy.hits)
        proxy.begin(seed, Faults())
    print(f"hits {hits}")
    assert parting(stormy, calm) is None, f"seed {seed}: {there.again(steps)}"
    assert CHOSEN or min(hits.get(fault, 0) for fault in ("drop_before", "drop_after", "throttle", "duplicate")) > 0
    assert CHOSEN or min(there.crashes, there.interruptions, there.repeats) > 0


def parting(there: Story, here: Story) -> str | None:
    """Where two stories part, with what they had in common before; None: nowhere."""
    for told, what in enumerate(("the trace", "what came of it")):
        lines = list(zip_longest(there[told], here[told]))
        for number, (one, other) in enumerate(lines):
            if one != other:
                before = [str(line) for line, _ in lines[max(0, number - 12) : number]] if not told else []
                return "\n".join([f"{what} parts at {number}:", *before, f"on AWS:    {one}", f"on SQLite: {other}"])
    return None


@pytest.mark.parametrize("seed", stories(14))
def test_monitors_have_the_same_history_on_both_engines(seed: int, engine: Engine, tmp_path: Path) -> None:
    def agreed(store: Store) -> Store:
        return cast("Store", Agreed(store))

    path = str(tmp_path / "w.db")
    here = BriefWorld(seed, tmp_path, opener=lambda: agreed(SqliteStore(path, synchronous="normal")))
    there = BriefWorld(seed, tmp_path, opener=engine.near, damage=lambda store: agreed(engine.far(store)))
    tell_twice(seed, 120, here=here, there=there, proxy=engine.proxy)
    assert CHOSEN or sum(len(life.runs) for life in there.ledger.lives.values()) > 20
    assert CHOSEN or there.set_back > 0


@pytest.mark.parametrize("seed", stories(5))
def test_monitors_keep_the_promises_while_indexes_lag(seed: int, engine: Engine, tmp_path: Path) -> None:
    """An index that lags makes runs late and has no other effect.

    Other processes act between a read and the write that follows: only the condition of the write protects it.
    """

    def agreed(store: Store) -> Store:
        return cast("Store", Interrupted(cast("Store", Agreed(engine.far(store), seen_by=store)), gap))

    gap = Gap(engine.dynamodb)
    with closing(gap), closing(LaggingWorld(seed, tmp_path, opener=engine.near, damage=agreed)) as world:
        print(f"seed {seed}: {world.again(STEPS or 60)}")
        gap.peril = world._peril
        world.catch_up = lambda: setattr(engine.proxy, "faults", Faults())
        engine.proxy.begin(seed, Faults(stale=0.3))
        world.run(STEPS or 60)
    assert CHOSEN or min(engine.proxy.hits["stale"], gap.entered) > 10
    assert CHOSEN or sum(len(life.runs) for life in world.ledger.lives.values()) > 20


@pytest.mark.parametrize("seed", stories(26))
def test_batches_have_the_same_history_on_both_engines(seed: int, engine: Engine, tmp_path: Path) -> None:
    here, there = (
        BriefBatchWorld(seed, tmp_path),
        BriefBatchWorld(seed, tmp_path, opener=engine.near, damage=engine.far),
    )
    tell_twice(seed, 80, here=here, there=there, proxy=engine.proxy)
    assert CHOSEN or sum(run.state == "done" for run in there.ledger.runs.values()) > 4


@pytest.mark.parametrize("seed", stories(26))
def test_batches_keep_the_promises_while_others_write_in_between(seed: int, engine: Engine, tmp_path: Path) -> None:
    gap = Gap(engine.dynamodb)

    def interrupted(store: Store) -> Store:
        return cast("Store", Interrupted(engine.far(store), gap))

    with closing(gap), closing(RivalBatchWorld(seed, tmp_path, opener=engine.near, damage=interrupted)) as world:
        print(f"seed {seed}: {world.again(STEPS or 60)}")
        gap.peril = world._peril
        world.run(STEPS or 60)
    assert CHOSEN or gap.entered > 5


@pytest.mark.parametrize("seed", stories(3))
def test_jobs_have_the_same_history_on_both_engines(seed: int, engine: Engine, tmp_path: Path) -> None:
    here, there = BriefJobWorld(seed, tmp_path), BriefJobWorld(seed, tmp_path, opener=engine.near, damage=engine.far)
    tell_twice(seed, 40, here=here, there=there, proxy=engine.proxy)
    assert CHOSEN or min(there.books.outcomes["sent_again"], len(there.books.ended)) > 2
