"""The queue of users with measurements to send (``core.jobs.send_order``), and parked measurements that are due."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from paceline.adapters.aws.cache.index_cache import END
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import PRESENT, Action, DynamoKey, Item, Value, delete, update
from paceline.adapters.aws.client.tables import ITEMS, LEDGER, READY_INDEX
from paceline.adapters.aws.jobs import keys
from paceline.adapters.aws.jobs.parts import JobParts
from paceline.adapters.aws.jobs.read import job_items, read_measurements, stored_measurement
from paceline.adapters.aws.keys import user_key
from paceline.core.jobs.names import INDEX_BITS, handle_of
from paceline.core.jobs.send_order import QueuedUser, Turn, next_turns
from paceline.core.jobs.transitions import WOKEN_MAX
from paceline.core.jobs.upkeep import next_send_ms
from paceline.core.jobs.values import SendCounts, StoredMeasurement

WOKEN_TOGETHER_MAX = 25
TURNS_PAGE = 100
JUMPS_MAX = 20
"""Pages of lagging index entries that are skipped to find a user's first measurement."""
COUNTED_MAX = 1_000_000
READY, BARRED = 0, 1
"""READY: a user in the queue may send a measurement. BARRED: users have some queued, but none of them may send."""


def joins(owner: int, user: str, count: int, *, turns: int) -> Action:
    """Return the action that adds to the user's queued count; a new user joins at the end (``send_order.Turn``)."""
    change = (
        "SET #served = if_not_exists(#served, :turns), #at = if_not_exists(#served, :turns), #shard = :shard, "
        "#owner = :owner, #user = :user ADD #queued :count"
    )
    values: dict[str, Value] = {"turns": turns, "shard": "turn", "owner": owner, "user": user, "count": count}
    return update(LEDGER, keys.turn_key(owner, user), change, when="", **values)


def leaves(owner: int, user: str, count: int = 1) -> Action:
    """Return the action that lowers the user's queued count.

    A user with none left stays in the queue until ``next_to_send`` reads it.
    """
    return update(LEDGER, keys.turn_key(owner, user), "ADD #queued :less", when=PRESENT, less=-count)


def served(owner: int, user: str, *, turn: int) -> Action:
    change = "SET #served = :turn, #at = :turn ADD #queued :less"
    return update(LEDGER, keys.turn_key(owner, user), change, when=PRESENT, turn=turn, less=-1)


def next_to_send(store: JobParts, *, now_ms: int, users_max: int, each_max: int) -> list[StoredMeasurement]:
    _wake(store, now_ms=now_ms)
    found: list[StoredMeasurement] = []
    queue = _hinted_turns(store.db)
    users = 0
    while users < users_max and (some := list(islice(queue, users_max - users))):
        its = _first_of_each(store, some, each_max)
        users += len(its)
        found += [item for items in its for item in items]
    return found


def send_line(store: JobParts, *, users_max: int, each_max: int, count_max: int) -> list[QueuedUser]:
    found: list[QueuedUser] = []
    queue = _hinted_turns(store.db)
    while len(found) < users_max and (some := list(islice(queue, users_max - len(found)))):
        items = store.db.get_mixed(_keys_of(some))
        turns = _turns(some, items)
        ready = next_turns(sorted(turns), users_max=len(some)).ready
        firsts = store.db.threads.fan_out(lambda turn: _first_of(store.db, turn.owner, each_max), ready)
        for turn, pairs in zip(ready, firsts, strict=True):
            name, queued = turns[turn].sk, items[LEDGER, turns[turn]]["queued"]
            first = tuple(stored_measurement(row, job=job, owner=name) for row, job in pairs)
            if first:
                found.append(QueuedUser(name, max(min(queued, count_max), len(first)), first))
    return found


def queued_before(store: JobParts, owner: str, handle: int, *, limit: int) -> int:
    user = store.db.get(ITEMS, user_key(owner))
    if user is None:
        return 0
    shard = keys.queue_of(user["number"])
    return store.db.count(LEDGER, shard, limit=limit, index=READY_INDEX, first=0, last=handle - 1)


def next_ms(store: JobParts) -> int | None:
    turn = store.shard_cache.first_of("turn", ask=lambda _: _first_turn(store.db))
    if turn < END:
        # No bump tells that a turn is over, because another process sent, or that a disabled user was enabled.
        store.shard_cache.forget("turn")
    shards = () if turn == READY else ("parked", "unknown")
    later = [store.shard_cache.first_of(shard) for shard in shards]
    return next_send_ms(queued=turn == READY, later_ms=(None if one >= END else one for one in later))


def counts(store: JobParts) -> SendCounts:
    line = keys.read(store.db, [keys.LINE])[0] or {}
    turns = list(_hinted_turns(store.db))
    queued = sum(turn["queued"] for turn in store.db.get_many(LEDGER, turns).values())
    parked, unknown, ongoing, open_jobs, ended_jobs = (
        keys.counted(store.db, shard, limit=COUNTED_MAX) for shard in ("parked", "unknown", "ongoing", "open", "ended")
    )
    oldest = _oldest_waiting(store.db) if queued or parked else None
    return SendCounts(queued, parked, line.get("sending", 0), unknown, ongoing, open_jobs + ended_jobs, oldest)


def open_jobs(database: DynamoDatabase, *, after: int = -1, limit: int) -> list[Item]:
    """Return jobs that have not ended, in order of number, those above ``after``."""
    numbers = [keys.number_in(hint) for hint in keys.hinted(database, "open", after=after, limit=limit)]
    items = job_items(database, numbers)
    return [items[number] for number in numbers if number in items]


def _oldest_waiting(database: DynamoDatabase) -> int | None:
    after = -1
    while page := open_jobs(database, after=after, limit=TURNS_PAGE):
        for item in page:
            if item["waiting"]:
                return int(item["created_ms"])
        after = page[-1]["number"]
    return None


def _hinted_turns(database: DynamoDatabase) -> Iterator[DynamoKey]:
    """Yield the keys of all users in the queue, in its order, as the index shows them."""
    after = -1
    while True:
        hints = keys.hinted(database, "turn", after=after, limit=TURNS_PAGE)
        whole = len(hints) < TURNS_PAGE
        if not whole:
            # Several users may have the same turn: the page ends before the last turn, unless there is no other.
            hints = [hint for hint in hints if hint["at"] < hints[-1]["at"]] or keys.hinted(
                database, "turn", after=after, until=hints[-1]["at"], limit=COUNTED_MAX
            )
        yield from (DynamoKey(hint["pk"], hint["sk"]) for hint in hints)
        if whole:
            return
        after = hints[-1]["at"]


def _keys_of(turns: Sequence[DynamoKey]) -> Iterator[tuple[str, DynamoKey]]:
    """Yield the keys of the turns and of their users."""
    for turn in turns:
        yield LEDGER, turn
        yield ITEMS, user_key(turn.sk)


def _turns(item_keys: Sequence[DynamoKey], found: Mapping[tuple[str, DynamoKey], Item]) -> dict[Turn, DynamoKey]:
    """Return the turns that were found, with their keys."""
    turns: dict[Turn, DynamoKey] = {}
    for key in item_keys:
        if (item := found.get((LEDGER, key))) is not None:
            user = found.get((ITEMS, user_key(key.sk)))
            there = user is not None and user["number"] == item["owner"]
            disabled = bool(user["disabled"]) if user is not None and there else None
            turns[Turn(item["served"], item["owner"], item["queued"] > 0, disabled)] = key
    return turns


def _first_turn(database: DynamoDatabase) -> int:
    """Return READY, BARRED, or END: nobody has measurements queued, though some users may still be in the queue."""
    first = END
    queue = _hinted_turns(database)
    while some := list(islice(queue, TURNS_PAGE)):
        turns = _turns(some, database.get_mixed(_keys_of(some)))
        if any(turn.is_ready for turn in turns):
            return READY
        if any(turn.has_queued for turn in turns):
            first = BARRED
    return first


def _first_of_each(store: JobParts, item_keys: Sequence[DynamoKey], each_max: int) -> list[list[StoredMeasurement]]:
    """Return the first queued measurements of each user, the users in order, read together with their turns."""
    owners = [keys.owner_of(key) for key in item_keys]
    hints = store.db.threads.fan_out(lambda owner: keys.hinted(store.db, keys.queue_of(owner), limit=each_max), owners)
    handles = {owner: [keys.handle_in(hint) for hint in some] for owner, some in zip(owners, hints, strict=True)}
    rows = [keys.row_key(handle) for some in handles.values() for handle in some]
    jobs = [keys.job_key(handle >> INDEX_BITS) for some in handles.values() for handle in some]
    found = store.db.get_mixed([(LEDGER, keys.LINE), *_keys_of(item_keys), *((LEDGER, key) for key in (*rows, *jobs))])
    store.row_cache.note_line(found.get((LEDGER, keys.LINE)))
    turns = _turns(item_keys, found)
    ready, leaving = next_turns(sorted(turns), users_max=len(item_keys))
    for turn in leaving:
        store.db.write(delete(LEDGER, turns[turn], when="#queued = :none", none=0))
    found_first: list[list[StoredMeasurement]] = []
    for turn in ready:
        some = handles[turn.owner]
        both = [
            (found.get((LEDGER, keys.row_key(one))), found.get((LEDGER, keys.job_key(one >> INDEX_BITS))))
            for one in some
        ]
        pairs = [(row, job) for row, job in both if row is not None and job is not None and row["state"] == "queued"]
        if len(pairs) < len(some) == each_max:
            pairs = _first_of(store.db, turn.owner, each_max)
        if pairs:
            store.row_cache.note_all(pairs)
            found_first.append([stored_measurement(row, job=job, owner=turns[turn].sk) for row, job in pairs])
    return found_first


def _first_of(database: DynamoDatabase, owner: int, each_max: int) -> list[tuple[Item, Item]]:
    """Return a user's first queued measurements, each with its job; lagging entries of the index are skipped."""
    found: list[tuple[Item, Item]] = []
    after = -1
    for _ in range(JUMPS_MAX):
        hints = keys.hinted(database, keys.queue_of(owner), after=after, limit=each_max)
        pairs = read_measurements(database, [keys.handle_in(hint) for hint in hints])
        found += [(row, job) for row, job in pairs if row["state"] == "queued"]
        if len(hints) < each_max or len(found) >= each_max:
            break
        after = hints[-1]["at"]
        if after >> INDEX_BITS not in {job["number"] for _, job in pairs}:
            after = handle_of((after >> INDEX_BITS) + 1, 0) - 1
    return found[:each_max]


def _wake(store: JobParts, *, now_ms: int) -> None:
    """Put parked measurements that are due back into the queue, at their old places."""
    if store.shard_cache.caches_indexes and store.shard_cache.first_of("parked") > now_ms:
        return
    hints = keys.hinted(store.db, "parked", until=now_ms, limit=WOKEN_MAX)
    if not hints:
        return
    store.shard_cache.touch("parked", "turn")
    pairs = read_measurements(store.db, [keys.handle_in(hint) for hint in hints])
    due = [(row, job) for row, job in pairs if row["state"] == "parked" and row["next_ms"] <= now_ms]
    turns = (keys.read(store.db, [keys.LINE])[0] or {}).get("turns", 0)
    groups: dict[tuple[int, str], list[Item]] = {}
    for row, job in due:
        groups.setdefault((row["owner"], job["user"]), []).append(row)
    for owner, rows in groups.items():
        for piece in keys.pieces(rows, rows_max=WOKEN_TOGETHER_MAX):
            _wake_together(store.db, owner, piece, turns=turns)


def _wake_together(database: DynamoDatabase, owner: tuple[int, str], rows: Sequence[Item], *, turns: int) -> None:
    """Queue parked rows in one write; one at a time if that is lost because one of them changed."""
    woken = [keys.moved(row, state="queued", next_ms=None) for row in rows]
    if not database.transact([joins(*owner, len(woken), turns=turns), *woken]).won and len(woken) > 1:
        for one in woken:
            database.transact([joins(*owner, 1, turns=turns), one])
