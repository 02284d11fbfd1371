"""Explanations: why a run waits, or how it went."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

from paceline_client.answers import Model

Link = Literal[
    "due",
    "order",
    "place",
    "rate",
    "pause",
    "breaker",
    "retry_after",
    "turn",
    "budget",
    "account",
    "target",
    "provider",
    "lease",
]


class WhyLink(Model, frozen=True):
    """One reason why a run waits or waited.

    ``until``: when the reason ends; a time in the past means that it is over, and None that the end is not known or
    that somebody has to act. ``change``: who can change it, and how.
    """

    link: Link
    text: str
    since: datetime | None
    until: datetime | None
    change: str


class WhyEta(Model, frozen=True, rename={"from_": "from"}):
    """Earliest and latest expected time, if no new work comes and nobody changes anything.

    Equal times: exactly then.
    """

    from_: datetime
    to: datetime


class Why(Model, frozen=True):
    """Why a run waits or went as it did. ``run`` None: there is no run, and the reasons say why."""

    run: str | None
    state: str
    chain: list[WhyLink]
    eta: WhyEta | None
