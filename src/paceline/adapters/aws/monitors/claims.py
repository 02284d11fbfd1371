"""Claims of runs: whose turn it is, who gets how many places, which runs start. The rules are ``core.monitors.places``.

Of a monitor's runs only the front one, the first that is not settled, is in the index of what may start: so it is the
only one that can be claimed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from paceline.adapters.aws.cache.index_cache import END, IndexCache
from paceline.adapters.aws.client.database import Database
from paceline.adapters.aws.client.items import Action, Item, Key, key_of, update
from paceline.adapters.aws.client.tables import ITEMS, READY_INDEX, RUNS
from paceline.adapters.aws.monitors.claim_memory import ClaimMemory
from paceline.adapters.aws.monitors.keys import (
    check_queue,
    handle_of,
    is_outgoing,
    lane_key,
    monitor_key,
    owner_queues,
    run_key,
    runs_of,
    user_key,
)
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.adapters.aws.monitors.reoffer import owners_after
from paceline.adapters.aws.monitors.transactions import Act, transact_acts
from paceline.core.monitors.claim import HOLD_MS, TakeFacts, is_lost, may_start, may_take
from paceline.core.monitors.places import Places, Seats, Wish, target_of
from paceline.core.monitors.stored import read_spec
from paceline.core.monitors.values import Claimed, Queue, Take
from paceline.core.monitors.wait_reasons import HELD

LOOKED_MORE = 64
"""A claim looks at so many more than it wants: some are held, and some the index has not forgotten yet."""
SHARD_ROWS = 512
"""A claim reads so many rows of each shard, so that one owner's backlog does not hide the others. A shard has one row
of each monitor: 128 of them, and once all shards are in use, 1/128 of what waits. So they are hidden only behind owners
who have 65,000 monitors waiting together."""
ROUNDS_MAX = 3
PROBED_MAX = 256
"""Owners that one claim for all of them asks; the next claim goes on behind."""
AS_SEEN = "#state = :seen AND #attempt = :attempt AND #at = :at"


class Facts(NamedTuple):
    """What a claim has to know of a run's definition: None, it is gone."""

    monitor: Item | None
    user: Item | None


# -- claiming


def claim(
    store: MonitorParts, queue: Queue, *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None = None
) -> list[Claimed]:
    db, memory, checks = store.db, store.claim_memory, store.ready_checks
    if not queue.outgoing:
        rows = checks.upto(now_ms, limit=max(SHARD_ROWS, runs_max + LOOKED_MORE))
        seats = Seats(runs_max, places)
        waiting = sorted((Waiting(_generation(row), row, None) for row in rows), key=_wait)
        claimed = _claim_checks(db, memory, seats, waiting, now_ms=now_ms, lease_ms=lease_ms)
        _note(checks, claimed)
        return claimed
    if queue.owner is not None:
        user = db.get(ITEMS, user_key(queue.owner))
        queues = owner_queues(user["number"], user["queues"], queue.name) if user else []
        rows = _ready(db, queues, now_ms=now_ms, limit=runs_max + LOOKED_MORE)
    else:
        rows = _in_turns(db, memory, queue.name, now_ms=now_ms, runs_max=runs_max)
    return _lease(db, memory, Seats(runs_max), _read(db, rows), now_ms=now_ms, lease_ms=lease_ms)


def claim_checks_of(
    store: MonitorParts,
    generations: Collection[int],
    *,
    now_ms: int,
    runs_max: int,
    lease_ms: int,
    places: Places | None = None,
) -> list[Claimed]:
    """``claim``, of the checks of these monitors alone and without a look at the index."""
    db, memory, checks = store.db, store.claim_memory, store.ready_checks
    lanes = db.get_many(RUNS, map(lane_key, generations)).values()
    fronts = db.get_many(RUNS, [run_key(lane["generation"], lane["front"]) for lane in lanes]).values()
    runs = [run for run in fronts if not is_outgoing(run["queue"]) and _may_start(run, now_ms)]
    memory.note(runs)
    waiting = sorted((Waiting(run["generation"], run, run) for run in runs), key=_wait)
    seats = Seats(runs_max, places)
    claimed = _claim_checks(db, memory, seats, waiting, now_ms=now_ms, lease_ms=lease_ms)
    _note(checks, claimed)
    return claimed


def next_run_ms(store: MonitorParts) -> int | None:
    first_ms = store.ready_checks.first()
    return None if first_ms == END else first_ms


class Waiting(NamedTuple):
    """A check that waits, by its row of the index; ``run`` is it as it was read, if it was."""

    generation: int
    row: Item
    run: Item | None


def _claim_checks(
    db: Database, memory: ClaimMemory, seats: Seats, waiting: Sequence[Waiting], *, now_ms: int, lease_ms: int
) -> list[Claimed]:
    """Owners get their shares of the places; what was not as the index has it leaves its place to the next round."""
    all_waiting = waiting = _with_owners(db, memory, waiting, runs_max=seats.room)
    claimed: list[Claimed] = []
    for _ in range(ROUNDS_MAX):
        chosen = _choose(memory, seats, waiting)
        if not chosen:
            break
        unread = [one.row for one in chosen if one.run is None]
        runs = [one.run for one in chosen if one.run is not None] + _read(db, unread)
        claimed += _lease(db, memory, seats, runs, now_ms=now_ms, lease_ms=lease_ms)
        gone = {one.generation for one in chosen}
        waiting = [one for one in waiting if one.generation not in gone]
    started = {one.generation for one in claimed}
    left = [one.generation for one in all_waiting if one.generation not in started]
    wishes = ((memory.owner(generation) or "", memory.target(generation)) for generation in left)
    memory.reasons.note(db, seats, wishes, now_ms=now_ms)
    return claimed


def _with_owners(db: Database, memory: ClaimMemory, waiting: Sequence[Waiting], *, runs_max: int) -> Sequence[Waiting]:
    """Those whose owner is known; of the others as many are read as one claim may, and the rest by the next claim."""
    unknown = [one.row for one in waiting if memory.owner(one.generation) is None]
    read = {run["generation"]: run for run in _read(db, unknown[: runs_max + LOOKED_MORE])}
    memory.note(read.values())
    return [
        one if one.run else one._replace(run=read.get(one.generation))
        for one in waiting
        if memory.owner(one.generation) is not None
    ]


def _choose(memory: ClaimMemory, seats: Seats, waiting: Sequence[Waiting]) -> list[Waiting]:
    """As many of each owner as its share, those that wait longest, passing over targets that have no place free."""
    by_owner: dict[str, list[Waiting]] = {}
    left: dict[tuple[str, str], int] = {}
    for one in waiting:
        owner, target = memory.owner(one.generation) or "", memory.target(one.generation)
        free = left.setdefault((owner, target), seats.room_at(owner, target) if target else seats.room)
        if free > 0:
            left[owner, target] -= 1
            by_owner.setdefault(owner, []).append(one)
    owners = sorted(by_owner)
    owners = [owners[position] for position in memory.turns.order(owners)]
    shares = seats.shares([Wish(owner, len(by_owner[owner])) for owner in owners])
    memory.turns.serve([owner for owner, share in zip(owners, shares, strict=True) if share])
    return [one for owner, share in zip(owners, shares, strict=True) for one in by_owner[owner][:share]]


def _wait(one: Waiting) -> tuple[int, int]:
    """Who has waited longest comes first."""
    return int(one.row["at"]), one.generation


def _generation(row: Item) -> int:
    return int(row["pk"].partition("#")[2])


def take(store: MonitorParts, takes: Sequence[Take], *, now_ms: int) -> list[Claimed | None]:
    """Leases the first open runs of outgoing monitors by their names. A run asked for too early is offered again."""
    db = store.db
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
        run, item = found[key], takes[position]
        match may_take(_take_facts(run, facts[run["generation"]]), attempt=item.attempt, now_ms=now_ms):
            case "take":
                acts[position] = [_take(run, now_ms=write_ms, until_ms=write_ms + item.lease_ms)]
            case "early":
                early.append(run)
            case "refuse":
                pass
    taken: list[Claimed | None] = [None] * len(takes)
    for position, happened in zip(acts, transact_acts(db, list(acts.values())), strict=True):
        if happened:
            item = takes[position]
            run = found[run_key(item.generation, item.counter)]
            taken[position] = _claimed(run, facts[item.generation], until_ms=write_ms + item.lease_ms)
    store.alarms.offer(early, now_ms=now_ms)
    return taken


def _is_meant(run: Item, item: Take) -> bool:
    """True if the run has this name and is the first open one of a monitor that checkers claim."""
    named = (run["owner"], run["monitor"]) == (item.owner, item.monitor)
    return named and "shard" in run and is_outgoing(run["queue"])


def _take_facts(run: Item, facts: Facts) -> TakeFacts:
    """Only a front is asked for, so nothing of its monitor is open before it."""
    user = facts.user
    return TakeFacts(
        run["state"],
        run["at"],
        run["attempt"],
        clear=True,
        disabled=bool(user and user["disabled"]),
        defined=facts.monitor is not None,
    )


def _ready(db: Database, shards: Sequence[str], *, now_ms: int, limit: int) -> list[Item]:
    """Rows of the index, a hint: those that may start, the first ones of each shard."""

    def read(shard: str) -> list[Item]:
        where = "#shard = :shard AND #at <= :now"
        return db.query(RUNS, where, index=READY_INDEX, limit=limit, shard=shard, now=now_ms)

    rows = [row for page in db.threads.fan_out(read, shards) for row in page]
    return sorted(rows, key=lambda row: int(row["at"]))[:limit]


def _in_turns(db: Database, memory: ClaimMemory, queue: str, *, now_ms: int, runs_max: int) -> list[Item]:
    """Of all owners, those first that were served longest ago: even shares, and what one leaves the others use."""
    probed = memory.probed.pop(queue, "")
    ahead = owners_after(db, queue, probed, limit=PROBED_MAX)
    if probed and len(ahead) < PROBED_MAX:
        around = owners_after(db, queue, "", limit=PROBED_MAX - len(ahead))
        ahead += [row for row in around if row["sk"] <= probed]
    users = db.get_many(ITEMS, [user_key(row["owner"]) for row in ahead])

    def may_start(row: Item) -> list[Item]:
        user = users.get(user_key(row["owner"]))
        if user is not None and user["number"] == int(row["sk"]) and user["disabled"]:
            return []
        queues = owner_queues(int(row["sk"]), row["queues"], queue)
        return _ready(db, queues, now_ms=now_ms, limit=runs_max)

    found = dict(zip([row["sk"] for row in ahead], db.threads.fan_out(may_start, ahead), strict=True))
    numbers = [number for number, rows in found.items() if rows]
    if len(ahead) == PROBED_MAX:  # else one claim asks them all
        memory.probed[queue] = (numbers or list(found))[-1]
    turns = {number: f"{queue}#{number}" for number in numbers}
    numbers = [numbers[position] for position in memory.turns.order(list(turns.values()))]
    shares = Seats(runs_max).shares([Wish(number, len(found[number])) for number in numbers])
    memory.turns.serve([turns[number] for number, share in zip(numbers, shares, strict=True) if share])
    return [row for number, share in zip(numbers, shares, strict=True) for row in found[number][:share]]


def _read(db: Database, rows: Sequence[Item]) -> list[Item]:
    """As they are; the index is a hint."""
    return list(db.get_many(RUNS, [key_of(row) for row in rows]).values()) if rows else []


def _note(checks: IndexCache, claimed: Sequence[Claimed]) -> None:
    for one in claimed:
        checks.moved(check_queue(one.generation), runs_of(one.generation), one.lease_until_ms)


def _may_start(run: Item, now_ms: int) -> bool:
    return "shard" in run and run["at"] <= now_ms


def _lease(
    db: Database, memory: ClaimMemory, seats: Seats, found: Sequence[Item], *, now_ms: int, lease_ms: int
) -> list[Claimed]:
    """Leases what may start and has a place; holds what a disabled user owns."""
    runs = sorted((run for run in found if _may_start(run, now_ms)), key=lambda run: (run["due_ms"], run["generation"]))
    if not runs:
        return []
    facts = facts_of(db, runs)
    until_ms = db.write_ms(now_ms) + lease_ms
    taken: list[Item] = []
    acts: list[Act] = []
    held: list[Act] = []
    for run in runs:
        monitor, user = facts[run["generation"]]
        # A run of the index is its monitor's front: nothing is open before it.
        if may_start(clear=True, disabled=user is not None and user["disabled"]) == "hold":
            held.append([_hold(run, now_ms)])
            continue
        target = target_of(read_spec(monitor["spec"]).check) if monitor is not None else ""
        memory.note_target(run["generation"], target)
        if seats.room > 0 and not seats.refusal(run["owner"], target):
            seats.take(run["owner"], target)
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
    return update(RUNS, key_of(run), change, when=AS_SEEN, **values, **as_seen(run))


def _hold(run: Item, now_ms: int) -> Action:
    change = "SET #state = :held, #at = :later, #reason = :reason, #lost = :lost"
    values: dict[str, Any] = {"held": "held", "later": now_ms + HOLD_MS, "reason": HELD, "lost": _is_lost(run)}
    return update(RUNS, key_of(run), change, when=AS_SEEN, **values, **as_seen(run))


def as_seen(run: Item) -> dict[str, Any]:
    return {"seen": run["state"], "attempt": run["attempt"], "at": run["at"]}


def _is_lost(run: Item) -> bool:
    return is_lost(run["state"], lost=bool(run["lost"]))


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
