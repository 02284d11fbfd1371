"""The edges: providers that carry out checks and calls, the vault, the clock."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from paceline.core.calls import Call, CallResult
from paceline.core.checks import PolledCheck
from paceline.core.ids import run_id
from paceline.core.outcome import Done
from paceline.ports.monitors import Settlement


class Finished(Settlement, frozen=True, gc=False):
    """What came of a check that the provider carried out."""

    outcome: Done


class Order(msgspec.Struct, frozen=True, gc=False):
    """A check to be made."""

    handle: int
    attempt: int
    owner: str
    monitor: str
    generation: int
    counter: int
    check: PolledCheck
    due_ms: int = 0
    lease_until_ms: int = 0
    target: str = ""
    """Where the check connects, as ``core.places.target_of`` has it."""

    @property
    def run_id(self) -> str:
        """Computed when it is asked for, which few checks are."""
        return run_id(self.owner, self.monitor, generation=self.generation, counter=self.counter)


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
