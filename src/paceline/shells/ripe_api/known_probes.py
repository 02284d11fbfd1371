"""Cache of probes that RIPE described lately."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

KEPT_MS = 3_600_000
KEPT_MAX = 10_000


class KnownProbes:
    """Keeps RIPE's answers for an hour, also about unknown probes, so that RIPE is not asked each time."""

    def __init__(self) -> None:
        self._kept: OrderedDict[int, tuple[dict[str, Any] | None, int]] = OrderedDict()

    def missing(self, ids: Sequence[int], *, now_ms: int) -> list[int]:
        return [one for one in ids if one not in self._kept or not 0 <= now_ms - self._kept[one][1] < KEPT_MS]

    def keep(self, ids: Sequence[int], documents: Sequence[dict[str, Any]], *, now_ms: int) -> None:
        by_id = {document["id"]: document for document in documents}
        for one in ids:
            self._kept[one] = (by_id.get(one), now_ms)
            self._kept.move_to_end(one)
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)

    def documents(self, ids: Sequence[int]) -> list[dict[str, Any]]:
        found = (self._kept.get(one, (None, 0))[0] for one in ids)
        return [one for one in found if one is not None]
