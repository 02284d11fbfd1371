"""Reads jobs and measurements: rows, with the names of their jobs and users."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice

from paceline.adapters.aws.client.database import DynamoDatabase, in_pages
from paceline.adapters.aws.client.items import Item, joined, padded
from paceline.adapters.aws.client.tables import ITEMS, LEDGER
from paceline.adapters.aws.jobs import keys
from paceline.adapters.aws.jobs.meters import cost_of
from paceline.adapters.aws.jobs.parts import JobParts
from paceline.adapters.aws.keys import user_key
from paceline.core.jobs.compatible.measurements import place_in_block
from paceline.core.jobs.measurement import Measurement, MeasurementState, encode_measurement, parse_stored_measurement
from paceline.core.jobs.names import INDEX_BITS, INDEX_MASK, handle_of, job_numbers, key_id
from paceline.core.jobs.transitions import ENDED, LIVE, count_definitions, wanted_states
from paceline.core.jobs.values import AtlasMeasurement, StoredJob, StoredMeasurement

PAGE = 200
COUNTED_PAGE = 1_000
"""Page size if only a field or two of each row is read."""
PACKED_BYTES_MIN = 100_000
_COUNTS = (
    "measurements", "open", "done", "failed", "cancelled", "reserved", "settled", "refunded",
)  # fmt: skip


def job(store: JobParts, name: str) -> StoredJob | None:
    for number in job_numbers(name):
        found = store.db.get(LEDGER, keys.job_key(number))
        if found is not None and found["name"] == name and not found["purged"]:
            return stored_jobs(store.db, [found])[0]
    return None


def job_items(database: DynamoDatabase, numbers: Iterable[int]) -> dict[int, Item]:
    """Return the jobs that exist, by number; a job whose rows are still being written does not exist yet."""
    found = database.get_many(LEDGER, [keys.job_key(number) for number in numbers])
    return {item["number"]: item for item in found.values()}


def stored_jobs(database: DynamoDatabase, items: Sequence[Item]) -> list[StoredJob]:
    owners = names_of(database, items)
    return [stored_job(item, owner=owners.get(item["owner"], "")) for item in items]


def stored_job(item: Item, *, owner: str) -> StoredJob:
    return StoredJob(
        id=item["name"],
        number=item["number"],
        owner=owner,
        title=item["title"],
        webhook=item.get("webhook"),
        digest=item["digest"],
        created_ms=item["created_ms"],
        **{name: item[name] for name in _COUNTS},
        started_ms=item.get("started_ms"),
        cancelled_ms=item.get("cancelled_ms"),
        finished_ms=item.get("finished_ms"),
    )


def names_of(database: DynamoDatabase, items: Iterable[Item]) -> dict[int, str]:
    """Return the names of the items' users by number; removed users are left out."""
    owners = {item["owner"]: item["user"] for item in items}
    users = database.get_many(ITEMS, [user_key(name) for name in owners.values()])
    numbers = {key: item["number"] for key, item in users.items()}
    return {number: name for number, name in owners.items() if numbers.get(user_key(name)) == number}


def jobs(store: JobParts, owner: str | None, *, before: int | None, limit: int) -> list[StoredJob]:
    listed = "jobs"
    if owner is not None:
        found = store.db.get(ITEMS, user_key(owner))
        if found is None:
            return []
        listed = joined("jobs", found["number"])
    taken: list[Item] = []
    for item in _newest_jobs(store.db, listed, before=before):
        taken.append(item)
        if len(taken) == limit:
            break
    return stored_jobs(store.db, taken)


def counts(store: JobParts, number: int) -> dict[MeasurementState, int]:
    found = store.db.get(LEDGER, keys.job_key(number))
    if found is None:
        return {}
    if not found["open"] and not found["purged"]:
        ended: dict[MeasurementState, int] = {state: found[state] for state in ("done", "failed", "cancelled")}
        return {state: count for state, count in ended.items() if count}
    return dict(Counter(row["state"] for row in walk(store.db, found, only="#state", page=COUNTED_PAGE)))


def walk(database: DynamoDatabase, item: Item, *, after: int = -1, only: str = "", page: int = PAGE) -> Iterator[Item]:
    """Yield a job's measurements in order, those with an index above ``after``; ``item`` is the job."""
    for bucket in range(max(after + 1, 0) >> keys.BUCKET_BITS, (item["measurements"] - 1 >> keys.BUCKET_BITS) + 1):
        first = padded(max(after + 1, bucket << keys.BUCKET_BITS))
        yield from database.walk(LEDGER, keys.bucket_key(item["number"], bucket), size=page, first=first, only=only)


def measurements(store: JobParts, number: int, *, after: int, limit: int) -> list[StoredMeasurement]:
    found = store.db.get(LEDGER, keys.job_key(number))
    if found is None:
        return []
    rows: list[Item] = []
    for row in walk(store.db, found, after=after, page=max(1, min(limit, PAGE))):
        if len(rows) == limit:
            break
        rows.append(row)
    return with_names(store.db, rows, {number: found})


def read_measurements(database: DynamoDatabase, handles: Sequence[int]) -> list[tuple[Item, Item]]:
    """Return each measurement with its job, in the order asked for; missing ones are left out."""
    numbers = {handle >> INDEX_BITS for handle in handles}
    item_keys = [*map(keys.row_key, handles), *map(keys.job_key, numbers)]
    found = database.get_many(LEDGER, item_keys)
    both = [(found.get(keys.row_key(handle)), found.get(keys.job_key(handle >> INDEX_BITS))) for handle in handles]
    return [(row, item) for row, item in both if row is not None and item is not None]


def chances(
    database: DynamoDatabase, known: tuple[Item, Item] | None, handle: int, fits: Callable[[Item], bool]
) -> Iterator[tuple[Item, Item]]:
    """Yield a measurement with its job for each try of a write that may lose: from the cache first, then as read.

    Ends when a row that was read does not fit. A cached row that does not fit is skipped, because it may be old.
    """
    if known is not None and fits(known[0]):
        yield known
    for _ in keys.tries():
        found = read_measurements(database, [handle])
        if not found or not fits(found[0][0]):
            return
        yield found[0]
    raise keys.too_busy()


def measurement(store: JobParts, handle: int) -> StoredMeasurement | None:
    found = read_measurements(store.db, [handle]) if handle >= 0 else []
    return stored(store.db, found)[0] if found else None


def handle_of_number(store: JobParts, number: int) -> tuple[int, int] | None:
    last = padded(number)
    found = store.db.page(LEDGER, "numbered", limit=1, last=last, newest_first=True)
    job = store.db.get(LEDGER, keys.job_key(found[0]["number"])) if found else None
    if job is None or job["purged"]:
        return None
    return place_in_block(number, job["number"], job["numbered"], job["stride"], job["measurements"])


def stored(database: DynamoDatabase, pairs: Sequence[tuple[Item, Item]]) -> list[StoredMeasurement]:
    return with_names(database, [row for row, _ in pairs], {item["number"]: item for _, item in pairs})


def with_names(
    database: DynamoDatabase, rows: Sequence[Item], jobs_by_number: dict[int, Item]
) -> list[StoredMeasurement]:
    owners = names_of(database, jobs_by_number.values())
    return [
        stored_measurement(row, job=jobs_by_number[row["handle"] >> INDEX_BITS], owner=owners.get(row["owner"], ""))
        for row in rows
    ]


def packed(one: Measurement) -> str | bytes:
    """Return the measurement as a row stores it; compressed if it comes near the size limit of an item."""
    text = encode_measurement(one)
    return text.decode() if len(text) < PACKED_BYTES_MIN else zlib.compress(text)


def measurement_in(row: Item) -> Measurement:
    body = row["body"]
    return parse_stored_measurement(zlib.decompress(body) if isinstance(body, bytes) else body)


def atlas_of(row: Item) -> tuple[AtlasMeasurement, ...]:
    """Return the state of the measurement's definitions at RIPE, in order."""
    return tuple(AtlasMeasurement(*one) for one in row.get("atlas", ()))


def stored_measurement(row: Item, *, job: Item, owner: str) -> StoredMeasurement:
    key, index = row.get("key_number"), row["handle"] & INDEX_MASK
    return StoredMeasurement(
        handle=row["handle"],
        attempt=row["attempt"],
        job=job["name"],
        index=index,
        owner=owner,
        state=row["state"],
        measurement=measurement_in(row),
        cost=cost_of(row),
        reason=row["reason"],
        next_ms=row.get("next_ms"),
        lookups=row["lookups"],
        stopping=row["stopping"],
        account=row.get("account"),
        key=None if key is None else key_id(key),
        intent_ms=row.get("intent_ms"),
        answered_ms=row.get("answered_ms"),
        ended_ms=row.get("ended_ms"),
        passed_ms=row.get("passed_ms"),
        settled=row.get("settled"),
        atlas=atlas_of(row),
        number=job["numbered"] + index * job["stride"] if "numbered" in job else None,
        running=bool(row["slot"]),
    )


def measurements_of(
    store: JobParts, owner: str, *, states: Sequence[MeasurementState], before: int | None, limit: int
) -> list[StoredMeasurement]:
    user = store.db.get(ITEMS, user_key(owner))
    if user is None:
        return []
    wanted = wanted_states(states)
    below = 1 << 62 if before is None else before
    rows: list[Item] = []
    items: dict[int, Item] = {}
    for item in _newest_jobs(store.db, joined("jobs", user["number"]), before=(below >> INDEX_BITS) + 1):
        if len(rows) >= limit:
            break
        if _worth_a_look(item, wanted):
            items[item["number"]] = item
            found = (row for row in _newest_rows(store.db, item, below=below) if row["state"] in wanted)
            rows += islice(found, limit - len(rows))
    return with_names(store.db, rows, items)


def count_of(store: JobParts, owner: str, *, states: Sequence[MeasurementState]) -> int:
    user = store.db.get(ITEMS, user_key(owner))
    if user is None:
        return 0
    wanted = wanted_states(states)
    total = 0
    for item in _newest_jobs(store.db, joined("jobs", user["number"]), before=None):
        counted, are_more = count_definitions(item, wanted)
        total += counted
        if are_more and item["open"]:
            rows = walk(store.db, item, only="#state, #concurrent", page=COUNTED_PAGE)
            total += sum(row["concurrent"] for row in rows if row["state"] in wanted & LIVE)
    return total


def _worth_a_look(item: Item, wanted: frozenset[str]) -> bool:
    """Return True if the job has measurements in these states, by its own counts."""
    return any(item[state] for state in ENDED & wanted) or bool(wanted & LIVE and item["open"])


def _newest_jobs(database: DynamoDatabase, listed: str, *, before: int | None) -> Iterator[Item]:
    """Yield the jobs of a list, newest first, without those being removed."""
    below = padded(1 << 62 if before is None else max(before, 0))
    numbers = (int(one["sk"]) for one in database.walk(LEDGER, listed, size=PAGE, before=below, newest_first=True))
    for page in in_pages(numbers, PAGE):
        items = job_items(database, page)
        yield from (items[number] for number in page if number in items and not items[number]["purged"])


def _newest_rows(database: DynamoDatabase, item: Item, *, below: int) -> Iterator[Item]:
    """Yield a job's measurements below a handle, the last first."""
    first = handle_of(item["number"], 0)
    last = min(below, handle_of(item["number"], item["measurements"])) - 1
    while last >= first:
        key = keys.row_key(last)
        yield from database.walk(LEDGER, key.pk, size=PAGE, last=key.sk, newest_first=True)
        last = first + ((last & INDEX_MASK) >> keys.BUCKET_BITS << keys.BUCKET_BITS) - 1
