"""Alarms for senders that wait for messages: when a run may start, its name enters ``runs.fifo``.

The group is the provider, so one provider's alarms come one after the other and nobody else's wait for them. A message
is an alarm and nothing more: who gets it claims as everybody does. One that comes twice, late or never does no harm.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import NamedTuple

import msgspec

from paceline.adapters.aws.batches_facts import Facts
from paceline.adapters.aws.batches_keys import RECORD_BITS, RECORD_MASK, record_key
from paceline.adapters.aws.batches_lanes import (
    LaneItem,
    Looks,
    Run,
    held_runs,
    lanes_of,
    ready_providers,
    waiting_from,
)
from paceline.adapters.aws.database import Database
from paceline.adapters.aws.queues import Message, Queues
from paceline.adapters.aws.tables import ITEMS, RUNS_FIFO
from paceline.core.ids import call_run_id

RUNS_MAX = 10
"""Of one provider in one release: the claim that follows sees for itself how many more may start."""


class Alarm(msgspec.Struct, frozen=True):
    """The message's body."""

    run: str
    provider: str
    attempt: int
    due_ms: int


class _Due(NamedTuple):
    provider: int
    run: Run


def release_due(db: Database, queues: Queues, facts: Facts, looks: Looks, *, now_ms: int, providers_max: int) -> int:
    """How many alarms were sent: for each provider that is ready, those of its runs that may be next."""
    found = lanes_of(db, ready_providers(db, looks, now_ms=now_ms, limit=providers_max)).values()
    lanes = [lane for lane in found if lane.ready_ms <= now_ms]
    known = facts.policies.of(db, lanes)
    open_lanes = [lane for lane in lanes if lane.provider in known and not known[lane.provider].policy.paused]

    def due_at(lane: LaneItem) -> list[_Due]:
        return _due(db, lane, known[lane.provider].policy.max_in_flight, now_ms=now_ms)

    due = [one for page in db.threads.fan_out(due_at, open_lanes) for one in page]
    if due:
        queues.send(RUNS_FIFO, [_message(alarm) for alarm in _alarms(db, facts, due)])
    return len(due)


def _due(db: Database, lane: LaneItem, places: int, *, now_ms: int) -> list[_Due]:
    """Its first runs whose time has come, those in back-off and those whose lease has ended among them."""
    free = min(places - len(lane.held), RUNS_MAX)
    waiting = waiting_from(db, lane, lane.front_ms, limit=free).runs if free > 0 else []
    runs = sorted(held_runs(lane) + waiting)
    return [_Due(lane.provider, run) for run in runs if run.at_ms <= now_ms][:RUNS_MAX]


def _alarms(db: Database, facts: Facts, due: list[_Due]) -> list[Alarm]:
    records = db.get_many(ITEMS, (record_key(one.run.run & RECORD_MASK) for one in due))
    days = facts.days(db, (one.run.run >> RECORD_BITS for one in due))
    providers = facts.policies.names(db, (one.provider for one in due))
    alarms = []
    for one in due:
        day, record = days[one.run.run >> RECORD_BITS], records.get(record_key(one.run.run & RECORD_MASK))
        name = call_run_id(day["batch"], record["name"], day["date"]) if record else ""
        alarms.append(Alarm(name, providers[one.provider], one.run.attempt + 1, one.run.due_ms))
    return alarms


def _message(alarm: Alarm) -> Message:
    # The attempt is part of what makes it once: a second attempt within five minutes has its own alarm.
    return Message(
        msgspec.json.encode(alarm).decode(),
        group=_hash(alarm.provider),
        once=_hash(f"{alarm.run}#{alarm.attempt}#{alarm.due_ms}"),
    )


def _hash(text: str) -> str:
    """Any text as an id that SQS takes: no spaces, no accents, no more than 128 characters."""
    return blake2b(text.encode(), digest_size=20).hexdigest()
