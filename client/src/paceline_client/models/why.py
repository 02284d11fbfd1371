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
    """One reason.

    ``until`` is None if unknown, or if somebody must do what ``change`` says; in the past, it is over.
    """

    link: Link
    text: str
    since: datetime | None
    until: datetime | None
    change: str


class WhyEta(Model, frozen=True, rename={"from_": "from"}):
    """When a run starts or a job ends, if nothing else comes and nobody changes anything. Equal times are exact."""

    from_: datetime
    to: datetime


class Why(Model, frozen=True):
    """Chain of reasons of a run. ``run`` is None if there is no run; then the chain says why."""

    run: str | None
    state: str
    chain: list[WhyLink]
    eta: WhyEta | None
