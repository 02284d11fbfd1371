"""The REST API."""

from paceline.shells.api.app import build_app
from paceline.shells.api.arrivals import Arrivals
from paceline.shells.api.parts import ApiHooks, LoopHealth
from paceline.shells.api.serving import server_config

__all__ = ["ApiHooks", "Arrivals", "LoopHealth", "build_app", "server_config"]
