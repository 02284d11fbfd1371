"""The edges: what carries out checks and calls, the vault, the clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

from paceline.core.alerts.message import Note
from paceline.core.batches.calls import Call, CallResult
from paceline.core.monitors.values import Finished, Order

O_contra = TypeVar("O_contra", contravariant=True)
R = TypeVar("R")


class Edge(Protocol[O_contra, R]):
    """The edge where waiting is the work: many orders in flight. One thread drives it; ``wake`` is for the others."""

    @property
    def in_flight(self) -> int: ...
    def start(self, orders: Sequence[O_contra], /) -> None:
        """Begins each order. Every one ends in exactly one result, within its own total deadline."""

    def finished(self, *, wait_ms: int) -> list[R]:
        """What has ended; waits up to ``wait_ms`` for the first, or until woken."""

    def wake(self) -> None: ...
    def close(self) -> None:
        """Drops what is in flight; its leases will run out."""


Provider: TypeAlias = Edge[Order, Finished]
"""Carries out checks."""
Caller: TypeAlias = Edge[Call, CallResult]
"""Calls the providers of batches, and webhooks."""
Messenger: TypeAlias = Edge[Call | Note, CallResult]
"""Sends alerts. A note that was taken has the code 200."""


class Vault(Protocol):
    """Keeps secrets out of the store: what it seals only it can open, with the installation's own key."""

    def seal(self, secret: str) -> str: ...
    def unseal(self, sealed: str) -> str:
        """Raises WrongSetting if it was sealed with another key."""


class Clock(Protocol):
    def now_ms(self) -> int: ...
