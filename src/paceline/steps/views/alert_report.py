"""Views of channels, silences and alerts."""

from __future__ import annotations

from typing import Any

import msgspec

from paceline.core.alerts.alert import Event
from paceline.core.alerts.channel import Channel, ChannelKind
from paceline.core.alerts.record import AlertRecord, AlertState, Delivery, DeliveryState
from paceline.core.alerts.silence import NamedSilence
from paceline.core.instants import to_text
from paceline.core.monitors.checks import HIDDEN
from paceline.core.schema import Instant
from paceline.ports import Store
from paceline.ports.alerts import ListPlace
from paceline.steps.alerts.channels import channels_of
from paceline.steps.alerts.owner import since_ms
from paceline.steps.alerts.silences import silences_of
from paceline.steps.views.to_view import to_view


class ChannelView(msgspec.Struct, frozen=True):
    """A channel through which alerts are sent. Its URL is never shown."""

    id: str
    kind: ChannelKind
    url: str
    default: bool
    created_at: Instant
    updated_at: Instant


class TrialView(msgspec.Struct, frozen=True):
    """Result of a test message through a channel. ``code``: status of a webhook's answer; null if there was none."""

    channel: str
    ok: bool
    code: int | None
    reason: str
    took_ms: int


class SilenceView(msgspec.Struct, frozen=True):
    """A silence of one monitor, or of all monitors with a tag."""

    id: str
    monitor: str | None
    tag: str | None
    began: Instant
    until: Instant
    reason: str


class DeliveryView(msgspec.Struct, frozen=True):
    """Delivery of an alert through one channel. ``next_try``: when it is tried again; null once it has ended."""

    channel: str
    state: DeliveryState
    tries: int
    next_try: Instant | None
    ended_at: Instant | None
    reason: str


class AlertView(msgspec.Struct, frozen=True):
    """An alert and its delivery through each channel. ``note``: why it was not sent, such as a silence's reason."""

    id: str
    event: Event
    at: Instant
    user: str
    subject: str
    reason: str
    data: dict[str, Any]
    state: AlertState
    silence: str | None
    note: str
    deliveries: list[DeliveryView]


def channel_view(channel_id: str, channel: Channel) -> ChannelView:
    return to_view(channel, ChannelView, id=channel_id, url=HIDDEN)


def channel_views(store: Store, user: str) -> list[ChannelView]:
    """Return the user's channels in order of id."""
    found = channels_of(store, user, since_ms=since_ms(store, user))
    return [channel_view(channel_id, channel) for channel_id, channel in found.items()]


def silence_view(named: NamedSilence) -> SilenceView:
    return to_view(named.silence, SilenceView, id=named.id, began=to_text(named.silence.from_ms))


def silence_views(store: Store, user: str, *, now_ms: int) -> list[SilenceView]:
    """Return the user's silences in force, in order of id."""
    return [silence_view(one) for one in silences_of(store, user, now_ms=now_ms, since_ms=since_ms(store, user))]


def alert_view(record: AlertRecord) -> AlertView:
    deliveries = [_delivery_view(one) for one in record.deliveries]
    standing = {"state": record.state, "silence": record.silence or None, "note": record.note}
    return to_view(record.alert, AlertView, **standing, deliveries=deliveries)


def _delivery_view(one: Delivery) -> DeliveryView:
    return to_view(one, DeliveryView, next_try=to_text(one.next_ms) if one.state == "waiting" else None)


def alert_views(store: Store, user: str, *, before: str, limit: int) -> tuple[list[AlertView], str | None]:
    """Return a page of the user's alerts, newest first, and where the next page begins, for its ``before``."""
    place = _place(before) if before else None
    found = store.alerts(user, since_ms=since_ms(store, user), before=place, limit=limit + 1)
    last = found[limit - 1].alert if len(found) > limit else None
    return [alert_view(one) for one in found[:limit]], None if last is None else f"{last.at_ms} {last.id}"


def _place(text: str) -> ListPlace | None:
    """Return the place that a cursor names. Cursors of other lists never come here: they have another scope."""
    at_ms, _, alert_id = text.partition(" ")
    return ListPlace(int(at_ms), alert_id) if at_ms.isdigit() and len(at_ms) <= 18 else None
