"""Runs of a planned day by provider, kept when the plan is made, so that nobody has to count them again."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from paceline.core.batches.batch import Batch, Day
from paceline.ports.items import ItemStore
from paceline.steps.collection import Collection

PROVIDERS_MAX = 50
"""Maximum number of a day's providers that are told apart, those with the most runs; the others are one."""
KEEP_MS = 7 * 86_400_000


class DayProviders(msgspec.Struct, frozen=True):
    """Numbers of providers with their runs, the most first. ``others``: runs of providers that are not named."""

    named: list[tuple[int, int]]
    others: int = 0


DAY_PROVIDERS = Collection("day_providers", DayProviders)


def keep_day_providers(items: ItemStore, batch: Batch, day: Day, providers: Sequence[tuple[int, int]]) -> None:
    """Keep the shares of a day that was just planned, as the batch's newest."""
    ranked = sorted(providers, key=lambda one: (-one[1], one[0]))
    others = sum(count for _, count in ranked[PROVIDERS_MAX:])
    value = DayProviders(ranked[:PROVIDERS_MAX], others)
    DAY_PROVIDERS.put(items, _key(batch), value, expires_ms=day.end_ms + KEEP_MS)


def newest_day_providers(items: ItemStore, batches: Sequence[Batch]) -> list[DayProviders]:
    """Return the shares of each batch's newest planned day; without names if none is kept."""
    found = DAY_PROVIDERS.find_many(items, [_key(batch) for batch in batches])
    return [one.value or DayProviders([], 1) for one in found]


def _key(batch: Batch) -> str:
    return str(batch.number)
