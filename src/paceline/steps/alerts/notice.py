"""Events that admins are told of: days that ended, new dead letters, keys that RIPE refused.

They are looked for in the store, once a minute, and not written with each run: settling a million runs of a batch must
not pay for it. An alert is added before a note says so, under an id that is computed from the note. So a process that
dies in between adds the same alert again, and that changes nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from paceline.core.alerts import events
from paceline.core.alerts.alert import Alert
from paceline.core.batches.batch import Batch, Day
from paceline.core.batches.values import DeadChoice
from paceline.ports import Store
from paceline.steps.collection import Collection

DUTY = "alerts"
EVERY_MS = 60_000
BATCHES_MAX = 1_000
DAYS_MAX = 4
"""Number of a batch's newest days that are looked at: there is no alert for an older one that ends later."""
TOLD_MAX = 16
DEAD_PAGE = 500
DEAD_PAGES_MAX = 10
SETTLED_MS = 60_000
"""Age from which a dead letter counts: by then it is written, even if the clocks of hosts differ."""
DAY_MS = 86_400_000


class BatchWatch(msgspec.Struct, frozen=True):
    """Dates of days whose end was reported, or that had ended before anybody watched."""

    told: tuple[str, ...] = ()


class DeadWatch(msgspec.Struct, frozen=True):
    """A walk over the dead letters that are newer than ``since_ms`` and not newer than ``until_ms``.

    ``after``: where it goes on. ``found``, ``examples``: how many of each batch there are so far, and why one failed.
    The bounds are noted before the walk begins: begun again after a crash, it counts the same and has the same ids.
    """

    since_ms: int
    until_ms: int
    walking: bool = False
    after: int = 0
    found: dict[str, int] = {}
    examples: dict[str, str] = {}


class AccountWatch(msgspec.Struct, frozen=True):
    """Keys of an account that were quarantined at the last look, and how often each key was."""

    quarantined: tuple[str, ...] = ()
    times: dict[str, int] = {}


BATCHES = Collection("alert-batch", BatchWatch)
DEAD = Collection("alert-dead", DeadWatch)
ACCOUNTS = Collection("alert-account", AccountWatch)
ALL = "all"


class Noticed(NamedTuple):
    """Number of alerts that were added of each kind."""

    days: int = 0
    dead_letters: int = 0
    accounts: int = 0


def notice(store: Store, *, now_ms: int) -> Noticed | None:
    """Make one bounded pass, if no process has made one within the last minute; else None."""
    if not store.take_duty(DUTY, every_ms=EVERY_MS, now_ms=now_ms):
        return None
    batches = {batch.id: batch for batch in store.batches(after="", limit=BATCHES_MAX) if batch.deleting is None}
    days = sum(_notice_days(store, batch, now_ms=now_ms) for batch in batches.values())
    return Noticed(days, _notice_dead(store, batches, now_ms=now_ms), _notice_accounts(store, now_ms=now_ms))


def _notice_days(store: Store, batch: Batch, *, now_ms: int) -> int:
    key = f"{batch.id}/{batch.number}"
    found = BATCHES.find(store, key)
    days = store.days(batch, before=None, limit=DAYS_MAX)
    if found.value is None:
        # Days that had ended before the first look are not reported.
        old = tuple(day.date for day in days if day.end_ms < now_ms - DAY_MS)
        BATCHES.add(store, key, BatchWatch(old))
        found = BATCHES.find(store, key)
    reported = found.value.told if found.value is not None else ()
    ended = [
        alert
        for day in days
        if day.date not in reported and (alert := _ended(store, batch, day, now_ms=now_ms)) is not None
    ]
    if not ended:
        return 0
    added = sum(store.add_alerts(ended))
    dates = tuple(alert.data["date"] for alert in ended)
    BATCHES.put(store, key, BatchWatch((*reported, *dates)[-TOLD_MAX:]))
    return added


def _ended(store: Store, batch: Batch, day: Day, *, now_ms: int) -> Alert | None:
    """Return the alert of a day that has ended: its window is over, and so is each of its runs."""
    if day.state != "planned" or now_ms < day.end_ms:
        return None
    if store.taken(day, from_ms=day.start_ms, to_ms=day.end_ms, limit=1):
        return None  # this look is cheap, and the counts are not
    counts = store.day_counts(day)
    return None if events.open_runs(counts) else events.day_ended(batch, day, counts, now_ms=now_ms)


def _notice_dead(store: Store, batches: dict[str, Batch], *, now_ms: int) -> int:
    found = DEAD.find(store, ALL)
    walk = found.value
    if walk is None:
        # Dead letters from before the first look are not reported.
        DEAD.add(store, ALL, DeadWatch(now_ms - SETTLED_MS, now_ms - SETTLED_MS))
        return 0
    if not walk.walking:
        walk = DeadWatch(walk.until_ms, max(walk.until_ms, now_ms - SETTLED_MS), walking=True)
        DEAD.put(store, ALL, walk)
    walk, over = _walk_on(store, walk)
    alerts: list[Alert] = []
    if over:
        alerts = [
            events.dead_letters(
                batch,
                count,
                example=walk.examples[batch],
                channels=batches[batch].spec.channels if batch in batches else (),
                since_ms=walk.since_ms,
                now_ms=now_ms,
            )
            for batch, count in walk.found.items()
        ]
        walk = DeadWatch(walk.since_ms, walk.until_ms)
    added = sum(store.add_alerts(alerts)) if alerts else 0
    DEAD.put(store, ALL, walk)
    return added


def _walk_on(store: Store, walk: DeadWatch) -> tuple[DeadWatch, bool]:
    """Look at some pages of dead letters. Return the walk after them, and whether it is over."""
    counts, examples, after = dict(walk.found), dict(walk.examples), walk.after
    for _ in range(DEAD_PAGES_MAX):
        page, following = store.dead(DeadChoice(), after=after, limit=DEAD_PAGE)
        for run in page:
            if run.ended_ms is not None and walk.since_ms < run.ended_ms <= walk.until_ms:
                counts[run.batch] = counts.get(run.batch, 0) + 1
                examples.setdefault(run.batch, run.reason or run.state)
        if following is None:
            return replace(walk, found=counts, examples=examples), True
        after = following
    return replace(walk, after=after, found=counts, examples=examples), False


def _notice_accounts(store: Store, *, now_ms: int) -> int:
    added = 0
    for account in store.accounts(now_ms=now_ms, releases_until_ms=now_ms):
        now = {key.id: key.reason for key in account.keys if key.state == "quarantined"}
        found = ACCOUNTS.get(store, account.id) or AccountWatch()
        if tuple(now) == found.quarantined:
            continue
        new = [key for key in now if key not in found.quarantined]
        times = found.times | {key: found.times.get(key, 0) + 1 for key in new}
        alerts = [
            events.account_quarantined(account.id, key, reason=now[key], number=times[key], now_ms=now_ms)
            for key in new
        ]
        added += sum(store.add_alerts(alerts)) if alerts else 0
        ACCOUNTS.put(store, account.id, AccountWatch(tuple(now), times))
    return added
