"""Definitions that a user keeps in a file: which kinds there are, and their documents in one form to be compared."""

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
"""In the order in which they are put: batches name providers, monitors name channels."""
OF_USERS: frozenset[Kind] = frozenset({"channel", "monitor"})
_LIMITS = SpecLimits(every_ms_min=1)
"""How short an interval may be is for the Paceline to say that it is applied to."""
_CHANNEL = msgspec.json.Decoder(ChannelBody)
_FIELDS: dict[Kind, tuple[str, ...]] = {
    "provider": ProviderSpec.__struct_fields__,
    "batch": BatchSpec.__struct_fields__,
    "channel": ChannelBody.__struct_fields__,
    "monitor": MonitorSpec.__struct_fields__,
}


class Name(NamedTuple):
    """What a definition is called. ``user`` is empty where it belongs to nobody."""

    kind: Kind
    user: str
    id: str

    def __str__(self) -> str:
        return f"{self.kind} {self.user}/{self.id}" if self.user else f"{self.kind} {self.id}"


class Normal(NamedTuple):
    """A document with every default spelled out and every secret masked."""

    document: dict[str, Any]
    gives_secrets: bool = False
    """True if it gives a secret by its value: whether that is the stored one cannot be seen."""


def normal(kind: Kind, document: Any) -> Normal:
    """The document in the form in which it is compared, or InvalidInput that names every wrong field."""
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
    """What a user declared, of a definition as it is shown."""
    return {name: view[name] for name in _FIELDS[kind] if name in view}


def terse(kind: Kind, document: dict[str, Any]) -> dict[str, Any]:
    """The document without what equals the defaults."""
    usual = _usual(kind)
    return {name: value for name, value in document.items() if name not in usual or value != usual[name]}


@cache
def _usual(kind: Kind) -> dict[str, Any]:
    """The defaults of a kind, of the fields that have one."""
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
