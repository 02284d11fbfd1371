"""A daemon's row in the store: written every few seconds, and deleted when the daemon ends in order."""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress

import msgspec

from paceline.core.daemons import Daemon, DaemonKind
from paceline.errors import StoreUnavailable
from paceline.shells.daemon.loop import LoopTurn
from paceline.steps.upkeep import daemons
from paceline.wiring import System


class Heartbeat:
    """Writes the row at every turn, and now and then deletes rows of daemons that are long gone."""

    FORGET_TURNS = 100

    def __init__(self, system: System, *, kind: DaemonKind, url: str = "") -> None:
        self._system = system
        self._turns = 0
        now_ms = system.clock.now_ms()
        self._daemon = Daemon(
            id=secrets.token_hex(8),
            kind=kind,
            host=socket.gethostname(),
            pid=os.getpid(),
            url=url,
            started_ms=now_ms,
            beat_ms=now_ms,
            every_ms=system.traits.beat_ms,
        )

    def begin(self) -> None:
        """Writes the first beat, before anybody is told that the daemon runs."""
        with suppress(StoreUnavailable):  # the loop tries again
            self.turn()

    def turn(self) -> LoopTurn:
        now = msgspec.structs.replace(self._daemon, beat_ms=self._system.clock.now_ms())
        daemons.beat(self._system.store, now)
        if self._turns % self.FORGET_TURNS == 0:
            daemons.forget_gone(self._system.store, now_ms=now.beat_ms)
        self._turns += 1
        return LoopTurn(self._system.traits.beat_ms)

    def end(self) -> None:
        with suppress(StoreUnavailable):  # then the daemon counts as gone after some missed beats
            daemons.forget_daemon(self._system.store, self._daemon.id)
