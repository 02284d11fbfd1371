"""The first argument of this package's functions: the clients, and this process's memory of batches."""

from __future__ import annotations

from functools import cached_property

from paceline.adapters.aws.base import AwsStorePart
from paceline.adapters.aws.batches.facts import DayCache
from paceline.adapters.aws.batches.lanes import Looks, ready_index


class BatchParts(AwsStorePart):
    """The store, as the functions on batches see it."""

    @cached_property
    def facts(self) -> DayCache:
        return DayCache()

    @cached_property
    def looks(self) -> Looks:
        return Looks(ready_index(self._database, self.change_counter))
