"""What the functions of this package work with: the clients, and what this process remembers between calls."""

from __future__ import annotations

from functools import cached_property

from paceline.adapters.aws.base import Part
from paceline.adapters.aws.cache.index_cache import ShardCache
from paceline.adapters.aws.cache.row_cache import RowCache
from paceline.adapters.aws.jobs.keys import first_place


class JobParts(Part):
    """The first argument of every act on jobs; the store is one."""

    open_jobs_after: int = -1
    """The number up to which this process has looked through the open jobs; each pass looks at some of them."""

    @cached_property
    def row_cache(self) -> RowCache:
        return RowCache()

    @cached_property
    def shard_cache(self) -> ShardCache:
        return ShardCache(self.change_counter, lambda shard: first_place(self._database, shard))

    @cached_property
    def duties_taken_ms(self) -> dict[str, int]:
        """When each duty was last taken, as far as this process knows."""
        return {}
