"""Keys of all items of jobs in the table ``ledger``, and their places in its index.

| pk                     | sk               | what it is                                                             |
|------------------------|------------------|------------------------------------------------------------------------|
| account#NAME           | -                | an account with its three meters: limit, spent, held, foreign, free; v |
|                        | key#N, vault#…   | its keys; that it has each secret once                                 |
|                        | slot#HANDLE      | a measurement at RIPE that holds slots of it                           |
|                        | type#TYPE        | a type of measurement that RIPE does not let it make                   |
|                        | until#MS         | what of its day leaves the window then                                 |
| secret#DIGEST          | -                | the account that has this key                                          |
| accounts               | NAME             | a name in the list                                                     |
| job#N                  | -                | a job: counts and sums, and so the user's line of the ledger           |
| job#N#BUCKET           | INDEX            | a measurement; its user's hold (credits) and close (settled)            |
| jobs, jobs#OWNER       | N                | the lists                                                              |
| numbered               | NUMBER           | a job, by the number of its first definition                            |
| once#OWNER#DIGEST      | -                | an idempotency key                                                     |
| credits#OWNER#DAY      | -                | a user's day: spent, held, used (their sum), jobs                      |
| posting#HANDLE         | ATTEMPT#KIND     | what a send held of its account's meters, and how that was closed      |
| turn#OWNER             | USER             | a user in the queue of users: how many are queued, when served         |
| line                   | -                | how many are being sent, and how many turns there were                 |
| submitting             | N                | a large job whose rows are being written                               |
| atlas, target          | -, NAME          | everybody's pause and our site; full targets                           |
| duty#NAME              | -                | when a duty was last taken                                             |

In the index ``ready``, by shard and at: queued#OWNER by handle, parked and unknown by next_ms, sending, ongoing and
what has ended with its slot held by handle; turn by turn; jobs open and ended by number, hook by hook_ms, finished by
finished_ms; day by day; submitting by time. The index is a hint: whatever it shows is read again.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from paceline.adapters.aws.cache.index_cache import END
from paceline.adapters.aws.client.connect import back_off, busy
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Action, DynamoKey, Item, ReadOptions, joined, padded, setting, update
from paceline.adapters.aws.client.tables import LEDGER, READY_INDEX
from paceline.core.jobs.names import INDEX_BITS, INDEX_MASK, handle_of
from paceline.errors import StoreUnavailable

BUCKET_BITS = 10
"""A partition has 2**BUCKET_BITS measurements of a job: ten thousand are written to ten partitions at once."""
TRIES_MAX = 12
"""Tries of a write that lost to another one; each try reads and decides again."""
TRIES_AT_ONCE = 3
TRANSACTED_BYTES_MAX = 2_000_000
"""Bytes of the items of one transaction; AWS allows 4 MB."""
LINE = DynamoKey("line", "-")
GATE = DynamoKey("atlas", "-")
_BY_HANDLE = frozenset({"sending", "ongoing"})


def job_key(number: int) -> DynamoKey:
    return DynamoKey(joined("job", number), "-")


def row_key(handle: int) -> DynamoKey:
    index = handle & INDEX_MASK
    return DynamoKey(bucket_key(handle >> INDEX_BITS, index >> BUCKET_BITS), padded(index))


def bucket_key(number: int, bucket: int) -> str:
    return joined("job", number, bucket)


def account_key(name: str) -> DynamoKey:
    return DynamoKey(joined("account", name), "-")


def key_key(account: str, number: int) -> DynamoKey:
    return DynamoKey(joined("account", account), f"key#{padded(number)}")


def vault_key(account: str, sealed: str) -> DynamoKey:
    return DynamoKey(joined("account", account), f"vault#{_digest(sealed)}")


def secret_key(sealed: str) -> DynamoKey:
    """Return the key of a secret, which belongs to one account."""
    return DynamoKey(joined("secret", _digest(sealed)), "-")


def type_key(account: str, kind: str) -> DynamoKey:
    return DynamoKey(joined("account", account), f"type#{kind}")


def slot_key(account: str, handle: int) -> DynamoKey:
    return DynamoKey(joined("account", account), f"slot#{padded(handle)}")


def release_key(account: str, at_ms: int) -> DynamoKey:
    return DynamoKey(joined("account", account), f"until#{padded(at_ms)}")


def posting_key(handle: int, attempt: int, kind: str) -> DynamoKey:
    return DynamoKey(joined("posting", handle), f"{attempt:05d}#{kind}")


def day_key(owner: int, day: int) -> DynamoKey:
    return DynamoKey(joined("credits", owner, day), "-")


def turn_key(owner: int, user: str) -> DynamoKey:
    """Return the key of a user's turn.

    It has the user's name, because an index shows only keys: no further read is needed.
    """
    return DynamoKey(joined("turn", owner), user)


def once_key(owner: int, idempotency_key: str) -> DynamoKey:
    return DynamoKey(joined("once", owner, _digest(idempotency_key)), "-")


def submitting_key(number: int) -> DynamoKey:
    return DynamoKey("submitting", padded(number))


def listed_keys(number: int, owner: int) -> tuple[DynamoKey, DynamoKey]:
    """Return the job's keys in the list of all jobs and in its owner's."""
    return DynamoKey("jobs", padded(number)), DynamoKey(joined("jobs", owner), padded(number))


def numbered_key(number: int) -> DynamoKey:
    """Return the key of a job by the number of its first definition."""
    return DynamoKey("numbered", padded(number))


def target_key(name: str) -> DynamoKey:
    return DynamoKey("target", name)


def duty_key(name: str) -> DynamoKey:
    return DynamoKey(joined("duty", name), "-")


def queue_of(owner: int) -> str:
    return joined("queued", owner)


def row_place(row: Item) -> tuple[str | None, int | None]:
    """Return a measurement's shard and place in the index; (None, None) if it is not in the index."""
    state = row["state"]
    if state == "queued":
        return queue_of(row["owner"]), row["handle"]
    if state in {"parked", "unknown"}:
        return state, row["next_ms"]
    if state in _BY_HANDLE or row["slot"]:
        return state, row["handle"]
    return None, None


def moved(row: Item, **changes: Any) -> Action:
    """Return the action that changes a measurement and its place in the index, if it is still as it was read."""
    change, values = setting(_with_place(row, changes))
    return update(LEDGER, row_key(row["handle"]), change, when="#v = :was", was=row["v"], **values)


def after_move(row: Item, **changes: Any) -> Item:
    """Return the row as it is after ``moved`` was won."""
    return {name: value for name, value in (row | _with_place(row, changes)).items() if value is not None}


def _with_place(row: Item, changes: dict[str, Any]) -> dict[str, Any]:
    shard, at = row_place(row | changes)
    return changes | {"v": row["v"] + 1, "shard": shard, "at": at}


def first_place(database: DynamoDatabase, shard: str) -> int:
    """Return the first place in the index that is taken, END if none is."""
    hints = hinted(database, shard, limit=1)
    return int(hints[0]["at"]) if hints else END


def hinted(
    database: DynamoDatabase, shard: str, *, limit: int, after: int = -1, until: int = END, newest_first: bool = False
) -> list[Item]:
    """Return keys and places in the index above ``after`` and up to ``until``, in order. They may lag."""
    bounds: ReadOptions = {"index": READY_INDEX, "first": after + 1, "last": until, "newest_first": newest_first}
    return database.page(LEDGER, shard, limit=limit, **bounds)


def due_hints(
    database: DynamoDatabase, shard: str, *, now_ms: int, limit: int, after: tuple[int, DynamoKey] | None
) -> list[Item]:
    """Return what ``hinted`` does up to now, behind the place and key ``after``: also others at the same place."""
    if after is None:
        return hinted(database, shard, until=now_ms, limit=limit)
    at_ms, key = after
    bounds: ReadOptions = {"index": READY_INDEX, "first": at_ms, "last": now_ms}
    if at_ms <= now_ms:
        bounds["behind"] = {"shard": shard, "at": at_ms, "pk": key.pk, "sk": key.sk}
    return database.page(LEDGER, shard, limit=limit, **bounds)


def counted(database: DynamoDatabase, shard: str, *, limit: int) -> int:
    return database.count(LEDGER, shard, limit=limit, index=READY_INDEX)


def handle_in(hint: Item) -> int:
    """Return the handle of the measurement that an entry of the index shows."""
    return handle_of(int(hint["pk"].split("#")[1]), int(hint["sk"]))


def owner_of(turn: DynamoKey) -> int:
    """Return the number of the user whose turn this is; ``sk`` has the name."""
    return int(turn.pk.split("#")[1])


def number_in(hint: Item) -> int:
    """Return the number of the job that an entry of the index shows."""
    return int(hint["pk"].split("#")[1])


def pieces(rows: Iterable[Item], *, rows_max: int) -> Iterator[list[Item]]:
    """Yield the rows in order in pieces small enough for one transaction, by count and by bytes."""
    piece: list[Item] = []
    size = 0
    for row in rows:
        weight = len(row["body"])
        if piece and (len(piece) == rows_max or size + weight > TRANSACTED_BYTES_MAX):
            yield piece
            piece, size = [], 0
        piece.append(row)
        size += weight
    if piece:
        yield piece


def read(database: DynamoDatabase, keys: Sequence[DynamoKey]) -> list[Item | None]:
    """Return the items in the order of the keys."""
    found = database.get_many(LEDGER, keys)
    return [found.get(key) for key in keys]


def tries() -> Iterator[int]:
    """Yield the tries of a read-decide-write loop: the first ones at once, the others after growing pauses."""
    for number in range(TRIES_MAX):
        if number >= TRIES_AT_ONCE:
            back_off(number - TRIES_AT_ONCE)
        yield number


def too_busy() -> StoreUnavailable:
    return busy("the same job or account")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
