"""Runs between being made and being settled: claims, leases, order within a group.

Of a monitor's runs only the front one, the first that is not settled, is in the index of what may start: so it is the
only one that can be claimed. Settling it (``monitors_settlements``) moves the front on.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.firsts import Firsts, Index
from paceline.adapters.aws.items import Action, Item, Key, key_of, update
from paceline.adapters.aws.monitors_alarms import Bell
from paceline.adapters.aws.monitors_keys import (
    check_queue,
    check_queues,
    handle_of,
    is_outgoing,
    lane_key,
    monitor_key,
    owner_queues,
    read_spec,
    run_key,
    runs_of,
    split_handle,
    user_key,
    waves,
)
from paceline.adapters.aws.monitors_offers import owners_after
from paceline.adapters.aws.monitors_packs import Act, transact_acts
from paceline.adapters.aws.news import News
from paceline.adapters.aws.numbers import last_generation
from paceline.adapters.aws.tables import ITEMS, READY_INDEX, RUNS
from paceline.ports import Claimed, Queue, Take

HOLD_MS = 30_000
LOOKED_MORE = 64
"""A claim looks at so many more than it wants: some are held, and some the index has not forgotten yet."""
PROBED_MAX = 256
"""Owners that one claim for all of them asks; the next claim goes on behind."""
TERMINAL = frozenset({"ok", "failed", "dead", "unknown"})
HELD = "its owner is disabled"
GIVEN_BACK = "given back before it started"
AS_SEEN = "#state = :seen AND #attempt = :attempt AND #at = :at"
AS_LEASED = "#state = :out AND #attempt = :attempt"


class Turns:
    """Whose turn it was last: so that no owner's backlog keeps another's waiting."""

    def __init__(self) -> None:
        self.last = ""


class Facts(NamedTuple):
    """What a claim has to know of a run's definition: None, it is gone."""

    monitor: Item | None
    user: Item | None


# -- claiming


def ready_checks(db: Database, news: News) -> Firsts:
    """When the next check may be claimed."""
    return Firsts(db, news, Index(RUNS, READY_INDEX, "at", lambda: check_queues(last_generation(db))))


def claim(
    db: Database, turns: Turns, checks: Firsts, queue: Queue, *, now_ms: int, runs_max: int, lease_ms: int
) -> list[Claimed]:
    if not queue.outgoing:
        rows = checks.upto(now_ms, limit=runs_max + LOOKED_MORE)
        rows = sorted(rows, key=lambda row: int(row["at"]))[: runs_max + LOOKED_MORE]
        claimed = _lease(db, _read(db, rows), now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)
        _note(checks, claimed)
        return claimed
    if queue.owner is not None:
        user = db.get(ITEMS, user_key(queue.owner))
        queues = owner_queues(user["number"], user["queues"]) if user else []
        rows = _ready(db, queues, now_ms=now_ms, limit=runs_max + LOOKED_MORE)
    else:
        rows = _in_turns(db, turns, now_ms=now_ms, runs_max=runs_max)
    return _lease(db, _read(db, rows), now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)


def claim_of(
    db: Database, checks: Firsts, generations: Collection[int], *, now_ms: int, runs_max: int, lease_ms: int
) -> list[Claimed]:
    """The fronts of these monitors alone, as far as they are checks, without a look at the index."""
    lanes = db.get_many(RUNS, map(lane_key, generations)).values()
    fronts = db.get_many(RUNS, [run_key(lane["generation"], lane["front"]) for lane in lanes])
    runs = [run for run in fronts.values() if not is_outgoing(run["queue"])]
    claimed = _lease(db, runs, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)
    _note(checks, claimed)
    return claimed


def take(db: Database, bell: Bell, takes: Sequence[Take], *, now_ms: int) -> list[Claimed | None]:
    """Fronts of outgoing queues, by their names. Who comes too early for one is told of it again, in its time."""
    found = db.get_many(RUNS, [run_key(item.generation, item.counter) for item in takes])
    chosen: dict[Key, int] = {}
    for position, item in enumerate(takes):
        key = run_key(item.generation, item.counter)
        if key in found and _is_meant(found[key], item):
            chosen.setdefault(key, position)
    facts = facts_of(db, [found[key] for key in chosen])
    acts: dict[int, Act] = {}
    early: list[Item] = []
    write_ms = db.write_ms(now_ms)
    for key, position in chosen.items():
        run, user = found[key], facts[found[key]["generation"]].user
        if user is None or user["disabled"] or (run["state"] == "out" and run["at"] > now_ms):
            continue
        # One that only waits may start whatever its time: the clock of who made it may be ahead of ours.
        if run["state"] in {"retry", "later"} and run["at"] > now_ms:
            early.append(run)
            continue
        acts[position] = [_take(run, now_ms=write_ms, until_ms=write_ms + takes[position].lease_ms)]
    taken: list[Claimed | None] = [None] * len(takes)
    for position, happened in zip(acts, transact_acts(db, list(acts.values())), strict=True):
        if happened:
            item = takes[position]
            run = found[run_key(item.generation, item.counter)]
            taken[position] = _claimed(run, facts[item.generation], until_ms=write_ms + item.lease_ms)
    bell.offer(early, now_ms=now_ms)
    return taken


def _is_meant(run: Item, item: Take) -> bool:
    """It has this name, is an outgoing queue's, a front, and would be this attempt."""
    named = (run["owner"], run["monitor"]) == (item.owner, item.monitor)
    front = "shard" in run and is_outgoing(run["queue"])
    return named and front and item.attempt in (None, run["attempt"] + 1)


def _ready(db: Database, shards: Sequence[str], *, now_ms: int, limit: int) -> list[Item]:
    """Rows of the index, a hint: those that may start, the first ones of each shard."""

    def read(shard: str) -> list[Item]:
        where = "#shard = :shard AND #at <= :now"
        return db.query(RUNS, where, index=READY_INDEX, limit=limit, shard=shard, now=now_ms)

    rows = [row for page in db.threads.fan_out(read, shards) for row in page]
    return sorted(rows, key=lambda row: int(row["at"]))[:limit]


def _in_turns(db: Database, turns: Turns, *, now_ms: int, runs_max: int) -> list[Item]:
    """Of all owners, beginning after the one that was served last: equal shares, and what is left over goes round."""
    ahead = owners_after(db, turns.last, limit=PROBED_MAX)
    if turns.last and len(ahead) < PROBED_MAX:
        around = owners_after(db, "", limit=PROBED_MAX - len(ahead))
        ahead += [row for row in around if row["sk"] <= turns.last]
    users = db.get_many(ITEMS, [user_key(row["owner"]) for row in ahead])

    def may_start(row: Item) -> list[Item]:
        user = users.get(user_key(row["owner"]))
        if user is not None and user["number"] == int(row["sk"]) and user["disabled"]:
            return []
        queues = owner_queues(int(row["sk"]), row["queues"])
        return _ready(db, queues, now_ms=now_ms, limit=runs_max)

    found = db.threads.fan_out(may_start, ahead)
    picked = [(row["sk"], rows) for row, rows in zip(ahead, found, strict=True) if rows][:runs_max]
    if not picked:
        turns.last = ahead[-1]["sk"] if ahead else ""
        return []
    chosen: list[Item] = []
    left: list[Item] = []
    for index, (number, rows) in enumerate(picked):
        share = -(-(runs_max - len(chosen)) // (len(picked) - index))
        chosen += rows[:share]
        left += rows[share:]
        turns.last = number
    return chosen + left[: runs_max - len(chosen)]


def _read(db: Database, rows: Sequence[Item]) -> list[Item]:
    """As they are; the index is a hint."""
    return list(db.get_many(RUNS, [key_of(row) for row in rows]).values()) if rows else []


def _note(checks: Firsts, claimed: Sequence[Claimed]) -> None:
    for one in claimed:
        checks.moved(check_queue(one.generation), runs_of(one.generation), one.lease_until_ms)


def _lease(db: Database, found: Sequence[Item], *, now_ms: int, runs_max: int, lease_ms: int) -> list[Claimed]:
    """Leases what may start; holds what a disabled user owns."""
    runs = sorted(
        (run for run in found if "shard" in run and run["at"] <= now_ms),
        key=lambda run: (run["due_ms"], run["generation"]),
    )
    if not runs:
        return []
    facts = facts_of(db, runs)
    until_ms = db.write_ms(now_ms) + lease_ms
    taken: list[Item] = []
    acts: list[Act] = []
    held: list[Act] = []
    for run in runs:
        user = facts[run["generation"]].user
        if user is not None and user["disabled"]:
            held.append([_hold(run, now_ms)])
        elif len(taken) < runs_max:
            taken.append(run)
            acts.append([_take(run, now_ms=until_ms - lease_ms, until_ms=until_ms)])
    won = transact_acts(db, acts + held)[: len(acts)]
    return [
        _claimed(run, facts[run["generation"]], until_ms=until_ms)
        for run, happened in zip(taken, won, strict=True)
        if happened
    ]


def facts_of(db: Database, runs: Sequence[Item]) -> dict[int, Facts]:
    """By generation. A monitor is gone with its user, also before its row is."""
    keys = [key for run in runs for key in (monitor_key(run["user"], run["monitor"]), user_key(run["owner"]))]
    found = db.get_many(ITEMS, keys)
    facts: dict[int, Facts] = {}
    for run in runs:
        monitor = found.get(monitor_key(run["user"], run["monitor"]))
        user = found.get(user_key(run["owner"]))
        there = (
            monitor is not None
            and user is not None
            and monitor["generation"] == run["generation"]
            and user["number"] == run["user"]
        )
        facts[run["generation"]] = Facts(monitor, user) if there else Facts(None, None)
    return facts


def _take(run: Item, *, now_ms: int, until_ms: int) -> Action:
    change = "SET #state = :out, #attempt = :next, #at = :until, #started_ms = :now, #lost = :lost REMOVE #reason"
    values: dict[str, Any] = {
        "out": "out",
        "next": run["attempt"] + 1,
        "until": until_ms,
        "now": now_ms,
        "lost": _is_lost(run),
    }
    return update(RUNS, key_of(run), change, when=AS_SEEN, **values, **_seen(run))


def _hold(run: Item, now_ms: int) -> Action:
    change = "SET #state = :held, #at = :later, #reason = :reason, #lost = :lost"
    values: dict[str, Any] = {"held": "held", "later": now_ms + HOLD_MS, "reason": HELD, "lost": _is_lost(run)}
    return update(RUNS, key_of(run), change, when=AS_SEEN, **values, **_seen(run))


def _seen(run: Item) -> dict[str, Any]:
    return {"seen": run["state"], "attempt": run["attempt"], "at": run["at"]}


def _is_lost(run: Item) -> bool:
    """It was out when its lease ran out, this time or before."""
    return bool(run["lost"]) or run["state"] == "out"


def _claimed(run: Item, facts: Facts, *, until_ms: int) -> Claimed:
    gone = facts.monitor is None
    return Claimed(
        handle_of(run["generation"], run["counter"]),
        run["attempt"] + 1,
        "" if gone else run["owner"],
        "" if gone else run["monitor"],
        run["generation"],
        run["counter"],
        run["due_ms"],
        until_ms,
        lost=_is_lost(run),
        check=read_spec(facts.monitor["spec"]).check if facts.monitor is not None else None,
    )


def unhold(db: Database, generations: Sequence[int]) -> list[Item]:
    """The owner is enabled again: what was held is looked at at once. The runs that may start, now or in their time."""
    lanes = db.get_many(RUNS, [lane_key(generation) for generation in generations])
    fronts = db.get_many(RUNS, [run_key(lane["generation"], lane["front"]) for lane in lanes.values()])
    held = [run for run in fronts.values() if run["state"] == "held"]
    change = "SET #at = #from_ms, #state = :waiting REMOVE #reason"
    acts = [[update(RUNS, key_of(run), change, when=AS_SEEN, waiting="waiting", **_seen(run))] for run in held]
    transact_acts(db, acts)
    return [run for run in fronts.values() if run["state"] not in TERMINAL | {"out"} and "at" in run]


# -- leases


def extend(db: Database, handle: int, attempt: int, *, until_ms: int, now_ms: int) -> bool:
    when = f"{AS_LEASED} AND #at >= :now"
    values: dict[str, Any] = {"out": "out", "attempt": attempt, "now": now_ms, "until": until_ms}
    return db.write(update(RUNS, run_key(*split_handle(handle)), "SET #at = :until", when=when, **values)).won


def release(db: Database, checks: Firsts, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
    change = "SET #state = :retry, #at = :now, #reason = :reason"
    values: dict[str, Any] = {"retry": "retry", "now": now_ms, "reason": GIVEN_BACK, "out": "out"}
    released = [False] * len(fences)
    for wave in waves(handle for handle, _ in fences):
        acts = [
            [update(RUNS, run_key(*split_handle(handle)), change, when=AS_LEASED, attempt=attempt, **values)]
            for handle, attempt in (fences[position] for position in wave)
        ]
        for position, happened in zip(wave, transact_acts(db, acts), strict=True):
            released[position] = happened
    for (handle, _), happened in zip(fences, released, strict=True):
        if happened:
            generation, _ = split_handle(handle)
            checks.moved(check_queue(generation), runs_of(generation), now_ms)
    return released
