"""JSON schemas beyond those that msgspec writes from the types."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from paceline.core.jobs.measurement import KINDS
from paceline.core.monitors.checks import CHECK_KINDS
from paceline.core.monitors.schedule import Missed, Overlap
from paceline.core.schema import Id
from paceline.core.targets import URL_CHARS_MAX

JOB_TITLE_CHARS_MAX = 1_024
Schema = dict[str, Any]
ID: Schema = msgspec.json.schema(Id)


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def complete(schemas: dict[str, Schema]) -> dict[str, Schema]:
    """The schemas that msgspec wrote, with what no type says."""
    del schemas["HttpCheck"]["properties"]["sealed"]  # only stored checks have it
    body = schemas["MonitorBody"]
    for name, choices in (("missed", Missed), ("overlap", Overlap)):
        body["properties"][name]["enum"] = list(get_args(choices))  # in the order of the docs; msgspec sorts them
    body["oneOf"] = [{"required": ["every"]}, {"required": ["cron"]}]
    named = {"properties": {"id": ID, **body["properties"]}, "required": ["id", *body["required"]]}
    schemas["BulkItem"] = body | named
    return schemas | _check_schemas() | _patch_schema(body) | _job_schemas()


def _check_schemas() -> dict[str, Schema]:
    names = {kind: type_.__name__ for kind, type_ in CHECK_KINDS.items()} | {"outgoing": "OutgoingCheck"}
    return {
        "Check": {
            "oneOf": [ref(name) for name in names.values()],
            "discriminator": {
                "propertyName": "kind",
                "mapping": {kind: ref(name)["$ref"] for kind, name in names.items()},
            },
        },
        "OutgoingCheck": {
            "description": "Work for a checker of your own: whatever stands beside `kind` is handed over as it is.",
            "type": "object",
            "properties": {"kind": {"const": "outgoing"}},
            "required": ["kind"],
            "additionalProperties": True,
        },
    }


def _patch_schema(body: Schema) -> dict[str, Schema]:
    patch: Schema = {
        "description": "Fields of MonitorBody: null removes one, objects merge, the rest replaces.",
        "type": "object",
        "properties": {name: {} for name in body["properties"]},
        "additionalProperties": False,
    }
    return {"MonitorPatchBody": patch}


def _job_schemas() -> dict[str, Schema]:
    kinds = {kind: ref(type_.__name__) for kind, type_ in KINDS.items()}
    instant: Schema = {
        "anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "null"}],
        "description": "Seconds, or ISO 8601.",
    }
    request: Schema = {
        "description": "One request to RIPE: each definition becomes a measurement there, all on the same probes.",
        "type": "object",
        "properties": {
            "definitions": {
                "type": "array",
                "minItems": 1,
                "items": {
                    "oneOf": list(kinds.values()),
                    "discriminator": {
                        "propertyName": "type",
                        "mapping": {kind: one["$ref"] for kind, one in kinds.items()},
                    },
                },
            },
            "probes": {"type": "array", "minItems": 1, "items": ref("Probes")},
            "is_oneoff": {"type": ["boolean", "null"]},
            "start_time": instant,
            "stop_time": {**instant, "description": "A periodic measurement needs one."},
            "bill_to": {"type": ["string", "null"], "description": "Refused: accounts pay for themselves."},
        },
        "required": ["definitions", "probes"],
        "additionalProperties": False,
    }
    body: Schema = {
        "description": "A job. Times and fields of a measurement are RIPE's own.",
        "type": "object",
        "properties": {
            "title": {"type": "string", "maxLength": JOB_TITLE_CHARS_MAX, "default": ""},
            "webhook": {
                "type": ["string", "null"],
                "maxLength": URL_CHARS_MAX,
                "default": None,
                "description": "Called, signed, when the job has finished.",
            },
            "measurements": {"type": "array", "minItems": 1, "items": ref("MeasurementBody")},
        },
        "required": ["measurements"],
        "additionalProperties": False,
    }
    return {"JobBody": body, "MeasurementBody": request}
