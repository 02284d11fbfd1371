"""Daemons and their heartbeats, which show which of them still run."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

BEATS_MISSED_MAX = 3
GRACE_MS = 5_000
"""Extra time for a heartbeat on a busy machine."""

DaemonKind = Literal["up", "worker"]


class Daemon(msgspec.Struct, frozen=True):
    """A process with loops.

    ``url``: the address of its API; a worker has none. ``every_ms``: how often it writes its row.
    """

    id: str
    kind: DaemonKind
    host: str
    pid: int
    url: str
    started_ms: int
    beat_ms: int
    every_ms: int


def is_gone(daemon: Daemon, *, now_ms: int) -> bool:
    """Return whether the daemon has missed so many beats that it must have ended."""
    return now_ms - daemon.beat_ms > BEATS_MISSED_MAX * daemon.every_ms + GRACE_MS


class Leases(NamedTuple):
    """Number of leased runs of monitors, and when the last of these leases ends."""

    runs: int
    until_ms: int | None
