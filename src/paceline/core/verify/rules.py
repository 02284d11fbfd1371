"""Facts that the judges need beside the ledger: the time, the retention, and when the clock was set back."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from paceline.core.verify.facts import SetBackFact

TOLERANCE_MS = 1_000
"""Tolerance of times: a smaller correction of a clock is no step back and is not noted."""


class RepeatedSpans:
    """Spans of time that the clock showed more than once. Merged where they touch."""

    def __init__(self, set_backs: Iterable[SetBackFact] = (), *, apart_ms: int = 0) -> None:
        """Take the set-backs.

        ``apart_ms``: by how much the clocks of the processes that wrote the ledger may differ.
        """
        self.tolerance_ms = TOLERANCE_MS + apart_ms
        self._spans: list[tuple[int, int]] = []
        spans = [(one.to_ms - self.tolerance_ms, one.from_ms + self.tolerance_ms) for one in set_backs]
        for to_ms, from_ms in sorted(spans):
            if self._spans and to_ms <= self._spans[-1][1]:
                self._spans[-1] = (self._spans[-1][0], max(from_ms, self._spans[-1][1]))
            else:
                self._spans.append((to_ms, from_ms))

    def excuses(self, *times_ms: int) -> bool:
        """Return whether all of the times lie in one span that was passed twice: then their order says nothing."""
        first_ms, last_ms = min(times_ms), max(times_ms)
        return any(to_ms <= first_ms and last_ms <= from_ms for to_ms, from_ms in self._spans)

    def touches(self, first_ms: int, last_ms: int) -> bool:
        """Return whether part of the time between the two was passed twice."""
        return any(to_ms <= last_ms and first_ms <= from_ms for to_ms, from_ms in self._spans)

    def is_before(self, first_ms: int, second_ms: int) -> bool:
        """Return whether the first time surely lies before the second one."""
        return first_ms < second_ms - self.tolerance_ms and not self.excuses(first_ms, second_ms)


class Rules(NamedTuple):
    """``since_ms``: earlier facts are not judged. ``keep_ms``, ``expire_ms``: the shortest ever in force.

    ``lease_ms``: the longest time for which a process may be held up between its claim of a check and the start.
    """

    now_ms: int
    since_ms: int = 0
    keep_ms: int = 0
    expire_ms: int = 0
    lease_ms: int = 180_000
    clock: RepeatedSpans = RepeatedSpans()
