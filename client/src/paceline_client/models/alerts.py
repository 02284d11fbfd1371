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
    """Result of a test message. ``code``: the status of a webhook's answer."""

    channel: str
    ok: bool
    code: int | None
    reason: str
    took_ms: int


class Silence(Model, frozen=True):
    """A silence of a monitor or of a tag."""

    id: str
    monitor: str | None
    tag: str | None
    began: datetime
    until: datetime
    reason: str


class Delivery(Model, frozen=True):
    """An alert on its way through one channel. ``next_try`` is set while it waits."""

    channel: str
    state: DeliveryState
    tries: int
    next_try: datetime | None
    ended_at: datetime | None
    reason: str


class Alert(Model, frozen=True):
    """An alert and its deliveries. ``note`` says why nobody was told, if that is so."""

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
