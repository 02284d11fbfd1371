"""Health records of monitors: an attribute of their lane, written with the outcomes that change it.

The settlement of a good outcome is written as if the lane had no record, which costs nothing extra. Two other kinds of
items list the records: ``failing#NUMBER`` a user's failing monitors, ``closes`` those with alerts held back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from paceline.adapters.aws.alerts import adding
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.expiry import Retention
from paceline.adapters.aws.client.items import Action, DynamoKey, Item, check, delete, joined, padded, put, update
from paceline.adapters.aws.client.tables import ITEMS, LEDGER, RUNS
from paceline.adapters.aws.monitors import keys
from paceline.adapters.aws.monitors.claims import MonitorAndOwner, facts_of
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.core.alerts.alert import Alert
from paceline.core.monitors.alerting.found import Remembered
from paceline.core.monitors.alerting.observe import observe, verdict
from paceline.core.monitors.alerting.record import HealthRecord, Subject, after_outcome, hour_ends_ms
from paceline.core.monitors.alerting.stored import HealthChange, decode_health, encode_health, is_unchanged
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.stored import read_spec
from paceline.core.monitors.values import Settlement

UNREMEMBERED = "attribute_not_exists(#health)"
CLOSES = "closes"
HEALTH_ACTIONS_MAX = 8
"""Actions beside those of a settlement: a check of the definition, three writes of lists, two alerts of two each."""
PAGES_MAX = 100


class HealthWrite(NamedTuple):
    """The part of a lane's write that is about health."""

    when: str = ""
    sets: str = ""
    removes: str = ""
    values: Mapping[str, Any] = MappingProxyType({})
    actions: tuple[Action, ...] = ()
    """Actions written with the lane."""
    alerts: tuple[Alert, ...] = ()


class Following:
    """The effects of outcomes, of runs of distinct lanes, on the health of their monitors."""

    def __init__(self, db: DynamoDatabase, settlements: Sequence[Settlement]) -> None:
        self._db = db
        self._settlements = settlements
        self._lanes: dict[int, Item | None] = {}
        self._facts: dict[int, MonitorAndOwner] = {}
        self._stored_alerts: set[str] = set()
        """Ids of alerts that are stored already."""

    def is_plain(self, position: int) -> bool:
        """Return True unless the outcome is bad. A plain one is settled as if there were no health record."""
        return verdict(self._settlements[position].outcome) is not False

    def matters(self, position: int) -> bool:
        """Return True if the outcome says something about its target."""
        return verdict(self._settlements[position].outcome) is not None

    def read(self, positions: Iterable[int]) -> dict[int, Item | None]:
        """Read lanes, and the definitions as they are now. Return the lanes by position."""
        handles = {position: keys.split_handle(self._settlements[position].handle) for position in positions}
        item_keys = {
            position: (keys.lane_key(generation), keys.run_key(generation, counter))
            for position, (generation, counter) in handles.items()
        }
        found = self._db.get_many(RUNS, {key for pair in item_keys.values() for key in pair})
        runs = [found[run] for _, run in item_keys.values() if run in found]
        facts = facts_of(self._db, runs) if runs else {}
        for position, (lane, _) in item_keys.items():
            self._lanes[position] = found.get(lane)
            self._facts[position] = facts.get(handles[position][0], MonitorAndOwner(None, None))
        return {position: self._lanes[position] for position in handles}

    def note_stored_alerts(self, act: Sequence[Action], lost: Sequence[bool]) -> None:
        """Note alerts that could not be stored because they exist already."""
        self._stored_alerts |= {
            action.key.pk for action, failed in zip(act, lost, strict=True) if failed and action.table == LEDGER
        }

    def health_write(self, position: int) -> HealthWrite:
        """Return what to write with the lane's outcome. A lane that was not read is believed to have no record."""
        item = self._settlements[position]
        if position not in self._lanes:
            return HealthWrite(UNREMEMBERED) if verdict(item.outcome) is True else HealthWrite()
        monitor, user = self._facts[position]
        if monitor is None or user is None:
            return HealthWrite()  # the monitor is gone, and its record with it
        generation, counter = keys.split_handle(item.handle)
        spec = read_spec(monitor["spec"])
        seen = observe(item, counter=counter, check=spec.check)
        lane = self._lanes[position] or {}
        before = decode_health(lane.get("health"))
        if seen is None:
            return HealthWrite()
        subject = Subject(user["id"], monitor["sk"], generation, spec.alert)
        followed = after_outcome(before, subject, seen)
        change = HealthChange(*subject[:3], before, followed.record, followed.alerts)
        return health_write_of(change, monitor, self._db.retention, number=user["number"], stored=self._stored_alerts)


def health_write_of(
    change: HealthChange, monitor: Item, retention: Retention, *, number: int, stored: Iterable[str] = ()
) -> HealthWrite:
    """Return the parts of a transaction that make the change. It wins if definition and record are as they were."""
    was = encode_health(change.before)
    when, values = UNREMEMBERED if was is None else "#health = :was", _given(was=was)
    if change.before == change.after and not change.alerts:
        return HealthWrite(when, values=values)
    believed = {"generation": change.generation, "revision": monitor["revision"]}
    key = keys.monitor_key(number, change.monitor)
    actions = [check(ITEMS, key, when="#generation = :generation AND #revision = :revision", **believed)]
    actions += _listing(change, number)
    for alert in change.alerts:
        new = adding(alert, retention)
        actions += new if new[0].key.pk not in stored else ()
    listed = list(key_list(number, change.monitor)) if change.after.failing else None
    wanted = _given(health=encode_health(change.after), listed=listed)
    sets = ", ".join(f"#{name} = :{name}" for name in wanted)
    removes = ", ".join(f"#{name}" for name in ("health", "listed") if name not in wanted)
    return HealthWrite(when, sets, removes, values | wanted, tuple(actions), change.alerts)


def _given(**values: Any) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


def _listing(change: HealthChange, number: int) -> list[Action]:
    """Return the writes of the lists of records, if something changes there."""
    before, after, actions = change.before, change.after, []
    listed = key_list(number, change.monitor)
    if after.failing and not before.failing:
        actions.append(put(ITEMS, {"pk": listed.pk, "sk": listed.sk, "generation": change.generation}))
    if before.failing and not after.failing:
        actions.append(delete(ITEMS, listed))
    closed, closes = hour_ends_ms(before), hour_ends_ms(after)
    if closed is not None and closed != closes:
        actions.append(delete(ITEMS, _close_key(closed, change.generation)))
    if closes is not None and closed != closes:
        key = _close_key(closes, change.generation)
        facts = {"generation": change.generation, "owner": change.owner, "user": number, "monitor": change.monitor}
        actions.append(put(ITEMS, {"pk": key.pk, "sk": key.sk} | facts))
    return actions


def key_list(number: int, monitor: str) -> DynamoKey:
    return DynamoKey(joined("failing", number), monitor)


def _close_key(closes_ms: int, generation: int) -> DynamoKey:
    return DynamoKey(CLOSES, f"{padded(closes_ms)}#{padded(generation)}")


# -- writing without an outcome


def change_health(store: MonitorParts, changes: Sequence[HealthChange]) -> list[bool]:
    db = store.db
    users = db.get_many(ITEMS, {keys.user_key(one.owner) for one in changes})
    numbers = {
        one.owner: users[keys.user_key(one.owner)]["number"] for one in changes if keys.user_key(one.owner) in users
    }
    item_keys = {
        one.generation: keys.monitor_key(numbers[one.owner], one.monitor) for one in changes if one.owner in numbers
    }
    monitors = db.get_many(ITEMS, item_keys.values())
    records = health_records(store, [one.generation for one in changes])

    def write(one: HealthChange) -> bool:
        monitor = monitors.get(item_keys[one.generation]) if one.generation in item_keys else None
        if monitor is None or monitor["generation"] != one.generation or not is_unchanged(one, records):
            return False
        return _write(db, one, monitor, number=numbers[one.owner])

    won = db.threads.fan_out(write, changes)
    if any(happened and one.alerts for happened, one in zip(won, changes, strict=True)):
        store.alerts_added()
    return won


def _write(db: DynamoDatabase, change: HealthChange, monitor: Item, *, number: int) -> bool:
    """Write one change. A monitor that has not fired yet gets a lane without runs."""
    health_write = health_write_of(change, monitor, db.retention, number=number)
    sets = "#front = if_not_exists(#front, :first), #newest = if_not_exists(#newest, :none), #generation = :generation"
    sets = f"{sets}, {health_write.sets}" if health_write.sets else sets
    text = f"SET {sets} REMOVE {health_write.removes}" if health_write.removes else f"SET {sets}"
    values = {"first": 0, "none": -1, "generation": change.generation}
    when = health_write.when
    if change.open_run is not None:
        when, values = f"{when} AND #front = :front", values | {"front": keys.split_handle(change.open_run)[1]}
    lane = update(RUNS, keys.lane_key(change.generation), text, when=when, **values, **health_write.values)
    return db.transact([lane, *health_write.actions]).won


# -- reading


def health_records(store: MonitorParts, generations: Sequence[int]) -> dict[int, HealthRecord]:
    lanes = store.db.get_many(RUNS, [keys.lane_key(generation) for generation in generations]).values()
    return {lane["generation"]: decode_health(lane["health"]) for lane in lanes if "health" in lane}


def failing_monitors(store: MonitorParts, owner: str, *, after: str, limit: int) -> list[Monitor]:
    """Read the list and the definitions. A line of a removed monitor is skipped; the purge deletes it."""
    db = store.db
    user = db.get(ITEMS, keys.user_key(owner))
    found: list[Monitor] = []
    for _ in range(PAGES_MAX if user else 0):
        assert user is not None
        lines = db.page(ITEMS, key_list(user["number"], "").pk, limit=limit - len(found), after=after)
        item_keys = [keys.monitor_key(user["number"], line["sk"]) for line in lines]
        items = db.get_many(ITEMS, item_keys)
        found += [
            keys.to_monitor(owner, items[key])
            for key, line in zip(item_keys, lines, strict=True)
            if key in items and items[key]["generation"] == line["generation"]
        ]
        if not lines or len(found) == limit:
            break
        after = lines[-1]["sk"]
    return found


def hours_to_close(store: MonitorParts, *, now_ms: int, limit: int) -> list[Remembered]:
    lines = store.db.page(ITEMS, CLOSES, limit=limit, before=padded(now_ms + 1))
    facts = facts_of(store.db, lines) if lines else {}
    records = health_records(store, list(facts))
    return [
        Remembered(keys.to_monitor(user["id"], monitor), records[generation])
        for generation, (monitor, user) in facts.items()
        if monitor is not None and user is not None and generation in records
    ]
