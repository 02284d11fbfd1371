"""Runs that are not to start where they stand: ended, set aside with their batch, or moved to another provider."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from paceline.adapters.aws.batches_enqueue import free_dues_ms
from paceline.adapters.aws.batches_keys import (
    RECORD_BITS,
    aside_key,
    aside_partition,
    dead_shard,
    ledger_key,
    open_shard,
    place_key,
    place_number,
)
from paceline.adapters.aws.batches_lanes import (
    LaneItem,
    Looks,
    Run,
    busy_lane,
    lane_of,
    place_of_run,
    write_lane,
)
from paceline.adapters.aws.connect import attempts
from paceline.adapters.aws.database import ACTIONS_MAX, Database
from paceline.adapters.aws.items import ABSENT, Action, Item, delete, put, setting, update
from paceline.adapters.aws.tables import RUNS
from paceline.core.calls import CallState, is_missed

GONE = "its record was deleted or is not active any more"
GONE_LOST = "it was cut short and may have arrived, and its record was deleted or is not active any more"
MISSED = "missed: its time had passed, and its batch skips what it missed"
ASIDE_MAX = 10_000
"""So many come back from aside in one look; there are as many looks as it takes."""
LOOKS_MAX = 10_000
MOVES_MAX = 32
IN_PLACE = "#run = :seen AND #state = :was"


class DayFacts(NamedTuple):
    """What a run's day and batch say of it."""

    batch: str
    batch_number: int
    date: str
    start_ms: int
    end_ms: int
    paused: bool
    skips: bool
    """What was missed is not caught up."""


class Wishes(NamedTuple):
    """What records, days and batches want now: of every run that a claim may start."""

    records: dict[int, Item]
    """By run."""
    days: dict[int, DayFacts]

    def day(self, run: int) -> DayFacts:
        return self.days[run >> RECORD_BITS]

    def wanted(self, run: int) -> bool:
        record = self.records.get(run)
        return record is not None and record["active"] and not record.get("deleted")

    def takes(self, run: Run, provider: int, *, now_ms: int) -> bool:
        """Whether the run is not to start here, though it could."""
        if run.at_ms > now_ms:
            return False
        day = self.day(run.run)
        if not self.wanted(run.run) or day.paused:
            return True
        if self.records[run.run]["provider"] != provider:
            return not (run.lost or run.state == "out")  # what may have arrived stays with whom it was sent to
        return day.skips and run.attempt == 0 and is_missed(run.due_ms, day.start_ms, day.end_ms, now_ms=now_ms)


def sift(
    db: Database, looks: Looks, lane: LaneItem, runs: Sequence[Run], wishes: Wishes, *, front_ms: int, now_ms: int
) -> set[int]:
    """Takes out of the way what is not to run, as far as one transaction reaches.

    ``runs`` are all that are held and the first that wait; ``front_ms``: when the next after them is due. Returns the
    numbers of the batches for which runs were set aside.
    """
    taken = [run for run in runs if wishes.takes(run, lane.provider, now_ms=now_ms)]
    if moved := [run for run in taken if _moves(run, lane.provider, wishes)]:
        _move_some(db, looks, lane, moved[:MOVES_MAX], wishes)
        return set()
    actions: list[Action] = []
    gone: set[int] = set()
    aside: set[int] = set()
    for run in taken:
        if len(actions) + 3 > ACTIONS_MAX:
            break
        actions += _take(lane.provider, run, wishes, now_ms=now_ms)
        gone.add(run.due_ms)
        if wishes.wanted(run.run) and wishes.day(run.run).paused:
            aside.add(run.due_ms)
    left = [run.due_ms for run in runs if run.state == "waiting" and run.due_ms not in gone]
    after = lane.change(
        held={due_ms: one for due_ms, one in lane.held.items() if due_ms not in gone},
        front_ms=min([*left, front_ms]),
        aside=lane.aside + len(aside),
    )
    if not db.transact([write_lane(lane, after), *actions]).won:
        return set()
    looks.note(after)
    return {wishes.day(run.run).batch_number for run in taken if run.due_ms in aside}


def _moves(run: Run, provider: int, wishes: Wishes) -> bool:
    """Of a run that is taken: whether it goes to another provider."""
    elsewhere = wishes.wanted(run.run) and wishes.records[run.run]["provider"] != provider
    return elsewhere and not wishes.day(run.run).paused


def _take(provider: int, run: Run, wishes: Wishes, *, now_ms: int) -> list[Action]:
    lost = 1 if run.lost or run.state == "out" else 0
    day = wishes.day(run.run)
    if not wishes.wanted(run.run):
        if lost:
            return [end(provider, run, "unknown", GONE_LOST, now_ms=now_ms)]
        return [end(provider, run, "skipped", GONE, now_ms=now_ms)]
    if not day.paused:
        return [end(provider, run, "skipped", MISSED, now_ms=now_ms)]
    change, values = setting({"state": "aside", "attempt": run.attempt, "lost": lost, "shard": None, "at": None})
    key = aside_key(day.batch_number, provider, run.due_ms)
    return [
        update(RUNS, place_key(provider, run.due_ms), change, when=IN_PLACE, seen=run.run, was="waiting", **values),
        put(RUNS, {"pk": key.pk, "sk": key.sk, "provider": provider, "due_ms": run.due_ms, "run": run.run}),
    ]


def end(provider: int, run: Run, state: CallState, reason: str, *, now_ms: int) -> Action:
    """Ends a run without a call."""
    dead = state == "unknown"
    change, values = setting(
        {
            "state": state,
            "attempt": run.attempt,
            "ended_ms": now_ms,
            "reason": reason,
            "dead": dead or None,
            "shard": dead_shard(provider) if dead else None,
            "at": place_number(provider, run.due_ms) if dead else None,
        }
    )
    key = place_key(provider, run.due_ms)
    return update(RUNS, key, change, when=IN_PLACE, seen=run.run, was="waiting", **values)


def _move_some(db: Database, looks: Looks, lane: LaneItem, runs: Sequence[Run], wishes: Wishes) -> None:
    """One after the other; the first that loses, and those after it, are moved by the next look."""
    now: LaneItem | None = lane
    for run in runs:
        if now is not None:
            now = _move(db, looks, now, run, wishes)


def _move(db: Database, looks: Looks, lane: LaneItem, run: Run, wishes: Wishes) -> LaneItem | None:
    """To its record's provider, with its due time and its attempts. The lane afterwards; None: it lost."""
    target = lane_of(db, wishes.records[run.run]["provider"])
    assert target is not None
    due_ms = free_dues_ms(db, target.provider, [run.due_ms])[0]
    held = {other_ms: one for other_ms, one in lane.held.items() if other_ms != run.due_ms}
    after, woken = lane.change(held=held), target.woken(due_ms).change()
    item = place_of_run(target.provider, due_ms) | {
        "run": run.run,
        "state": "waiting",
        "attempt": run.attempt,
        "shard": open_shard(run.run),
        "at": due_ms,
    }
    old = place_key(lane.provider, run.due_ms)
    change, values = setting({"provider": target.provider, "due_ms": due_ms})
    done = db.transact(
        [
            write_lane(lane, after),
            write_lane(target, woken),
            delete(RUNS, old, when=IN_PLACE, seen=run.run, was="waiting"),
            put(RUNS, item, when=ABSENT),
            update(RUNS, ledger_key(run.run), change, when="attribute_exists(#pk)", **values),
        ]
    )
    if not done.won:
        return None
    looks.note(after)
    looks.note(woken)
    return after


def bring_back(db: Database, looks: Looks, batch_number: int) -> int:
    """What stood aside for the batch waits again, in its place."""
    back = 0
    for _ in range(LOOKS_MAX):
        rows = db.query(RUNS, "#pk = :pk", limit=ASIDE_MAX, pk=aside_partition(batch_number))
        by_provider: dict[int, list[Item]] = defaultdict(list)
        for row in rows:
            by_provider[row["provider"]].append(row)
        db.threads.fan_out(lambda group: _bring_back_at(db, looks, batch_number, *group), list(by_provider.items()))
        back += len(rows)
        if len(rows) < ASIDE_MAX:
            break
    return back


def _bring_back_at(db: Database, looks: Looks, batch_number: int, provider: int, rows: Sequence[Item]) -> None:
    size = (ACTIONS_MAX - 1) // 2
    for at in range(0, len(rows), size):
        _bring_back_some(db, looks, batch_number, provider, rows[at : at + size])


def _bring_back_some(db: Database, looks: Looks, batch_number: int, provider: int, rows: Sequence[Item]) -> None:
    left = list(rows)
    for _ in attempts():
        lane = lane_of(db, provider)
        assert lane is not None
        first_ms = min(row["due_ms"] for row in left)
        after = lane.woken(first_ms).change(aside=lane.aside - len(left))
        actions = [write_lane(lane, after)]
        for row in left:
            change, values = setting({"state": "waiting", "shard": open_shard(row["run"]), "at": row["due_ms"]})
            place, pointer = place_key(provider, row["due_ms"]), aside_key(batch_number, provider, row["due_ms"])
            actions.append(update(RUNS, place, change, when=IN_PLACE, seen=row["run"], was="aside", **values))
            actions.append(delete(RUNS, pointer))
        if db.transact(actions).won:
            looks.note(after)
            return
        there = db.get_many(RUNS, (aside_key(batch_number, provider, row["due_ms"]) for row in left))
        left = [row for row in left if aside_key(batch_number, provider, row["due_ms"]) in there]
        if not left:
            return  # another brought them back
    raise busy_lane(provider)
