"""Puts runs into the ledger and into their places: each once, and no two of a provider in the same millisecond."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import groupby
from typing import NamedTuple, TypeVar

from paceline.adapters.aws.batches import keys
from paceline.adapters.aws.batches.lanes import Looks, busy_lane, lane_of, write_lane
from paceline.adapters.aws.client.connect import attempts, busy
from paceline.adapters.aws.client.database import ACTIONS_MAX, DynamoDatabase
from paceline.adapters.aws.client.expiry import Retention
from paceline.adapters.aws.client.items import ABSENT, Action, item_at, padded, put, update
from paceline.adapters.aws.client.tables import EXPIRES, ITEMS, RUNS
from paceline.core.batches.batch import Day
from paceline.core.batches.free_keys import CHUNK_KEYS, FreeKeys, UsedKeys, used_keys
from paceline.core.batches.run_keys import run_key
from paceline.core.batches.unwanted import MISSED_WHEN_PLANNED
from paceline.core.batches.values import Placements

T = TypeVar("T")

RUNS_PER_WRITE = (ACTIONS_MAX - 2) // 2
"""A run takes two actions. The day's counter takes one, and so does the lane if it is in the same transaction."""


class Placing(NamedTuple):
    """A run to be made. ``missed``: it ends at once."""

    provider: int
    due_ms: int
    run: int
    missed: bool


class EnqueuedRuns(NamedTuple):
    """Counts of the runs that were made, and the first due time of each provider that has a waiting run of the page."""

    enqueued: int
    skipped: int
    firsts: dict[int, int]


def placings(day: Day, page: Placements, *, missed: bool) -> list[Placing]:
    return [
        Placing(provider, due_ms, run_key(day.number, record), missed)
        for record, provider, due_ms in zip(*page, strict=True)
    ]


def enqueue(db: DynamoDatabase, day: Day, wanted: Sequence[Placing], *, now_ms: int) -> EnqueuedRuns:
    """Write all runs, in transactions of about fifty.

    Tries first as if all were new, as they nearly always are, and looks at each run of a transaction that was lost. A
    run that exists already may be from a planner that died before it woke the provider, so the provider is woken.
    """
    left = _apart(sorted(wanted))
    enqueued = skipped = 0
    firsts: dict[int, int] = {}
    for _ in attempts():
        lost: list[Placing] = []
        chained = chains(left, provider_of=lambda placing: placing.provider, size=RUNS_PER_WRITE)
        for chunk, won in _write(db, day, chained, now_ms=now_ms):
            if won:
                enqueued += sum(not placing.missed for placing in chunk)
                skipped += sum(placing.missed for placing in chunk)
                _note_firsts(firsts, chunk)
            else:
                lost += chunk
        left = lost
        if not left:
            return EnqueuedRuns(enqueued, skipped, firsts)
        left, known = _unknown(db, left)
        _note_firsts(firsts, known)
        left = _free(db, left)
    raise busy(f"the plan of {day.batch} for {day.date}")


def chains(rows: Iterable[T], *, provider_of: Callable[[T], int], size: int) -> list[list[list[T]]]:
    """Return rows in transactions of ``size``; those of one chain are written one after the other.

    Rows are sorted by provider. A provider's queue is one partition with a thousand write units a second, and its
    claims and settlements need some of them: so no two transactions full of one provider's runs are written at the same
    time. The remainders of all providers are put together.
    """
    found: list[list[list[T]]] = []
    rest: list[T] = []
    for _, group in groupby(rows, key=provider_of):
        mine = list(group)
        full = len(mine) // size * size
        if full:
            found.append([mine[at : at + size] for at in range(0, full, size)])
        rest += mine[full:]
    return found + [[rest[at : at + size]] for at in range(0, len(rest), size)]


def _write(
    db: DynamoDatabase, day: Day, chained: Sequence[list[list[Placing]]], *, now_ms: int
) -> list[tuple[list[Placing], bool]]:
    """Write the transactions. Return the runs of each, and whether it was won."""

    def write(numbered: tuple[int, list[list[Placing]]]) -> list[tuple[list[Placing], bool]]:
        turn, chain = numbered
        return [
            (chunk, db.transact([*_runs(db.retention, chunk, now_ms=now_ms), _count(day, turn, chunk)]).won)
            for chunk in chain
        ]

    return [one for chain in db.threads.fan_out(write, enumerate(chained)) for one in chain]


def enqueue_with_lane(db: DynamoDatabase, looks: Looks, day: Day, wanted: Sequence[Placing]) -> int:
    """Write a few runs, each provider's in one transaction with its lane: nobody would come back to wake it."""
    made = 0
    for provider, group in groupby(_apart(sorted(wanted)), key=lambda placing: placing.provider):
        mine = list(group)
        for at in range(0, len(mine), RUNS_PER_WRITE):
            made += _enqueue_at(db, looks, day, provider, mine[at : at + RUNS_PER_WRITE])
    return made


def _enqueue_at(db: DynamoDatabase, looks: Looks, day: Day, provider: int, wanted: Sequence[Placing]) -> int:
    left = list(wanted)
    for attempt in attempts():
        lane = lane_of(db, provider)
        assert lane is not None
        after = lane.woken(min(placing.due_ms for placing in left)).change()
        actions = [*_runs(db.retention, left, now_ms=0), _count(day, attempt.number, left), write_lane(lane, after)]
        if db.transact(actions).won:
            looks.note(after)
            return len(left)
        left, _ = _unknown(db, left)
        left = _free(db, left)
        if not left:
            return 0
    raise busy_lane(provider)


def _runs(retention: Retention, chunk: Iterable[Placing], *, now_ms: int) -> list[Action]:
    actions: list[Action] = []
    for provider, due_ms, run, missed in chunk:
        row = item_at(keys.place_key(provider, due_ms), run=run, state="waiting")
        if missed:
            row |= {"state": "skipped", "attempt": 0, "ended_ms": now_ms, "reason": MISSED_WHEN_PLANNED}
            row[EXPIRES] = retention.call_s(now_ms, dead=False)
        else:
            row |= {"shard": keys.open_shard(run), "at": due_ms}
        # ABSENT on both: the ledger makes each run once for ever, and the place makes its due time unique in the queue.
        ledger = item_at(keys.ledger_key(run), provider=provider, due_ms=due_ms)
        actions += [put(RUNS, ledger, when=ABSENT), put(RUNS, row, when=ABSENT)]
    return actions


def _count(day: Day, turn: int, chunk: Sequence[Placing]) -> Action:
    """Return the action that counts the runs.

    It is in the same transaction, so the figures stay true after any crash.
    """
    missed = sum(placing.missed for placing in chunk)
    key = keys.counter_key(day.batch, day.date, turn % keys.COUNTERS)
    change = "ADD #enqueued :enqueued, #skipped :skipped"
    return update(ITEMS, key, change, when="", enqueued=len(chunk) - missed, skipped=missed)


def _note_firsts(firsts: dict[int, int], chunk: Iterable[Placing]) -> None:
    for placing in chunk:
        if not placing.missed:
            firsts[placing.provider] = min(firsts.get(placing.provider, placing.due_ms), placing.due_ms)


def _unknown(db: DynamoDatabase, chunk: Sequence[Placing]) -> tuple[list[Placing], list[Placing]]:
    """Return the runs that are not in the ledger, and those that are, with provider and due time as stored there."""
    found = db.get_many(RUNS, (keys.ledger_key(placing.run) for placing in chunk))
    left = [placing for placing in chunk if keys.ledger_key(placing.run) not in found]
    known = [
        placing._replace(provider=item["provider"], due_ms=item["due_ms"])
        for placing in chunk
        if (item := found.get(keys.ledger_key(placing.run))) is not None
    ]
    return left, known


def _apart(rows: Iterable[Placing]) -> list[Placing]:
    """Return the runs in due order, moved apart so that no two of a provider share a millisecond."""
    moved: list[Placing] = []
    for placing in rows:
        last = moved[-1] if moved else None
        meets = last is not None and last.provider == placing.provider and last.due_ms >= placing.due_ms
        moved.append(placing._replace(due_ms=last.due_ms + 1) if last and meets else placing)
    return moved


def _free(db: DynamoDatabase, rows: Sequence[Placing]) -> list[Placing]:
    by_provider: dict[int, list[Placing]] = defaultdict(list)
    for placing in rows:
        by_provider[placing.provider].append(placing)
    dues = db.threads.fan_out(
        lambda group: free_dues_ms(db, group[0], [placing.due_ms for placing in group[1]]), list(by_provider.items())
    )
    groups = zip(by_provider.values(), dues, strict=True)
    return [
        placing._replace(due_ms=due_ms) for group, mine in groups for placing, due_ms in zip(group, mine, strict=True)
    ]


def free_dues_ms(db: DynamoDatabase, provider: int, wanted: Sequence[int]) -> list[int]:
    """Return for each time, in rising order, itself or the next one at which the provider has no run, ended or not."""
    free = FreeKeys(partial(_used_from, db, keys.queue_partition(provider)))
    dues: list[int] = []
    last = -1
    for due_ms in wanted:
        last = free.next_free(max(due_ms, last + 1))
        dues.append(last)
    return dues


def _used_from(db: DynamoDatabase, partition: str, due_ms: int) -> UsedKeys:
    rows = db.page(RUNS, partition, limit=CHUNK_KEYS, first=padded(due_ms), last=keys.LAST, only="#sk")
    return used_keys([int(row["sk"]) for row in rows])
