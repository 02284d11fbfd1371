"""The REST API. What serves it, ``serving``, is imported by those who serve: a function behind API Gateway does not."""

from paceline.shells.api.app import build_app
from paceline.shells.api.arrivals import Arrivals
from paceline.shells.api.parts import ApiHooks, LoopHealth

__all__ = ["ApiHooks", "Arrivals", "LoopHealth", "build_app"]
