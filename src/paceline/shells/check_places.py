"""Counts the places that a process' checks take, by owner and target, for the next claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable
from typing import TypeVar

from paceline.config import Settings
from paceline.core.places import Places, ceiling_of
from paceline.ports import Order

Key = TypeVar("Key", bound=Hashable)


class CheckPlaces:
    """For one thread. A check leaves its place when it has ended, before it is settled."""

    def __init__(self, settings: Settings) -> None:
        ceiling = ceiling_of(settings.check_places)
        self._owner_max = settings.checks_per_owner_max or ceiling
        self._target_max = settings.checks_per_target_max or ceiling
        self._held: dict[tuple[str, str], int] = {}
        self._by_owner: dict[str, int] = {}
        self._by_target: dict[str, int] = {}

    def start(self, orders: Iterable[Order]) -> None:
        for (owner, target), started in Counter([(order.owner, order.target) for order in orders]).items():
            self._add(owner, target, started)

    def end(self, orders: Iterable[Order]) -> None:
        for (owner, target), ended in Counter([(order.owner, order.target) for order in orders]).items():
            self._add(owner, target, -ended)

    def now(self) -> Places:
        held = (dict(self._held), dict(self._by_owner), dict(self._by_target))
        return Places(self._owner_max, self._target_max, *held)

    def _add(self, owner: str, target: str, change: int) -> None:
        _count(self._held, (owner, target), change)
        _count(self._by_owner, owner, change)
        _count(self._by_target, target, change)


def _count(held: dict[Key, int], key: Key, change: int) -> None:
    """What is at nothing goes: else everybody who ever had a check would be kept."""
    held[key] = held.get(key, 0) + change
    if not held[key]:
        del held[key]
