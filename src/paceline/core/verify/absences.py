"""Times in which users were disabled: their runs do not start then, and passing them is not unfair."""

from __future__ import annotations

from paceline.core.verify.facts import DisabledFact

LATER_MS = 600_000
"""Delay after enabling within which held runs may be looked at again."""


class Absences:
    """Times of absence by user."""

    def __init__(self) -> None:
        self._spans: dict[str, list[DisabledFact]] = {}

    def note(self, fact: DisabledFact) -> None:
        self._spans.setdefault(fact.user, []).append(fact)

    def touches(self, user: str, first_ms: int, last_ms: int) -> bool:
        """Return whether the user was disabled in part of the time between the two."""
        return any(
            span.from_ms <= last_ms and (span.to_ms is None or first_ms <= span.to_ms + LATER_MS)
            for span in self._spans.get(user, ())
        )
