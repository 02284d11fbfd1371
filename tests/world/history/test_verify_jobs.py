"""``paceline verify`` notices stores of jobs that broke a promise, where the ledger has a trace of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import cast

import pytest

from paceline.ports import Store
from tests.world.history.support.verified import BlindJobWorld
from tests.world.support import job_damage
from tests.world.support.damage import Faulty
from tests.world.support.job_damage import JOB_FAULTS
from tests.world.support.stories import worlds

Maker = Callable[..., BlindJobWorld]
SEEN: dict[type[Faulty], str] = {
    job_damage.SendsAgainAfterALostReply: "once",
    job_damage.LooksOnce: "once",
    job_damage.RefundsTheUnknown: "once",
    job_damage.ForgetsIdempotencyKeys: "once",
    job_damage.CallsEverythingDone: "nothing lost",
    job_damage.ChargesTheMost: "within budget",
    job_damage.AdmitsOverTheLimit: "within budget",
    job_damage.OverwritesItsCounters: "within budget",
    job_damage.FreesSlotsTooSoon: "within budget",
}


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Maker]:
    with worlds(BlindJobWorld, tmp_path) as make:
        yield make


def test_verify_knows_every_fault_of_jobs() -> None:
    assert JOB_FAULTS.keys() == SEEN.keys()


@pytest.mark.parametrize(("fault", "promise"), SEEN.items(), ids=lambda value: getattr(value, "__name__", ""))
def test_verify_notices_a_damaged_store_of_jobs(fault: type[Faulty], promise: str, make_world: Maker) -> None:
    for seed in range(100, 112):
        world = make_world(seed, damage=lambda store: cast("Store", fault(store)), lag_ms=100_000)
        world.live(300)
        broken = {verdict.promise for verdict in world.judged().verdicts if not verdict.passed}
        if broken:
            assert broken == {promise}
            return
    raise AssertionError(f"{fault.__name__} went unnoticed")
