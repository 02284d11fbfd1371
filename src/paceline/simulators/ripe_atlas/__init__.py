"""A model of the RIPE Atlas API, on a real HTTP server: for the demo, for tests and for simulation."""

from paceline.simulators.ripe_atlas.accounts import (
    POOL_PERMISSIONS,
    Limits,
    SimulatedAccount,
    SimulatedGrant,
    SimulatedKey,
)
from paceline.simulators.ripe_atlas.clock import SimulatorClock
from paceline.simulators.ripe_atlas.faults import Fault
from paceline.simulators.ripe_atlas.messages import AtlasAnswer, AtlasRequest
from paceline.simulators.ripe_atlas.model import Model
from paceline.simulators.ripe_atlas.server import AtlasSimulator

__all__ = [
    "POOL_PERMISSIONS",
    "AtlasAnswer",
    "AtlasRequest",
    "AtlasSimulator",
    "Fault",
    "Limits",
    "Model",
    "SimulatedAccount",
    "SimulatedGrant",
    "SimulatedKey",
    "SimulatorClock",
]
