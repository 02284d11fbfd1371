"""Definitions that a user keeps in a file: their kinds, and their documents in one form for comparison."""

from __future__ import annotations

from functools import cache
from typing import Any, Literal, NamedTuple, assert_never

import msgspec

from paceline.core.alerts.channel import ChannelBody, check_channel
from paceline.core.batches.batch import BatchSpec, batch_document, parse_batch
from paceline.core.batches.provider import ProviderSpec, parse_provider, provider_document
from paceline.core.monitors.check_secrets import secrets_given
from paceline.core.monitors.checks import HIDDEN, HttpCheck, OutgoingCheck, with_secrets
from paceline.core.monitors.definition import MonitorSpec, SpecLimits, parse_spec, spec_document
from paceline.core.parsing import decode

Kind = Literal["provider", "batch", "channel", "monitor"]
KINDS: tuple[Kind, ...] = ("provider", "batch", "channel", "monitor")
"""Kinds in the order in which they are put: batches name providers, monitors name channels."""
OF_USERS: frozenset[Kind] = frozenset({"channel", "monitor"})
_LIMITS = SpecLimits(every_ms_min=1)
"""Limits without a shortest interval: the Paceline that the file is applied to decides on that."""
_CHANNEL = msgspec.json.Decoder(ChannelBody)
_FIELDS: dict[Kind, tuple[str, ...]] = {
    "provider": ProviderSpec.__struct_fields__,
    "batch": BatchSpec.__struct_fields__,
    "channel": ChannelBody.__struct_fields__,
    "monitor": MonitorSpec.__struct_fields__,
}


class Name(NamedTuple):
    """Name of a definition. ``user`` is empty if the definition belongs to nobody."""

    kind: Kind
    user: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.user}/{self.id}" if self.user else f"{self.kind} {self.id}"


class Normal(NamedTuple):
    """A document with every default spelled out and every secret masked."""

    document: dict[str, Any]
    gives_secrets: bool = False
    """True if the document gives a secret by its value: nobody can tell whether that is the stored one."""


def normal(kind: Kind, document: Any) -> Normal:
    """Return the document in the form in which it is compared, or raise InvalidInput that names every wrong field."""
    body = msgspec.json.encode(document)
    match kind:
        case "provider":
            provider = parse_provider(body)
            given = any(value != HIDDEN for value in provider.headers.values())
            return Normal(provider_document(provider), given)
        case "batch":
            return Normal(batch_document(parse_batch(body)))
        case "channel":
            channel = decode(_CHANNEL, body)
            check_channel(channel)
            return Normal(msgspec.to_builtins(channel) | {"url": HIDDEN}, channel.url != HIDDEN)
        case "monitor":
            return _normal_monitor(parse_spec(body, _LIMITS))
        case never:
            assert_never(never)


def defined(kind: Kind, view: dict[str, Any]) -> dict[str, Any]:
    """Return the fields that a user declared, from a definition as it is shown."""
    return {name: view[name] for name in _FIELDS[kind] if name in view}


def terse(kind: Kind, document: dict[str, Any]) -> dict[str, Any]:
    """Return the document without the fields that equal their defaults."""
    usual = _usual(kind)
    return {name: value for name, value in document.items() if name not in usual or value != usual[name]}


@cache
def _usual(kind: Kind) -> dict[str, Any]:
    """Return the defaults of a kind's fields, where there are any."""
    match kind:
        case "provider":
            return provider_document(ProviderSpec())
        case "batch":
            return batch_document(BatchSpec())
        case "channel":
            return {"default": False}
        case "monitor":
            document = spec_document(MonitorSpec(check=OutgoingCheck({})))
            del document["check"]
            return document | {"timezone": "UTC"}
        case never:
            assert_never(never)


def _normal_monitor(spec: MonitorSpec) -> Normal:
    check = spec.check
    given = secrets_given(check)
    if isinstance(check, HttpCheck):
        check = with_secrets(check, lambda _: HIDDEN, sealed=False)
    return Normal(spec_document(msgspec.structs.replace(spec, check=check)), given)
