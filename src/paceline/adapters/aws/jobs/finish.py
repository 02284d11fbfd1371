"""Cancels jobs in bounded pieces, finishes those whose measurements have all ended, and notes tries of webhooks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from paceline.adapters.aws.alerts import adding
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Action, Item, update
from paceline.adapters.aws.client.tables import LEDGER
from paceline.adapters.aws.jobs import keys
from paceline.adapters.aws.jobs.measurement_actions import job_ends, row_ends, sums_of
from paceline.adapters.aws.jobs.parts import JobParts
from paceline.adapters.aws.jobs.read import job_items, names_of, stored_jobs, walk
from paceline.adapters.aws.jobs.submit import sweep
from paceline.adapters.aws.jobs.turns import leaves, open_jobs
from paceline.core.alerts.events import job_finished
from paceline.core.jobs.names import INDEX_BITS
from paceline.core.jobs.transitions import CANCELLED
from paceline.core.jobs.transitions import cancel as cancelled
from paceline.core.jobs.upkeep import LEFT_BEHIND_MAX
from paceline.core.jobs.values import PendingWebhook, StoredJob
from paceline.core.try_turns import DuePosition

PIECE = 90
"""Measurements that end in one transaction at most; it also has their job, their user's day and turn."""


def cancel(store: JobParts, number: int, *, now_ms: int) -> bool:
    """Mark the job to be cancelled, then cancel it. If the process stops in between, ``finish`` continues."""
    change = "SET #cancelled_ms = if_not_exists(#cancelled_ms, :now_ms), #cancelling = :yes"
    wish = update(LEDGER, keys.job_key(number), change, when="#open > :none", now_ms=now_ms, yes=True, none=0)
    if not store.db.write(wish).won:
        return False
    go_on(store.db, number, now_ms=now_ms)
    return True


def go_on(database: DynamoDatabase, number: int, *, now_ms: int) -> None:
    """End measurements that were not sent, some in each transaction, and mark the others to be stopped."""
    [job] = keys.read(database, [keys.job_key(number)])
    if job is None:
        return
    live = (row for row in walk(database, job) if row.get("ended_ms") is None and not row["stopping"])
    for piece in keys.pieces(live, rows_max=PIECE):
        _cancel_piece(database, piece, now_ms=now_ms)
    database.write(update(LEDGER, keys.job_key(number), "REMOVE #cancelling", when="#cancelling = :yes", yes=True))


def cancel_one(store: JobParts, handle: int, *, now_ms: int) -> bool:
    row, job = keys.read(store.db, [keys.row_key(handle), keys.job_key(handle >> INDEX_BITS)])
    if row is None or job is None or row.get("ended_ms") is not None:
        return False
    _cancel_piece(store.db, [row], now_ms=now_ms)
    return True


def _cancel_piece(database: DynamoDatabase, rows: Sequence[Item], *, now_ms: int) -> None:
    """Cancel some measurements of one job.

    If one of them has changed in the meantime, all are read again and written in two halves, so that fewer conflict.
    """
    for _ in keys.tries():
        [job] = keys.read(database, [keys.job_key(rows[0]["handle"] >> INDEX_BITS)])
        if job is None or database.transact(_cancelling(job, rows, now_ms=now_ms)).won:
            return
        found = keys.read(database, [keys.row_key(row["handle"]) for row in rows])
        rows = [row for row in found if row is not None and row.get("ended_ms") is None and not row["stopping"]]
        if not rows:
            return
        if len(rows) > 1:
            middle = len(rows) // 2
            _cancel_piece(database, rows[:middle], now_ms=now_ms)
            rows = rows[middle:]
    raise keys.too_busy()


def _cancelling(job: Item, rows: Sequence[Item], *, now_ms: int) -> list[Action]:
    unsent = [row for row in rows if cancelled(row["state"]) == "end"]
    stopped = [keys.moved(row, stopping=True) for row in rows if cancelled(row["state"]) == "stop"]
    if not unsent:
        return stopped
    refunded = sum(row["credits"] for row in unsent)
    ended = [row_ends(row, "cancelled", CANCELLED, settled=0, now_ms=now_ms, stopping=True) for row in unsent]
    sums: Counter[str] = Counter()
    for row in unsent:
        sums.update(sums_of(row, "cancelled", settled=0))
    job_over = job_ends(job, sums)
    day = update(
        LEDGER, keys.day_key(job["owner"], job["day"]), "ADD #held :less, #used :less", when="attribute_exists(#pk)",
        less=-refunded,
    )  # fmt: skip
    queued = sum(row["state"] == "queued" for row in unsent)
    line = [leaves(job["owner"], job["user"], queued)] if queued else []
    return [*ended, *stopped, job_over, day, *line]


def finish(store: JobParts, *, now_ms: int, limit: int) -> list[StoredJob]:
    _look_after(store, now_ms=now_ms)
    sweep(store.db, now_ms=now_ms)
    numbers = [keys.number_in(hint) for hint in keys.hinted(store.db, "ended", limit=limit)]
    items = job_items(store.db, numbers)
    # Their alerts first: if this stops in between, the next pass finds the alerts stored and finishes the jobs.
    ended = stored_jobs(store.db, [item for item in items.values() if item["open"] == 0])
    alerts = [alert for job in ended if (alert := job_finished(job, now_ms=now_ms)) is not None]
    if any(done.won for done in store.db.transact_each([adding(alert, store.db.retention) for alert in alerts])):
        store.change_counter.bump(also_self=True)
    won = [_finish(store.db, items[number], now_ms=now_ms) for number in numbers if number in items]
    if any(won):
        store.shard_cache.touch("hook")
    return stored_jobs(store.db, [item for item in won if item is not None])


def _look_after(store: JobParts, *, now_ms: int) -> None:
    """Cancel open jobs of removed users, and continue cancels that were cut short."""
    page = open_jobs(store.db, after=store.open_jobs_after, limit=LEFT_BEHIND_MAX)
    store.open_jobs_after = page[-1]["number"] if len(page) == LEFT_BEHIND_MAX else -1
    owners = names_of(store.db, page)
    for item in page:
        if item.get("cancelling"):
            go_on(store.db, item["number"], now_ms=now_ms)
        elif item["owner"] not in owners and item.get("cancelled_ms") is None:
            cancel(store, item["number"], now_ms=now_ms)


def _finish(database: DynamoDatabase, item: Item, *, now_ms: int) -> Item | None:
    change = "SET #finished_ms = :now_ms, #shard = :shard, #at = :now_ms"
    shard = "finished"
    if item.get("webhook") is not None:
        change, shard = f"{change}, #hook_ms = :now_ms", "hook"
    when = "#open = :none AND attribute_not_exists(#finished_ms)"
    done = database.write(
        update(LEDGER, keys.job_key(item["number"]), change, when=when, now_ms=now_ms, shard=shard, none=0)
    )
    return done.item if done.won else None


def due_webhooks(
    store: JobParts, *, now_ms: int, limit: int, after: DuePosition[int] | None = None
) -> list[DuePosition[int]]:
    if after is None:
        if store.shard_cache.caches_indexes and store.shard_cache.first_of("hook") > now_ms:
            return []
        store.shard_cache.forget("hook")
    behind = None if after is None else (after.at_ms, keys.job_key(after.id))
    hints = keys.due_hints(store.db, "hook", now_ms=now_ms, limit=limit, after=behind)
    return [DuePosition(int(hint["at"]), keys.number_in(hint)) for hint in hints]


def pending_webhooks(store: JobParts, numbers: Sequence[int]) -> list[PendingWebhook]:
    items = [item for item in job_items(store.db, numbers).values() if item.get("hook_ms") is not None]
    jobs = stored_jobs(store.db, items)
    return [PendingWebhook(job, item["hook_tries"], item["hook_ms"]) for job, item in zip(jobs, items, strict=True)]


def note_webhook(store: JobParts, number: int, *, tries: int, next_ms: int | None) -> bool:
    """Note a try. If the webhook is done, its job moves to the index shard from which jobs are removed."""
    [item] = keys.read(store.db, [keys.job_key(number)])
    if item is None or item.get("hook_ms") is None or item["hook_tries"] != tries:
        return False
    change, place = ("SET #shard = :shard, #at = :at", {"shard": "finished", "at": item["finished_ms"]})
    if next_ms is None:
        change += " REMOVE #hook_ms"
    else:
        change, place = f"{change}, #hook_ms = :at", {"shard": "hook", "at": next_ms}
    when = "#hook_tries = :tries AND attribute_exists(#hook_ms)"
    written = update(
        LEDGER, keys.job_key(number), f"{change} ADD #hook_tries :one", when=when, tries=tries, one=1, **place
    )
    won = store.db.write(written).won
    store.shard_cache.touch("hook")
    return won
