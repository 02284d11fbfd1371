"""Writes decisions of core.batches.unwanted: runs end, are set aside with their batch, or move."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from paceline.adapters.aws.batches import keys
from paceline.adapters.aws.batches.enqueue import free_dues_ms
from paceline.adapters.aws.batches.lanes import LaneItem, LaneRun, Looks, busy_lane, lane_of, place_again, write_lane
from paceline.adapters.aws.client.connect import attempts
from paceline.adapters.aws.client.database import ACTIONS_MAX, DynamoDatabase
from paceline.adapters.aws.client.expiry import Retention
from paceline.adapters.aws.client.items import Action, Item, delete, item_at, put, setting, update
from paceline.adapters.aws.client.tables import EXPIRES, RUNS
from paceline.core.batches.run_keys import RECORD_BITS, queue_key
from paceline.core.batches.settle import DEAD_STATES
from paceline.core.batches.unwanted import (
    DayFacts,
    Defer,
    End,
    Predecessor,
    RunFacts,
    Unwanted,
    judge_run,
    may_have_arrived,
)

ASIDE_MAX = 10_000
"""Runs that one read brings back from aside; there are as many reads as needed."""
LOOKS_MAX = 10_000
MOVES_MAX = 32
IN_PLACE = "#run = :seen AND #state = :was"


class Wishes(NamedTuple):
    """The current wishes of records, days and batches, for every run that a claim may start."""

    records: dict[int, Item]
    """Records by run."""
    days: dict[int, DayFacts]
    before: dict[int, Predecessor]
    """Predecessors by run, for records that come after another."""

    def day(self, run: int) -> DayFacts:
        return self.days[run >> RECORD_BITS]

    def record(self, run: int) -> Item | None:
        """Return the run's record, if it exists and is active."""
        record = self.records.get(run)
        return record if record is not None and record["active"] and not record.get("deleted") else None

    def judge(self, run: LaneRun, provider: int, *, now_ms: int) -> Unwanted | None:
        """Return core's verdict on a run of this provider's queue; None if it may start."""
        if run.at_ms > now_ms:
            return None  # its record was not read
        record = self.record(run.run)
        named = record["provider"] if record is not None else None
        before = self.before.get(run.run)
        facts = RunFacts(run.state, run.due_ms, run.at_ms, run.attempt, run.lost, provider, named, before)
        return judge_run(facts, self.day(run.run), now_ms=now_ms)


def take_out(
    db: DynamoDatabase,
    looks: Looks,
    lane: LaneItem,
    runs: Sequence[LaneRun],
    wishes: Wishes,
    *,
    front_ms: int,
    now_ms: int,
) -> set[int]:
    """Remove unwanted runs from a provider's queue, as many as fit into one transaction.

    ``runs`` are all held ones and the first waiting ones; ``front_ms``: when the next after them is due. Returns the
    numbers of the batches for which runs were set aside.
    """
    judged = [(run, wishes.judge(run, lane.provider, now_ms=now_ms)) for run in runs]
    if moved := [run for run, verdict in judged if verdict == "move"]:
        _move_some(db, looks, lane, moved[:MOVES_MAX], wishes)
        return set()
    if deferred := [(run, verdict) for run, verdict in judged if isinstance(verdict, Defer)]:
        _defer_some(db, looks, lane, deferred[:MOVES_MAX])
        return set()
    actions: list[Action] = []
    gone: set[int] = set()
    asides: list[int] = []
    for run, verdict in judged:
        if verdict is None:
            continue
        # Setting a run aside takes two actions, and the lane takes one.
        if len(actions) + 3 > ACTIONS_MAX:
            break
        gone.add(run.due_ms)
        if isinstance(verdict, End):
            actions.append(_end(db.retention, lane.provider, run, verdict, now_ms=now_ms))
        else:
            asides.append(wishes.day(run.run).batch_number)
            actions += _set_aside(lane.provider, run, asides[-1])
    left = [run.due_ms for run in runs if run.state == "waiting" and run.due_ms not in gone]
    after = lane.change(
        held={due_ms: one for due_ms, one in lane.held.items() if due_ms not in gone},
        front_ms=min([*left, front_ms]),
        aside=lane.aside + len(asides),
    )
    if not db.transact([write_lane(lane, after), *actions]).won:
        return set()
    looks.note(after)
    return set(asides)


def _set_aside(provider: int, run: LaneRun, batch_number: int) -> list[Action]:
    lost = 1 if may_have_arrived(run.state, run.lost) else 0
    change, values = setting({"state": "aside", "attempt": run.attempt, "lost": lost, "shard": None, "at": None})
    key = keys.aside_key(batch_number, provider, run.due_ms)
    return [
        update(
            RUNS, keys.place_key(provider, run.due_ms), change, when=IN_PLACE, seen=run.run, was="waiting", **values
        ),
        put(RUNS, item_at(key, provider=provider, due_ms=run.due_ms, run=run.run)),
    ]


def _end(retention: Retention, provider: int, run: LaneRun, verdict: End, *, now_ms: int) -> Action:
    dead = verdict.state in DEAD_STATES
    change, values = setting(
        {
            "state": verdict.state,
            "attempt": run.attempt,
            "ended_ms": now_ms,
            "reason": verdict.reason,
            "dead": dead or None,
            "shard": keys.dead_shard(provider) if dead else None,
            "at": queue_key(provider, run.due_ms) if dead else None,
            EXPIRES: retention.call_s(now_ms, dead=dead),
        }
    )
    key = keys.place_key(provider, run.due_ms)
    return update(RUNS, key, change, when=IN_PLACE, seen=run.run, was="waiting", **values)


def _move_some(db: DynamoDatabase, looks: Looks, lane: LaneItem, runs: Sequence[LaneRun], wishes: Wishes) -> None:
    """Move runs one after the other; the first that loses, and those after it, are moved by the next look."""
    now: LaneItem | None = lane
    for run in runs:
        if now is not None:
            now = _move(db, looks, now, run, wishes)


def _defer_some(db: DynamoDatabase, looks: Looks, lane: LaneItem, runs: Sequence[tuple[LaneRun, Defer]]) -> None:
    """Move runs to a later due time, one after the other; each gets another place at its provider."""
    for run, verdict in runs:
        due_ms = free_dues_ms(db, lane.provider, [verdict.due_ms])[0]
        held = {other_ms: one for other_ms, one in lane.held.items() if other_ms != run.due_ms}
        after = msgspec.structs.replace(lane.woken(due_ms), version=lane.version + 1, held=held)
        facts = {"attempt": run.attempt, "reason": verdict.reason}
        moved = place_again(_leaving(lane, run), run.run, lane.provider, due_ms, **facts)
        done = db.transact([write_lane(lane, after), *moved])
        if not done.won:
            return
        looks.note(after)
        lane = after


def _move(db: DynamoDatabase, looks: Looks, lane: LaneItem, run: LaneRun, wishes: Wishes) -> LaneItem | None:
    """Move a run to its record's provider, with its due time and attempts.

    Return the lane afterwards; None if it lost.
    """
    target = lane_of(db, wishes.records[run.run]["provider"])
    assert target is not None
    due_ms = free_dues_ms(db, target.provider, [run.due_ms])[0]
    held = {other_ms: one for other_ms, one in lane.held.items() if other_ms != run.due_ms}
    after, woken = lane.change(held=held), target.woken(due_ms).change()
    moved = place_again(_leaving(lane, run), run.run, target.provider, due_ms, attempt=run.attempt)
    done = db.transact([write_lane(lane, after), write_lane(target, woken), *moved])
    if not done.won:
        return None
    looks.note(after)
    looks.note(woken)
    return after


def _leaving(lane: LaneItem, run: LaneRun) -> Action:
    return delete(RUNS, keys.place_key(lane.provider, run.due_ms), when=IN_PLACE, seen=run.run, was="waiting")


def bring_back(db: DynamoDatabase, looks: Looks, batch_number: int) -> int:
    """Put runs that were set aside for the batch back into their places. Return how many."""
    back = 0
    for _ in range(LOOKS_MAX):
        rows = db.page(RUNS, keys.aside_partition(batch_number), limit=ASIDE_MAX)
        by_provider: dict[int, list[Item]] = defaultdict(list)
        for row in rows:
            by_provider[row["provider"]].append(row)
        db.threads.fan_out(lambda group: _bring_back_at(db, looks, batch_number, *group), list(by_provider.items()))
        back += len(rows)
        if len(rows) < ASIDE_MAX:
            break
    return back


def _bring_back_at(db: DynamoDatabase, looks: Looks, batch_number: int, provider: int, rows: Sequence[Item]) -> None:
    size = (ACTIONS_MAX - 1) // 2
    for at in range(0, len(rows), size):
        _bring_back_some(db, looks, batch_number, provider, rows[at : at + size])


def _bring_back_some(db: DynamoDatabase, looks: Looks, batch_number: int, provider: int, rows: Sequence[Item]) -> None:
    left = list(rows)
    for _ in attempts():
        lane = lane_of(db, provider)
        assert lane is not None
        first_ms = min(row["due_ms"] for row in left)
        after = lane.woken(first_ms).change(aside=lane.aside - len(left))
        actions = [write_lane(lane, after)]
        for row in left:
            change, values = setting({"state": "waiting", "shard": keys.open_shard(row["run"]), "at": row["due_ms"]})
            place, pointer = (
                keys.place_key(provider, row["due_ms"]),
                keys.aside_key(batch_number, provider, row["due_ms"]),
            )
            actions.append(update(RUNS, place, change, when=IN_PLACE, seen=row["run"], was="aside", **values))
            actions.append(delete(RUNS, pointer))
        if db.transact(actions).won:
            looks.note(after)
            return
        there = db.get_many(RUNS, (keys.aside_key(batch_number, provider, row["due_ms"]) for row in left))
        left = [row for row in left if keys.aside_key(batch_number, provider, row["due_ms"]) in there]
        if not left:
            return  # another process brought them back
    raise busy_lane(provider)
