"""What every half of the store stands on."""

from __future__ import annotations

from typing import NamedTuple

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.news import News
from paceline.adapters.aws.numbers import Numbers
from paceline.adapters.aws.queues import Queues


class Part:
    """The attributes are set by ``AwsStore``, once, before anything else is called."""

    _database: Database
    _queues: Queues
    _numbers: Numbers
    news: News


class BatchCounts(NamedTuple):
    """The part of ``StoreStatus`` that is about batches, by the same names."""

    providers: int
    batches: int
    calls_waiting: int
    calls_aside: int
    dead_letters: int
    oldest_call_due_ms: int | None
    call_start_ms: int | None
