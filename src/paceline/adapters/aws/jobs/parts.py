"""The first argument of this package's functions: the clients, and this process's memory between calls."""

from __future__ import annotations

from functools import cached_property

from paceline.adapters.aws.base import AwsStorePart
from paceline.adapters.aws.cache.index_cache import ShardCache
from paceline.adapters.aws.cache.row_cache import RowCache
from paceline.adapters.aws.jobs.keys import first_place


class JobParts(AwsStorePart):
    """The store, as the functions on jobs see it."""

    open_jobs_after: int = -1
    """The number up to which this process has read the open jobs; each pass reads some of them."""

    @cached_property
    def row_cache(self) -> RowCache:
        return RowCache()

    @cached_property
    def shard_cache(self) -> ShardCache:
        return ShardCache(self.change_counter, lambda shard: first_place(self._database, shard))

    @cached_property
    def duties_taken_ms(self) -> dict[str, int]:
        """Time at which each duty was last taken, as far as this process knows."""
        return {}
