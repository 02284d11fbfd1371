"""Why a run waits, or went as it did."""

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
    """One reason. ``until`` None: not known, or until somebody does what ``change`` says; in the past: it is over."""

    link: Link
    text: str
    since: datetime | None
    until: datetime | None
    change: str


class WhyEta(Model, frozen=True, rename={"from_": "from"}):
    """When a run starts or a job ends, if nothing new comes and nobody changes anything; equal times: exactly then."""

    from_: datetime
    to: datetime


class Why(Model, frozen=True):
    """The chain of reasons of a run. ``run`` None: there is none, and the chain says why."""

    run: str | None
    state: str
    chain: list[WhyLink]
    eta: WhyEta | None
