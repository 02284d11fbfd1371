"""Alerts, channels and silences of ann, through the steps alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from paceline.adapters.vault import SecretVault
from paceline.core.alerts.alert import Alert, Event, alert_id
from paceline.core.alerts.channel import ChannelBody, ChannelKind
from paceline.core.alerts.message import AppriseNote
from paceline.core.alerts.record import AlertRecord
from paceline.core.batches.calls import Call, CallResult
from paceline.core.try_turns import TryPlaces, TryQueue
from paceline.ports import Store
from paceline.steps.alerts.channels import put_channel
from paceline.steps.alerts.deliver import DeliveryResult, Message, begin_deliveries, end_deliveries
from paceline.steps.tries import FREE, TriesToMake
from tests.contract.support.stage import T0_MS

SECRET = b"the secret key of an installation"
VAULT = SecretVault(SECRET)
URL = "https://hooks.example.org/a-secret-path"
MAIL = "mailtos://robot:a-secret-word@mail.example.org/?to=ops@example.org"


def channel(store: Store, name: str = "ops", *, user: str = "ann", default: bool = True, url: str = URL) -> None:
    kind: ChannelKind = "webhook" if url.startswith("http") else "apprise"
    put_channel(store, VAULT, user, name, ChannelBody(kind, url, default), now_ms=T0_MS)


def alert(
    cause: str = "ann/home#1@1",
    *,
    event: Event = "monitor.failing",
    at_ms: int = T0_MS,
    user: str = "ann",
    subject: str = "home",
    channels: tuple[str, ...] = (),
) -> Alert:
    data = {"failures": 3}
    return Alert(alert_id(event, cause), event, at_ms, user, subject, "answered 500", data, channels)


def add(store: Store, *alerts: Alert) -> None:
    assert store.add_alerts(alerts) == [True] * len(alerts)


def begin(
    store: Store,
    *,
    now_ms: int = T0_MS,
    chance: float = 0.0,
    queue: TryQueue[str] | None = None,
    places: TryPlaces = FREE,
) -> list[Message]:
    return begin_pass(store, now_ms=now_ms, chance=chance, queue=queue, places=places).tries


def begin_pass(store: Store, *, now_ms: int = T0_MS, chance: float = 0.0, **turns: Any) -> TriesToMake[Message]:
    return begin_deliveries(store, VAULT, secret=SECRET, now_ms=now_ms, chance=lambda: chance, **turns)


def end(store: Store, messages: Sequence[Message], code: int | None, *, now_ms: int = T0_MS) -> list[DeliveryResult]:
    reason = "" if code is not None else "connection refused"
    return end_deliveries(
        store, [(one, CallResult(*one.fence, now_ms, now_ms, code=code, reason=reason)) for one in messages]
    )


def call_of(message: Message) -> Call:
    assert isinstance(message.order, Call)
    return message.order


def note_of(message: Message) -> AppriseNote:
    assert isinstance(message.order, AppriseNote)
    return message.order


def record_of(store: Store, alert_: Alert) -> AlertRecord:
    found = store.alert(alert_.id)
    assert found is not None
    return found
