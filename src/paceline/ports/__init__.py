"""The contract between the steps and the world: Store, Provider, Clock, in the words of core.

Each Store method is one atomic act: it happens whole or not at all, also under ``kill -9``. Methods take and return
batches. A write states the values that it expects and may lose; losing is a value (``False``, a disposition), never an
error. No method reads a clock: ``now_ms`` comes in. A store that cannot be reached or written raises StoreUnavailable.

tests/contract/ is this contract as tests; every store passes it.
"""

from __future__ import annotations

from typing import Protocol

from paceline.core.engine_traits import EngineTraits
from paceline.ports.alerts import AlertStore
from paceline.ports.atlas import Atlas
from paceline.ports.batches import BatchStore
from paceline.ports.edges import Caller, Clock, Edge, Messenger, Provider, Vault
from paceline.ports.history import HistoryStore
from paceline.ports.items import ItemStore
from paceline.ports.jobs import JobStore
from paceline.ports.monitors import MonitorStore

__all__ = [
    "AlertStore",
    "Atlas",
    "BatchStore",
    "Caller",
    "Clock",
    "Edge",
    "HistoryStore",
    "ItemStore",
    "JobStore",
    "Messenger",
    "MonitorStore",
    "Provider",
    "Store",
    "Vault",
]


class Store(MonitorStore, BatchStore, JobStore, ItemStore, AlertStore, HistoryStore, Protocol):
    """A store: one SQLite file, or DynamoDB and SQS."""

    @property
    def traits(self) -> EngineTraits:
        """Return the engine's traits, which loops and shells depend on."""

    def begin_loops(self) -> None:
        """Tell the store that this process looks for work repeatedly: it may cache where its indexes begin."""
