"""Batches: thousands of steps in CI; more on demand, as for monitors."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.values import ClaimedCall
from tests.world.history.support.verified import judged
from tests.world.support.batch_world import BatchWorld
from tests.world.support.damage import Faulty
from tests.world.support.seeded import Damage
from tests.world.support.stories import STEPS, noticed, seeds, worlds

Maker = Callable[..., BatchWorld]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Maker]:
    with worlds(BatchWorld, tmp_path) as make:
        yield make


@pytest.mark.parametrize("seed", seeds())
def test_batches_keep_the_promises_in_random_histories(seed: int, make_world: Maker) -> None:
    world = make_world(seed)
    world.run(STEPS)
    assert min(world.crashes, world.interruptions, world.repeats, world.jumps) > STEPS // 300
    assert judged(world).passed, judged(world)
    assert len(world.ledger.runs) > STEPS // 100
    assert sum(book.state == "done" for book in world.ledger.runs.values()) > STEPS // 200


class SettlesAnything(Faulty):
    """Says that it has settled what it refused."""

    def settle_calls(self, settlements: Sequence[CallSettlement]) -> list[bool]:
        self._inner.settle_calls(settlements)
        return [True] * len(settlements)


class ForgetsWhatWasLost(Faulty):
    def claim_calls(self, **more: Any) -> list[ClaimedCall]:
        return [replace(item, lost=False) for item in self._inner.claim_calls(**more)]


class LeasesTooShort(Faulty):
    def claim_calls(self, *, now_ms: int, runs_max: int, lease_ms: int) -> list[ClaimedCall]:
        claimed = self._inner.claim_calls(now_ms=now_ms, runs_max=runs_max, lease_ms=-59_000)
        return [replace(item, lease_until_ms=item.lease_until_ms + 59_000 + lease_ms) for item in claimed]


class CallsPausedProviders(Faulty):
    def put_provider(self, put: Any, *, now_ms: int) -> Any:
        result = self._inner.put_provider(replace(put, spec=replace(put.spec, paused=False)), now_ms=now_ms)
        told = replace(result.provider, spec=put.spec) if result.provider is not None else None
        return replace(result, provider=told)


class RunsDeletedRecords(Faulty):
    def remove_record(self, batch: Any, record_id: str) -> bool:
        return self._inner.record(batch, record_id) is not None


FAULTS: dict[type[Faulty], str] = {
    SettlesAnything: "promise [59]: ",
    ForgetsWhatWasLost: "promise 9: ",
    LeasesTooShort: "promise [569]: ",
    CallsPausedProviders: "promise 6: .* is paused",
    RunsDeletedRecords: "promise 3: ",
}


@pytest.mark.parametrize(("fault", "says"), FAULTS.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_world_of_batches_notices_a_broken_store(fault: type[Faulty], says: str, make_world: Maker) -> None:
    def tell(seed: int, damage: Damage) -> None:
        make_world(seed, damage=damage).run(600)

    seed, words = noticed(fault, tell, tried=range(100, 108))
    assert re.search(says, words)
    assert f"PACELINE_WORLD_SEEDS={seed} PACELINE_WORLD_STEPS=600 " in words


def test_same_seed_gives_the_same_history_of_batches(make_world: Maker) -> None:
    worlds = [make_world(4, folder_name=folder) for folder in ("once", "again")]
    for world in worlds:
        world.run(100)
    assert worlds[0].trace == worlds[1].trace
    assert worlds[0].ledger.runs == worlds[1].ledger.runs
