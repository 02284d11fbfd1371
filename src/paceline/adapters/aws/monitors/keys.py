"""Keys of users, monitors, entries and runs, and their spread over partitions.

table       pk                       sk            what
items       user#ID                  -             a user: number, role, daily_credits, disabled, created_ms, monitors,
                                                   queues, outgoing, load, names
items       users                    ID            that there is such a user: their order
items       token#ID                 -             a token; user is its owner's number
items       tokens#NUMBER            ID            that the user has such a token
items       monitors#NUMBER          ID            a definition: generation, revision, spec, created_ms, updated_ms
items       changes#SHARD            GENERATION    a recorded change: seq, user, owner, monitor
items       changes#0                !NUMBER       a change of all monitors of a user that is still to be recorded
items       owners                   NUMBER        that a user has had outgoing runs: owner, queues, names
items       owners#QUEUE             NUMBER        that a user has had outgoing runs in the queue of this name
items       failing#NUMBER           ID            that a monitor of the user fails: generation
items       closes                   MS#GENERATION that alerts of a monitor were held back, until then
items       tally#SHARD              -             users, monitors, entries: how many, over all shards
schedulers  GENERATION               -             an entry; in the index ``due`` by (shard, due) while it is armed
runs        m#GENERATION             COUNTER       a run; in the index ``ready`` by (shard, at) if it is the front
runs        m#GENERATION             lane          front: the first run not settled; newest: the last one made;
                                                   resume: those between the front and this one were superseded;
                                                   health: its record; listed: its key in failing#NUMBER
runs        uptime#GENERATION        -             the roll-up of a monitor: counter, rollup
ledger      catch-up                 -             when missed runs start: a calendar in seconds
ledger      alarms                   -             how far ahead entries have their alarms
ledger      offers                   -             until when outgoing runs were offered once more

All that a user owns has the user's number in its key, and the number is never given again: when the user is removed,
all of it is out of reach at once, however much there is to delete.
"""

from __future__ import annotations

from paceline.adapters.aws.client.items import DynamoKey, Item, joined, padded, shard_of
from paceline.adapters.aws.keys import user_key
from paceline.core.monitors.checks import DEFAULT_QUEUE
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.stored import StoredMonitor

__all__ = ["user_key"]

COUNTER_BITS = 30
COUNTER_MASK = (1 << COUNTER_BITS) - 1
GENERATION_BITS = 30
GENERATION_MAX = (1 << GENERATION_BITS) - 1

SHARDS_MAX = 128
GENERATIONS_EACH = 128
"""A partition takes 1,000 writes a second. A firing is two writes in the due index and four in that of runs that may
start: made, claimed (it moves, which is two) and settled. So one shard takes 128 monitors that fire every second, and
all of them 32,000 firings a second, nearly two million in a minute. A look without cached shards reads each shard, so
there are only as many as there ever were monitors for: the last generation tells how many (see ``due_shards``)."""
CHANGE_SHARDS = 4
"""An edit is four writes of a shard: its change is written and deleted, each in a transaction. So the shards take 1,000
edits a second."""
TALLY_SHARDS = 16
MONITORS_PER_QUEUE = 5_000
QUEUES_MAX = 128
"""An owner's outgoing runs wait in one partition for each MONITORS_PER_QUEUE of the owner's monitors."""

USERS, OWNERS, LANE, UPTIME = "users", "owners", "lane", "uptime"
FAN = "!"
"""Prefix that sorts before every digit, so that it is read before the changes."""


def handle_of(generation: int, counter: int) -> int:
    return generation << COUNTER_BITS | counter


def split_handle(handle: int) -> tuple[int, int]:
    return handle >> COUNTER_BITS, handle & COUNTER_MASK


def due_of(due_ms: int, generation: int) -> int:
    """Return the sort key of the due index. It is unique, so that pages have an exact order."""
    return max(due_ms, 0) << GENERATION_BITS | generation


def due_ms_of(due: int) -> int:
    return due >> GENERATION_BITS


def _shard(generation: int) -> int:
    """Return the shard of a generation. Shards are filled one by one; then generations are spread over all."""
    block = generation // GENERATIONS_EACH
    return block if block < SHARDS_MAX else shard_of(generation, SHARDS_MAX)


def _shards(last: int) -> range:
    return range(min(last // GENERATIONS_EACH + 1, SHARDS_MAX))


def due_shard(generation: int) -> str:
    return str(_shard(generation))


def due_shards(last: int) -> list[str]:
    """Return the shards that may have entries if this is the last generation; the functions below do the same."""
    return [str(shard) for shard in _shards(last)]


def check_queue(generation: int) -> str:
    return joined("checks", _shard(generation))


def check_queues(last: int) -> list[str]:
    return [joined("checks", shard) for shard in _shards(last)]


def owner_queue(number: int, queues: int, generation: int, name: str = DEFAULT_QUEUE) -> str:
    return _queue(number, name, shard_of(generation, queues))


def owner_queues(number: int, queues: int, name: str = DEFAULT_QUEUE) -> list[str]:
    return [_queue(number, name, shard) for shard in range(queues)]


def all_queues(row: Item) -> list[str]:
    """Return an owner's queues of every name, from the owner's item in ``owners``."""
    names = [DEFAULT_QUEUE, *row.get("names", ())]
    return [queue for name in names for queue in owner_queues(int(row["sk"]), row["queues"], name)]


def owners_of(name: str) -> str:
    return OWNERS if name == DEFAULT_QUEUE else joined(OWNERS, name)


def _queue(number: int, name: str, shard: int) -> str:
    """Return the partition of a queue. Names have no ``#`` in them, so no two partitions are the same."""
    return joined("outgoing", number, shard) if name == DEFAULT_QUEUE else joined("outgoing", number, name, shard)


def is_outgoing(queue: str) -> bool:
    return queue.startswith("outgoing#")


def kept_shard(generation: int) -> str:
    return joined("kept", _shard(generation))


def kept_shards(last: int) -> list[str]:
    return [joined("kept", shard) for shard in _shards(last)]


def entry_key(generation: int) -> DynamoKey:
    return DynamoKey(padded(generation), "-")


def run_key(generation: int, counter: int) -> DynamoKey:
    return DynamoKey(runs_of(generation), padded(counter))


def lane_key(generation: int) -> DynamoKey:
    return DynamoKey(runs_of(generation), LANE)


def uptime_key(generation: int) -> DynamoKey:
    return DynamoKey(joined(UPTIME, generation), "-")


def behind_front(lane: Item) -> int:
    """Return the counter of the run that comes to the front when the front has ended."""
    return max(int(lane["front"]) + 1, int(lane.get("resume", 0)))


def runs_of(generation: int) -> str:
    return joined("m", generation)


def monitors_of(number: int) -> str:
    return joined("monitors", number)


def monitor_key(number: int, monitor_id: str) -> DynamoKey:
    return DynamoKey(monitors_of(number), monitor_id)


def token_key(token_id: str) -> DynamoKey:
    return DynamoKey(joined("token", token_id), "-")


def tokens_of(number: int) -> str:
    return joined("tokens", number)


def changes_of(shard: int) -> str:
    return joined("changes", shard)


def change_key(generation: int) -> DynamoKey:
    return DynamoKey(changes_of(shard_of(generation, CHANGE_SHARDS)), padded(generation))


def tally_keys() -> list[DynamoKey]:
    return [DynamoKey(joined("tally", shard), "-") for shard in range(TALLY_SHARDS)]


def tally_key(name: str | int) -> DynamoKey:
    return tally_keys()[shard_of(name, TALLY_SHARDS)]


def to_stored(item: Item) -> StoredMonitor:
    return StoredMonitor(
        item["generation"], item["revision"], item["spec"], created_ms=item["created_ms"], updated_ms=item["updated_ms"]
    )


def to_monitor(owner: str, item: Item) -> Monitor:
    return to_stored(item).monitor(owner, item["sk"])
