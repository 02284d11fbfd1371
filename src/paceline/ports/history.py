"""Reads of the stored history, for its judgement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from paceline.core.verify.facts import Fact


class HistoryStore(Protocol):
    """Reads of the whole ledger, row by row, as it is stored: no writer's rule is applied.

    The facts of one group come one after the other. Memory does not grow with the number of runs. SQLite reads one
    consistent view; DynamoDB is read while others write, so the newest facts may not fit together.
    """

    def monitor_facts(self) -> Iterator[Fact]:
        """Yield for each generation its MonitorFact, then its EntryFacts, then its RunFacts in order of counter."""

    def call_facts(self) -> Iterator[Fact]:
        """Yield all DayFacts; then for each provider its ProviderFact and its CallFacts in order of due time."""

    def job_facts(self) -> Iterator[Fact]:
        """Yield MeterFacts and expiries; then each JobFact, its MeasurementFacts, each with its postings."""
