"""The REST API. What serves it, ``serving``, is imported by those who serve: a function behind API Gateway does not."""

from paceline.shells.api.http.app import build_app
from paceline.shells.api.http.claim_signal import ClaimSignal
from paceline.shells.api.http.context import ApiHooks, LoopHealth

__all__ = ["ApiHooks", "ClaimSignal", "LoopHealth", "build_app"]
