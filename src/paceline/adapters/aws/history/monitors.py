"""Facts about monitors, entries and runs, for `paceline verify`. Scans the tables.

Items of one partition come one after the other, but partitions come in no order: other facts of a generation are kept
until its runs come. So memory grows with the number of monitors, not with that of runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from msgspec.structs import replace

from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.items import Item
from paceline.adapters.aws.client.tables import RUNS, SCHEDULERS
from paceline.adapters.aws.monitors.keys import LANE, UPTIME, handle_of
from paceline.adapters.aws.monitors.parts import MonitorParts
from paceline.adapters.aws.monitors.verify import Names, read_names
from paceline.core.monitors.alerting.stored import decode_health
from paceline.core.monitors.checks import OutgoingCheck, repeatable
from paceline.core.monitors.leases import TERMINAL
from paceline.core.monitors.places import target_of
from paceline.core.monitors.stored import read_spec
from paceline.core.monitors.uptime.rollup import decode_rollup
from paceline.core.verify.facts import EntryFact, Fact, MonitorFact, RunFact


def monitor_facts(store: MonitorParts) -> Iterator[Fact]:
    """Yield the facts of each generation that has runs, then those of the others."""
    db = store.db
    checks = _Checks()
    names = read_names(db, checks.see)
    entries: dict[int, EntryFact] = {}
    for item in db.scan(SCHEDULERS):
        entries[item["generation"]] = _entry(item)
        if item["user"] not in names.users:  # all items of a removed user are unreachable, and are deleted bit by bit
            names.changed.add(item["generation"])
    rollups = dict(_rollups(db))
    seen: set[int] = set()
    ours = db.scan(RUNS, filtered="begins_with(#pk, :monitor)", monitor="m#")
    for pk, group in groupby(ours, key=lambda item: str(item["pk"])):
        generation, items = int(pk.partition("#")[2]), list(group)
        lane = next((item for item in items if item["sk"] == LANE), None)
        seen.add(generation)
        yield checks.with_check(_monitor(names, generation, lane, rollups.get(generation)))
        if generation in entries:
            yield entries[generation]
        runs = [item for item in items if item["sk"] != LANE]
        yield from (_run(item) for item in sorted(runs, key=lambda item: int(item["counter"])))
    for generation in sorted((names.monitors.keys() | entries.keys() | names.changed) - seen):
        yield checks.with_check(_monitor(names, generation, None, rollups.get(generation)))
        if generation in entries:
            yield entries[generation]


class _Checks:
    """Facts about the checks of definitions, by generation."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[int, str, bool, bool]] = {}

    def see(self, item: Item) -> None:
        check = read_spec(item["spec"]).check
        facts = (item["updated_ms"], target_of(check), isinstance(check, OutgoingCheck), repeatable(check))
        self._known[item["generation"]] = facts

    def with_check(self, fact: MonitorFact) -> MonitorFact:
        known = self._known.get(fact.generation) if fact.defined else None
        if known is None:
            return fact
        edited_ms, target, outgoing, may_repeat = known
        return replace(fact, edited_ms=edited_ms, target=target, outgoing=outgoing, repeatable=may_repeat)


def _rollups(db: DynamoDatabase) -> Iterator[tuple[int, tuple[int, int]]]:
    for item in db.scan(RUNS, filtered="begins_with(#pk, :uptime)", uptime=f"{UPTIME}#"):
        generation = int(item["pk"].partition("#")[2])
        yield generation, (item["counter"], decode_rollup(item["rollup"]).at_ms or 0)


def _monitor(names: Names, generation: int, lane: Item | None, rollup: tuple[int, int] | None) -> MonitorFact:
    number, monitor = names.monitors.get(generation, (0, ""))
    user = names.users.get(number)
    changed = generation in names.changed or number in names.fanned
    if user is None:
        return MonitorFact(generation, changed=changed)
    folded, folded_ms = rollup or (-1, 0)
    failures = decode_health(lane.get("health")).failures if lane else 0
    return MonitorFact(generation, user["id"], monitor, True, changed, failures, folded, folded_ms)


def _entry(item: Item) -> EntryFact:
    cadence = item["cadence"]
    return EntryFact(
        generation=item["generation"],
        counter=item["counter"],
        due_ms=item.get("due_ms"),
        every_ms=cadence.get("every_ms", 0),
        cron=cadence.get("cron", ""),
        timezone=cadence.get("timezone", "UTC"),
        jitter_ms=cadence.get("jitter_ms", 0),
        base_ms=item.get("base_ms"),
        lead_ms=item.get("base_lead_ms") or 0,
        missed=cadence.get("missed", ""),
        overlap=cadence.get("overlap", ""),
    )


def _run(item: Item) -> RunFact:
    ended = item["state"] in TERMINAL
    return RunFact(
        generation=item["generation"],
        counter=item["counter"],
        due_ms=item["due_ms"],
        state=item["state"],
        handle=handle_of(item["generation"], item["counter"]),
        attempt=item["attempt"],
        started_ms=item.get("started_ms"),
        ended_ms=item.get("ended_ms"),
        until_ms=item.get("at") if item["state"] == "out" else None,
        extra=bool(item.get("extra")),
        open_too=ended and "shard" in item,
        reason=item.get("reason", ""),
        claimed_ms=item.get("claimed_ms") if ended else None,
        lost=ended and bool(item.get("lost")),
    )
