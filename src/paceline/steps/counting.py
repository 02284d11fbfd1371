"""Counting what a measurement delivered, by reading its results: the only count that RIPE does not lag behind with."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from paceline.core.atlas import Lost, Refused
from paceline.ports import Atlas, StoredMeasurement, Unanswered

FIRST_COUNT_MS = 60_000
RETRY_MS = 30_000
RETRY_MS_MAX = 600_000
COUNT_BYTES_MAX = 1_073_741_824


class Watch:
    """When a measurement's results are counted next. Lost with the process, it only costs RIPE a question more."""

    def __init__(self) -> None:
        self.refusals = 0
        """How often in a row RIPE asked for a pause."""
        self.paused_until_ms = 0
        self._early_ms: dict[tuple[int, int], int] = {}
        self._failed: dict[tuple[int, int], tuple[int, int]] = {}

    def may_count(self, item: StoredMeasurement, *, now_ms: int) -> bool:
        """Whether it is not too soon after counts that failed; the first of them is repeated in the next pass."""
        _, next_ms = self._failed.get((item.handle, item.attempt), (0, 0))
        return now_ms >= next_ms

    def may_count_early(self, item: StoredMeasurement, *, begins_ms: int, now_ms: int) -> bool:
        """While it runs it is counted at most each time its age has doubled, so RIPE is rarely asked."""
        next_ms = self._early_ms.get((item.handle, item.attempt), begins_ms + FIRST_COUNT_MS)
        return now_ms >= next_ms and self.may_count(item, now_ms=now_ms)

    def note_count(self, item: StoredMeasurement, *, begins_ms: int, now_ms: int) -> None:
        fence = (item.handle, item.attempt)
        self._failed.pop(fence, None)
        self._early_ms[fence] = now_ms + max(FIRST_COUNT_MS, now_ms - begins_ms)

    def note_failure(self, item: StoredMeasurement, *, now_ms: int) -> None:
        fence = (item.handle, item.attempt)
        failures = self._failed.get(fence, (0, 0))[0] + 1
        pause_ms = 0 if failures == 1 else min(RETRY_MS_MAX, RETRY_MS * 2 ** min(failures - 1, 10))
        self._failed[fence] = (failures, now_ms + pause_ms)

    def keep(self, items: Collection[StoredMeasurement]) -> None:
        """Forgets all others: they have ended."""
        fences = {(item.handle, item.attempt) for item in items}
        self._early_ms = {fence: ms for fence, ms in self._early_ms.items() if fence in fences}
        self._failed = {fence: failed for fence, failed in self._failed.items() if fence in fences}


class Gone(NamedTuple):
    """RIPE has no measurement of this id."""

    reason: str


class Beyond(NamedTuple):
    """There are more results than are ever read: the count is not known, and asking again does not help."""

    reason: str


Count = int | Gone | Beyond


def count_results(atlas: Atlas, key: str, atlas_ids: Sequence[int]) -> list[Count] | Unanswered:
    """Of each id. One that goes unanswered makes all of it so: half a sum is no sum."""
    counts: list[Count] = []
    for atlas_id in atlas_ids:
        answer = atlas.results(key, atlas_id, _pass_by, bytes_max=COUNT_BYTES_MAX)
        if isinstance(answer, Refused) and answer.scope == "request":
            counts.append(Gone(answer.reason))
        elif isinstance(answer, Refused | Lost):
            return answer
        elif not answer.whole:
            counts.append(Beyond(f"there are more than {COUNT_BYTES_MAX} bytes of results"))
        else:
            counts.append(answer.results)
    return counts


def _pass_by(_: bytes) -> None:
    """Only how many there are is wanted."""
