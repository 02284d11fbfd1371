"""A model of the RIPE Atlas API, on a real HTTP server: for the demo, for tests and for simulation."""

from paceline.simulators.ripe_atlas.accounts import (
    POOL_PERMISSIONS,
    SimulatedAccount,
    SimulatedGrant,
    SimulatedKey,
    SimulatedLimits,
)
from paceline.simulators.ripe_atlas.clock import SimulatorClock
from paceline.simulators.ripe_atlas.faults import Fault
from paceline.simulators.ripe_atlas.messages import AtlasAnswer, AtlasRequest
from paceline.simulators.ripe_atlas.model import SimulatorModel
from paceline.simulators.ripe_atlas.server import AtlasSimulator

__all__ = [
    "POOL_PERMISSIONS",
    "AtlasAnswer",
    "AtlasRequest",
    "AtlasSimulator",
    "Fault",
    "SimulatedAccount",
    "SimulatedGrant",
    "SimulatedKey",
    "SimulatedLimits",
    "SimulatorClock",
    "SimulatorModel",
]
