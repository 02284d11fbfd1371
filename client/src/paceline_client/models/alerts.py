"""Channels, silences and alerts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from paceline_client.answers import Model
from paceline_client.models.states import AlertState, ChannelKind, DeliveryState, Event


class Channel(Model, frozen=True):
    """A channel of a user; ``url`` is always ``"***"``. ``etag`` is None in lists."""

    id: str
    kind: ChannelKind
    url: str
    default: bool
    created_at: datetime
    updated_at: datetime
    etag: str | None = None


class Trial(Model, frozen=True):
    """Result of a test message through a channel. ``code``: status of a webhook's answer; None if there was none."""

    channel: str
    ok: bool
    code: int | None
    reason: str
    took_ms: int


class Silence(Model, frozen=True):
    """A silence of one monitor, or of all monitors with a tag."""

    id: str
    monitor: str | None
    tag: str | None
    began: datetime
    until: datetime
    reason: str


class Delivery(Model, frozen=True):
    """Delivery of an alert through one channel. ``next_try``: when it is tried again; None once it has ended."""

    channel: str
    state: DeliveryState
    tries: int
    next_try: datetime | None
    ended_at: datetime | None
    reason: str


class Alert(Model, frozen=True):
    """An alert and its delivery through each channel. ``note``: why it was not sent, such as a silence's reason."""

    id: str
    event: Event
    at: datetime
    user: str
    subject: str
    reason: str
    data: dict[str, Any]
    state: AlertState
    silence: str | None
    note: str
    deliveries: list[Delivery]
