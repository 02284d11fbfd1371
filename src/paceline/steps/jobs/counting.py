"""Counting of a measurement's results by reading them: RIPE's own counts lag behind."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from paceline.core.jobs.atlas import Lost, Refused
from paceline.core.jobs.atlas_replies import Unanswered
from paceline.core.jobs.observations import Beyond, Count, Gone, first_count_ms, next_count_ms, retry_count_ms
from paceline.core.jobs.values import StoredMeasurement
from paceline.ports import Atlas

COUNT_BYTES_MAX = 1_073_741_824


class Watch:
    """Remembers when each measurement's results are counted next.

    After a restart RIPE is asked once more, which is harmless.
    """

    def __init__(self) -> None:
        self.refusals = 0
        """Number of pauses in a row that RIPE asked for."""
        self.paused_until_ms = 0
        self._early_ms: dict[tuple[int, int], int] = {}
        self._failed: dict[tuple[int, int], tuple[int, int]] = {}

    def may_count(self, item: StoredMeasurement, *, now_ms: int) -> bool:
        """Return whether enough time has passed since counts that failed."""
        _, next_ms = self._failed.get((item.handle, item.attempt), (0, 0))
        return now_ms >= next_ms

    def may_count_early(self, item: StoredMeasurement, *, begins_ms: int, now_ms: int) -> bool:
        """Return whether a measurement that still runs may be counted (``core.jobs.observations.next_count_ms``)."""
        next_ms = self._early_ms.get((item.handle, item.attempt), first_count_ms(begins_ms))
        return now_ms >= next_ms and self.may_count(item, now_ms=now_ms)

    def note_count(self, item: StoredMeasurement, *, begins_ms: int, now_ms: int) -> None:
        fence = (item.handle, item.attempt)
        self._failed.pop(fence, None)
        self._early_ms[fence] = next_count_ms(begins_ms=begins_ms, now_ms=now_ms)

    def note_failure(self, item: StoredMeasurement, *, now_ms: int) -> None:
        fence = (item.handle, item.attempt)
        failures = self._failed.get(fence, (0, 0))[0] + 1
        self._failed[fence] = (failures, retry_count_ms(failures, now_ms=now_ms))

    def keep(self, items: Collection[StoredMeasurement]) -> None:
        """Forget all other measurements: they have ended."""
        fences = {(item.handle, item.attempt) for item in items}
        self._early_ms = {fence: ms for fence, ms in self._early_ms.items() if fence in fences}
        self._failed = {fence: failed for fence, failed in self._failed.items() if fence in fences}


def count_results(atlas: Atlas, key: str, atlas_ids: Sequence[int]) -> list[Count] | Unanswered:
    """Return the count for each id, or RIPE's failure to answer for one of them: half a sum is no sum."""
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
    """Drop a result: only the number of results is wanted."""
