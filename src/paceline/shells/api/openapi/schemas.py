"""JSON schemas of the API's types, as msgspec writes them, in the form that suits generators of clients."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, get_args

import msgspec

from paceline.core.batches.batch import DayState
from paceline.core.batches.calls import CallState
from paceline.core.jobs.measurement import MeasurementState
from paceline.core.jobs.pool import KeyState
from paceline.core.jobs.values import JobState
from paceline.core.monitors.checks import DnsCheck, HttpCheck, TcpCheck, TlsCheck
from paceline.core.monitors.outcome import TerminalState
from paceline.core.monitors.schedule import Missed, Overlap
from paceline.core.schema import Id
from paceline.core.users import Role
from paceline.shells.api import documents
from paceline.shells.api.outgoing_documents import OutcomeItem

Schema = dict[str, Any]
ID: Schema = msgspec.json.schema(Id)
EITHER: dict[str, tuple[type, ...]] = {
    "MonitorBody": (documents.IntervalMonitor, documents.CronMonitor),
    "BulkItem": (documents.IntervalItem, documents.CronItem),
}
"""Schemas that are one of several types without a field that tells the types apart."""
ENUMS: dict[str, Any] = {
    "CallState": CallState,
    "DayState": DayState,
    "JobState": JobState,
    "KeyState": KeyState,
    "MeasurementState": MeasurementState,
    "Missed": Missed,
    "Overlap": Overlap,
    "Role": Role,
    "TerminalState": TerminalState,
}
"""Sets of values that several schemas use: each is one type in a generated client, in the order of the docs."""
_PARTS = (OutcomeItem, documents.Record)
"""Types that others only refer to, because handlers decode them one by one."""
_CHECK: Any = HttpCheck | TcpCheck | DnsCheck | TlsCheck | documents.OutgoingCheckSchema
_ENUM_NAMES = {frozenset(get_args(choices)): name for name, choices in ENUMS.items()}
_TEMPLATE = "#/components/schemas/{name}"
_PAGE = re.compile(r"ListPage_(\w+?)(?:View)?_")
_OTHER_NAMES = {"OutgoingCheckSchema": "OutgoingCheck", "ReplayAnswer": "Replayed"}
"""Schemas of types that have another name in the code, because core has a class of the schema's name."""


def ref(name: str) -> Schema:
    return {"$ref": _TEMPLATE.format(name=name)}


def name_of(reference: Schema) -> str:
    """Returns the name of the schema that the reference points to."""
    return str(reference["$ref"]).rpartition("/")[2]


def schemas_of(types: Iterable[Any]) -> tuple[dict[str, Schema], dict[Any, Schema]]:
    """Returns all schemas by name, and for each of the types the schema to use in its place."""
    either = [one for choices in EITHER.values() for one in choices]
    wanted = list(dict.fromkeys([*types, *_PARTS, *either, _CHECK]))
    used, components = msgspec.json.schema_components(wanted, ref_template=_TEMPLATE)
    schemas = {_name(name): {**_plain(schema), "title": _name(name)} for name, schema in components.items()}
    found: dict[Any, Schema] = {kind: _plain(schema) for kind, schema in zip(wanted, used, strict=True)}
    for name, choices in EITHER.items():
        schemas[name] = {"title": name, "oneOf": [found[one] for one in choices]}
    check = found[_CHECK]
    schemas["Check"] = {"title": "Check", "oneOf": check["anyOf"], "discriminator": check["discriminator"]}
    for name, values in ENUMS.items():
        schemas[name] = {"title": name, "type": "string", "enum": list(get_args(values))}
    _complete(schemas)
    return dict(sorted(schemas.items())), found


def _complete(schemas: dict[str, Schema]) -> None:
    """Adds details that the types do not have."""
    del schemas["HttpCheck"]["properties"]["sealed"]  # only stored checks have it
    schemas["MonitorView"]["properties"]["check"] = ref("Check")
    schemas["OutgoingItem"]["properties"]["check"] = ref("OutgoingCheck")


def _name(name: str) -> str:
    """Returns the name of a type's schema; a page of ``MonitorView`` is named MonitorPage."""
    return re.sub(r"\w+", lambda word: _OTHER_NAMES.get(word[0], word[0]), _PAGE.sub(r"\1Page", name))


def _plain(schema: Any) -> Any:
    """Returns the schema in the form that suits generators: enums have a type, and shared ones have a name."""
    if isinstance(schema, list):
        return [_plain(part) for part in schema]
    if not isinstance(schema, dict):
        return _name(schema.replace("``", "`")) if isinstance(schema, str) else schema
    plain = {key: part if key in ("default", "enum") else _plain(part) for key, part in schema.items()}
    choices = plain.pop("enum", None)
    if choices is None:
        return plain
    if name := _ENUM_NAMES.get(frozenset(choices)):
        return ref(name) | plain
    type_ = "string" if isinstance(choices[0], str) else "integer"
    return {**plain, "type": type_, **({"enum": choices} if len(choices) > 1 else {"const": choices[0]})}
