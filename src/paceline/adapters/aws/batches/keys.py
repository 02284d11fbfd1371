"""Keys of the items of batches, and the numbers that name runs.

Table ``items``
    providers / id                      number, revision, spec, created_ms, updated_ms, deleted
    provider#number / -                 id
    batches / id                        number, revision, spec, created_ms, updated_ms; while it is being deleted:
                                        deleting_ms, deleted_runs, deleted_records
    name#batch#shard / record's id      number, provider, place, active, deleted, version, priority, after: all that a
                                        plan needs
    record#number / -                   batch, name, provider, place, active, deleted, endpoint, body, options: what a
                                        call needs
    newcomer#batch's number / number    a record that came while a day was on
    gone / number                       a record that was removed, until no run names it
    days#batch / date                   number, start_ms, end_ms, state, cursor
    days#batch / date#counter           enqueued, skipped: parts of a sum, so that pages do not wait for each other
    days / number                       batch, batch_number, date, start_ms, end_ms; gone once its runs are deleted
Table ``runs``
    d#day#shard / record's number       provider, due_ms: the ledger, each run once for ever, and where it stands
    q#provider / due_ms                 the run itself, from plan to result, in its place; in index ``ready`` while it
                                        has not ended (day#day#shard, by due time) or is a dead letter (dead#shard)
    q#provider / lane                   the provider's lane, with what is out or in back-off; in index ``ready``
    aside#batch's number / provider#due a run that came up while its batch was paused
"""

from __future__ import annotations

from paceline.adapters.aws.client.items import DIGITS, DynamoKey, joined, padded, shard_of
from paceline.core.batches.run_keys import RECORD_BITS, RECORD_MASK

SHARDS = 8
"""Partitions over which the records of a batch, the ledger of a day and dead letters are spread."""
LANE_SHARDS = 4
"""Shards of ready lanes. A claim reads each: so few, and still enough for a thousand calls a second."""
COUNTERS = 16
LANE = "lane"
LAST = "9" * DIGITS


# -- items


def provider_key(provider_id: str) -> DynamoKey:
    return DynamoKey("providers", provider_id)


def provider_number_key(number: int) -> DynamoKey:
    return DynamoKey(joined("provider", number), "-")


def batch_key(batch_id: str) -> DynamoKey:
    return DynamoKey("batches", batch_id)


def name_partition(batch_id: str, shard: int) -> str:
    return joined("name", batch_id, shard)


def name_key(batch_id: str, record_id: str) -> DynamoKey:
    return DynamoKey(name_partition(batch_id, shard_of(record_id, SHARDS)), record_id)


def record_key(number: int) -> DynamoKey:
    return DynamoKey(joined("record", number), "-")


def newcomer_partition(batch_number: int) -> str:
    return joined("newcomer", batch_number)


def newcomer_key(batch_number: int, record: int) -> DynamoKey:
    return DynamoKey(newcomer_partition(batch_number), padded(record))


def gone_key(record: int) -> DynamoKey:
    return DynamoKey("gone", padded(record))


def days_partition(batch_id: str) -> str:
    return joined("days", batch_id)


def day_key(batch_id: str, date: str) -> DynamoKey:
    return DynamoKey(days_partition(batch_id), date)


def counter_key(batch_id: str, date: str, counter: int) -> DynamoKey:
    return DynamoKey(days_partition(batch_id), f"{date}#{counter:02}")


def day_number_key(number: int) -> DynamoKey:
    return DynamoKey("days", padded(number))


# -- runs


def ledger_partition(day: int, shard: int) -> str:
    return joined("d", day, shard)


def ledger_key(run: int) -> DynamoKey:
    record = run & RECORD_MASK
    return DynamoKey(ledger_partition(run >> RECORD_BITS, record % SHARDS), padded(record))


def queue_partition(provider: int) -> str:
    return joined("q", provider)


def place_key(provider: int, due_ms: int) -> DynamoKey:
    return DynamoKey(queue_partition(provider), padded(due_ms))


def lane_key(provider: int) -> DynamoKey:
    return DynamoKey(queue_partition(provider), LANE)


def provider_in(partition: str) -> int:
    """Return the provider's number: the inverse of ``queue_partition``."""
    return int(partition[2:])


def aside_partition(batch_number: int) -> str:
    return joined("aside", batch_number)


def aside_key(batch_number: int, provider: int, due_ms: int) -> DynamoKey:
    return DynamoKey(aside_partition(batch_number), f"{padded(provider)}#{padded(due_ms)}")


# -- shards of the index ``ready``


def lane_shard(number: int) -> str:
    return f"lane#{number % LANE_SHARDS}"


def worker_shard(number: int) -> str:
    """Return the shard of a lane that workers claim from: Paceline's own callers do not read it."""
    return f"worker#{number % LANE_SHARDS}"


def worker_shards() -> list[str]:
    return [worker_shard(number) for number in range(LANE_SHARDS)]


def lane_shards() -> list[str]:
    return [lane_shard(number) for number in range(LANE_SHARDS)]


def open_shard(run: int) -> str:
    """Return the shard of a run that has not ended."""
    return open_shard_of(run >> RECORD_BITS, (run & RECORD_MASK) % SHARDS)


def open_shard_of(day: int, shard: int) -> str:
    return f"day#{day}#{shard}"


def dead_shard(provider: int) -> str:
    return f"dead#{provider % SHARDS}"
