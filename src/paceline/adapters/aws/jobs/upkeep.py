"""Duties, retention, and repairs after the clock was set back."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import PRESENT, Action, DynamoKey, Item, delete, joined, update
from paceline.adapters.aws.client.tables import LEDGER
from paceline.adapters.aws.jobs import keys
from paceline.adapters.aws.jobs.accounts import names
from paceline.adapters.aws.jobs.meters import postings_in
from paceline.adapters.aws.jobs.parts import JobParts
from paceline.adapters.aws.jobs.read import walk
from paceline.core.jobs.accounts import WINDOWS, meter_name
from paceline.core.jobs.meters import Balance, add_up
from paceline.core.jobs.names import ATTEMPTS_MAX
from paceline.core.jobs.upkeep import days_before, is_duty_due, may_be_removed, pulled_back_ms

APART_MS_MAX = 10_000
"""Largest difference between the clocks of callers that take a duty at once."""
ACTIONS_MAX = 90
"""Actions of one piece of a removal; the job, its lists and its user's day are added to them."""
POSTINGS_MAX = 80
MOVED_MAX = 100_000
LOOKED_AT_MAX = 100
"""Jobs beyond the limit that a pass reads: those that hold a slot are skipped."""


def take_duty(store: JobParts, name: str, *, every_ms: int, now_ms: int) -> bool:
    known_ms = store.duties_taken_ms.get(name)
    # This process may know an older time than the store, never a newer one: if a duty is not due by it, it is not due.
    if not is_duty_due(known_ms, every_ms=every_ms, now_ms=now_ms, apart_ms_max=APART_MS_MAX):
        return False
    # The same rule as a condition, for writes of others since.
    due_ms, ahead_ms = now_ms - every_ms, now_ms + min(every_ms, APART_MS_MAX)
    when = "attribute_not_exists(#at_ms) OR #at_ms <= :due OR #at_ms > :ahead"
    taken = store.db.write(
        update(LEDGER, keys.duty_key(name), "SET #at_ms = :now", when=when, now=now_ms, due=due_ms, ahead=ahead_ms)
    )
    assert taken.item is not None  # an update returns the item that it left, or the one that made it lose
    store.duties_taken_ms[name] = taken.item["at_ms"]
    return taken.won


# -- retention


def purge(store: JobParts, *, finished_before_ms: int, limit: int) -> int:
    removed = 0
    for hint in keys.hinted(store.db, "finished", until=finished_before_ms - 1, limit=limit + LOOKED_AT_MAX):
        if removed >= limit:
            break
        removed += _remove_some(store.db, keys.number_in(hint), before_ms=finished_before_ms, limit=limit - removed)
    _drop_days(store.db, ended_before_ms=finished_before_ms, limit=limit)
    return removed


def _remove_some(database: DynamoDatabase, number: int, *, before_ms: int, limit: int) -> int:
    """Remove a job's first measurements with their postings, and the job with its last one. Return how many."""
    removed = 0
    while removed < limit:
        [job] = keys.read(database, [keys.job_key(number)])
        if job is None or not may_be_removed(
            finished_ms=job.get("finished_ms"), hook_ms=job.get("hook_ms"), slots=job["slots"], before_ms=before_ms
        ):
            break
        count, actions = _piece(database, job, limit=limit - removed)
        # If it is lost, another process removes the job too, and is further on.
        if not count or not database.transact(actions).won:
            break
        removed += count
    return removed


def _piece(database: DynamoDatabase, job: Item, *, limit: int) -> tuple[int, list[Action]]:
    """Return how many measurements fit into one transaction, and the actions that remove them and keep their sums."""
    actions: list[Action] = []
    sums: list[Item] = []
    count = 0
    rows = _fitting(walk(database, job, after=job["purged"] - 1, page=min(limit, ACTIONS_MAX)), limit=limit)
    postings = _postings_of(database, rows)
    for row in rows:
        its = postings[row["handle"]]
        gone = [delete(LEDGER, keys.row_key(row["handle"]), when=PRESENT)]
        gone += [delete(LEDGER, DynamoKey(one["pk"], one["sk"]), when=PRESENT) for one in its]
        accounts = {one["account"] for one in (*sums, *its)}
        if count and len(actions) + len(gone) + len(accounts) > ACTIONS_MAX:
            break
        actions += gone
        sums += its
        count += 1
    actions += _opened(sums)
    return count, [*actions, *_job_shrinks(job, count)]


def _fitting(rows: Iterator[Item], *, limit: int) -> list[Item]:
    """Return the first rows, and no more than can fit: a row tells how many items belong to it."""
    found: list[Item] = []
    size = actions = 0
    for row in rows:
        size += len(row["body"])
        actions += 1 + 2 * row["attempt"]
        if found and (actions > ACTIONS_MAX or size > keys.TRANSACTED_BYTES_MAX):
            break
        found.append(row)
        if len(found) == limit:
            break
    return found


def _postings_of(database: DynamoDatabase, rows: Sequence[Item]) -> dict[int, list[Item]]:
    """Return the postings by handle. Their keys are computed, so those of many rows are read together."""
    few = [row for row in rows if 2 * row["attempt"] <= POSTINGS_MAX // 2]
    item_keys = [
        keys.posting_key(row["handle"], attempt, kind)
        for row in few
        for attempt in range(1, row["attempt"] + 1)
        for kind in ("hold", "close")
    ]
    found: dict[int, list[Item]] = {row["handle"]: [] for row in few}
    for item in database.get_many(LEDGER, item_keys).values():
        found[item["handle"]].append(item)
    return found | {row["handle"]: _few_postings(database, row) for row in rows if row["handle"] not in found}


def _job_shrinks(job: Item, count: int) -> list[Action]:
    """Return the actions that take removed measurements off a job; with its last measurement the job is removed.

    Its idempotency key becomes free with the first, because nobody sees the job any more.
    """
    key, actions = keys.job_key(job["number"]), []
    if not job["purged"] and job.get("idempotency") is not None:
        actions.append(delete(LEDGER, keys.once_key(job["owner"], job["idempotency"])))
    if job["purged"] + count < job["measurements"]:
        change = "SET #purged = :now"
        return [
            *actions, update(LEDGER, key, change, when="#purged = :was", was=job["purged"], now=job["purged"] + count)
        ]  # fmt: skip
    day = update(
        LEDGER, keys.day_key(job["owner"], job["day"]), "ADD #opened_spent :spent, #jobs :less", when=PRESENT,
        spent=job["settled"], less=-1,
    )  # fmt: skip
    listed = [delete(LEDGER, one) for one in keys.listed_keys(job["number"], job["owner"])]
    if "numbered" in job:
        listed.append(delete(LEDGER, keys.numbered_key(job["numbered"])))
    return [*actions, delete(LEDGER, key, when="#purged = :was", was=job["purged"]), day, *listed]


def _few_postings(database: DynamoDatabase, row: Item) -> list[Item]:
    """Return a measurement's postings, all of them closed.

    If there are very many, the first ones are added up before.
    """
    for _ in range(2 * ATTEMPTS_MAX):
        found = database.page(LEDGER, joined("posting", row["handle"]), limit=POSTINGS_MAX)
        if len(found) <= POSTINGS_MAX // 2:
            return found
        # Hold and close of an attempt are neighbours and go together: "close" sorts before "hold".
        some = found[: len(found) // 4 * 2]
        gone = [delete(LEDGER, DynamoKey(one["pk"], one["sk"]), when=PRESENT) for one in some]
        database.transact([*gone, *_opened(some)])  # if it is lost, another process did it
    raise keys.too_busy()


def _opened(postings: Sequence[Item]) -> list[Action]:
    """Return actions that keep the sums of these postings, which are all closed, on each account's meters."""
    books = add_up([one for item in postings for one in postings_in(item)])
    actions = []
    for account in dict.fromkeys(item["account"] for item in postings):
        adds = {"v": 1}
        for name in WINDOWS:
            for pot, amount in books.balances.get(meter_name(account, name), Balance())._asdict().items():
                adds |= {f"{name}_opened_{pot}": amount} if amount else {}
        change = "ADD " + ", ".join(f"#{name} :{name}" for name in adds)
        actions.append(update(LEDGER, keys.account_key(account), change, when=PRESENT, **adds))
    return actions


def _drop_days(database: DynamoDatabase, *, ended_before_ms: int, limit: int) -> None:
    """Remove users' meters of days before this time, once no job refers to them."""
    hints = keys.hinted(database, "day", until=days_before(ended_before_ms) - 1, limit=max(limit, 100))
    item_keys = [DynamoKey(hint["pk"], hint["sk"]) for hint in hints]
    for key, day in database.get_many(LEDGER, item_keys).items():
        if not day["jobs"]:
            database.write(delete(LEDGER, key, when="#jobs = :none", none=0))


# -- a clock that was set back


def pull_back(store: JobParts, read_ms: Callable[[], int], *, wait_ms_max: int) -> int:
    def read_far_ms() -> int:
        return read_ms() + wait_ms_max

    far_ms = read_far_ms()
    count = 0
    for shard in ("parked", "unknown"):
        for hint in keys.hinted(store.db, shard, after=far_ms, limit=MOVED_MAX):
            count += _pull_row(store.db, keys.handle_in(hint), "next_ms", read_far_ms, states={"parked", "unknown"})
    for hint in keys.hinted(store.db, "sending", limit=MOVED_MAX):
        # Else a send whose process died would count as under way until the clock is back where it was.
        count += _pull_row(store.db, keys.handle_in(hint), "intent_ms", read_ms, states={"sending"})
    for key, name in _waits(store.db):
        when, change = f"#{name} > :far_ms", f"SET #{name} = :far_ms ADD #v :one"
        count += store.db.write(update(LEDGER, key, change, when=when, far_ms=read_far_ms(), one=1)).won
    for hint in keys.hinted(store.db, "hook", after=far_ms, limit=MOVED_MAX):
        change = "SET #hook_ms = :far_ms, #at = :far_ms"
        pulled = update(
            LEDGER, keys.job_key(keys.number_in(hint)), change, when="#hook_ms > :far_ms", far_ms=read_far_ms()
        )
        count += store.db.write(pulled).won
    store.shard_cache.touch("parked", "unknown", "hook")
    return count


def _waits(database: DynamoDatabase) -> Iterator[tuple[DynamoKey, str]]:
    """Yield the keys and fields of the waits of accounts, targets and everybody."""
    yield from ((keys.account_key(name), "closed_until_ms") for name in names(database))
    targets = database.page(LEDGER, "target", limit=MOVED_MAX)
    yield from ((keys.target_key(item["sk"]), "until_ms") for item in targets)
    yield keys.GATE, "until_ms"


def _pull_row(
    database: DynamoDatabase, handle: int, name: str, read_to_ms: Callable[[], int], *, states: set[str]
) -> bool:
    for _ in keys.tries():
        [row] = keys.read(database, [keys.row_key(handle)])
        latest_ms = read_to_ms()  # after the row was read, so it was not written later than that
        if row is None or row["state"] not in states:
            return False
        if (to_ms := pulled_back_ms(row[name], latest_ms=latest_ms)) is None:
            return False
        if database.write(keys.moved(row, **{name: to_ms})).won:
            return True
    raise keys.too_busy()
