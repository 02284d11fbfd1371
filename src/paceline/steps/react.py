"""Recorded changes of definitions drive their entries. Replaying a change is harmless; losing one is impossible."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from paceline.core import schedule
from paceline.core.definition import wish_of
from paceline.ports import Change, Reacted, Store

CHANGES_MAX = 2_000


class ReactReport(NamedTuple):
    reacted: int
    lost: int
    """Entries that moved in between; their changes stay recorded and come up again."""
    more: bool


def react(store: Store, *, now_ms: int, limit: int = CHANGES_MAX) -> ReactReport:
    """One bounded pass over the oldest recorded changes."""
    changes = store.changes(limit=limit, now_ms=now_ms)
    report = react_to(store, changes, now_ms=now_ms)
    return report._replace(more=report.more or len(changes) == limit)


def react_to(store: Store, changes: Sequence[Change], *, now_ms: int) -> ReactReport:
    """To these changes, as they were read or recorded a moment ago."""
    if not changes:
        return ReactReport(0, 0, more=False)
    won = store.react([Reacted(change=change, reaction=_decide(change, now_ms)) for change in changes])
    return ReactReport(sum(won), len(won) - sum(won), more=not all(won))


def react_to_all(store: Store, *, now_ms: int, passes_max: int = 1_000) -> ReactReport:
    """Passes until no change is left; bounded, because another process may keep writing."""
    reacted = lost = 0
    more = True
    for _ in range(passes_max):
        report = react(store, now_ms=now_ms)
        reacted, lost, more = reacted + report.reacted, lost + report.lost, report.more
        if not more:
            break
    return ReactReport(reacted, lost, more)


def _decide(change: Change, now_ms: int) -> schedule.Reaction:
    monitor = change.monitor
    wish = None
    if monitor is not None:
        wish = wish_of(monitor.spec, created_ms=monitor.created_ms, owner_disabled=change.owner_disabled)
    return schedule.react(wish, change.entry, generation=change.generation, now_ms=now_ms)
