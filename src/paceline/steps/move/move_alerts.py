"""Import of channels, silences and alerts that are not over."""

from __future__ import annotations

from msgspec.structs import replace

from paceline.core.alerts.channel import channel_url_problem
from paceline.core.ids import id_problem
from paceline.errors import FieldProblem, InvalidInput
from paceline.ports import Store, Vault
from paceline.steps.alerts.channels import CHANNELS
from paceline.steps.alerts.owner import since_ms
from paceline.steps.alerts.silences import KEPT_MS, SILENCES
from paceline.steps.move.stream import AlertLine, ChannelLine, SilenceLine


def put_channel_line(store: Store, vault: Vault, line: ChannelLine) -> str:
    """Store the channel as it was, and return the disposition."""
    if problem := id_problem(line.id, "/id"):
        raise InvalidInput.of(problem)
    if detail := channel_url_problem(line.channel.kind, vault.unseal(line.channel.url)):
        raise InvalidInput.of(FieldProblem("/channel/url", detail))
    # Not older than its user is here: it would be taken for one of another user of that name.
    channel = replace(line.channel, created_ms=max(line.channel.created_ms, since_ms(store, line.owner)))
    key = f"{line.owner}/{line.id}"
    there = CHANNELS.get(store, key)
    if there == channel:
        return "unchanged"
    CHANNELS.put(store, key, channel)
    return "created" if there is None else "replaced"


def put_silence_line(store: Store, line: SilenceLine) -> str:
    """Store the silence as it was, and return the disposition."""
    if problem := id_problem(line.id, "/id"):
        raise InvalidInput.of(problem)
    silence = replace(line.silence, from_ms=max(line.silence.from_ms, since_ms(store, line.owner)))
    key = f"{line.owner}/{line.id}"
    there = SILENCES.get(store, key)
    if there == silence:
        return "unchanged"
    SILENCES.put(store, key, silence, expires_ms=silence.until_ms + KEPT_MS)
    return "created" if there is None else "replaced"


def put_alert_line(store: Store, line: AlertLine) -> str:
    """Store the alert with its deliveries so far, once; an alert that is there already stays as it is."""
    if not store.add_alerts([line.record.alert])[0]:
        return "unchanged"
    store.write_alerts([replace(line.record, version=0)])
    return "created"
