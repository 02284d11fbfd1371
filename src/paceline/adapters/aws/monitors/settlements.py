"""Ends runs, or lets them be tried again; the next run comes to the front in the same transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from paceline.adapters.aws.cache.index_cache import IndexCache
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.expiry import Retention
from paceline.adapters.aws.client.items import PRESENT, Action, Item, update
from paceline.adapters.aws.client.tables import EXPIRES, RUNS
from paceline.adapters.aws.monitors import keys
from paceline.adapters.aws.monitors.alarm_sender import AwsAlarmSender
from paceline.adapters.aws.monitors.alerting.health import HEALTH_ACTIONS_MAX, Following
from paceline.adapters.aws.monitors.claims import claim, facts_of
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.adapters.aws.monitors.runs import AS_LEASED
from paceline.adapters.aws.monitors.transactions import Act, Again, in_waves, transact_acts
from paceline.adapters.aws.uptime import fold_settled
from paceline.core.monitors.definition import cadence_of
from paceline.core.monitors.leases import ended
from paceline.core.monitors.outcome import Retry
from paceline.core.monitors.overlap import QUEUED, follow_ms
from paceline.core.monitors.places import Places
from paceline.core.monitors.stored import read_spec
from paceline.core.monitors.values import CHECKS, Claimed, Settlement

_STORED = ("state", "started_ms", "latency_ms", "code", "reason", "detail")


def settle(store: MonitorParts, settlements: Sequence[Settlement]) -> list[bool]:
    checks = store.ready_checks

    def write(some: list[Settlement]) -> list[bool]:
        batch = Endings(store.db, some)
        won = batch.write()
        if batch.has_stored_alerts():
            store.alerts_added()
        batch.note(checks)
        for run in batch.offer(store.alarms):
            if not keys.is_outgoing(run["queue"]):
                checks.moved(run["shard"], run["pk"], run["at"])
        return won

    # Two runs of one monitor, such as one that was settled before and the one that is out, share their lane.
    won = in_waves(settlements, lambda item: keys.split_handle(item.handle)[0], write)
    fold_settled(
        store, (keys.split_handle(item.handle) for item, happened in zip(settlements, won, strict=True) if happened)
    )
    return won


def settle_and_claim(
    store: MonitorParts,
    settlements: Sequence[Settlement],
    *,
    now_ms: int,
    runs_max: int,
    lease_ms: int,
    places: Places | None,
) -> tuple[list[bool], list[Claimed]]:
    won = settle(store, settlements)
    return won, claim(store, CHECKS, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms, places=places)


class SettledAttempt(NamedTuple):
    """The end of a run, if its lease still holds. ``state`` is None if it does not end but is tried again.

    ``started_ms`` is for the run behind it, which keeps to its monitor's pace.
    """

    generation: int
    counter: int
    state: str | None
    action: Action
    ended_ms: int
    started_ms: int


class Endings:
    """Ends runs of distinct lanes.

    Each is written as if it were the last of its lane; if not, the next comes to the front. A good outcome is written
    as if its monitor had no health record. If it has one, and for bad outcomes, lanes and definitions are read, and a
    second round writes the effects on health, too.
    """

    def __init__(self, db: DynamoDatabase, settlements: Sequence[Settlement]) -> None:
        self._db = db
        self._endings = [_ending(item, db.retention) for item in settlements]
        self._health = Following(db, settlements)
        self._newest = [ending.counter for ending in self._endings]
        self._following: dict[int, Item] = {}
        self._won: list[bool] = []
        self._remembered: list[int] = []
        """Positions of good outcomes whose monitors turned out to have a record."""
        self._acts: dict[int, Act] = {}
        self._has_alerts: dict[int, bool] = {}

    def write(self) -> list[bool]:
        self._won = [False] * len(self._endings)
        plain = [position for position in range(len(self._endings)) if self._health.is_plain(position)]
        self._write(plain, again=self._again, spare=1)
        rest = sorted({*range(len(self._endings))}.difference(plain) | {*self._remembered})
        if rest:
            for position, lane in self._health.read(rest).items():
                self._note_lane(position, lane)
            self._write(rest, again=self._again_with_health, spare=HEALTH_ACTIONS_MAX)
        return self._won

    def _write(self, positions: Sequence[int], *, again: Again, spare: int) -> None:
        def again_at(act: int, lost: Sequence[bool], items: Sequence[Item | None]) -> Act | None:
            return again(positions[act], lost, items)

        won = transact_acts(self._db, [self._act(position) for position in positions], again=again_at, spare=spare)
        for position, happened in zip(positions, won, strict=True):
            self._won[position] = happened

    def has_stored_alerts(self) -> bool:
        """Return True if alerts were stored."""
        return any(self._won[position] for position, has_alerts in self._has_alerts.items() if has_alerts)

    def note(self, checks: IndexCache) -> None:
        """Note that these runs have left the index, before those that came to the front are noted."""
        for ending, happened in zip(self._endings, self._won, strict=True):
            if happened and ending.state is not None:
                checks.moved(keys.check_queue(ending.generation), keys.runs_of(ending.generation), None)

    def offer(self, sender: AwsAlarmSender) -> list[Item]:
        """Offer runs that came to the front or are tried again to checkers that read the queue. Return these runs."""
        item_keys = [
            keys.run_key(ending.generation, self._coming(position))
            for position, ending in enumerate(self._endings)
            if self._won[position] and (ending.state is None or self._newest[position] > ending.counter)
        ]
        now_ms = max((ending.ended_ms for ending in self._endings), default=0)
        runs = [run for run in self._db.get_many(RUNS, item_keys).values() if "at" in run] if item_keys else []
        sender.offer(runs, now_ms=now_ms)
        return runs

    def _again(self, position: int, lost: Sequence[bool], items: Sequence[Item | None]) -> Act | None:
        lane = items[1] if len(lost) > 1 else None
        # The first action is the run, the second its lane. If the run's condition failed, the lease is lost; if only
        # the lane's did, a run was made behind this one, or the monitor has a health record: try with the stored lane.
        if lost[0] or lane is None or lane["front"] != self._endings[position].counter:
            return None
        if "health" in lane and self._health.matters(position):
            self._remembered.append(position)
            return None
        self._note_lane(position, lane)
        return self._act(position)

    def _again_with_health(self, position: int, lost: Sequence[bool], items: Sequence[Item | None]) -> Act | None:
        """Read everything again: the lane, the definition or an alert was not as it was believed to be."""
        del items
        if lost[0]:
            return None
        self._health.note_stored_alerts(self._acts[position], lost)
        lane = self._health.read([position])[position]
        if lane is None or lane["front"] != self._endings[position].counter:
            return None
        self._note_lane(position, lane)
        return self._act(position)

    def _note_lane(self, position: int, lane: Item | None) -> None:
        if lane is None or lane["front"] != self._endings[position].counter:
            return  # the act is lost
        self._newest[position] = lane["newest"]
        if lane["newest"] > lane["front"]:
            self._read_following(position, keys.behind_front(lane))

    def _read_following(self, position: int, counter: int) -> None:
        """Read the run that comes to the front, and compute from when it keeps to its monitor's pace."""
        ending = self._endings[position]
        item_keys = [keys.run_key(ending.generation, counter - 1), keys.run_key(ending.generation, counter)]
        found = self._db.get_many(RUNS, item_keys)
        run = found.get(item_keys[1])
        if run is None:
            return  # the act then fails, and is tried again
        paced_ms = 0
        if "queued" in run:
            monitor, _ = facts_of(self._db, [run])[ending.generation]
            paced_ms = follow_ms(
                cadence_of(read_spec(monitor["spec"])) if monitor is not None else None,
                started_ms=ending.started_ms,
                previous_due_ms=found[item_keys[0]]["due_ms"] if item_keys[0] in found else run["due_ms"],
                due_ms=run["due_ms"],
                generation=ending.generation,
            )
        self._following[position] = run | {"paced_ms": paced_ms}

    def _coming(self, position: int) -> int:
        ending = self._endings[position]
        if ending.state is None:
            return ending.counter
        following = self._following.get(position)
        return following["counter"] if following else ending.counter + 1

    def _act(self, position: int) -> Act:
        ending, newest = self._endings[position], self._newest[position]
        if ending.state is None:
            return [ending.action]
        generation, counter = ending.generation, ending.counter
        change = """SET #front = :next, #settled = :settled, #shard = if_not_exists(#shard, :kept),
                        #at = if_not_exists(#at, :ended)"""
        values: dict[str, Any] = {
            "next": self._coming(position),
            "settled": ending.state,
            "kept": keys.kept_shard(generation),
        }
        values |= {"ended": ending.ended_ms, "counter": counter, "newest": newest}
        # The lane is as it was read: this run is its front, and no run was made behind it in between.
        when = "#front = :counter AND #newest = :newest"
        health_write = self._health.health_write(position)
        when = f"{when} AND {health_write.when}" if health_write.when else when
        change = f"{change}, {health_write.sets}" if health_write.sets else change
        change = f"{change} REMOVE {health_write.removes}" if health_write.removes else change
        act = [
            ending.action,
            update(RUNS, keys.lane_key(generation), change, when=when, **values, **health_write.values),
        ]
        if newest > counter:
            act.append(self._come_to_front(position))
        self._acts[position], self._has_alerts[position] = [*act, *health_write.actions], bool(health_write.alerts)
        return self._acts[position]

    def _come_to_front(self, position: int) -> Action:
        ending, run = self._endings[position], self._following.get(position)
        if run is None or run["paced_ms"] <= ending.ended_ms:
            return come_to_front(ending.generation, self._coming(position))
        change = "SET #shard = #queue, #at = :paced, #from_ms = :paced, #state = :later, #reason = :reason"
        values: dict[str, Any] = {"paced": run["paced_ms"], "later": "later", "reason": QUEUED}
        return update(RUNS, keys.run_key(ending.generation, run["counter"]), change, when=PRESENT, **values)


def come_to_front(generation: int, counter: int) -> Action:
    return update(RUNS, keys.run_key(generation, counter), "SET #shard = #queue, #at = #from_ms", when=PRESENT)


def _ending(item: Settlement, retention: Retention) -> SettledAttempt:
    generation, counter = keys.split_handle(item.handle)
    outcome, key = item.outcome, keys.run_key(generation, counter)
    fence: dict[str, Any] = {"out": "out", "attempt": item.attempt, "ended": item.ended_ms}
    when = f"{AS_LEASED} AND #at >= :ended"
    if isinstance(outcome, Retry):
        change = "SET #state = :retry, #at = :again, #reason = :reason"
        values: dict[str, Any] = {"retry": "retry", "again": outcome.not_before_ms, "reason": outcome.reason}
        again = update(RUNS, key, change, when=when, **values, **fence)
        return SettledAttempt(generation, counter, None, again, item.ended_ms, item.started_ms)
    end = ended(item)
    facts = {name: value for name, value in end._asdict().items() if name in _STORED and value is not None}
    facts[EXPIRES] = retention.run_s(item.ended_ms)
    sets = ", ".join(f"#{name} = :{name}" for name in facts)
    change = f"SET {sets}, #ended_ms = :ended REMOVE #shard, #at"
    action = update(RUNS, key, change, when=when, **facts, **fence)
    return SettledAttempt(generation, counter, end.state, action, item.ended_ms, item.started_ms)
