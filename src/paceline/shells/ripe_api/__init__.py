"""The API of RIPE Atlas, version 2, so that RIPE's own clients work against Paceline unchanged."""

from paceline.shells.ripe_api.app import RipeApi

__all__ = ["RipeApi"]
