"""Parts of history: the facts of one batch, of one of its days, or of one job."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from paceline.core.verify.facts import (
    CallFact,
    DayFact,
    DisabledFact,
    Fact,
    JobFact,
    MeasurementFact,
    MeterFact,
    PostingFact,
    ProviderFact,
    RetentionFact,
    SetBackFact,
    StrayFact,
)
from paceline.errors import NotFound


def only_batch(facts: Iterable[Fact], batch: str, date: str | None) -> Iterator[Fact]:
    """Yield the notes, and the days and runs of a batch. NotFound: there is no such day."""
    days: set[int] = set()
    for fact in facts:
        match fact:
            case DayFact() if fact.batch == batch and date in (None, fact.date):
                days.add(fact.number)
                yield fact
            case CallFact() if fact.day in days:
                yield fact
            case ProviderFact() | SetBackFact() | RetentionFact() | DisabledFact():
                yield fact
            case _:
                pass
    if not days:
        raise NotFound(f"There is no day {date} of a batch {batch!r}." if date else f"There is no day of {batch!r}.")


def only_job(facts: Iterable[Fact], job: str) -> Iterator[Fact]:
    """Yield the notes, and a job with its measurements and postings. NotFound: there is no such job.

    The sums of meters belong to all jobs, so they are left out.
    """
    number: int | None = None
    for fact in facts:
        match fact:
            case StrayFact() if fact.job == job:
                yield fact
            case JobFact() if fact.id == job:
                number = fact.number
                yield fact
            case MeasurementFact() | PostingFact() if fact.job == number:
                yield fact
            case MeterFact():
                yield MeterFact(fact.name, fact.window, -1, 0, 0)
            case SetBackFact() | RetentionFact() | DisabledFact():
                yield fact
            case _:
                pass
    if number is None:
        raise NotFound(f"There is no job {job!r}.")
