"""Forecast of the next hours."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from paceline_client.answers import Model

AheadKind = Literal["monitors", "batches", "jobs"]


class AheadMinute(Model, frozen=True):
    """Number of starts in one minute by kind. ``capacity``: how many starts all limits together allow."""

    start: datetime
    monitors: int
    batches: int
    jobs: int
    capacity: int


class AheadWindow(AheadMinute, frozen=True):
    """Number of starts in one window by kind. ``busiest``: the minute of the window with the most starts."""

    busiest: AheadMinute


class AheadAsk(Model, frozen=True):
    """A cadence, provider or account, and how many starts it asks for in the minute."""

    name: str
    starts: int


class WorstMinute(Model, frozen=True):
    """One of the minutes in which a limit is used most. ``share`` None: the limit allows no starts."""

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
    """Forecast of the next hours: how many runs start in each window, and the minutes closest to a limit.

    ``user`` None: the forecast covers all users. ``left_out``: number of monitors that were not counted. ``complete``
    False: not everything was read.
    """

    hours: int
    window: str
    user: str | None
    windows: list[AheadWindow]
    worst: list[WorstMinute]
    parts: list[AheadPart]
    left_out: int
    complete: bool
