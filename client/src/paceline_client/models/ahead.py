"""Forecast of the next hours."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from paceline_client.answers import Model

AheadKind = Literal["monitors", "batches", "jobs"]


class AheadMinute(Model, frozen=True):
    """Starts in one minute, and how many the limits of all kinds together allow."""

    start: datetime
    monitors: int
    batches: int
    jobs: int
    capacity: int


class AheadWindow(AheadMinute, frozen=True):
    """Starts in a window. ``busiest`` is the minute with the most starts."""

    busiest: AheadMinute


class AheadAsk(Model, frozen=True):
    """A cadence, provider or account, and how many starts it asks for."""

    name: str
    starts: int


class WorstMinute(Model, frozen=True):
    """A minute in which the largest share of a limit is asked for. ``share`` is None if the limit allows nothing."""

    start: datetime
    kind: AheadKind
    limit: str
    starts: int
    capacity: int
    share: float | None
    asks: list[AheadAsk]
    text: str


class AheadPart(Model, frozen=True):
    """One cadence, provider or account: its starts in total, in its busiest minute, and in each window."""

    kind: AheadKind
    name: str
    starts: int
    busiest: int
    windows: list[int]


class Ahead(Model, frozen=True):
    """The next hours.

    ``user`` is None for all users together. ``left_out``: monitors that are not counted. ``complete``: whether
    everything was read.
    """

    hours: int
    window: str
    user: str | None
    windows: list[AheadWindow]
    worst: list[WorstMinute]
    parts: list[AheadPart]
    left_out: int
    complete: bool
