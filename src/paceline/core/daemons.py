"""Processes that work on a store say so again and again; from that follows which of them still run."""

from __future__ import annotations

from typing import Literal

import msgspec

BEATS_MISSED_MAX = 3
GRACE_MS = 5_000
"""A busy machine may be late by this much on top."""

DaemonKind = Literal["up", "worker"]


class Daemon(msgspec.Struct, frozen=True):
    """A process with loops. ``url``: where its API is; empty for a worker. ``every_ms``: how often it says so."""

    id: str
    kind: DaemonKind
    host: str
    pid: int
    url: str
    started_ms: int
    beat_ms: int
    every_ms: int


def is_gone(daemon: Daemon, *, now_ms: int) -> bool:
    """Whether it has missed so many beats that it has ended without saying so."""
    return now_ms - daemon.beat_ms > BEATS_MISSED_MAX * daemon.every_ms + GRACE_MS
