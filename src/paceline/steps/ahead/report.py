"""Report on the next hours: what starts when, against what the limits allow, and the worst minutes by name."""

from __future__ import annotations

from typing import Literal

import msgspec

from paceline.core.ahead.cadences import MINUTE_MS
from paceline.core.ahead.hours import HOURS_DEFAULT, HOURS_MAX
from paceline.core.ahead.minutes import Span
from paceline.core.ahead.picture import Slice, Worst, windows, worst_minutes
from paceline.core.batches.spread import report_width_ms
from paceline.core.durations import format_duration
from paceline.core.instants import to_text
from paceline.core.schema import Duration, Instant
from paceline.errors import FieldProblem, InvalidInput
from paceline.ports import Store
from paceline.steps.ahead.facts import PlaceSettings, all_batches, all_monitors, measurements, own_monitors
from paceline.steps.upkeep.daemons import daemon_views

HOUR_MS = 3_600_000
PARTS_MAX = 20


class AheadMinute(msgspec.Struct, frozen=True):
    """Number of starts in one minute by kind. ``capacity``: how many starts all limits together allow."""

    start: Instant
    monitors: int
    batches: int
    jobs: int
    capacity: int


class AheadWindow(AheadMinute, frozen=True):
    """Number of starts in one window by kind. ``busiest``: the minute of the window with the most starts."""

    busiest: AheadMinute


class AheadAsk(msgspec.Struct, frozen=True):
    """A cadence, provider or account, and how many starts it asks for in the minute."""

    name: str
    starts: int


class WorstMinute(msgspec.Struct, frozen=True):
    """One of the minutes in which a limit is used most, with the cadences, providers or accounts that ask for it.

    ``limit``: name of the limit: the places for checks, a provider, or an account. ``share``: ``starts`` divided by
    ``capacity``; null if the capacity is 0.
    """

    start: Instant
    kind: Literal["monitors", "batches", "jobs"]
    limit: str
    starts: int
    capacity: int
    share: float | None
    asks: list[AheadAsk]
    text: str


class AheadPart(msgspec.Struct, frozen=True):
    """One cadence, provider or account: its starts in total, in its busiest minute, and in each window."""

    kind: Literal["monitors", "batches", "jobs"]
    name: str
    starts: int
    busiest: int
    windows: list[int]


class AheadView(msgspec.Struct, frozen=True):
    """Forecast of the next hours: how many runs start in each window, and the minutes closest to a limit.

    ``user`` null: the forecast covers all users. ``left_out``: number of monitors that were not counted, because that
    would take too long. ``complete`` false: there are more cadences, batches or monitors than the forecast reads, or
    the counts of a store from an older version are not ready yet.
    """

    hours: int
    window: Duration
    user: str | None
    windows: list[AheadWindow]
    worst: list[WorstMinute]
    parts: list[AheadPart]
    left_out: int
    complete: bool


def check_hours(text: str | None) -> int:
    """Return the hours that a query names; raise InvalidInput if they cannot be answered."""
    if text is None:
        return HOURS_DEFAULT
    if not (text.isascii() and text.isdigit() and len(text) <= 3 and 1 <= int(text) <= HOURS_MAX):
        raise InvalidInput.of(FieldProblem("/query/hours", f"a whole number from 1 to {HOURS_MAX}"))
    return int(text)


def ahead(store: Store, places: PlaceSettings, *, user: str | None, hours: int, now_ms: int) -> AheadView:
    """Return the next hours of one user's work, or of everybody's. The first window is the one that has begun."""
    width_ms = max(MINUTE_MS, report_width_ms(start_ms=0, end_ms=hours * HOUR_MS))
    width = width_ms // MINUTE_MS
    span = Span(now_ms // width_ms * width, hours * 60)
    if user is None:
        processes = sum(one.state == "running" for one in daemon_views(store, now_ms=now_ms))
        monitors = all_monitors(store, span, places, processes=processes, now_ms=now_ms)
        found = [monitors, all_batches(store, span, now_ms=now_ms)]
    else:
        found = [own_monitors(store, user, span, places, now_ms=now_ms)]
    found.append(measurements(store, span, places, owner=user, now_ms=now_ms))
    parts = [part for one in found for part in one.parts]
    limits = [limit for one in found for limit in one.limits]
    from_minute = now_ms // MINUTE_MS - span.first
    worst = worst_minutes(parts, limits, span, from_minute=from_minute, width=width)
    shown = sorted((part for part in parts if any(part.starts)), key=lambda part: (-sum(part.starts), part.name))
    return AheadView(
        hours=hours,
        window=format_duration(width_ms),
        user=user,
        windows=[
            AheadWindow(*_fields(one.whole), busiest=AheadMinute(*_fields(one.busiest)))
            for one in windows(parts, limits, span, width=width)
        ],
        worst=[_worst_view(one) for one in worst],
        parts=[
            AheadPart(
                part.kind,
                part.name,
                sum(part.starts),
                max(part.starts),
                [sum(part.starts[at : at + width]) for at in range(0, span.minutes, width)],
            )
            for part in shown[:PARTS_MAX]
        ],
        left_out=sum(one.left_out for one in found),
        complete=all(one.complete for one in found),
    )


def _fields(one: Slice) -> tuple[Instant, int, int, int, int]:
    return to_text(one.first * MINUTE_MS), one.monitors, one.batches, one.jobs, one.capacity


def _worst_view(one: Worst) -> WorstMinute:
    share = round(one.starts / one.capacity, 4) if one.capacity else None
    return WorstMinute(
        start=to_text(one.minute * MINUTE_MS),
        kind=one.limit.kind,
        limit=_limit_name(one),
        starts=one.starts,
        capacity=one.capacity,
        share=share,
        asks=[AheadAsk(ask.name, ask.starts) for ask in one.asks],
        text=_text(one),
    )


def _limit_name(one: Worst) -> str:
    return (
        one.limit.name
        or {"monitors": "places for checks", "batches": "providers", "jobs": "slots at RIPE"}[one.limit.kind]
    )


def _text(one: Worst) -> str:
    """Return a sentence that says what asks for the minute, and what the limit allows."""
    first = one.asks[0]
    match one.limit.kind:
        case "monitors":
            more = f" of {one.starts:,}" if first.starts < one.starts else ""
            said = f"{first.starts:,}{more} checks have the cadence {first.name}"
        case "batches":
            said = f"{one.starts:,} calls to {one.limit.name}"
        case "jobs":
            said = f"{one.starts:,} measurements wait to be sent"
    return f"{said}; {one.capacity:,} can start in a minute."
