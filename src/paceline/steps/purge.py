"""Old runs are deleted and runs that nobody claimed are ended, so that the store does not grow for ever."""

from __future__ import annotations

from paceline.ports import PurgeReport, Store

RUNS_MAX = 5_000


def purge(store: Store, *, keep_ms: int, expire_ms: int, now_ms: int, limit: int = RUNS_MAX) -> PurgeReport:
    """One bounded pass; ``keep_ms`` for settled runs, ``expire_ms`` for waiting ones."""
    return store.purge(settled_before_ms=now_ms - keep_ms, due_before_ms=now_ms - expire_ms, now_ms=now_ms, limit=limit)
