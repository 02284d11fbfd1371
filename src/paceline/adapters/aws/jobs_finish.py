"""Jobs that are wanted no more, and jobs that are over: cancelled in bounded pieces, finished once, told once."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import Action, Item, update
from paceline.adapters.aws.jobs_acts import WAITING, job_ends, row_ends
from paceline.adapters.aws.jobs_keys import (
    INDEX_BITS,
    day_key,
    hinted,
    job_key,
    moved,
    number_in,
    pieces,
    read,
    row_key,
    too_busy,
    tries,
)
from paceline.adapters.aws.jobs_quiet import Quiet
from paceline.adapters.aws.jobs_read import job_items, names_of, stored_jobs, walk
from paceline.adapters.aws.jobs_submit import sweep
from paceline.adapters.aws.jobs_turns import leaves, open_jobs
from paceline.adapters.aws.tables import LEDGER
from paceline.ports.job_values import StoredJob

PIECE = 90
"""So many measurements at most end in one transaction; beside them are their job, their user's day and turn."""
LOOKED_AT_MAX = 100
"""Open jobs that one pass looks at: whether their user is gone, or a cancel was cut short."""


def cancel(database: Database, number: int, *, now_ms: int) -> bool:
    """The wish is written first: whatever cuts it short, the next pass that finishes jobs goes on."""
    change = "SET #cancelled_ms = if_not_exists(#cancelled_ms, :now_ms), #cancelling = :yes"
    wish = update(LEDGER, job_key(number), change, when="#open > :none", now_ms=now_ms, yes=True, none=0)
    if not database.write(wish).won:
        return False
    go_on(database, number, now_ms=now_ms)
    return True


def go_on(database: Database, number: int, *, now_ms: int) -> None:
    """Ends what was not sent, piece by piece, and asks to stop the rest."""
    [job] = read(database, [job_key(number)])
    if job is None:
        return
    live = (row for row in walk(database, job) if row.get("ended_ms") is None and not row["stopping"])
    for piece in pieces(live, rows_max=PIECE):
        _cancel_piece(database, piece, now_ms=now_ms)
    database.write(update(LEDGER, job_key(number), "REMOVE #cancelling", when="#cancelling = :yes", yes=True))


def cancel_one(database: Database, handle: int, *, now_ms: int) -> bool:
    row, job = read(database, [row_key(handle), job_key(handle >> INDEX_BITS)])
    if row is None or job is None or row.get("ended_ms") is not None:
        return False
    _cancel_piece(database, [row], now_ms=now_ms)
    return True


def _cancel_piece(database: Database, rows: Sequence[Item], *, now_ms: int) -> None:
    """Rows of one job. If one of them changed meanwhile, all are read again; half as many, so that they get through."""
    for _ in tries():
        [job] = read(database, [job_key(rows[0]["handle"] >> INDEX_BITS)])
        if job is None or database.transact(_cancelling(job, rows, now_ms=now_ms)).won:
            return
        found = read(database, [row_key(row["handle"]) for row in rows])
        rows = [row for row in found if row is not None and row.get("ended_ms") is None and not row["stopping"]]
        if not rows:
            return
        if len(rows) > 1:
            middle = len(rows) // 2
            _cancel_piece(database, rows[:middle], now_ms=now_ms)
            rows = rows[middle:]
    raise too_busy()


def _cancelling(job: Item, rows: Sequence[Item], *, now_ms: int) -> list[Action]:
    unsent = [row for row in rows if row["state"] in WAITING]
    stopped = [moved(row, stopping=True) for row in rows if row["state"] not in WAITING]
    if not unsent:
        return stopped
    refunded = sum(row["credits"] for row in unsent)
    ended = [row_ends(row, "cancelled", "cancelled", settled=0, now_ms=now_ms, stopping=True) for row in unsent]
    job_over = job_ends(
        job,
        ended=len(unsent),
        cancelled=len(unsent),
        refunded=refunded,
        waiting=-len(unsent),
        definitions_cancelled=sum(row["concurrent"] for row in unsent),
    )
    day = update(
        LEDGER, day_key(job["owner"], job["day"]), "ADD #held :less, #used :less", when="attribute_exists(#pk)",
        less=-refunded,
    )  # fmt: skip
    queued = sum(row["state"] == "queued" for row in unsent)
    line = [leaves(job["owner"], job["user"], queued)] if queued else []
    return [*ended, *stopped, job_over, day, *line]


class Round:
    """Where this process is in its rounds of the open jobs; each pass looks at some of them."""

    def __init__(self) -> None:
        self.after = -1


def finish(database: Database, rounds: Round, quiet: Quiet, *, now_ms: int, limit: int) -> list[StoredJob]:
    _look_after(database, rounds, now_ms=now_ms)
    sweep(database, now_ms=now_ms)
    numbers = [number_in(hint) for hint in hinted(database, "ended", limit=limit)]
    items = job_items(database, numbers)
    won = [_finish(database, items[number], now_ms=now_ms) for number in numbers if number in items]
    if any(won):
        quiet.touch("hook")
    return stored_jobs(database, [item for item in won if item is not None])


def _look_after(database: Database, rounds: Round, *, now_ms: int) -> None:
    """Cancels what a removed user did not wait for, and goes on with what was cut short."""
    page = open_jobs(database, after=rounds.after, limit=LOOKED_AT_MAX)
    rounds.after = page[-1]["number"] if len(page) == LOOKED_AT_MAX else -1
    owners = names_of(database, page)
    for item in page:
        if item.get("cancelling"):
            go_on(database, item["number"], now_ms=now_ms)
        elif item["owner"] not in owners and item.get("cancelled_ms") is None:
            cancel(database, item["number"], now_ms=now_ms)


def _finish(database: Database, item: Item, *, now_ms: int) -> Item | None:
    change = "SET #finished_ms = :now_ms, #shard = :shard, #at = :now_ms"
    shard = "finished"
    if item.get("webhook") is not None:
        change, shard = f"{change}, #hook_ms = :now_ms", "hook"
    when = "#open = :none AND attribute_not_exists(#finished_ms)"
    done = database.write(
        update(LEDGER, job_key(item["number"]), change, when=when, now_ms=now_ms, shard=shard, none=0)
    )
    return done.item if done.won else None


def due_webhooks(database: Database, quiet: Quiet, *, now_ms: int, limit: int) -> list[tuple[StoredJob, int]]:
    if quiet.patient and quiet.first(database, "hook") > now_ms:
        return []
    quiet.forget("hook")
    numbers = [number_in(hint) for hint in hinted(database, "hook", until=now_ms, limit=limit)]
    items = job_items(database, numbers)
    due = [
        items[number] for number in numbers if number in items and items[number].get("hook_ms", now_ms + 1) <= now_ms
    ]
    return [(job, item["hook_tries"]) for job, item in zip(stored_jobs(database, due), due, strict=True)]


def note_webhook(database: Database, number: int, *, tries: int, next_ms: int | None) -> bool:
    """One that was told waits in the index for its removal."""
    [item] = read(database, [job_key(number)])
    if item is None or item.get("hook_ms") is None or item["hook_tries"] != tries:
        return False
    change, place = ("SET #shard = :shard, #at = :at", {"shard": "finished", "at": item["finished_ms"]})
    if next_ms is None:
        change += " REMOVE #hook_ms"
    else:
        change, place = f"{change}, #hook_ms = :at", {"shard": "hook", "at": next_ms}
    when = "#hook_tries = :tries AND attribute_exists(#hook_ms)"
    written = update(LEDGER, job_key(number), f"{change} ADD #hook_tries :one", when=when, tries=tries, one=1, **place)
    return database.write(written).won
