"""Whose turn it is, and how evenly accounts are used: the real steps in a world without faults."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from paceline.core.jobs.job import JobLimits
from paceline.core.users import UserEdit
from paceline.simulators.ripe_atlas import SimulatedLimits
from paceline.steps.jobs.submit import submit_job
from tests.world.support.job_actors import Place
from tests.world.support.job_world import JobWorld
from tests.world.support.seeded import SECOND_MS

ROOMY = SimulatedLimits(concurrent=20_000, daily_results=10_000_000, daily_credits=100_000_000)
SENDS = 400
Maker = Callable[[Sequence[Place]], JobWorld]


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Maker]:
    with ExitStack() as stack:

        def make(places: Sequence[Place]) -> JobWorld:
            world = JobWorld(11, tmp_path, places=tuple(places), target_cap=100_000)
            stack.enter_context(closing(world))
            world.begin()
            for owner in ("ann", "bob", "cat", "dan"):
                world.store.edit_user(owner, UserEdit(daily_credits=10**9))
            return world

        yield make


def submit(world: JobWorld, owner: str, probes: Sequence[int]) -> None:
    document = {
        "measurements": [
            {
                "definitions": [{"type": "ping", "af": 4, "target": "192.0.2.1", "description": "a test"}],
                "probes": [{"type": "area", "value": "WW", "requested": requested}],
                "is_oneoff": True,
            }
            for requested in probes
        ]
    }
    body = json.dumps(document).encode()
    submit_job(world.store, owner, body, limits=JobLimits(), now_ms=world.now_ms)


def served(world: JobWorld) -> Counter[str]:
    """How many of each user have been sent."""
    owners = {job.number: job.owner for job in world.store.jobs(None, before=None, limit=100)}
    return Counter(owners[handle >> 14] for handle in world.books.sent)


def test_user_with_one_measurement_is_served_soon_beside_a_user_with_ten_thousand(make_world: Maker) -> None:
    world = make_world([Place("lab", 1, ROOMY)])
    submit(world, "bob", [1] * 10_000)
    for _ in range(5):
        assert world.daemons[0].dispatch() == "sent"
    submit(world, "ann", [1])
    for _ in range(2):
        assert world.daemons[0].dispatch() == "sent"
    assert served(world) == {"bob": 6, "ann": 1}


def test_users_with_equal_demand_are_served_equally_by_any_sender(make_world: Maker) -> None:
    world = make_world([Place("lab", 2, ROOMY)])
    for owner, count in (("ann", 40), ("bob", 40), ("cat", 40), ("dan", 10)):
        submit(world, owner, [1 + index % 5 for index in range(count)])
    for number in range(120):
        assert world.daemons[number % 2].dispatch() == "sent"
        counts = served(world)
        waiting = [counts[owner] for owner in ("ann", "bob", "cat")]
        assert max(waiting) - min(waiting) <= 1
        assert counts["dan"] >= min(10, *waiting) - 1


def jain(shares: Sequence[float]) -> float:
    return sum(shares) ** 2 / (len(shares) * sum(share * share for share in shares))


def evenness(world: JobWorld, *, gap_ms: int) -> tuple[float, float]:
    """Jain's index of credits and of sends, each account's as a share of its own limits, after many sends."""
    submit(world, "ann", [world.random.choice((1, 1, 2, 3, 5, 8)) for _ in range(SENDS)])
    for number in range(10_000):
        world.daemons[number % 2].dispatch()
        if number % 10 == 0:
            world.daemons[number % 2].follow()
            world.daemons[number % 2].sync()
        world.let_pass(gap_ms)
        if len(world.books.sent) == SENDS:
            break
    assert len(world.books.sent) == SENDS
    at_ripe = world.simulator.world.measurements.values()
    spend = Counter[str]()
    sends = Counter(one.account for one in at_ripe)
    for one in at_ripe:
        spend[one.account] += one.requested * one.price
    share = [
        (spend[place.name] / place.limits.daily_credits, sends[place.name] / place.limits.daily_results)
        for place in world.places
    ]
    return jain([one for one, _ in share]), jain([one for _, one in share])


@pytest.mark.parametrize("gap_s", [30, 6], ids=["slots to spare", "every slot taken"])
@pytest.mark.parametrize("scales", [(1, 1, 1, 1, 1), (1, 2, 3)], ids=["equal", "unequal"])
def test_accounts_are_used_evenly_and_in_proportion_to_their_limits(
    gap_s: int, scales: tuple[int, ...], make_world: Maker
) -> None:
    places = [
        Place(
            f"account-{number}",
            1 + number % 3,
            SimulatedLimits(concurrent=8 * scale, daily_results=6_000 * scale, daily_credits=60_000 * scale),
        )
        for number, scale in enumerate(scales)
    ]
    world = make_world(places)
    by_credits, by_sends = evenness(world, gap_ms=gap_s * SECOND_MS)
    print(f"Jain's index, {SENDS} sends to {len(places)} accounts: credits {by_credits:.4f}, sends {by_sends:.4f}")
    assert min(by_credits, by_sends) >= 0.99
    assert not any(world.truth.refusals(place.name) for place in places)
