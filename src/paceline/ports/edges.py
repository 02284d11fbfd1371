"""Edges: carriers of checks and calls, the vault, the clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, TypeVar

from paceline.core.alerts.message import AppriseNote
from paceline.core.batches.calls import Call, CallResult
from paceline.core.monitors.values import CheckOrder, Finished

O_contra = TypeVar("O_contra", contravariant=True)
R = TypeVar("R")


class Edge(Protocol[O_contra, R]):
    """Edge where waiting is the work: many orders are in flight. One thread drives it; ``wake`` is for the others."""

    @property
    def in_flight(self) -> int: ...
    def start(self, orders: Sequence[O_contra], /) -> None:
        """Begin each order. Every one ends in exactly one result, within its own total deadline."""

    def finished(self, *, wait_ms: int) -> list[R]:
        """Return the results; wait up to ``wait_ms`` for the first, or until woken."""

    def wake(self) -> None: ...
    def close(self) -> None:
        """Drop what is in flight; its leases will run out."""


Provider: TypeAlias = Edge[CheckOrder, Finished]
"""Edge that carries out checks."""
Caller: TypeAlias = Edge[Call, CallResult]
"""Edge that calls the providers of batches, and webhooks."""
Messenger: TypeAlias = Edge[Call | AppriseNote, CallResult]
"""Edge that sends alerts. A note that was accepted has the code 200."""


class Vault(Protocol):
    """Keeps secrets out of the store: only it can open what it has sealed, with the installation's own key."""

    def seal(self, secret: str) -> str: ...
    def unseal(self, sealed: str) -> str:
        """Return the secret; raise WrongSetting if it was sealed with another key."""


class Clock(Protocol):
    def now_ms(self) -> int: ...
