"""What the functions of this package work with: the clients, and what this process remembers of batches."""

from __future__ import annotations

from functools import cached_property

from paceline.adapters.aws.base import Part
from paceline.adapters.aws.batches.facts import Facts
from paceline.adapters.aws.batches.lanes import Looks, ready_index


class BatchParts(Part):
    """The first argument of every act on batches; the store is one."""

    @cached_property
    def facts(self) -> Facts:
        return Facts()

    @cached_property
    def looks(self) -> Looks:
        return Looks(ready_index(self._database, self.change_counter))
