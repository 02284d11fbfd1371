"""Daemons that work on a store. Each writes its row every few seconds; the rows are in no export."""

from __future__ import annotations

from typing import Literal

import msgspec

from paceline.core.daemons import Daemon, DaemonKind, is_gone
from paceline.core.instants import to_text
from paceline.core.schema import Instant
from paceline.ports import Store
from paceline.ports.items import ItemStore
from paceline.steps.collection import Collection
from paceline.steps.views.to_view import to_view

DAEMONS = Collection("daemon", Daemon)
DAEMONS_MAX = 100
ROWS_MAX = 1_000
KEEP_MS = 86_400_000
"""Time for which a daemon that ended without deleting its row is shown as gone."""


class DaemonView(msgspec.Struct, frozen=True):
    """A process that works on the store. ``url``: its API; null for a worker. State ``gone``: it stopped reporting."""

    id: str
    kind: DaemonKind
    state: Literal["running", "gone"]
    host: str
    pid: int
    url: str | None
    started_at: Instant
    seen_at: Instant


def daemon_views(store: ItemStore, *, now_ms: int) -> list[DaemonView]:
    """Return the daemons, the one seen last first."""
    return [_view(one, now_ms=now_ms) for one in list_daemons(store, limit=DAEMONS_MAX)]


def list_daemons(store: ItemStore, *, limit: int) -> list[Daemon]:
    """Return the stored daemons, the one seen last first."""
    found = [one.value for one in DAEMONS.page(store, limit=ROWS_MAX) if one.value is not None]
    return sorted(found, key=lambda one: (-one.beat_ms, one.id))[:limit]


def count_daemons(store: Store, *, now_ms: int) -> int:
    """Return how many daemons run on the store; at least one on AWS, where functions may do their work."""
    running = sum(not is_gone(one, now_ms=now_ms) for one in list_daemons(store, limit=DAEMONS_MAX))
    return max(running, 1) if store.traits.remote else running


def beat(store: ItemStore, daemon: Daemon) -> None:
    """Write the daemon's row, or write it again."""
    DAEMONS.put(store, daemon.id, daemon)


def forget_daemon(store: ItemStore, daemon_id: str) -> None:
    """Delete the row of a daemon that ends as it should."""
    DAEMONS.delete(store, daemon_id)


def forget_gone(store: ItemStore, *, now_ms: int) -> int:
    """Delete the rows of daemons that were last seen KEEP_MS ago. Return how many."""
    return forget_daemons(store, before_ms=now_ms - KEEP_MS)


def forget_daemons(store: ItemStore, *, before_ms: int) -> int:
    """Delete the rows of daemons that were last seen before, unless one is seen meanwhile. Return how many."""
    old = [one for one in DAEMONS.page(store, limit=ROWS_MAX) if one.value and one.value.beat_ms < before_ms]
    return sum(DAEMONS.delete_found(store, one) for one in old)


def _view(daemon: Daemon, *, now_ms: int) -> DaemonView:
    state = "gone" if is_gone(daemon, now_ms=now_ms) else "running"
    return to_view(daemon, DaemonView, state=state, url=daemon.url or None, seen_at=to_text(daemon.beat_ms))
