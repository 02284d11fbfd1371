"""An alert as it is sent: the JSON body of a webhook, or title and text for people."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any, Literal

import msgspec

from paceline.core.alerts.alert import Alert, Event
from paceline.core.instants import to_text

Severity = Literal["info", "success", "warning", "failure"]
"""Severities by the names that apprise uses."""
HANDLE_BYTES = 7
SHOWN_CHARS_MAX = 200

_SEVERITIES: dict[Event, Severity] = {
    "monitor.failing": "failure",
    "monitor.recovered": "success",
    "monitor.late": "warning",
    "monitor.flapping": "warning",
    "certificate.expiring": "warning",
    "batch.day_ended": "info",
    "batch.dead_letters": "failure",
    "job.finished": "info",
    "account.quarantined": "failure",
    "channel.test": "info",
}
_TITLES: dict[Event, str] = {
    "monitor.failing": "{} is failing",
    "monitor.recovered": "{} has recovered",
    "monitor.late": "{} is late",
    "monitor.flapping": "{} is flapping",
    "certificate.expiring": "The certificate of {} is about to expire",
    "batch.day_ended": "The day {} has ended",
    "batch.dead_letters": "New dead letters in {}",
    "job.finished": "Job {} has finished",
    "account.quarantined": "Account {} is quarantined",
    "channel.test": "Test of channel {}",
}


class AlertBody(msgspec.Struct, frozen=True):
    """The body of a webhook."""

    id: str
    event: Event
    at: str
    user: str
    subject: str
    reason: str
    data: dict[str, Any]


class AppriseNote(msgspec.Struct, frozen=True, gc=False):
    """Message for people that apprise sends to a URL. The URL contains its secrets."""

    handle: int
    attempt: int
    url: str
    title: str
    text: str
    severity: Severity
    timeout_ms: int


def webhook_body(alert: Alert) -> bytes:
    """Return the JSON that a webhook is called with: the same bytes at each try."""
    body = AlertBody(alert.id, alert.event, to_text(alert.at_ms), alert.user, alert.subject, alert.reason, alert.data)
    return msgspec.json.encode(body)


def severity_of(alert: Alert) -> Severity:
    return _SEVERITIES[alert.event]


def title_of(alert: Alert) -> str:
    """Return one line that names the subject and what happened to it."""
    return _TITLES[alert.event].format(alert.subject)


def text_of(alert: Alert) -> str:
    """Return the text below the title: the reason, the time, and the plain figures of the alert."""
    lines = [alert.reason] if alert.reason else []
    lines.append(f"at {to_text(alert.at_ms)}")
    lines += [
        f"{name.replace('_', ' ')}: {str(value)[:SHOWN_CHARS_MAX]}"
        for name, value in alert.data.items()
        if isinstance(value, str | int | float) and value != ""
    ]
    lines.append(f"alert {alert.id} of Paceline for {alert.user}")
    return "\n".join(lines)


def delivery_handle(alert_id: str, channel: str) -> int:
    """Return the number by which a process identifies a delivery that is on its way."""
    return int.from_bytes(blake2b(f"{alert_id}\n{channel}".encode(), digest_size=HANDLE_BYTES).digest())
