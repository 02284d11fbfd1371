"""Claims of runs: reads runs that may start, asks core whose turn it is and which of them start, and writes leases.

The rules are ``core.monitors.waiting_checks`` for checks and ``core.monitors.places`` for outgoing runs. Waiting runs
are read from an index, which shows a write a moment later: a run may be missing in a claim, and come with the next one.

Of a monitor's runs only the front, the first one that is not settled, is in the index of runs that may start: so it is
the only one that can be claimed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from paceline.adapters.aws.cache.index_cache import END
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Action, DynamoKey, Item, key_of, update
from paceline.adapters.aws.client.tables import ITEMS, READY_INDEX, RUNS
from paceline.adapters.aws.monitors import keys
from paceline.adapters.aws.monitors.claim_memory import REASONS_MAX, ClaimMemory
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.adapters.aws.monitors.reoffer import owners_after
from paceline.adapters.aws.monitors.transactions import Act, transact_acts
from paceline.core.monitors.claim import HOLD_MS, TakeFacts, is_lost, may_start, may_take
from paceline.core.monitors.places import OwnerDemand, Places, Seats, target_of
from paceline.core.monitors.stored import read_spec
from paceline.core.monitors.values import Claimed, RunQueue, Take
from paceline.core.monitors.wait_reasons import HELD
from paceline.core.monitors.waiting_checks import Rank

LOOKED_MORE = 64
"""Rows that a claim reads beyond those it wants: some runs are held, and some rows of the index are out of date."""
SHARD_ROWS = 512
"""Rows of each shard that a claim reads, so that one owner's backlog does not hide the others. A shard has one row for
each of its monitors: 128, or 1/128 of all once every shard is in use. So owners are hidden only behind others who have
65,000 monitors waiting together."""
ROUNDS_MAX = 3
PROBED_MAX = 256
"""Owners that one claim for all of them reads; the next claim goes on after these."""
AS_SEEN = "#state = :seen AND #attempt = :attempt AND #at = :at"


class MonitorAndOwner(NamedTuple):
    """The definition of a run's monitor and its owner; None if the monitor is gone."""

    monitor: Item | None
    user: Item | None


# -- claiming


def claim(
    store: MonitorParts, queue: RunQueue, *, now_ms: int, runs_max: int, lease_ms: int, places: Places | None = None
) -> list[Claimed]:
    db, memory = store.db, store.claim_memory
    if not queue.outgoing:
        rows = store.ready_checks.upto(now_ms, limit=max(SHARD_ROWS, runs_max + LOOKED_MORE))
        fronts = [Front(*_rank(row), row, None) for row in rows]
        seats = Seats(runs_max, places)
        return _claim_checks(store, fronts, seats, whole=True, now_ms=now_ms, lease_ms=lease_ms)
    if queue.owner is not None:
        user = db.get(ITEMS, keys.user_key(queue.owner))
        queues = keys.owner_queues(user["number"], user["queues"], queue.name) if user and not user["disabled"] else []
        rows = _ready(db, queues, now_ms=now_ms, limit=runs_max + LOOKED_MORE)
    else:
        rows = _in_turns(db, memory, queue.name, now_ms=now_ms, runs_max=runs_max)
    admitted = iter(range(runs_max))
    return _lease(db, _read(db, rows), lambda *_: next(admitted, None) is not None, now_ms=now_ms, lease_ms=lease_ms)


def claim_checks_of(
    store: MonitorParts,
    generations: Collection[int],
    *,
    now_ms: int,
    runs_max: int,
    lease_ms: int,
    places: Places | None = None,
) -> list[Claimed]:
    """Claim like ``claim``, but only checks of these monitors and without reading the index."""
    db = store.db
    lanes = db.get_many(RUNS, map(keys.lane_key, generations)).values()
    found = db.get_many(RUNS, [keys.run_key(lane["generation"], lane["front"]) for lane in lanes]).values()
    runs = [run for run in found if not keys.is_outgoing(run["queue"]) and _may_start(run, now_ms)]
    store.claim_memory.note(runs)
    fronts = [Front(*_rank(run), run, run) for run in runs]
    seats = Seats(runs_max, places)
    return _claim_checks(store, fronts, seats, whole=False, now_ms=now_ms, lease_ms=lease_ms)


def next_run_ms(store: MonitorParts) -> int | None:
    first_ms = store.ready_checks.first()
    return None if first_ms == END else first_ms


class Front(NamedTuple):
    """The first open run of a monitor of checks, by its row of the index; ``run`` is the run itself, if it was read."""

    due_ms: int
    generation: int
    row: Item
    run: Item | None


def _rank(row: Item) -> Rank:
    """Return due time and generation of a run or its row. An index without due times is taken in its own order."""
    return int(row["due_ms"] if "due_ms" in row else row["at"]), int(row["pk"].partition("#")[2])


def _claim_checks(
    store: MonitorParts, fronts: Sequence[Front], seats: Seats, *, whole: bool, now_ms: int, lease_ms: int
) -> list[Claimed]:
    """Lease the checks that ``core.monitors.waiting_checks`` chooses.

    ``whole``: these are all waiting ones, as far as seen. If the index was wrong about a run, its place goes to the
    next round of choosing.
    """
    db, memory = store.db, store.claim_memory
    ranked = sorted(fronts, key=lambda one: (one.due_ms, one.generation))
    known = {one.generation: one for one in _with_owners(db, memory, ranked, runs_max=seats.room)}
    waiting = memory.line_up(known)
    claimed: list[Claimed] = []
    for _ in range(ROUNDS_MAX):
        chosen = {generation: (owner, target) for owner, generation, target in waiting.choose(seats)}
        runs = _runs_of(db, [known[generation] for generation in chosen])
        started = _start_checks(db, memory, seats, chosen, runs, now_ms=now_ms, lease_ms=lease_ms)
        claimed += started.claimed
        waiting.merge(started.refused, lambda generation: known[generation][:2])
        if len(started.claimed) == len(chosen):
            break
    memory.note_turns(waiting, whole=whole)
    memory.reasons.note(db, waiting.reasons(seats, limit=REASONS_MAX), now_ms=now_ms)
    for one in claimed:
        store.ready_checks.moved(keys.check_queue(one.generation), keys.runs_of(one.generation), one.lease_until_ms)
    return claimed


def _with_owners(db: DynamoDatabase, memory: ClaimMemory, fronts: Sequence[Front], *, runs_max: int) -> Sequence[Front]:
    """Return the fronts whose owner is known.

    Of the others, as many are read as one claim may read; the next claims read the rest.
    """
    unknown = [one.row for one in fronts if memory.owner(one.generation) is None]
    read = {run["generation"]: run for run in _read(db, unknown[: runs_max + LOOKED_MORE])}
    memory.note(read.values())
    return [
        one if one.run else one._replace(run=read.get(one.generation))
        for one in fronts
        if memory.owner(one.generation) is not None
    ]


def _runs_of(db: DynamoDatabase, fronts: Sequence[Front]) -> list[Item]:
    return [one.run for one in fronts if one.run] + _read(db, [one.row for one in fronts if not one.run])


class _Started(NamedTuple):
    """Checks that were started. ``refused``: chosen checks whose current target turned out to have no free place."""

    claimed: list[Claimed]
    refused: list[tuple[int, tuple[str, str]]]


def _start_checks(
    db: DynamoDatabase,
    memory: ClaimMemory,
    seats: Seats,
    chosen: Mapping[int, tuple[str, str]],
    runs: Sequence[Item],
    *,
    now_ms: int,
    lease_ms: int,
) -> _Started:
    """Lease chosen checks, given by generation with owner and target.

    A check that does not start gives its seat back.
    """
    seated = dict(chosen)
    refused: list[tuple[int, tuple[str, str]]] = []

    def admit(generation: int, target: str) -> bool:
        """Seat a check at another target than was remembered, if there is a place."""
        owner, remembered = seated[generation]
        memory.note_target(generation, target)
        if target == remembered:
            return True
        seats.take(owner, remembered, -1)
        if seats.room <= 0 or seats.refusal(owner, target):
            del seated[generation]
            refused.append((generation, (owner, target)))
            return False
        seats.take(owner, target)
        seated[generation] = (owner, target)
        return True

    claimed = _lease(db, runs, admit, now_ms=now_ms, lease_ms=lease_ms)
    for generation in seated.keys() - {one.generation for one in claimed}:
        seats.take(*seated[generation], -1)
    return _Started(claimed, refused)


def take(store: MonitorParts, takes: Sequence[Take], *, now_ms: int) -> list[Claimed | None]:
    """Lease the first open runs of outgoing monitors by their names. A run asked for too early is offered again."""
    db = store.db
    found = db.get_many(RUNS, [keys.run_key(item.generation, item.counter) for item in takes])
    chosen: dict[DynamoKey, int] = {}
    for position, item in enumerate(takes):
        key = keys.run_key(item.generation, item.counter)
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
            run = found[keys.run_key(item.generation, item.counter)]
            taken[position] = _claimed(run, facts[item.generation], until_ms=write_ms + item.lease_ms)
    store.alarms.offer(early, now_ms=now_ms)
    return taken


def _is_meant(run: Item, item: Take) -> bool:
    """Return True if the run has this name and is the first open one of a monitor that checkers claim."""
    named = (run["owner"], run["monitor"]) == (item.owner, item.monitor)
    return named and "shard" in run and keys.is_outgoing(run["queue"])


def _take_facts(run: Item, facts: MonitorAndOwner) -> TakeFacts:
    """Return the facts that decide on a take. Only a front can be taken, so no run of its monitor is open before it."""
    user = facts.user
    return TakeFacts(
        run["state"],
        run["at"],
        run["attempt"],
        clear=True,
        disabled=bool(user and user["disabled"]),
        defined=facts.monitor is not None,
    )


def _ready(db: DynamoDatabase, shards: Sequence[str], *, now_ms: int, limit: int) -> list[Item]:
    """Return rows of the index, a hint: the first that may start in each shard, in order of due time."""

    def read(shard: str) -> list[Item]:
        return db.page(RUNS, shard, limit=limit, index=READY_INDEX, last=now_ms)

    rows = [row for page in db.threads.fan_out(read, shards) for row in page]
    return sorted(rows, key=_rank)[:limit]


def _in_turns(db: DynamoDatabase, memory: ClaimMemory, queue: str, *, now_ms: int, runs_max: int) -> list[Item]:
    """Return rows of all owners that fit into the claim: even shares, and what one owner leaves the others use.

    Owners who were served longest ago come first.
    """
    probed = memory.probed.pop(queue, "")
    ahead = owners_after(db, queue, probed, limit=PROBED_MAX)
    if probed and len(ahead) < PROBED_MAX:
        around = owners_after(db, queue, "", limit=PROBED_MAX - len(ahead))
        ahead += [row for row in around if row["sk"] <= probed]
    users = db.get_many(ITEMS, [keys.user_key(row["owner"]) for row in ahead])

    def may_start(row: Item) -> list[Item]:
        user = users.get(keys.user_key(row["owner"]))
        if user is not None and user["number"] == int(row["sk"]) and user["disabled"]:
            return []
        queues = keys.owner_queues(int(row["sk"]), row["queues"], queue)
        return _ready(db, queues, now_ms=now_ms, limit=runs_max + LOOKED_MORE)

    found = dict(zip([row["sk"] for row in ahead], db.threads.fan_out(may_start, ahead), strict=True))
    numbers = [number for number, rows in found.items() if rows]
    if len(ahead) == PROBED_MAX:  # else one claim reads them all
        memory.probed[queue] = (numbers or list(found))[-1]
    turns = {number: f"{queue}#{number}" for number in numbers}
    numbers = [numbers[position] for position in memory.turns.order(list(turns.values()))]
    shares = Seats(runs_max).shares([OwnerDemand(number, len(found[number])) for number in numbers])
    memory.turns.serve([turns[number] for number, share in zip(numbers, shares, strict=True) if share])
    return [row for number, share in zip(numbers, shares, strict=True) for row in found[number][:share]]


def _read(db: DynamoDatabase, rows: Sequence[Item]) -> list[Item]:
    """Return the runs of these rows as they are now; the index is a hint."""
    return list(db.get_many(RUNS, [key_of(row) for row in rows]).values()) if rows else []


def _may_start(run: Item, now_ms: int) -> bool:
    return "shard" in run and run["at"] <= now_ms


def _lease(
    db: DynamoDatabase, found: Sequence[Item], admit: Callable[[int, str], bool], *, now_ms: int, lease_ms: int
) -> list[Claimed]:
    """Lease runs that may start and are admitted, by generation and target; hold runs of disabled users."""
    runs = sorted((run for run in found if _may_start(run, now_ms)), key=_rank)
    if not runs:
        return []
    facts = facts_of(db, runs)
    until_ms = db.write_ms(now_ms) + lease_ms
    taken: list[Item] = []
    acts: list[Act] = []
    held: list[Act] = []
    for run in runs:
        monitor, user = facts[run["generation"]]
        # A run of the index is its monitor's front: no run is open before it.
        if may_start(clear=True, disabled=user is not None and user["disabled"]) == "hold":
            held.append([_hold(run, now_ms)])
            continue
        target = target_of(read_spec(monitor["spec"]).check) if monitor is not None else ""
        if admit(run["generation"], target):
            # Each lease is an act of its own: if another process was faster with one run, only that one is lost.
            taken.append(run)
            acts.append([_take(run, now_ms=until_ms - lease_ms, until_ms=until_ms)])
    won = transact_acts(db, acts + held)[: len(acts)]
    return [
        _claimed(run, facts[run["generation"]], until_ms=until_ms)
        for run, happened in zip(taken, won, strict=True)
        if happened
    ]


def facts_of(db: DynamoDatabase, runs: Sequence[Item]) -> dict[int, MonitorAndOwner]:
    """Return the definitions of runs, by generation. A monitor is gone with its user, even if its item is there."""
    item_keys = [
        key for run in runs for key in (keys.monitor_key(run["user"], run["monitor"]), keys.user_key(run["owner"]))
    ]
    found = db.get_many(ITEMS, item_keys)
    facts: dict[int, MonitorAndOwner] = {}
    for run in runs:
        monitor = found.get(keys.monitor_key(run["user"], run["monitor"]))
        user = found.get(keys.user_key(run["owner"]))
        there = (
            monitor is not None
            and user is not None
            and monitor["generation"] == run["generation"]
            and user["number"] == run["user"]
        )
        facts[run["generation"]] = MonitorAndOwner(monitor, user) if there else MonitorAndOwner(None, None)
    return facts


def _take(run: Item, *, now_ms: int, until_ms: int) -> Action:
    change = "SET #state = :out, #attempt = :next, #at = :until, #started_ms = :now, #lost = :lost"
    if run["attempt"]:
        change += ", #claimed_ms = :now"  # an outcome overwrites started_ms
    change += " REMOVE #reason"
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


def _claimed(run: Item, facts: MonitorAndOwner, *, until_ms: int) -> Claimed:
    gone = facts.monitor is None
    spec = read_spec(facts.monitor["spec"]) if facts.monitor is not None else None
    return Claimed(
        keys.handle_of(run["generation"], run["counter"]),
        run["attempt"] + 1,
        "" if gone else run["owner"],
        "" if gone else run["monitor"],
        run["generation"],
        run["counter"],
        run["due_ms"],
        until_ms,
        lost=_is_lost(run),
        check=spec.check if spec is not None else None,
        attempts=spec.attempts if spec is not None else 1,
    )
