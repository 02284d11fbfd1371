"""What is known of a measurement that runs at RIPE, definition by definition, and what it has come to by that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from paceline.core.atlas import RUNNING, Failed, Verdict, deadline_ms, judge_measurement, judge_status
from paceline.core.cost import credits_per_result, unit_differs
from paceline.core.measurement import AnyDefinition, is_oneoff, span_s
from paceline.ports import Listed, StoredMeasurement
from paceline.steps.counting import Beyond, Count, Gone

GHOST_MS = 600_000
"""RIPE's lists lag by seconds; what they do not show after so long is looked for by its id."""
NO_PROBES = 6
GONE = "RIPE no longer lists it"


class Sight(NamedTuple):
    """One definition as RIPE lists it. ``status`` is the newest that was told, 0 if none ever was."""

    definition: AnyDefinition
    atlas_id: int
    listed: Listed | None
    status: int
    delivered: int
    scheduled: int | None
    """How many results there will be, of a one-off that has begun."""

    @property
    def may_deliver(self) -> bool:
        """Whether more may come of it: it is not at an end, as far as is known."""
        return self.status in RUNNING or self.status == NO_PROBES


class PriceDiffers(NamedTuple):
    """RIPE's price of a result is not the one that was reckoned with."""

    atlas_id: int
    told: int
    reckoned: int


def sights_of(item: StoredMeasurement, listed: Mapping[int, Listed]) -> tuple[Sight, ...]:
    return tuple(
        _sight(item, definition, listed.get(one.atlas_id), one.atlas_id, one.status, one.delivered)
        for definition, one in zip(item.measurement.definitions, item.atlas, strict=True)
    )


def is_unseen(item: StoredMeasurement, sight: Sight, *, now_ms: int) -> bool:
    """RIPE should list it and does not."""
    return sight.listed is None and now_ms - (item.answered_ms or 0) >= GHOST_MS


def given_up_ms(item: StoredMeasurement) -> int:
    """When nothing more is expected of it."""
    assert item.answered_ms is not None
    return deadline_ms(item.measurement, sent_ms=item.answered_ms)


def begins_ms(item: StoredMeasurement) -> int:
    """When its first results could come."""
    starts = [span_s(item.measurement, definition)[0] for definition in item.measurement.definitions]
    return max(item.answered_ms or 0, *(1_000 * (start or 0) for start in starts))


def may_end_early(sights: Sequence[Sight]) -> bool:
    """Whether a count can show that all results are there before RIPE says that it has ended."""
    return all(sight.scheduled for sight in sights if sight.may_deliver)


def judge_by_status(item: StoredMeasurement, sights: Sequence[Sight], *, now_ms: int) -> Verdict:
    """Before anything is counted: ongoing, or at an end that is to be settled."""
    until_ms = given_up_ms(item)
    return judge_measurement(
        [
            judge_status(one.status, delivered=one.delivered, scheduled=None, now_ms=now_ms, deadline_ms=until_ms)
            for one in sights
        ]
    )


def judge_by_count(
    item: StoredMeasurement, sights: Sequence[Sight], counts: Sequence[Count], *, now_ms: int
) -> Verdict:
    until_ms = given_up_ms(item)
    verdicts: list[Verdict] = []
    for sight, count in zip(sights, counts, strict=True):
        if isinstance(count, Gone):
            verdicts.append(Failed(GONE))
            continue
        delivered = sight.delivered if isinstance(count, Beyond) else count
        verdict = judge_status(
            sight.status, delivered=delivered, scheduled=sight.scheduled, now_ms=now_ms, deadline_ms=until_ms
        )
        verdicts.append(verdict)
    return judge_measurement(verdicts)


def uncounted(item: StoredMeasurement, sights: Sequence[Sight], counts: Sequence[Count], *, now_ms: int) -> str:
    """Why the counts are no basis to end it; empty if they are. A ghost has no count, and ends without one."""
    for sight, count in zip(sights, counts, strict=True):
        if isinstance(count, Gone) and not is_unseen(item, sight, now_ms=now_ms):
            return count.reason
    return ""


def told_of(sights: Sequence[Sight], counts: Sequence[Count] = ()) -> tuple[tuple[int, int], ...]:
    """Status and results of each definition, as they are noted."""
    known: Sequence[Count] = counts or [sight.delivered for sight in sights]
    return tuple(
        (sight.status, count if isinstance(count, int) else sight.delivered)
        for sight, count in zip(sights, known, strict=True)
    )


def scheduled_of(sights: Sequence[Sight]) -> tuple[int | None, ...]:
    """How many probes each definition has, where RIPE lists it with some."""
    return tuple(None if sight.listed is None else sight.listed.scheduled or None for sight in sights)


def price_differences(item: StoredMeasurement, sights: Sequence[Sight]) -> list[PriceDiffers]:
    found = []
    for sight in sights:
        told = None if sight.listed is None else sight.listed.credits_per_result
        if told is not None and unit_differs(item.measurement, sight.definition, told):
            reckoned = credits_per_result(item.measurement, sight.definition)
            found.append(PriceDiffers(sight.atlas_id, told, reckoned))
    return found


def _sight(
    item: StoredMeasurement,
    definition: AnyDefinition,
    listed: Listed | None,
    atlas_id: int,
    status: int | None,
    delivered: int,
) -> Sight:
    scheduled = listed.scheduled if listed is not None and is_oneoff(item.measurement, definition) else None
    return Sight(definition, atlas_id, listed, listed.status if listed else status or 0, delivered, scheduled)
