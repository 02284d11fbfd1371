"""The REST API.

Importing it does not import its server, ``serving``, which a function behind API Gateway does not need.
"""

from paceline.shells.api.http.app import build_app
from paceline.shells.api.http.claim_signal import ClaimSignal
from paceline.shells.api.http.context import ApiHooks, LoopHealth

__all__ = ["ApiHooks", "ClaimSignal", "LoopHealth", "build_app"]
