"""Parts that the judges of batches share: days, providers, and names of runs."""

from __future__ import annotations

from paceline.core.verify.facts import CallFact, DayFact, ProviderFact

CALL_ENDED = frozenset({"done", "failed", "unknown", "skipped"})
CALL_WAITING = frozenset({"waiting", "out", "retry", "aside"})


class DayAndProviderFacts:
    """Days and providers by number. A provider's runs belong to days of several batches."""

    def __init__(self) -> None:
        self.days: dict[int, DayFact] = {}
        self.providers: dict[int, ProviderFact] = {}


def call_name(books: DayAndProviderFacts, call: CallFact) -> str:
    """Return a name of a run for people; the ledger knows its record by number."""
    day = books.days.get(call.day)
    return f"{day.batch}/(record {call.record})@{day.date}" if day else f"(day {call.day}, record {call.record})"
