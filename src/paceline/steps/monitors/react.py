"""Reactions: recorded changes of definitions move their entries.

Repeating one is harmless; losing one is impossible.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from paceline.core.monitors import schedule
from paceline.core.monitors.definition import wish_of
from paceline.core.monitors.values import Change, Reacted
from paceline.ports import Store
from paceline.steps.ahead.counts import beside_all, count_cadences
from paceline.steps.monitors.phases import count_moves

CHANGES_MAX = 5_000


class ReactReport(NamedTuple):
    reacted: int
    lost: int
    """Number of entries that moved in between; their changes stay recorded and come up again."""
    more: bool
    followed: list[Reacted]
    """Changes that were reacted to, and how; ``entries_after`` returns the entries after that."""


def react(store: Store, *, now_ms: int, limit: int = CHANGES_MAX) -> ReactReport:
    """Make one bounded pass over the recorded changes."""
    changes = store.changes(limit=limit, now_ms=now_ms)
    report = react_to(store, changes, now_ms=now_ms)
    return report._replace(more=report.more or len(changes) == limit)


def react_to(store: Store, changes: Sequence[Change], *, now_ms: int) -> ReactReport:
    """React to these changes, as they were read or recorded a moment ago."""
    if not changes:
        return ReactReport(0, 0, more=False, followed=[])
    reacted = [Reacted(change, _decide(change, now_ms)) for change in changes]
    won = store.react(reacted, now_ms=now_ms, beside=beside_all(count_moves(reacted), count_cadences(reacted)))
    followed = [item for item, moved in zip(reacted, won, strict=True) if moved]
    return ReactReport(len(followed), len(won) - len(followed), more=not all(won), followed=followed)


def react_to_all(store: Store, *, now_ms: int, passes_max: int = 1_000) -> ReactReport:
    """Make passes until no change is left; bounded, because another process may keep writing."""
    total = ReactReport(0, 0, more=True, followed=[])
    for _ in range(passes_max):
        report = react(store, now_ms=now_ms)
        followed = total.followed + report.followed
        total = ReactReport(total.reacted + report.reacted, total.lost + report.lost, report.more, followed)
        if not report.more:
            break
    return total


def entries_after(reports: Iterable[ReactReport]) -> dict[int, schedule.Entry]:
    """Return the entries after their reactions, by generation; the last reaction counts."""
    entries = {item.change.generation: _entry_after(item) for report in reports for item in report.followed}
    return {generation: entry for generation, entry in entries.items() if entry is not None}


def _decide(change: Change, now_ms: int) -> schedule.Reaction:
    monitor = change.monitor
    wish = None
    if monitor is not None:
        wish = wish_of(monitor.spec, created_ms=monitor.created_ms, owner_disabled=change.owner_disabled)
    return schedule.react(wish, change.entry, generation=change.generation, now_ms=now_ms)


def _entry_after(item: Reacted) -> schedule.Entry | None:
    """Return the entry as the reaction leaves it."""
    entry, monitor = item.change.entry, item.change.monitor
    match item.reaction:
        case schedule.Keep():
            return entry
        case schedule.Remove():
            return None
        case schedule.Arm() | schedule.Rest() as reaction:
            assert monitor is not None
            return schedule.Entry(
                generation=item.change.generation,
                counter=entry.counter if entry else 0,
                revision=monitor.revision,
                due_ms=reaction.due_ms if isinstance(reaction, schedule.Arm) else None,
                cadence=reaction.cadence,
                outgoing=reaction.outgoing,
                last_due_ms=entry.last_due_ms if entry else None,
                queue=reaction.queue,
                lead_ms=reaction.lead_ms if isinstance(reaction, schedule.Arm) else None,
            )
