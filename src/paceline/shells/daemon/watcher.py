"""The loop that looks at the store's files, so that a missing or damaged store is noticed and logged at once."""

from __future__ import annotations

import structlog

from paceline.errors import StoreDamaged
from paceline.shells.daemon.loop import LoopTurn
from paceline.wiring import System

log = structlog.get_logger("paceline")

LOOK_MS = 500
"""Readiness must fail within two seconds after the damage, also on a busy machine."""


class Watcher:
    """Logs once that the store is damaged; the other loops notice it too, and log nothing."""

    def __init__(self, system: System) -> None:
        self._system = system
        self._said = False

    def turn(self) -> LoopTurn:
        try:
            self._system.store.watch()
        except StoreDamaged as error:
            if not self._said:
                log.error("store_damaged", store=self._system.settings.store, detail=error.detail)  # noqa: TRY400  it has its reason
            self._said = True
        return LoopTurn(LOOK_MS)
