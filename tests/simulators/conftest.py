from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from paceline.simulators.ripe_atlas import AtlasSimulator, SimulatorClock, SimulatorModel
from tests.shells.cli.support.program import Program
from tests.simulators.support.atlas_client import START_MS, Client


@pytest.fixture
def simulator() -> Iterator[AtlasSimulator]:
    """On a clock that only moves when told."""
    clock = SimulatorClock(start_ms=START_MS, speed=0)
    with AtlasSimulator(SimulatorModel(index_lag_ms=0), clock=clock) as running:
        yield running
        assert running.defects == []


@pytest.fixture
def client(simulator: AtlasSimulator) -> Client:
    return Client(simulator.base_url, simulator.add_account("alice")[0])


@pytest.fixture
def program(tmp_path: Path) -> Program:
    return Program(tmp_path)
