"""Observations of a measurement that runs at RIPE, definition by definition, and the decisions that follow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from paceline.core import backoff
from paceline.core.jobs.atlas import RUNNING, Failed, Verdict, deadline_ms, judge_measurement, judge_status
from paceline.core.jobs.atlas_replies import ListedMeasurement
from paceline.core.jobs.cost import credits_per_result, unit_differs
from paceline.core.jobs.measurement import AnyDefinition, is_oneoff, span_s
from paceline.core.jobs.values import StoredMeasurement

GHOST_MS = 600_000
"""Time after which a measurement that RIPE's lists lack is looked up by its id; the lists lag by seconds."""
NO_PROBES = 6
GONE = "RIPE no longer lists it"
FIRST_COUNT_MS = 60_000
RETRY_MS = 30_000
RETRY_MS_MAX = 600_000


class Gone(NamedTuple):
    """RIPE has no measurement of this id."""

    reason: str


class Beyond(NamedTuple):
    """There are more results than are ever read: the count stays unknown, and asking again does not help."""

    reason: str


Count = int | Gone | Beyond


class Observation(NamedTuple):
    """One definition as RIPE lists it. ``status`` is RIPE's newest, 0 if RIPE never gave one."""

    definition: AnyDefinition
    atlas_id: int
    listed: ListedMeasurement | None
    status: int
    delivered: int
    scheduled: int | None
    """Number of results that a one-off which has begun will deliver."""

    @property
    def may_deliver(self) -> bool:
        """Return whether more results may come: as far as is known, the definition has not ended."""
        return self.status in RUNNING or self.status == NO_PROBES


class PriceDiffers(NamedTuple):
    """RIPE's price of a result is not the one that was expected."""

    atlas_id: int
    told: int
    reckoned: int


def observe(item: StoredMeasurement, listed: Mapping[int, ListedMeasurement]) -> tuple[Observation, ...]:
    """Return an observation of each definition, in order. ``listed`` are RIPE's statuses by id."""
    return tuple(
        _observe_one(item, definition, listed.get(one.atlas_id), one.atlas_id, one.status, one.delivered)
        for definition, one in zip(item.measurement.definitions, item.atlas, strict=True)
    )


def is_unseen(item: StoredMeasurement, one: Observation, *, now_ms: int) -> bool:
    """Return whether RIPE should list the definition by now and does not."""
    return one.listed is None and now_ms - (item.answered_ms or 0) >= GHOST_MS


def given_up_ms(item: StoredMeasurement) -> int:
    """Return when no more results are expected."""
    assert item.answered_ms is not None
    return deadline_ms(item.measurement, sent_ms=item.answered_ms)


def begins_ms(item: StoredMeasurement) -> int:
    """Return when the first results could come."""
    starts = [span_s(item.measurement, definition)[0] for definition in item.measurement.definitions]
    return max(item.answered_ms or 0, *(1_000 * (start or 0) for start in starts))


def may_end_early(observed: Sequence[Observation]) -> bool:
    """Return whether a count can show that all results are there before RIPE says that the measurement has ended."""
    return all(one.scheduled for one in observed if one.may_deliver)


def judge_by_status(item: StoredMeasurement, observed: Sequence[Observation], *, now_ms: int) -> Verdict:
    """Return the verdict before anything is counted: ongoing, or an end that is to be settled."""
    until_ms = given_up_ms(item)
    return judge_measurement(
        [
            judge_status(one.status, delivered=one.delivered, scheduled=None, now_ms=now_ms, deadline_ms=until_ms)
            for one in observed
        ]
    )


def judge_by_count(
    item: StoredMeasurement, observed: Sequence[Observation], counts: Sequence[Count], *, now_ms: int
) -> Verdict:
    """Return the verdict once the results of each definition were counted."""
    until_ms = given_up_ms(item)
    verdicts: list[Verdict] = []
    for one, count in zip(observed, counts, strict=True):
        if isinstance(count, Gone):
            verdicts.append(Failed(GONE))
            continue
        delivered = one.delivered if isinstance(count, Beyond) else count
        verdict = judge_status(
            one.status, delivered=delivered, scheduled=one.scheduled, now_ms=now_ms, deadline_ms=until_ms
        )
        verdicts.append(verdict)
    return judge_measurement(verdicts)


def uncounted(item: StoredMeasurement, observed: Sequence[Observation], counts: Sequence[Count], *, now_ms: int) -> str:
    """Return why the counts cannot be used to settle; empty if they can.

    A measurement that RIPE no longer lists is settled without a count.
    """
    for one, count in zip(observed, counts, strict=True):
        if isinstance(count, Gone) and not is_unseen(item, one, now_ms=now_ms):
            return count.reason
    return ""


def reported_of(observed: Sequence[Observation], counts: Sequence[Count] = ()) -> tuple[tuple[int, int], ...]:
    """Return status and results of each definition, as they are stored."""
    known: Sequence[Count] = counts or [one.delivered for one in observed]
    return tuple(
        (one.status, count if isinstance(count, int) else one.delivered)
        for one, count in zip(observed, known, strict=True)
    )


def scheduled_of(observed: Sequence[Observation]) -> tuple[int | None, ...]:
    """Return how many probes each definition has, if RIPE lists it with some."""
    return tuple(None if one.listed is None else one.listed.scheduled or None for one in observed)


def price_differences(item: StoredMeasurement, observed: Sequence[Observation]) -> list[PriceDiffers]:
    """Return the definitions for which RIPE names another price than expected."""
    found = []
    for one in observed:
        reported = None if one.listed is None else one.listed.credits_per_result
        if reported is not None and unit_differs(item.measurement, one.definition, reported):
            reckoned = credits_per_result(item.measurement, one.definition)
            found.append(PriceDiffers(one.atlas_id, reported, reckoned))
    return found


def first_count_ms(begins_ms: int) -> int:
    """Return when a measurement that still runs may be counted for the first time."""
    return begins_ms + FIRST_COUNT_MS


def next_count_ms(*, begins_ms: int, now_ms: int) -> int:
    """Return when a running measurement is counted again: once its age has doubled, so RIPE is rarely asked."""
    return now_ms + max(FIRST_COUNT_MS, now_ms - begins_ms)


def retry_count_ms(failures: int, *, now_ms: int) -> int:
    """Return when to count again after ``failures`` failures in a row: after the first, in the next pass."""
    if failures == 1:
        return now_ms
    return now_ms + backoff.pause_ms(failures, base_ms=RETRY_MS, cap_ms=RETRY_MS_MAX, jitter="none")


def _observe_one(
    item: StoredMeasurement,
    definition: AnyDefinition,
    listed: ListedMeasurement | None,
    atlas_id: int,
    status: int | None,
    delivered: int,
) -> Observation:
    scheduled = listed.scheduled if listed is not None and is_oneoff(item.measurement, definition) else None
    return Observation(definition, atlas_id, listed, listed.status if listed else status or 0, delivered, scheduled)
