"""Counts the places that a process' checks take, by owner and target, for the next claim."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from paceline.config import Settings
from paceline.core.places import Places, ceiling_of
from paceline.ports import Order


class CheckPlaces:
    """For one thread. A check leaves its place when it has ended, before it is settled."""

    def __init__(self, settings: Settings) -> None:
        ceiling = ceiling_of(settings.check_places)
        self._owner_max = settings.checks_per_owner_max or ceiling
        self._target_max = settings.checks_per_target_max or ceiling
        self._held: Counter[tuple[str, str]] = Counter()

    def start(self, orders: Iterable[Order]) -> None:
        self._held.update([(order.owner, order.target) for order in orders])

    def end(self, orders: Iterable[Order]) -> None:
        for place, ended in Counter([(order.owner, order.target) for order in orders]).items():
            self._held[place] -= ended
            if not self._held[place]:
                del self._held[place]

    def now(self) -> Places:
        return Places(self._owner_max, self._target_max, dict(self._held))
