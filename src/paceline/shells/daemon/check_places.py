"""Counts the places that the checks of a process take, by owner and target, for the next claim."""

from __future__ import annotations

from collections.abc import Iterable

from paceline.config import Settings
from paceline.core.monitors.places import Places, ceiling_of
from paceline.core.monitors.values import CheckOrder


class CheckPlaces:
    """Counts by owner and target. Used by one thread, except ``now``. A check frees its place before it is settled."""

    def __init__(self, settings: Settings) -> None:
        ceiling = ceiling_of(settings.check_places)
        self._owner_max = settings.checks_per_owner_max or ceiling
        self._target_max = settings.checks_per_target_max or ceiling
        self._held: dict[tuple[str, str], int] = {}

    def start(self, orders: Iterable[CheckOrder]) -> None:
        held = self._held
        for order in orders:
            place = (order.owner, order.target)
            held[place] = held.get(place, 0) + 1

    def end(self, orders: Iterable[CheckOrder]) -> None:
        """Frees the places of these checks. Counts of zero are removed: otherwise every former owner would be kept."""
        held = self._held
        for order in orders:
            place = (order.owner, order.target)
            left = held[place] - 1
            if left:
                held[place] = left
            else:
                del held[place]

    def now(self) -> Places:
        return Places(self._owner_max, self._target_max, dict(self._held))
