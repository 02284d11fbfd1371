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
<<<<<<< HEAD
    """One reason.

    ``until`` is None if unknown, or if somebody must do what ``change`` says; in the past, it is over.
=======
    """One reason why a run waits or waited.

    ``until``: when the reason ends; a time in the past means that it is over, and None that the end is not known or
    that somebody has to act. ``change``: who can change it, and how.
>>>>>>> words-openapi
    """

    link: Link
    text: str
    since: datetime | None
    until: datetime | None
    change: str


class WhyEta(Model, frozen=True, rename={"from_": "from"}):
<<<<<<< HEAD
    """When a run starts or a job ends, if nothing else comes and nobody changes anything. Equal times are exact."""
=======
    """Earliest and latest expected time, if no new work comes and nobody changes anything.

    Equal times: exactly then.
    """
>>>>>>> words-openapi

    from_: datetime
    to: datetime


class Why(Model, frozen=True):
<<<<<<< HEAD
    """Chain of reasons of a run. ``run`` is None if there is no run; then the chain says why."""
=======
    """Why a run waits or went as it did. ``run`` None: there is no run, and the reasons say why."""
>>>>>>> words-openapi

    run: str | None
    state: str
    chain: list[WhyLink]
    eta: WhyEta | None
