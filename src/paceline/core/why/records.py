"""Reasons why a record has no run on the day that runs now."""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.batches.batch import Batch, Day, RecordSpec, Window
from paceline.core.why.chain import NOBODY, OVER, START_DAEMON, Link, Why


class RecordFacts(NamedTuple):
    """A record without a run on ``date``, and the facts around it. ``record`` None: it was deleted.

    ``window`` is that date's; ``next_start_ms``: when the next day is planned by itself. ``daemons``: how many run.
    """

    batch: Batch
    date: str
    window: Window
    next_start_ms: int
    record: RecordSpec | None
    day: Day | None
    provider_gone: bool = False
    daemons: int = 1


def why_no_run(facts: RecordFacts, *, now_ms: int) -> Why:
    """Return why the record does not run today: every reason that alone would prevent it."""
    batch, record, name = facts.batch, facts.record, facts.batch.id
    if batch.deleting is not None:
        link = Link("pause", f"Batch {name} is being deleted.", batch.deleting.since_ms, None, OVER)
        return Why(None, "absent", (link,))
    import_change = f"an admin: put it with `paceline batch import {name} FILE`"
    if record is None:
        return Why(None, "absent", (Link("order", "The record was deleted.", None, None, import_change),))
    found: list[Link] = []
    if not record.active:
        text = "The record is not active: nothing of it is planned."
        found.append(Link("order", text, None, None, f'{import_change}, with `"active": true`'))
    if batch.spec.paused:
        text = f"Batch {name} is paused: no day of it is planned."
        found.append(Link("pause", text, batch.updated_ms, None, f"an admin: `paceline batch resume {name}`"))
    if facts.provider_gone:
        change = f"an admin: `paceline provider set {record.provider}`"
        found.append(Link("provider", f"Provider {record.provider} is gone.", None, None, change))
    found.append(_planning(facts, now_ms=now_ms))
    return Why(None, "absent", tuple(found))


def _planning(facts: RecordFacts, *, now_ms: int) -> Link:
    """Return the link about its day."""
    name, day, window = facts.batch.id, facts.day, facts.window
    plan = f"an admin: `paceline batch plan {name} {facts.date}`"
    if day is not None and day.state == "planning":
        return Link("due", f"{facts.date} is being planned, page by page.", day.start_ms, None, NOBODY)
    if day is not None:
        text = f"{facts.date} was planned before the record came or came back; a daemon adds it as a late record."
        if now_ms >= day.end_ms:
            text = f"{facts.date} was planned before the record came or came back, and its window is over."
            return Link("due", text, day.start_ms, facts.next_start_ms, NOBODY)
        return Link("due", text, day.start_ms, None, NOBODY if facts.daemons else START_DAEMON)
    if window.start_ms < facts.batch.created_ms:
        text = f"{facts.date} began before the batch was made, so it is not planned by itself; the next day is."
        return Link("due", text, window.start_ms, facts.next_start_ms, plan)
    text = f"{facts.date} is not planned yet: a daemon plans it at its start."
    return Link("due", text, window.start_ms, None, NOBODY if facts.daemons else START_DAEMON)
