"""Which processes work on the store, as they said themselves."""

from __future__ import annotations

from typing import Literal

import msgspec

from paceline.core.daemons import Daemon, DaemonKind, is_gone
from paceline.core.instants import to_text
from paceline.ports import DaemonStore

DAEMONS_MAX = 100
KEEP_MS = 86_400_000
"""So long one that ended without saying so is shown as gone."""


class DaemonView(msgspec.Struct, frozen=True):
    """A process with loops. ``url``: where its API is; a worker has none. ``gone``: it ended without saying so."""

    id: str
    kind: DaemonKind
    state: Literal["running", "gone"]
    host: str
    pid: int
    url: str | None
    started_at: str
    seen_at: str


def daemon_views(store: DaemonStore, *, now_ms: int) -> list[DaemonView]:
    """Those that were seen last, first."""
    return [_view(one, now_ms=now_ms) for one in store.daemons(limit=DAEMONS_MAX)]


def beat(store: DaemonStore, daemon: Daemon) -> None:
    """Says that it is there, and forgets those that have long been gone."""
    store.beat(daemon)
    store.forget_daemons(before_ms=daemon.beat_ms - KEEP_MS)


def _view(daemon: Daemon, *, now_ms: int) -> DaemonView:
    return DaemonView(
        id=daemon.id,
        kind=daemon.kind,
        state="gone" if is_gone(daemon, now_ms=now_ms) else "running",
        host=daemon.host,
        pid=daemon.pid,
        url=daemon.url or None,
        started_at=to_text(daemon.started_ms),
        seen_at=to_text(daemon.beat_ms),
    )
