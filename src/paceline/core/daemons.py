"""Daemons and their heartbeats, from which follows which of them still run."""

from __future__ import annotations

from typing import Literal, NamedTuple

import msgspec

BEATS_MISSED_MAX = 3
GRACE_MS = 5_000
"""A busy machine may be later by this much."""

DaemonKind = Literal["up", "worker"]


class Daemon(msgspec.Struct, frozen=True):
    """A process with loops. ``url``: where its API is; a worker has none. ``every_ms``: how often it writes its row."""

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
    """How many runs of monitors are leased, and when the last of these leases ends."""

    runs: int
    until_ms: int | None
