"""Monitors as their users declared them. Each write records a change of the definition in the same transaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from msgspec.structs import asdict

from paceline.adapters.aws.client.connect import attempts, busy
from paceline.adapters.aws.client.database import DynamoDatabase, in_pages
from paceline.adapters.aws.client.items import (
    ABSENT,
    Action,
    DynamoKey,
    Item,
    delete,
    item_at,
    key_of,
    padded,
    put,
    update,
)
from paceline.adapters.aws.client.numbers import GENERATION, Numbers
from paceline.adapters.aws.client.tables import ITEMS, SCHEDULERS
from paceline.adapters.aws.monitors import keys
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.adapters.aws.monitors.transactions import in_waves
from paceline.adapters.aws.monitors.users import change_item, tally
from paceline.core.monitors.checks import OutgoingCheck
from paceline.core.monitors.definition import Monitor, encode_spec
from paceline.core.monitors.lists.query import MonitorQuery
from paceline.core.monitors.load import load_of
from paceline.core.monitors.put import NewFacts, OwnerFacts, OwnerLimits, PutDecision, decide_put, decide_remove
from paceline.core.monitors.stored import StoredMonitor, read_spec
from paceline.core.monitors.values import PutMonitor, PutResult, RemoveMonitor, RemoveResult

CHUNK = 40
"""Writes of one owner in one transaction: two items each, and 40 specs are less than the 4 MB it may have."""

W = TypeVar("W", PutMonitor, RemoveMonitor)
R = TypeVar("R")


class Judged(NamedTuple):
    """The decision on some writes of one owner. It wins if everything is still as it was read."""

    results: list[Any]
    actions: list[Action]
    created: int = 0
    names: frozenset[str] = frozenset()
    """Outgoing queues that the owner's checks have named, including these writes."""


def put_monitors(
    store: MonitorParts, puts: Sequence[PutMonitor], *, monitors_max: int, now_ms: int, firings_max: int = 0
) -> list[PutResult]:
    limits = OwnerLimits(monitors_max, firings_max)

    def write(owner: str, items: Sequence[PutMonitor]) -> list[PutResult]:
        return _Puts(store.db, store.numbers, owner, limits, now_ms=now_ms).write(items)

    return _by_owner(store.db, puts, write)


def remove_monitors(store: MonitorParts, removes: Sequence[RemoveMonitor]) -> list[RemoveResult]:
    def write(owner: str, items: Sequence[RemoveMonitor]) -> list[RemoveResult]:
        return _removed(store.db, store.numbers, owner, items)

    return _by_owner(store.db, removes, write)


def rewrite_specs(store: MonitorParts, monitors: Sequence[Monitor]) -> int:
    db = store.db
    users = db.get_many(ITEMS, {keys.user_key(one.owner) for one in monitors})
    writes = [
        update(
            ITEMS,
            keys.monitor_key(users[keys.user_key(one.owner)]["number"], one.id),
            "SET #spec = :spec",
            when="#generation = :generation AND #revision = :seen",
            spec=encode_spec(one.spec).decode(),
            generation=one.generation,
            seen=one.revision,
        )
        for one in monitors
        if keys.user_key(one.owner) in users
    ]
    return sum(written.won for written in db.write_each(writes))


def monitor(store: MonitorParts, owner: str, monitor_id: str) -> Monitor | None:
    db = store.db
    user = db.get(ITEMS, keys.user_key(owner))
    item = db.get(ITEMS, keys.monitor_key(user["number"], monitor_id)) if user else None
    return keys.to_monitor(owner, item) if item else None


def monitors(store: MonitorParts, owner: str, *, after: str, limit: int) -> list[Monitor]:
    db = store.db
    user = db.get(ITEMS, keys.user_key(owner))
    if user is None:
        return []
    return [
        keys.to_monitor(owner, item)
        for item in db.page(ITEMS, keys.monitors_of(user["number"]), limit=limit, after=after)
    ]


def monitors_by_generation(store: MonitorParts, generations: Sequence[int]) -> dict[int, Monitor]:
    """Read the entries, which name their monitors, and then these."""
    db = store.db
    entries = db.get_many(SCHEDULERS, [keys.entry_key(generation) for generation in generations]).values()
    owners = {keys.monitor_key(entry["user"], entry["monitor"]): entry["owner"] for entry in entries}
    found = [keys.to_monitor(owners[key_of(item)], item) for item in db.get_many(ITEMS, list(owners)).values()]
    wanted = frozenset(generations)
    return {one.generation: one for one in found if one.generation in wanted}


def narrowed(store: MonitorParts, query: MonitorQuery, *, limit: int, late_before_ms: int) -> list[Monitor] | None:
    """Return None: no index narrows the list. It reads as many monitors as a page may, as a query of DynamoDB does."""
    del store, query, limit, late_before_ms
    return None


def index_monitors(store: MonitorParts, *, limit: int) -> bool:
    del store, limit
    return False


def _by_owner(db: DynamoDatabase, writes: Sequence[W], write: Callable[[str, Sequence[W]], list[R]]) -> list[R]:
    """Write different owners at the same time. An owner's writes go in order: they share the count of monitors."""

    def write_wave(wave: list[W]) -> list[R]:
        owners: dict[str, list[W]] = {}
        for item in wave:
            owners.setdefault(item.owner, []).append(item)

        def write_all(items: Sequence[W]) -> list[R]:
            return [done for chunk in in_pages(items, CHUNK) for done in write(chunk[0].owner, chunk)]

        written = db.threads.fan_out(write_all, owners.values())
        done = {owner: iter(some) for owner, some in zip(owners, written, strict=True)}
        return [next(done[item.owner]) for item in wave]

    return in_waves(writes, lambda item: (item.owner, item.id), write_wave)


class _Puts:
    """Decides on puts of distinct monitors of one owner, and again if a stored item has changed before the write."""

    def __init__(self, db: DynamoDatabase, numbers: Numbers, owner: str, limits: OwnerLimits, *, now_ms: int) -> None:
        self._db = db
        self._numbers = numbers
        self._owner = owner
        self._limits = limits
        self._now_ms = now_ms
        self._generations: list[int] = []

    def write(self, items: Sequence[PutMonitor]) -> list[PutResult]:
        for _ in attempts():
            user = self._db.get(ITEMS, keys.user_key(self._owner))
            if user is None:
                return [PutResult("no_owner") for _ in items]
            judged = self._judge(user, items)
            self._list_queues(user, judged)
            if not judged.actions or self._db.transact(judged.actions).won:
                return judged.results
        raise busy(f"monitors of {self._owner!r}")

    def _judge(self, user: Item, items: Sequence[PutMonitor]) -> Judged:
        """Decide first without numbers.

        So only new monitors take a generation, and only writes take a change number.
        """
        found = self._db.get_many(ITEMS, [keys.monitor_key(user["number"], item.id) for item in items])
        before = OwnerFacts(user["monitors"], self._load(user), user["disabled"], frozenset(user.get("names", ())))
        stored = [found.get(keys.monitor_key(user["number"], item.id)) for item in items]
        facts, tried = self._decide(items, stored, before, seqs=[0] * len(items), generations=[])
        if all(one.stored is None for one in tried):
            return Judged([one.result for one in tried], [], 0, facts.queues)
        seqs = self._numbers.take("change", len(items))
        generations = self._spare(facts.monitors - before.monitors)
        facts, decided = self._decide(items, stored, before, seqs=seqs, generations=generations)
        actions: list[Action] = []
        for item, seq, there, one in zip(items, seqs, stored, decided, strict=True):
            if one.stored is not None:
                key = keys.monitor_key(user["number"], item.id)
                change = change_item(
                    one.stored.generation, seq, number=user["number"], owner=item.owner, monitor=item.id
                )
                actions += [_write(key, there, one.stored), put(ITEMS, change)]
        written = [item for item, one in zip(items, decided, strict=True) if one.stored is not None]
        outgoing = any(isinstance(item.spec.check, OutgoingCheck) for item in written)
        created = facts.monitors - before.monitors
        listed = facts.queues != before.queues or (outgoing and not user.get("outgoing"))
        if created or facts.load != user.get("load") or listed:
            actions += _count(user, created, facts, outgoing=outgoing, monitors_max=self._limits.monitors_max)
        return Judged([one.result for one in decided], actions, created, facts.queues)

    def _decide(
        self,
        items: Sequence[PutMonitor],
        stored: Sequence[Item | None],
        facts: OwnerFacts,
        *,
        seqs: Sequence[int],
        generations: Sequence[int],
    ) -> tuple[OwnerFacts, list[PutDecision]]:
        """Return the owner after all of the puts, and the decision on each."""
        decided: list[PutDecision] = []
        before = facts.monitors
        for item, there, seq in zip(items, stored, seqs, strict=True):
            created = facts.monitors - before
            generation = generations[created] if there is None and created < len(generations) else 0
            new = NewFacts(self._now_ms, seq, generation)
            decided.append(decide_put(item, keys.to_stored(there) if there else None, facts, self._limits, new))
            facts = decided[-1].owner
        return facts, decided

    def _list_queues(self, user: Item, judged: Judged) -> None:
        """List the owner's queues before they have a run.

        A listed one costs a read, an unlisted one is never served.
        """
        queues = _queues(user, user["monitors"] + judged.created)
        names = judged.names if queues != user["queues"] else judged.names.difference(user.get("names", ()))
        row = {"sk": padded(user["number"]), "owner": user["id"], "queues": queues}
        self._db.write_each([put(ITEMS, row | {"pk": keys.owners_of(name)}) for name in names])

    def _load(self, user: Item) -> int:
        """Return the load of the user's monitors. A user of an older store has none stored; then it is added up."""
        if "load" in user or not user["monitors"]:
            return int(user.get("load", 0))
        rows = self._db.walk(ITEMS, keys.monitors_of(user["number"]))
        return sum(load_of(read_spec(row["spec"])) for row in rows)

    def _spare(self, count: int) -> list[int]:
        """Return new generations in order. Those of an attempt that lost are used by the next one."""
        if count > len(self._generations):
            self._generations += self._numbers.take(GENERATION, count - len(self._generations), block=1)
        return self._generations


def _write(key: DynamoKey, there: Item | None, stored: StoredMonitor) -> Action:
    """Return the write of a monitor.

    It wins if what was read is still there: nothing, or this generation and revision.
    """
    if there is None:
        row = item_at(key) | asdict(stored)
        row["spec"] = row.pop("text")
        return put(ITEMS, row, when=ABSENT)
    return update(
        ITEMS,
        key,
        "SET #spec = :spec, #revision = :revision, #updated_ms = :now_ms",
        when="#generation = :generation AND #revision = :seen",
        spec=stored.text,
        revision=stored.revision,
        now_ms=stored.updated_ms,
        generation=there["generation"],
        seen=there["revision"],
    )


def _queues(user: Item, monitors: int) -> int:
    return max(int(user["queues"]), min(1 + monitors // keys.MONITORS_PER_QUEUE, keys.QUEUES_MAX))


def _count(user: Item, created: int, facts: OwnerFacts, *, outgoing: bool, monitors_max: int) -> list[Action]:
    """Return the actions that raise the owner's counts, if there is room and ``disabled`` is as it was read."""
    total = user["monitors"] + created
    queues = _queues(user, total)
    outgoing = outgoing or user.get("outgoing", False)
    believed = "#number = :number AND #disabled = :disabled AND #queues = :seen AND #monitors <= :room"
    values = {"number": user["number"], "disabled": user["disabled"], "seen": user["queues"]}
    change = "SET #queues = :queues, #outgoing = :outgoing, #load = :load, #names = :names ADD #monitors :created"
    names = sorted(facts.queues)
    values |= {"queues": queues, "outgoing": outgoing, "created": created, "load": facts.load, "names": names}
    believed += " AND #names = :seen_names" if "names" in user else " AND attribute_not_exists(#names)"
    if "names" in user:
        values["seen_names"] = user["names"]
    believed += " AND #load = :seen_load" if "load" in user else " AND attribute_not_exists(#load)"
    if "load" in user:
        values["seen_load"] = user["load"]
    # If nothing is created there is room, even if the limit was lowered.
    values["room"] = monitors_max - created if created else user["monitors"]
    actions = [update(ITEMS, keys.user_key(user["id"]), change, when=believed, **values)]
    if outgoing and (not user.get("outgoing") or queues != user["queues"] or names != user.get("names", [])):
        listed = {
            "pk": keys.OWNERS,
            "sk": padded(user["number"]),
            "owner": user["id"],
            "queues": queues,
            "names": names,
        }
        actions.append(put(ITEMS, listed))
    if created:
        actions.append(tally(user["id"], users=0, monitors=created))
    return actions


def _removed(db: DynamoDatabase, numbers: Numbers, owner: str, items: Sequence[RemoveMonitor]) -> list[RemoveResult]:
    for _ in attempts():
        user = db.get(ITEMS, keys.user_key(owner))
        if user is None:
            return ["not_found" for _ in items]
        judged = _judge_removes(db, numbers, user, items)
        if not judged.actions or db.transact(judged.actions).won:
            return judged.results
    raise busy(f"monitors of {owner!r}")


def _judge_removes(db: DynamoDatabase, numbers: Numbers, user: Item, items: Sequence[RemoveMonitor]) -> Judged:
    number = user["number"]
    found = db.get_many(ITEMS, [keys.monitor_key(number, item.id) for item in items])
    results: list[RemoveResult] = []
    actions: list[Action] = []
    lighter = 0
    for item in items:
        key = keys.monitor_key(number, item.id)
        there = found.get(key)
        result = decide_remove(item, (there["generation"], there["revision"]) if there else None)
        results.append(result)
        if there is not None and result == "removed":
            lighter += load_of(read_spec(there["spec"]))
            actions += _remove(numbers, user, key, there)
    if gone := results.count("removed"):
        fewer = {"gone": -gone, "number": number}
        change, when = "ADD #monitors :gone", "#number = :number"
        if "load" in user:
            change, fewer = f"{change}, #load :lighter", fewer | {"lighter": -lighter}
        actions.append(update(ITEMS, keys.user_key(user["id"]), change, when=when, **fewer))
        actions.append(tally(user["id"], users=0, monitors=-gone))
    return Judged(results, actions)


def _remove(numbers: Numbers, user: Item, key: DynamoKey, there: Item) -> list[Action]:
    generation, seq = there["generation"], numbers.take("change", 1)[0]
    believed = {"generation": generation, "revision": there["revision"]}
    return [
        delete(ITEMS, key, when="#generation = :generation AND #revision = :revision", **believed),
        put(ITEMS, change_item(generation, seq, number=user["number"], owner=user["id"], monitor=key.sk)),
    ]
