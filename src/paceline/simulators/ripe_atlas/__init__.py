"""A model of the RIPE Atlas API, on a real HTTP server: for the demo, for tests and for simulation."""

from paceline.simulators.ripe_atlas.accounts import POOL_PERMISSIONS, Account, Grant, Key, Limits
from paceline.simulators.ripe_atlas.clock import SimulatorClock
from paceline.simulators.ripe_atlas.faults import Fault
from paceline.simulators.ripe_atlas.messages import Answer, Request
from paceline.simulators.ripe_atlas.model import Model
from paceline.simulators.ripe_atlas.server import AtlasSimulator

__all__ = [
    "POOL_PERMISSIONS",
    "Account",
    "Answer",
    "AtlasSimulator",
    "Fault",
    "Grant",
    "Key",
    "Limits",
    "Model",
    "Request",
    "SimulatorClock",
]
