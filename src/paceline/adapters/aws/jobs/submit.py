"""Submission: a job is admitted in one transaction, however large it is.

A small job's measurements are written in the transaction that admits it. Those of a large one are written before, where
nobody finds them: every reader of a measurement reads its job too, and there is none yet. The note of such a submission
is deleted by the transaction that admits it, so a submission that was given up can be swept without a race.

The user's line of the ledger is folded: the job holds its whole ``reserved``, and each measurement, which carries its
own part (``credits``), closes that part once (``settled``). For a day's meter this adds up: held is what its jobs
reserved less what they settled and refunded, and spent is what they settled.
"""

from __future__ import annotations

from typing import NamedTuple

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import ABSENT, PRESENT, Action, Item, check, delete, item_at, put, update
from paceline.adapters.aws.client.numbers import Numbers
from paceline.adapters.aws.client.tables import ITEMS, LEDGER
from paceline.adapters.aws.jobs import keys
from paceline.adapters.aws.jobs.parts import JobParts
from paceline.adapters.aws.jobs.read import job_items, packed, stored_job, stored_jobs
from paceline.adapters.aws.jobs.turns import joins
from paceline.adapters.aws.keys import user_key
from paceline.core.jobs.admission import after_admission, budget_of, refuse_submission, reserved_of
from paceline.core.jobs.compatible.measurements import stride_of
from paceline.core.jobs.meters import DAY_MS
from paceline.core.jobs.names import handle_of, job_name
from paceline.core.jobs.values import Admitted, Already, Budget, OverCredits, StoredJob, Submission

TOGETHER_MAX = 50
"""Measurements that are written in the transaction that admits their job; larger jobs are written before it."""
GIVEN_UP_MS = 600_000
"""A submission that was not admitted after this time never is: its writer is dead, or finds its note gone."""
SWEPT_MAX = 5


class _Seen(NamedTuple):
    """The facts by which a submission is decided."""

    user: Item
    once: Item | None
    day: Item | None
    turns: int


def submit(store: JobParts, item: Submission, *, now_ms: int) -> Admitted | Already | OverCredits | None:
    for _ in keys.tries():
        seen = _look(store.db, item, now_ms=now_ms)
        if seen is None:
            return None
        budget = _budget(seen.user, seen.day, now_ms=now_ms)
        number = -1 if seen.once is None else seen.once["number"]
        before = None if seen.once is None else job_items(store.db, [number]).get(number)
        known = None if before is None else stored_job(before, owner=item.owner)
        total = reserved_of(item)
        if (refused := refuse_submission(item.digest, total, budget, known)) is not None:
            return refused
        made = _admit(store.db, store.numbers, item, seen, reserved=total, now_ms=now_ms)
        if made is not None:
            store.shard_cache.touch("turn")
            store.change_counter.bump()
            return Admitted(made, after_admission(budget, total))
    raise keys.too_busy()


def submitted_as(store: JobParts, owner: str, idempotency_key: str) -> StoredJob | None:
    user = store.db.get(ITEMS, user_key(owner))
    once = None if user is None else store.db.get(LEDGER, keys.once_key(user["number"], idempotency_key))
    if once is None:
        return None
    found = job_items(store.db, [once["number"]])
    return stored_jobs(store.db, list(found.values()))[0] if found else None


def budget(store: JobParts, owner: str, *, now_ms: int) -> Budget | None:
    user = store.db.get(ITEMS, user_key(owner))
    if user is None:
        return None
    return _budget(user, store.db.get(LEDGER, keys.day_key(user["number"], now_ms // DAY_MS)), now_ms=now_ms)


def sweep(database: DynamoDatabase, *, now_ms: int) -> None:
    """Remove rows of submissions that were given up; twice, because a submitter that slept may still write."""
    for hint in keys.hinted(database, "submitting", until=now_ms - GIVEN_UP_MS, limit=SWEPT_MAX):
        note = database.get(LEDGER, keys.submitting_key(int(hint["sk"])))
        if note is None:
            continue
        if note.get("given_up"):
            _remove(database, note["number"], note["count"])
            continue
        # First it becomes impossible to admit it, then its rows are deleted; rows that are left, or come late, are
        # deleted by the next sweep.
        key = keys.submitting_key(note["number"])
        given_up = update(LEDGER, key, "SET #given_up = :yes, #at = :now", when=PRESENT, yes=True, now=now_ms)
        if database.write(given_up).won:
            _remove_rows(database, note["number"], note["count"])


def _look(database: DynamoDatabase, item: Submission, *, now_ms: int) -> _Seen | None:
    user = database.get(ITEMS, user_key(item.owner))
    if user is None or user["disabled"]:
        return None
    item_keys = [keys.day_key(user["number"], now_ms // DAY_MS), keys.LINE]
    item_keys += [] if item.idempotency_key is None else [keys.once_key(user["number"], item.idempotency_key)]
    day, line, *once = keys.read(database, item_keys)
    return _Seen(user, once[0] if once else None, day, (line or {}).get("turns", 0))


def _budget(user: Item, day: Item | None, *, now_ms: int) -> Budget:
    spent, held = (0, 0) if day is None else (day["spent"], day["held"])
    return budget_of(user["daily_credits"], spent=spent, held=held, now_ms=now_ms)


def _admit(
    database: DynamoDatabase, numbers: Numbers, item: Submission, seen: _Seen, *, reserved: int, now_ms: int
) -> StoredJob | None:
    """Write the job and return it; None, and nothing is written, if a fact by which it was decided has changed."""
    # The job's number is taken alone, not in a block: jobs are listed and sent in the order in which they came.
    stride = stride_of(item.job)
    number, numbered = numbers.take_job(stride * len(item.job.measurements))
    job = _job(item, seen, number, reserved=reserved, now_ms=now_ms) | {"numbered": numbered, "stride": stride}
    rows = _rows(item, job)
    actions = _admission(item, seen, job)
    if len(rows) <= TOGETHER_MAX and sum(len(row["body"]) for row in rows) <= keys.TRANSACTED_BYTES_MAX:
        won = database.transact([*actions, *(put(LEDGER, row, when=ABSENT) for row in rows)]).won
    else:
        note = item_at(keys.submitting_key(number), number=number, count=len(rows))
        database.write(put(LEDGER, note | {"shard": "submitting", "at": now_ms}, when=ABSENT))
        database.write_many(put(LEDGER, row) for row in rows)
        admitted = delete(LEDGER, keys.submitting_key(number), when=f"{PRESENT} AND attribute_not_exists(#given_up)")
        won = database.transact([*actions, admitted]).won
        if not won:
            _remove(database, number, len(rows))
    return stored_job(job, owner=item.owner) if won else None


def _admission(item: Submission, seen: _Seen, job: Item) -> list[Action]:
    owner, limit = job["owner"], seen.user["daily_credits"]
    actions = [
        put(LEDGER, job, when=ABSENT),
        # The limit as it is now: an edit counts at once, and a disabled or removed user cannot submit.
        check(
            ITEMS, user_key(item.owner), when="#number = :number AND #disabled = :no AND #daily_credits = :limit",
            number=owner, no=False, limit=limit,
        ),
        update(
            LEDGER, keys.day_key(owner, job["day"]),
            "ADD #held :cost, #used :cost, #spent :none, #opened_spent :none, #jobs :one "
            "SET #shard = :shard, #at = :day, #owner = :owner",
            when="attribute_not_exists(#pk) OR #used <= :most",
            cost=job["reserved"], none=0, one=1, shard="day", day=job["day"], owner=owner, most=limit - job["reserved"],
        ),
        joins(owner, item.owner, job["measurements"], turns=seen.turns),
        *(put(LEDGER, key._asdict()) for key in keys.listed_keys(job["number"], owner)),
        put(LEDGER, item_at(keys.numbered_key(job["numbered"]), number=job["number"]), when=ABSENT),
    ]  # fmt: skip
    if item.idempotency_key is not None:
        once = item_at(keys.once_key(owner, item.idempotency_key), number=job["number"])
        actions.append(put(LEDGER, once, when=ABSENT))
    return actions


def _job(item: Submission, seen: _Seen, number: int, *, reserved: int, now_ms: int) -> Item:
    count = len(item.job.measurements)
    made: Item = {
        **keys.job_key(number)._asdict(),
        "number": number,
        "name": job_name(number, now_ms=now_ms),
        "owner": seen.user["number"],
        "user": item.owner,
        "day": now_ms // DAY_MS,
        "title": item.job.title,
        "webhook": item.job.webhook,
        "digest": item.digest,
        "idempotency": item.idempotency_key,
        "measurements": count,
        "open": count,
        "waiting": count,
        "reserved": reserved,
        "definitions": sum(cost.concurrent for cost in item.costs),
        "created_ms": now_ms,
        "shard": "open",
        "at": number,
    }
    zeros = ("done", "failed", "cancelled", "settled", "refunded", "slots", "purged", "hook_tries")
    definitions = ("definitions_done", "definitions_failed", "definitions_cancelled")
    return made | dict.fromkeys([*zeros, *definitions], 0)


def _rows(item: Submission, job: Item) -> list[Item]:
    pairs = zip(item.job.measurements, item.costs, strict=True)
    return [
        {
            **keys.row_key(handle)._asdict(),
            "handle": handle,
            "owner": job["owner"],
            "day": job["day"],
            "state": "queued",
            "body": packed(one),
            "credits": cost.credits,
            "results": cost.results,
            "concurrent": cost.concurrent,
            "daily_credits": cost.daily_credits,
            "daily_results": cost.daily_results,
            "attempt": 0,
            "lookups": 0,
            "slot": 0,
            "stopping": False,
            "reason": "",
            "v": 0,
            "shard": keys.queue_of(job["owner"]),
            "at": handle,
        }
        for handle, (one, cost) in enumerate(pairs, handle_of(job["number"], 0))
    ]


def _remove(database: DynamoDatabase, number: int, count: int) -> None:
    """Remove the rows of a job that was not admitted, and then its note."""
    _remove_rows(database, number, count)
    database.write(delete(LEDGER, keys.submitting_key(number)))


def _remove_rows(database: DynamoDatabase, number: int, count: int) -> None:
    database.write_many(delete(LEDGER, keys.row_key(handle_of(number, index))) for index in range(count))
