from __future__ import annotations

from collections.abc import Iterator

import pytest

from paceline.adapters.providers.checks import CheckProvider
from paceline.adapters.providers.ripe_atlas import RipeAtlas
from paceline.simulators.http import ModelHttpServer
from paceline.simulators.ripe_atlas import AtlasSimulator, SimulatorClock
from tests.adapters.providers.support.atlas_stage import CANARY, START_MS
from tests.adapters.providers.support.drive import LOOPBACK, open_provider


@pytest.fixture
def server() -> Iterator[ModelHttpServer]:
    with ModelHttpServer() as running:
        yield running


@pytest.fixture
def provider() -> Iterator[CheckProvider]:
    """A provider that is allowed to reach loopback."""
    opened = open_provider(*LOOPBACK)
    yield opened
    opened.close()


@pytest.fixture
def strict_provider() -> Iterator[CheckProvider]:
    """A provider with the default rule: public addresses only."""
    opened = open_provider()
    yield opened
    opened.close()


@pytest.fixture
def simulator() -> Iterator[AtlasSimulator]:
    """A simulator whose clock the test moves; its lists lag by the default time."""
    with AtlasSimulator(clock=SimulatorClock(start_ms=START_MS, speed=0)) as running:
        yield running
        assert running.defects == []


@pytest.fixture
def key(simulator: AtlasSimulator) -> str:
    simulator.add_account("lab", keys=0)
    return simulator.add_key("lab", secret=CANARY).uuid


@pytest.fixture
def atlas(simulator: AtlasSimulator) -> Iterator[RipeAtlas]:
    opened = RipeAtlas(simulator.base_url)
    yield opened
    opened.close()
