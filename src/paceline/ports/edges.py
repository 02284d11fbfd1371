"""The edges: providers that carry out checks and calls, the vault, the clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from paceline.core.batches.calls import Call, CallResult
from paceline.core.monitors.values import Finished, Order


class Provider(Protocol):
    """The edge where waiting is the work: many checks in flight. One thread drives it; ``wake`` is for the others."""

    @property
    def in_flight(self) -> int: ...
    def start(self, orders: Sequence[Order]) -> None:
        """Begins each check. Every order ends in exactly one Finished, within its own total deadline."""

    def finished(self, *, wait_ms: int) -> list[Finished]:
        """What has ended; waits up to ``wait_ms`` for the first, or until woken."""

    def wake(self) -> None: ...
    def close(self) -> None:
        """Drops what is in flight; its leases will run out."""


class Caller(Protocol):
    """The edge towards providers: calls in flight. One thread drives it; ``wake`` is for the others."""

    @property
    def in_flight(self) -> int: ...
    def start(self, calls: Sequence[Call]) -> None:
        """Begins each call. Every one ends in exactly one CallResult, within its own total deadline."""

    def finished(self, *, wait_ms: int) -> list[CallResult]:
        """What has ended; waits up to ``wait_ms`` for the first, or until woken."""

    def wake(self) -> None: ...
    def close(self) -> None:
        """Drops what is in flight; its leases will run out."""


class Vault(Protocol):
    """Keeps secrets out of the store: what it seals only it can open, with the installation's own key."""

    def seal(self, secret: str) -> str: ...
    def unseal(self, sealed: str) -> str:
        """Raises WrongSetting if it was sealed with another key."""


class Clock(Protocol):
    def now_ms(self) -> int: ...
