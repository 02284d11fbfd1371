"""Checks the promises on everything that is stored.

The tables are scanned while others write, so the scans do not fit together exactly. A suspect is read again by itself,
all at once, and reported only if it is still wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import NamedTuple

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import DynamoKey, Item, padded
from paceline.adapters.aws.client.tables import ITEMS, RUNS, SCHEDULERS
from paceline.adapters.aws.monitors import keys
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.core import findings
from paceline.core.findings import SHOWN_MAX
from paceline.core.monitors.alerting.stored import decode_health
from paceline.core.monitors.leases import TERMINAL

NOT_INDEXED = "promise 1: an armed entry is not in the due index as it should be (generation {})"
SUSPECTS_MAX = 1_000


class Names(NamedTuple):
    """Results of the scan of ``items``."""

    users: dict[int, Item]
    monitors: dict[int, tuple[int, str]]
    changed: set[int]
    fanned: set[int]


def verify_monitors(store: MonitorParts) -> list[str]:
    """Return problems of monitors, entries and runs, in plain words."""
    db, parts = store.db, (_definition_problems, _run_problems)
    return [problem for found in db.threads.fan_out(lambda part: part(db), parts) for problem in found]


def _definition_problems(db: DynamoDatabase) -> list[str]:
    names = read_names(db)
    return [*_entry_problems(db, names), *_user_problems(db, names)]


def read_names(db: DynamoDatabase, see: Callable[[Item], None] = lambda _monitor: None) -> Names:
    """Read the names. ``see`` is called with each definition."""
    names = Names({}, {}, set(), set())
    ours = " OR ".join(f"begins_with(#pk, :{kind})" for kind in ("user", "monitors", "changes"))
    for item in db.scan(ITEMS, filtered=ours, user="user#", monitors="monitors#", changes="changes#"):
        kind, _, rest = item["pk"].partition("#")
        if kind == "user":
            names.users[item["number"]] = item
        elif kind == "monitors":
            names.monitors[item["generation"]] = (int(rest), item["sk"])
            see(item)
        elif kind == "changes" and item["sk"].startswith(keys.FAN):
            names.fanned.add(item["user"])
        elif kind == "changes":
            names.changed.add(item["generation"])
    return names


# -- entries


def _entry_problems(db: DynamoDatabase, names: Names) -> Iterator[str]:
    """Yield definitions without an entry, and entries without a definition, unless a change is pending."""
    armed: set[int] = set()
    shown: Counter[str] = Counter()
    for item in db.scan(SCHEDULERS):
        generation = item["generation"]
        armed.add(generation)
        if item.get("due_ms") is not None and not _is_indexed(item) and shown[NOT_INDEXED] < SHOWN_MAX:
            shown[NOT_INDEXED] += 1
            yield NOT_INDEXED.format(generation)
        if generation not in names.monitors and shown[findings.NO_MONITOR] < SHOWN_MAX:
            yield from _entry_problem(db, shown, generation, item["user"], item["monitor"])
    for generation, (number, monitor) in names.monitors.items():
        known = generation in armed or generation in names.changed or number in names.fanned
        if not known and shown[findings.NO_ENTRY] < SHOWN_MAX:
            yield from _entry_problem(db, shown, generation, number, monitor)


def _entry_problem(
    db: DynamoDatabase, shown: Counter[str], generation: int, number: int, monitor_id: str
) -> Iterator[str]:
    """Read a suspect again, all of it at once, and yield what is wrong with it."""
    monitor, change, entry = db.get_together(
        [
            (ITEMS, keys.monitor_key(number, monitor_id)),
            (ITEMS, keys.change_key(generation)),
            (SCHEDULERS, keys.entry_key(generation)),
        ]
    )
    there = monitor is not None and monitor["generation"] == generation
    finding = findings.entry_finding(monitor=there, entry=entry is not None, change=change is not None)
    if finding is not None:
        shown[finding] += 1
        yield finding.format(generation)


def _is_indexed(entry: Item) -> bool:
    generation = entry["generation"]
    return (entry.get("shard"), entry.get("due")) == (
        keys.due_shard(generation),
        keys.due_of(entry["due_ms"], generation),
    )


def _user_problems(db: DynamoDatabase, names: Names) -> list[str]:
    counted: dict[int, int] = dict.fromkeys(names.users, 0)
    for number, _ in names.monitors.values():
        if number in counted:
            counted[number] += 1
    suspects = [user for number, user in names.users.items() if user["monitors"] != counted[number]]
    wrong = [user["id"] for user in suspects[:SUSPECTS_MAX] if not _is_counted(db, user["id"])]
    return [findings.MONITORS_MISCOUNTED.format(name) for name in wrong[:SHOWN_MAX]]


def _is_counted(db: DynamoDatabase, name: str) -> bool:
    """Return True if a user's number of monitors is right, or was changed while they were counted."""
    before = db.get(ITEMS, keys.user_key(name))
    if before is None:
        return True
    counted = db.count(ITEMS, keys.monitors_of(before["number"]), limit=1 << 40)
    return counted == before["monitors"] or db.get(ITEMS, keys.user_key(name)) != before


# -- runs


def _run_problems(db: DynamoDatabase) -> list[str]:
    """Check each lane while the scan passes it: items of one partition come one after the other."""
    problems: list[str] = []
    folded: dict[int, int] = {}
    newest: dict[int, int] = {}
    kinds = "begins_with(#pk, :monitor) OR begins_with(#pk, :uptime)"
    ours = db.scan(RUNS, filtered=kinds, monitor="m#", uptime=f"{keys.UPTIME}#")
    for pk, group in groupby(ours, key=lambda item: str(item["pk"])):
        kind, _, number = pk.partition("#")
        items, generation = list(group), int(number)
        if kind == keys.UPTIME:
            folded[generation] = items[0]["counter"]
            continue
        for lane in (item for item in items if item["sk"] == keys.LANE):
            newest[generation] = lane["newest"]
        if len(problems) < SHOWN_MAX and lane_problem(items) is not None:
            problems += _still_wrong(db, generation)
    ahead = [one for one, counter in folded.items() if one in newest and counter > newest[one]]
    return problems + [findings.ROLLUP_AHEAD.format(one) for one in ahead[:SHOWN_MAX] if _is_ahead(db, one)]


def _is_ahead(db: DynamoDatabase, generation: int) -> bool:
    """Read a roll-up and its lane again, both at once: a run may have been made and folded after the scan."""
    rollup, lane = db.get_together([(RUNS, keys.uptime_key(generation)), (RUNS, keys.lane_key(generation))])
    return rollup is not None and lane is not None and bool(rollup["counter"] > lane["newest"])


def _still_wrong(db: DynamoDatabase, generation: int) -> list[str]:
    """Read a lane's runs between two equal reads of lane and entry: then no run was made or settled in the meantime."""
    first, last = padded(0), padded(keys.COUNTER_MASK)
    for _ in range(3):
        before = _lane_and_entry(db, generation)
        runs = list(db.walk(RUNS, keys.runs_of(generation), first=first, last=last))
        if _lane_and_entry(db, generation) == before:
            lane, entry = before
            problem = lane_problem([*runs, *([lane] if lane else [])], entry)
            return [f"{problem} (generation {generation})"] if problem else []
    return []


def _lane_and_entry(db: DynamoDatabase, generation: int) -> tuple[Item | None, Item | None]:
    lane, entry = db.get_together([(RUNS, keys.lane_key(generation)), (SCHEDULERS, keys.entry_key(generation))])
    return lane, entry


def lane_problem(items: Iterable[Item], entry: Item | None = None) -> str | None:
    """Return what is wrong with a monitor's runs, in plain words; None if nothing is."""
    found = {DynamoKey(item["pk"], item["sk"]).sk: item for item in items}
    lane = found.pop(keys.LANE, None)
    runs = {item["counter"]: item for item in found.values()}
    if lane is None:
        return "promise 10: runs have no lane, and none of them will be claimed" if runs else None
    front, newest, behind = lane["front"], lane["newest"], keys.behind_front(lane)
    if entry is not None and entry["counter"] != newest + 1:
        return findings.COUNTER_BEHIND
    if any(counter not in runs for counter in range(front, newest + 1)) or any(counter > newest for counter in runs):
        return "promise 10: a lane and its runs disagree on which there are"
    ended = {counter for counter in runs if counter < front or front < counter < behind}
    if any((run["state"] in TERMINAL) != (counter in ended) for counter, run in runs.items()):
        return "promise 6: a run was passed over, or is settled before one that is due earlier"
    if any(("shard" in run and "at" in run) != (counter == front) for counter, run in runs.items()):
        return "promise 6: not just the first open run of a monitor can be claimed"
    if any(run["state"] == "out" and counter != front for counter, run in runs.items()):
        return "promise 6: a run is out that is not its monitor's first"
    if ("listed" in lane) != decode_health(lane.get("health")).failing:
        return findings.HEALTH_MISPLACED
    return None
