"""Which processes work on the store, and what is out with a lease that has not ended."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from paceline.core.daemons import Daemon


class Leases(NamedTuple):
    """Runs of monitors that somebody has, and when the last of these leases ends."""

    runs: int
    until_ms: int | None


class DaemonStore(Protocol):
    """Rows of daemons are of this store alone: they are in no export."""

    def beat(self, daemon: Daemon) -> None:
        """Writes its row, or writes it again."""

    def daemons(self, *, limit: int) -> list[Daemon]:
        """Those that were seen last, first."""

    def forget_daemon(self, daemon_id: str) -> None:
        """It has ended as it should."""

    def forget_daemons(self, *, before_ms: int) -> int:
        """Those that were last seen before; how many they were."""

    def leases(self, *, now_ms: int) -> Leases:
        """What may still be reported. A run whose lease has ended waits for the next claim, and is not counted."""
