"""The few moves that the scenes about monitors on AWS are made of."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.client.queues import Queues
from paceline.adapters.aws.client.tables import OUTGOING, TICKS
from paceline.core.monitors.due import CatchUp, advance_all
from paceline.ports import Store
from paceline.ports.queue_messages import Alarm, read_tick
from tests.contract.support.stage import user

WRITES = frozenset({"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"})


def with_users(store: Store) -> None:
    for name in ("ann", "bob"):
        assert store.add_user(user(name))


def alarms(queues: Queues) -> list[Alarm]:
    """Receives all alarms that are visible by now."""
    found = []
    while received := queues.receive(TICKS, messages_max=10):
        for message in received:
            alarm = read_tick(message.body)
            assert isinstance(alarm, Alarm)
            found.append(alarm)
        queues.forget(TICKS, [message.receipt for message in received])
    return sorted(found, key=lambda alarm: (alarm.due, alarm.generation))


def offers(queues: Queues) -> list[dict[str, Any]]:
    """Receives all offers that are visible by now."""
    found: list[dict[str, Any]] = []
    while received := queues.receive(OUTGOING, messages_max=10):
        found += [msgspec.json.decode(message.body) for message in received]
        queues.forget(OUTGOING, [message.receipt for message in received])
    return found


def tick_by_alarms(store: Any, rung: list[Alarm], *, now_ms: int) -> list[bool]:
    """What the function behind the queue does."""
    advances = advance_all(store.alarmed_entries(rung, now_ms=now_ms), now_ms=now_ms, catch_up=CatchUp())
    won: list[bool] = store.commit(advances, now_ms=now_ms)
    return won


@contextmanager
def counted(clients: Clients) -> Iterator[Counter[str]]:
    """The requests that are made meanwhile, by operation."""
    seen: Counter[str] = Counter()

    def note(model: Any, **_: Any) -> None:
        seen[model.name] += 1

    for client, service in zip(clients, ("dynamodb", "sqs"), strict=True):
        client.meta.events.register(f"before-call.{service}", note)
    try:
        yield seen
    finally:
        for client, service in zip(clients, ("dynamodb", "sqs"), strict=True):
            client.meta.events.unregister(f"before-call.{service}", note)


class Cut(Exception):
    """The process dies here."""


@contextmanager
def cut_before(clients: Clients, request: int) -> Iterator[None]:
    """Dies before the request with this number, counted from 0, that writes to DynamoDB."""
    left = iter(range(request))

    def stop(model: Any, **_: Any) -> None:
        if model.name in WRITES and next(left, None) is None:
            raise Cut

    events = clients.dynamodb.meta.events
    events.register("before-call.dynamodb", stop)
    try:
        yield
    finally:
        events.unregister("before-call.dynamodb", stop)
