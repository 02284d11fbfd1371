"""Attributes that the parts of the store share."""

from __future__ import annotations

from typing import NamedTuple

from paceline.adapters.aws.cache.change_counter import ChangeCounter
from paceline.adapters.aws.client.database import DynamoDatabase
from paceline.adapters.aws.client.numbers import Numbers
from paceline.adapters.aws.client.queues import Queues


class AwsStorePart:
    """Base of the mixins of ``AwsStore``, which sets the attributes once, before anything else is called."""

    _database: DynamoDatabase
    _queues: Queues
    _numbers: Numbers
    change_counter: ChangeCounter

    @property
    def db(self) -> DynamoDatabase:
        return self._database

    @property
    def numbers(self) -> Numbers:
        return self._numbers

    @property
    def queues(self) -> Queues:
        """The SQS queues. The Lambda functions use them, too, to send messages."""
        return self._queues


class BatchCounts(NamedTuple):
    """The fields of ``StoreStatus`` that are about batches, under the same names."""

    providers: int
    batches: int
    calls_waiting: int
    calls_aside: int
    dead_letters: int
    oldest_call_due_ms: int | None
    call_start_ms: int | None
    worker_start_ms: int | None
