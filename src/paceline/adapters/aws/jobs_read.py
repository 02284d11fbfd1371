"""Jobs and measurements as they are read: rows, with the names of their jobs and users."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import get_args

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import Item, joined, padded
from paceline.adapters.aws.jobs_accounts import key_id
from paceline.adapters.aws.jobs_keys import (
    BUCKET_BITS,
    ENDED,
    INDEX_BITS,
    INDEX_MASK,
    bucket_key,
    handle_of,
    job_key,
    row_key,
    too_busy,
    tries,
)
from paceline.adapters.aws.jobs_meters import cost_of
from paceline.adapters.aws.keys import user_key
from paceline.adapters.aws.tables import ITEMS, LEDGER
from paceline.core.compatible import place_in_block
from paceline.core.measurement import Measurement, MeasurementState, encode_measurement, parse_stored_measurement
from paceline.ports.job_values import AtlasMeasurement, StoredJob, StoredMeasurement

DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
TIME_DIGITS = 8
"""Of a job's name: enough until 2059, when they become nine."""
PAGE = 200
COUNTED_PAGE = 1_000
"""Where only a word of each is wanted."""
PACKED_BYTES_MIN = 100_000
_LIVE = frozenset(get_args(MeasurementState)) - ENDED
_COUNTS = (
    "measurements", "open", "done", "failed", "cancelled", "reserved", "settled", "refunded",
)  # fmt: skip


def job_name(number: int, *, now_ms: int) -> str:
    """Not the number alone: after a backup was restored, RIPE may know jobs that the store does not."""
    return f"{_base36(now_ms):0>{TIME_DIGITS}}{_base36(number)}"


def job(database: Database, name: str) -> StoredJob | None:
    for digits in (TIME_DIGITS, TIME_DIGITS + 1):
        text = name[digits:]
        if text and set(text) <= set(DIGITS) and len(text) < 13:
            found = database.get(LEDGER, job_key(int(text, 36)))
            if found is not None and found["name"] == name and not found["purged"]:
                return stored_jobs(database, [found])[0]
    return None


def job_items(database: Database, numbers: Iterable[int]) -> dict[int, Item]:
    """Those that are there; a job whose rows are still being written is not."""
    found = database.get_many(LEDGER, [job_key(number) for number in numbers])
    return {item["number"]: item for item in found.values()}


def stored_jobs(database: Database, items: Sequence[Item]) -> list[StoredJob]:
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


def names_of(database: Database, items: Iterable[Item]) -> dict[int, str]:
    """By their numbers, the names of the users these are of, as far as they are still there."""
    owners = {item["owner"]: item["user"] for item in items}
    users = database.get_many(ITEMS, [user_key(name) for name in owners.values()])
    numbers = {key: item["number"] for key, item in users.items()}
    return {number: name for number, name in owners.items() if numbers.get(user_key(name)) == number}


def jobs(database: Database, owner: str | None, *, before: int | None, limit: int) -> list[StoredJob]:
    listed = "jobs"
    if owner is not None:
        found = database.get(ITEMS, user_key(owner))
        if found is None:
            return []
        listed = joined("jobs", found["number"])
    taken: list[Item] = []
    for item in _newest_jobs(database, listed, before=before):
        taken.append(item)
        if len(taken) == limit:
            break
    return stored_jobs(database, taken)


def counts(database: Database, number: int) -> dict[MeasurementState, int]:
    found = database.get(LEDGER, job_key(number))
    if found is None:
        return {}
    if not found["open"] and not found["purged"]:
        ended: dict[MeasurementState, int] = {state: found[state] for state in ("done", "failed", "cancelled")}
        return {state: count for state, count in ended.items() if count}
    return dict(Counter(row["state"] for row in walk(database, found, only="#state", page=COUNTED_PAGE)))


def walk(database: Database, item: Item, *, after: int = -1, only: str = "", page: int = PAGE) -> Iterator[Item]:
    """A job's measurements in order, from the index behind ``after`` on; ``item`` is the job."""
    for bucket in range(max(after + 1, 0) >> BUCKET_BITS, (item["measurements"] - 1 >> BUCKET_BITS) + 1):
        first = max(after + 1, bucket << BUCKET_BITS)
        while True:
            found = database.query(
                LEDGER, "#pk = :pk AND #sk >= :first", limit=page, only=f"{only}, #sk" if only else "",
                pk=bucket_key(item["number"], bucket), first=padded(first),
            )  # fmt: skip
            yield from found
            if len(found) < page:
                break
            first = int(found[-1]["sk"]) + 1


def measurements(database: Database, number: int, *, after: int, limit: int) -> list[StoredMeasurement]:
    found = database.get(LEDGER, job_key(number))
    if found is None:
        return []
    rows: list[Item] = []
    for row in walk(database, found, after=after, page=max(1, min(limit, PAGE))):
        if len(rows) == limit:
            break
        rows.append(row)
    return with_names(database, rows, {number: found})


def read_measurements(database: Database, handles: Sequence[int]) -> list[tuple[Item, Item]]:
    """Each with its job, in the order asked for; those that are not there, or not yet, are left out."""
    numbers = {handle >> INDEX_BITS for handle in handles}
    keys = [*map(row_key, handles), *map(job_key, numbers)]
    found = database.get_many(LEDGER, keys)
    both = [(found.get(row_key(handle)), found.get(job_key(handle >> INDEX_BITS))) for handle in handles]
    return [(row, item) for row, item in both if row is not None and item is not None]


def chances(
    database: Database, known: tuple[Item, Item] | None, handle: int, fits: Callable[[Item], bool]
) -> Iterator[tuple[Item, Item]]:
    """A measurement with its job, as they were seen and then as they are read, for an act that may lose.

    It ends when what was read does not fit. What was only seen may have changed, so that alone ends nothing.
    """
    if known is not None and fits(known[0]):
        yield known
    for _ in tries():
        found = read_measurements(database, [handle])
        if not found or not fits(found[0][0]):
            return
        yield found[0]
    raise too_busy()


def measurement(database: Database, handle: int) -> StoredMeasurement | None:
    found = read_measurements(database, [handle]) if handle >= 0 else []
    return stored(database, found)[0] if found else None


def handle_of_number(database: Database, number: int) -> tuple[int, int] | None:
    last = padded(number)
    found = database.query(LEDGER, "#pk = :pk AND #sk <= :last", limit=1, newest_first=True, pk="numbered", last=last)
    job = database.get(LEDGER, job_key(found[0]["number"])) if found else None
    if job is None or job["purged"]:
        return None
    return place_in_block(number, job["number"], job["numbered"], job["stride"], job["measurements"])


def stored(database: Database, pairs: Sequence[tuple[Item, Item]]) -> list[StoredMeasurement]:
    return with_names(database, [row for row, _ in pairs], {item["number"]: item for _, item in pairs})


def with_names(database: Database, rows: Sequence[Item], jobs_by_number: dict[int, Item]) -> list[StoredMeasurement]:
    owners = names_of(database, jobs_by_number.values())
    return [
        stored_measurement(row, job=jobs_by_number[row["handle"] >> INDEX_BITS], owner=owners.get(row["owner"], ""))
        for row in rows
    ]


def packed(one: Measurement) -> str | bytes:
    """As a row has it; packed where it would come near the size that an item may have."""
    text = encode_measurement(one)
    return text.decode() if len(text) < PACKED_BYTES_MIN else zlib.compress(text)


def measurement_in(row: Item) -> Measurement:
    body = row["body"]
    return parse_stored_measurement(zlib.decompress(body) if isinstance(body, bytes) else body)


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
        atlas=tuple(AtlasMeasurement(*one) for one in row.get("atlas", ())),
        number=job["numbered"] + index * job["stride"] if "numbered" in job else None,
        running=bool(row["slot"]),
    )


def measurements_of(
    database: Database, owner: str, *, states: Sequence[MeasurementState], before: int | None, limit: int
) -> list[StoredMeasurement]:
    user = database.get(ITEMS, user_key(owner))
    if user is None:
        return []
    wanted = frozenset(states) or frozenset(get_args(MeasurementState))
    below = 1 << 62 if before is None else before
    rows: list[Item] = []
    items: dict[int, Item] = {}
    for item in _newest_jobs(database, joined("jobs", user["number"]), before=(below >> INDEX_BITS) + 1):
        if len(rows) >= limit:
            break
        if _worth_a_look(item, wanted):
            items[item["number"]] = item
            rows += _newest_rows(database, item, wanted, below=below, limit=limit - len(rows))
    return with_names(database, rows, items)


def count_of(database: Database, owner: str, *, states: Sequence[MeasurementState]) -> int:
    user = database.get(ITEMS, user_key(owner))
    if user is None:
        return 0
    wanted = frozenset(states) or frozenset(get_args(MeasurementState))
    total = 0
    for item in _newest_jobs(database, joined("jobs", user["number"]), before=None):
        ended = {state: item[f"definitions_{state}"] for state in ENDED}
        total += sum(ended[state] for state in ENDED & wanted)
        if wanted >= _LIVE:
            total += item["definitions"] - sum(ended.values())
        elif wanted & _LIVE and item["open"]:
            rows = walk(database, item, only="#state, #concurrent", page=COUNTED_PAGE)
            total += sum(row["concurrent"] for row in rows if row["state"] in wanted & _LIVE)
    return total


def _worth_a_look(item: Item, wanted: frozenset[str]) -> bool:
    """By the job's own counts."""
    return any(item[state] for state in ENDED & wanted) or bool(wanted & _LIVE and item["open"])


def _newest_jobs(database: Database, listed: str, *, before: int | None) -> Iterator[Item]:
    """Of a list, the newest first, without those on their way out."""
    below = padded(1 << 62 if before is None else max(before, 0))
    while True:
        page = database.query(
            LEDGER, "#pk = :pk AND #sk < :below", limit=PAGE, newest_first=True, pk=listed, below=below
        )
        items = job_items(database, [int(one["sk"]) for one in page])
        for one in page:
            item = items.get(int(one["sk"]))
            if item is not None and not item["purged"]:
                yield item
        if len(page) < PAGE:
            return
        below = page[-1]["sk"]


def _newest_rows(database: Database, item: Item, wanted: frozenset[str], *, below: int, limit: int) -> list[Item]:
    """A job's measurements in these states below a handle, the last first."""
    found: list[Item] = []
    last = min(below, handle_of(item["number"], item["measurements"])) - 1
    first = handle_of(item["number"], 0)
    while last >= first and len(found) < limit:
        key = row_key(last)
        page = database.query(
            LEDGER, "#pk = :pk AND #sk <= :last", limit=PAGE, newest_first=True, pk=key.pk, last=key.sk
        )
        found += [row for row in page if row["state"] in wanted]
        index = int(page[-1]["sk"]) if len(page) == PAGE else (last & INDEX_MASK) >> BUCKET_BITS << BUCKET_BITS
        last = first + index - 1
    return found[:limit]


def _base36(number: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, 36)
        text = DIGITS[digit] + text
    return text or "0"
