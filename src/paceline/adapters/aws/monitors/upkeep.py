"""Retention, counts, and repairs after the clock was set back."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, NamedTuple

from paceline.adapters.aws.client.connect import THREADS
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.expiry import Retention
from paceline.adapters.aws.client.items import PRESENT, Action, DynamoKey, Item, delete, key_of, padded, setting, update
from paceline.adapters.aws.client.numbers import last_generation
from paceline.adapters.aws.client.tables import ITEMS, READY_INDEX, RUNS, SCHEDULERS
from paceline.adapters.aws.monitors import keys
from paceline.adapters.aws.monitors.changes import count_changes
from paceline.adapters.aws.monitors.claims import AS_SEEN, facts_of
from paceline.adapters.aws.monitors.history import fronts_of
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.adapters.aws.monitors.reoffer import owners
from paceline.adapters.aws.monitors.settlements import come_to_front
from paceline.adapters.aws.monitors.transactions import Act, transact_acts
from paceline.adapters.aws.uptime import fold_monitor
from paceline.core.daemons import Leases
from paceline.core.monitors.leases import (
    EXPIRED,
    TERMINAL,
    LeaseTimes,
    LongestRunWaits,
    has_expired,
    pulled_back,
    waits,
)
from paceline.core.monitors.values import PurgeReport
from paceline.core.monitors.wait_reasons import OpenTimes, could_start_ms, waiting_since_ms
from paceline.core.store_status import StoreStatus

KEPT_MORE_MS = 3_600_000
"""After a purge a lane is read again when its oldest run is older by this much: then several are deleted at once."""
RUNS_AT_ONCE = 90
FRONTS_MAX = 1_000
"""Fronts that the status reads with their lanes. Of the others it counts rows of the index, a page of each shard."""
SHARD_COUNTED_MAX = 10_000
COUNTED_MAX = 100_000
REMEMBERED_S = 10.0
AS_READ = "#front = :front AND #newest = :newest"
GONE_KEPT_MS = 86_400_000
PAGE_MAX = 1_000
_FOREVER_MS = 1 << 60


# -- retention


def purge(store: MonitorParts, *, settled_before_ms: int, due_before_ms: int, now_ms: int, limit: int) -> PurgeReport:
    db = store.db
    expired = _expire(store, due_before_ms=due_before_ms, now_ms=now_ms, limit=limit)
    deleted = _delete_settled(db, settled_before_ms=settled_before_ms, limit=limit)
    _forget_owners(db, now_ms=now_ms)
    return PurgeReport(deleted, expired, more=bool(deleted or expired))


def _delete_settled(db: DynamoDatabase, *, settled_before_ms: int, limit: int) -> int:
    """Delete settled runs. A lane is in the index with the time when its oldest kept run ended, or an hour later."""
    rows = _indexed(db, keys.kept_shards(last_generation(db)), first_ms=0, last_ms=settled_before_ms - 1, limit=limit)
    deleted = 0
    while rows and deleted < limit:
        some = min(THREADS, limit - deleted, len(rows))
        purged = partial(_purge_lane, db, settled_before_ms, (limit - deleted) // some)
        deleted += sum(db.threads.fan_out(purged, map(key_of, rows[:some])))
        rows = rows[some:]
    return deleted


def _purge_lane(db: DynamoDatabase, settled_before_ms: int, limit: int, key: DynamoKey) -> int:
    lane = db.get(RUNS, key)
    if lane is None:
        return 0
    generation = lane["generation"]
    runs = _runs_from(db, generation, 0, limit=limit + 1, only="#pk, #sk, #counter, #state, #ended_ms")
    # From the first on: after the clock was set back a later run may have ended earlier, and waits for the others.
    old = list(takewhile(lambda run: run["state"] in TERMINAL and run["ended_ms"] < settled_before_ms, runs[:limit]))
    folded = fold_monitor(db, generation) if old else -1
    old = [run for run in old if run["counter"] <= folded]
    db.write_many(delete(RUNS, key_of(run)) for run in old)
    left = runs[len(old) :]
    # No run before the first that is left is there any more: this pass has deleted it, or time to live has.
    last = left[0]["counter"] - 1 if left else lane["newest"]
    if last == lane["newest"]:
        # The entry tells when its newest run was due, as long as that run is stored.
        change, values = "REMOVE #last_due_ms", {"counter": last + 1}
        db.write(update(SCHEDULERS, keys.entry_key(generation), change, when="#counter = :counter", **values))
        if db.get(SCHEDULERS, keys.entry_key(generation)) is None and not left:
            if "listed" in lane:  # it is in the list of failing monitors, by an outcome before it was removed
                db.write(
                    delete(ITEMS, DynamoKey(*lane["listed"]), when="#generation = :generation", generation=generation)
                )
            db.write(delete(RUNS, key_of(lane), when=AS_READ, front=lane["front"], newest=lane["newest"]))
            db.write(delete(RUNS, keys.uptime_key(generation)))
            return len(old)
    kept_ms = left[0]["ended_ms"] + KEPT_MORE_MS if left and left[0]["state"] in TERMINAL else None
    if len(old) == limit and left:
        kept_ms = lane.get("at", settled_before_ms - 1)  # there may be more to delete next time
    _move_lane(db, lane, kept_ms, forget=last == lane["front"] - 1)
    return len(old)


def _move_lane(db: DynamoDatabase, lane: Item, kept_ms: int | None, *, forget: bool) -> None:
    """Move a lane in the index. If a run was settled or made in the meantime, the next pass reads the lane again."""
    wanted: dict[str, Any] = {"at": kept_ms} if kept_ms is not None else {"at": None, "shard": None}
    change, values = setting(wanted | ({"settled": None} if forget else {}))
    db.write(_lane_update(lane, change, **values))


def _lane_update(lane: Item, change: str, **values: Any) -> Action:
    return update(RUNS, key_of(lane), change, when=AS_READ, front=lane["front"], newest=lane["newest"], **values)


def _expire(store: MonitorParts, *, due_before_ms: int, now_ms: int, limit: int) -> int:
    """End runs that have expired. Return how many.

    The index is in order of when runs may start. First come runs that could have started before that time; then those
    that were or will be put off, and may still have been due before it.
    """
    db = store.db
    shards = _open_shards(db)
    spans = ((0, due_before_ms - 1), (due_before_ms, _FOREVER_MS))
    expired = 0
    for first_ms, last_ms in spans:
        rows = _indexed(db, shards, first_ms=first_ms, last_ms=last_ms, limit=limit)
        fronts = [run for run in db.get_many(RUNS, map(key_of, rows)).values() if "shard" in run]
        for front in sorted(fronts, key=lambda run: (run["due_ms"], run["generation"])):
            if expired < limit and _has_expired(front, due_before_ms):
                expired += _expire_lane(store, front, due_before_ms, now_ms=now_ms, limit=limit - expired)
    return expired


def _has_expired(run: Item, due_before_ms: int) -> bool:
    return has_expired(
        due_ms=run["due_ms"],
        state=run["state"],
        at_ms=run["at"],
        outgoing=keys.is_outgoing(run["queue"]),
        due_before_ms=due_before_ms,
    )


def _expire_lane(store: MonitorParts, front: Item, due_before_ms: int, *, now_ms: int, limit: int) -> int:
    """End the front and the old runs behind it, in one transaction. The next one comes to the front."""
    db = store.db
    generation, first = front["generation"], front["counter"]
    lane = db.get(RUNS, keys.lane_key(generation))
    if lane is None or lane["front"] != first:
        return 0
    runs = [front, *_runs_from(db, generation, first + 1, limit=min(limit, RUNS_AT_ONCE) - 1)]
    old = [run for run in runs if run["due_ms"] < due_before_ms]
    last = max(old[-1]["counter"], keys.behind_front(lane) - 1)
    ends = [_end(run, db.retention, now_ms) for run in old if run["state"] not in TERMINAL]
    change = """SET #front = :next, #settled = :dead, #shard = if_not_exists(#shard, :kept),
                    #at = if_not_exists(#at, :now)"""
    values = {"next": last + 1, "dead": "dead", "kept": keys.kept_shard(generation), "now": now_ms}
    act = [*ends, _lane_update(lane, change, **values)]
    if last < lane["newest"]:
        act.append(come_to_front(generation, last + 1))
    if not db.transact(act).won:
        return 0
    if last < lane["newest"] and keys.is_outgoing(front["queue"]):
        fronts = db.get_many(RUNS, [keys.run_key(generation, last + 1)]).values()
        store.alarms.offer([run for run in fronts if "at" in run], now_ms=now_ms)
    return len(ends)


def _end(run: Item, retention: Retention, now_ms: int) -> Action:
    change = "SET #state = :dead, #reason = :reason, #started_ms = :now, #ended_ms = :now, #expires_s = :expires_s"
    change = f"{change} REMOVE #shard, #at"
    values = {"dead": "dead", "reason": EXPIRED, "now": now_ms, "seen": run["state"], "attempt": run["attempt"]}
    values["expires_s"] = retention.run_s(now_ms)
    return update(RUNS, key_of(run), change, when="#state = :seen AND #attempt = :attempt", **values)


def _forget_owners(db: DynamoDatabase, *, now_ms: int) -> None:
    """Delete the items of removed owners, once their last run is gone and none can have been made since."""
    rows = list(owners(db))
    users = db.get_many(ITEMS, [keys.user_key(row["owner"]) for row in rows])
    for row in rows:
        number, user = int(row["sk"]), users.get(keys.user_key(row["owner"]))
        if user is not None and user["number"] == number:
            continue
        if "gone_ms" not in row:
            db.write(update(ITEMS, key_of(row), "SET #gone_ms = :now", when=PRESENT, now=now_ms))
        elif now_ms - row["gone_ms"] >= GONE_KEPT_MS and not _any_open(db, keys.all_queues(row)):
            for name in row.get("names", ()):
                db.write(delete(ITEMS, DynamoKey(keys.owners_of(name), row["sk"])))
            db.write(delete(ITEMS, key_of(row)))


def _any_open(db: DynamoDatabase, shards: Sequence[str]) -> bool:
    return bool(_indexed(db, shards, first_ms=0, last_ms=_FOREVER_MS, limit=1))


def _open_shards(db: DynamoDatabase) -> list[str]:
    """Return all shards that may have open runs."""
    checks = keys.check_queues(last_generation(db))
    return [*checks, *(shard for row in owners(db) for shard in keys.all_queues(row))]


def _indexed(db: DynamoDatabase, shards: Sequence[str], *, first_ms: int, last_ms: int, limit: int) -> list[Item]:
    """Return rows of the index in order, up to the limit: a hint."""

    def read(shard: str) -> list[Item]:
        return db.page(RUNS, shard, limit=limit, index=READY_INDEX, first=first_ms, last=last_ms)

    rows = [row for page in db.threads.fan_out(read, shards) for row in page]
    return sorted(rows, key=lambda row: int(row["at"]))[:limit]


def _runs_from(db: DynamoDatabase, generation: int, counter: int, *, limit: int, only: str = "") -> list[Item]:
    first, last = padded(counter), padded(keys.COUNTER_MASK)
    return db.page(RUNS, keys.runs_of(generation), limit=limit, only=only, first=first, last=last)


# -- the clock was set back


def pull_back_runs(store: MonitorParts, read_ms: Callable[[], int], *, wait_ms_max: int, later_ms_max: int = 0) -> int:
    """Pull back every front, and the runs behind it that are caught up later."""
    db, bounds = store.db, waits(wait_ms_max=wait_ms_max, later_ms_max=later_ms_max)
    moved = 0
    for shard in _open_shards(db):
        rows = _indexed(db, [shard], first_ms=0, last_ms=_FOREVER_MS, limit=COUNTED_MAX)
        for at in range(0, len(rows), PAGE_MAX):
            item_keys = map(key_of, rows[at : at + PAGE_MAX])
            fronts = [run for run in db.get_many(RUNS, item_keys).values() if "shard" in run]
            now_ms = read_ms()  # after the runs were read, so none of them was written later
            acts = [[act] for run in fronts if (act := _pulled(run, now_ms=now_ms, waits=bounds))]
            moved += sum(transact_acts(db, acts))
            moved += _pull_back_behind(db, fronts, now_ms=now_ms, waits=bounds)
    if moved:
        store.change_counter.bump(also_self=True)
    return moved


def _pulled(run: Item, *, now_ms: int, waits: LongestRunWaits) -> Action | None:
    moved = pulled_back(run["state"], LeaseTimes(run["at"], run.get("started_ms")), now_ms=now_ms, waits=waits)
    if moved is None:
        return None
    change = "SET #at = :to, #started_ms = :now" if run["state"] == "out" else "SET #at = :to, #from_ms = :to"
    values: dict[str, Any] = {"seen": run["state"], "attempt": run["attempt"], "at": run["at"], "to": moved.at_ms}
    if run["state"] == "out":
        values["now"] = moved.started_ms
    return update(RUNS, key_of(run), change, when=AS_SEEN, **values)


def _pull_back_behind(db: DynamoDatabase, fronts: Sequence[Item], *, now_ms: int, waits: LongestRunWaits) -> int:
    """Move runs behind the fronts. A run that only waits for the one before it does not wait for the clock."""
    lanes = db.get_many(RUNS, [keys.lane_key(run["generation"]) for run in fronts]).values()
    change, when = "SET #from_ms = :latest", "attribute_not_exists(#shard) AND #from_ms > :latest"
    acts: list[Act] = []
    for lane in lanes:
        if lane["front"] == lane["newest"]:
            continue
        for run in _runs_from(db, lane["generation"], lane["front"] + 1, limit=COUNTED_MAX):
            moved = pulled_back(run["state"], LeaseTimes(run["from_ms"], None), now_ms=now_ms, waits=waits)
            if moved is not None and "shard" not in run:
                acts.append([update(RUNS, key_of(run), change, when=when, latest=moved.at_ms)])
    return sum(transact_acts(db, acts))


# -- counts


class OpenRuns(NamedTuple):
    waiting: int
    out: int
    oldest_since_ms: int | None
    check_start_ms: int | None
    outgoing_start_ms: int | None


class Counts:
    """Counts for people and metrics.

    Users, monitors and entries are counted by the writes themselves. Runs are counted from the fronts and their lanes,
    up to FRONTS_MAX; beyond that each further front counts as one waiting run, up to SHARD_COUNTED_MAX a shard, and the
    count is remembered for a while.
    """

    def __init__(self, db: DynamoDatabase, *, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._db = db
        self._clock_s = clock_s
        self._known: tuple[float, OpenRuns] | None = None

    def read(self, *, next_due_ms: int | None) -> StoreStatus:
        tallies = self._db.get_many(ITEMS, keys.tally_keys()).values()
        runs = self._open_runs()
        return StoreStatus(
            users=sum(int(tally.get("users", 0)) for tally in tallies),
            monitors=sum(int(tally.get("monitors", 0)) for tally in tallies),
            entries=sum(int(tally.get("entries", 0)) for tally in tallies),
            changes=count_changes(self._db),
            runs_waiting=runs.waiting,
            runs_out=runs.out,
            next_due_ms=next_due_ms,
            oldest_waiting_due_ms=runs.oldest_since_ms,
            file_bytes=0,
            check_start_ms=runs.check_start_ms,
            outgoing_start_ms=runs.outgoing_start_ms,
        )

    def _open_runs(self) -> OpenRuns:
        if self._known is not None and self._clock_s() < self._known[0]:
            return self._known[1]
        shards = _open_shards(self._db)
        rows = _indexed(self._db, shards, first_ms=0, last_ms=_FOREVER_MS, limit=FRONTS_MAX)
        runs = _count_fronts(self._db, rows)
        if len(rows) == FRONTS_MAX:
            more = sum(self._db.threads.fan_out(self._count_shard, shards)) - FRONTS_MAX
            runs = runs._replace(waiting=runs.waiting + max(more, 0))
            self._known = (self._clock_s() + REMEMBERED_S, runs)
        return runs

    def _count_shard(self, shard: str) -> int:
        return self._db.count(RUNS, shard, limit=SHARD_COUNTED_MAX, index=READY_INDEX)


def _count_fronts(db: DynamoDatabase, rows: Sequence[Item]) -> OpenRuns:
    lanes = db.get_many(RUNS, [DynamoKey(row["pk"], keys.LANE) for row in rows]).values()
    fronts = fronts_of(db, lanes)
    out = sum(run["state"] == "out" for run in fronts.values())
    behind = sum(lane["newest"] - keys.behind_front(lane) + 2 for lane in lanes if lane["generation"] in fronts)
    waiting = [waiting_since_ms(_times(run)) for run in (*fronts.values(), *_first_behind(db, lanes, fronts))]
    resting = _resting(db, fronts.values())
    starts: dict[bool, list[int]] = {False: [], True: []}
    for run in fronts.values():
        start_ms = could_start_ms(_times(run), disabled=run["generation"] in resting)
        if start_ms is not None:
            starts[keys.is_outgoing(run["queue"])].append(start_ms)
    oldest_ms, *starts_ms = (
        min((ms for ms in times if ms is not None), default=None) for times in (waiting, starts[False], starts[True])
    )
    return OpenRuns(behind - out, out, oldest_ms, *starts_ms)


def _first_behind(db: DynamoDatabase, lanes: Iterable[Item], fronts: Mapping[int, Item]) -> Iterable[Item]:
    """Return the run behind each front that is out."""
    item_keys = [
        keys.run_key(lane["generation"], keys.behind_front(lane))
        for lane in lanes
        if (front := fronts.get(lane["generation"])) and front["state"] == "out"
        if keys.behind_front(lane) <= lane["newest"]
    ]
    return db.get_many(RUNS, item_keys).values() if item_keys else ()


def _times(run: Item) -> OpenTimes:
    return OpenTimes(run["state"], run["due_ms"], run["at"] if "at" in run else run["from_ms"])


def _resting(db: DynamoDatabase, runs: Iterable[Item]) -> set[int]:
    """Return the generations of these runs that do not start because their owner is disabled.

    A check whose monitor is gone starts, and ends at once; an outgoing run stays in its owner's queue.
    """
    runs = list(runs)
    users = db.get_many(ITEMS, {keys.user_key(run["owner"]) for run in runs})
    disabled = {user["number"] for user in users.values() if user["disabled"]}
    resting = [run for run in runs if run["user"] in disabled]
    facts = facts_of(db, resting)
    return {run["generation"] for run in resting if keys.is_outgoing(run["queue"]) or facts[run["generation"]].monitor}


def leases(store: MonitorParts, *, now_ms: int) -> Leases:
    """Count leases: fronts that the index has after now, and that are out when they are read."""
    db = store.db
    rows = _indexed(db, _open_shards(db), first_ms=now_ms + 1, last_ms=_FOREVER_MS, limit=FRONTS_MAX)
    fronts = fronts_of(db, db.get_many(RUNS, [DynamoKey(row["pk"], keys.LANE) for row in rows]).values())
    ends = [int(run["at"]) for run in fronts.values() if run["state"] == "out" and run["at"] > now_ms]
    return Leases(len(ends), max(ends, default=None))
