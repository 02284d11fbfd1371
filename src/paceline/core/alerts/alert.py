"""Alerts: messages to users, each with an id that is computed from its cause."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Literal

import msgspec

Event = Literal[
    "monitor.failing",
    "monitor.recovered",
    "monitor.late",
    "monitor.flapping",
    "certificate.expiring",
    "batch.day_ended",
    "batch.dead_letters",
    "job.finished",
    "account.quarantined",
    "channel.test",
]

ADMINS = ""
"""User of an alert for all admins: those who are admins when the alert is passed on."""
REASON_CHARS_MAX = 500
CHANNELS_MAX = 10
"""Maximum number of channels that one definition may name."""


class Alert(msgspec.Struct, frozen=True):
    """An event, the user who is told of it, and the channels. Never changed once it is stored.

    ``subject`` names what the alert is about: a monitor's id, ``batch/date``, a job's id, an account's id.
    ``channels``: those that the definition names; empty: the user's default channels.
    """

    id: str
    event: Event
    at_ms: int
    user: str
    subject: str
    reason: str = ""
    data: dict[str, Any] = {}
    channels: tuple[str, ...] = ()


def alert_id(event: Event, cause: str) -> str:
    """Return the id of an alert. ``cause`` names its cause, such as a run's id: the same cause makes one alert."""
    return "al_" + blake2b(f"{event}\n{cause}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
