"""JSON schemas that no type says by itself: what the documents of monitors, providers and batches may hold."""

from __future__ import annotations

from typing import Any

from paceline.core.batch import ENDPOINT_CHARS_MAX
from paceline.core.checks import BYTES_CAP_MAX, CHECK_KINDS, HEADERS_MAX
from paceline.core.definition import TAG_CHARS_MAX, TAGS_MAX
from paceline.core.ids import ID_RULE
from paceline.core.measurement import KINDS
from paceline.core.parsing import TEXT_CHARS_MAX
from paceline.core.provider import ATTEMPTS_MAX, FAILURES_MAX, IN_FLIGHT_MAX, RATE_RULE
from paceline.core.provider import HEADERS_MAX as PROVIDER_HEADERS_MAX
from paceline.core.targets import HOST_CHARS_MAX, URL_CHARS_MAX
from paceline.shells.api.documents import DURATION_PATTERN, ID_PATTERN, OUTCOMES_MAX
from paceline.steps.accounts import LIMIT_MAX

JOB_TITLE_CHARS_MAX = 1_024
Schema = dict[str, Any]


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def duration(default: str, text: str) -> Schema:
    return {"type": "string", "pattern": DURATION_PATTERN, "default": default, "description": text}


def id_schema() -> Schema:
    return {"type": "string", "pattern": ID_PATTERN, "description": f"{ID_RULE[0].upper()}{ID_RULE[1:]}."}


def monitor_schemas() -> dict[str, Schema]:
    fields = _fields()
    cadence = [{"required": ["every"]}, {"required": ["cron"]}]
    body: Schema = {"type": "object", "properties": fields, "required": ["check"], "oneOf": cadence}
    bulk_item = {**body, "properties": {"id": id_schema(), **fields}, "required": ["id", "check"]}
    bulk_items = {"type": "array", "items": ref("BulkItem")}
    return {
        "Check": {
            "oneOf": [*(ref(_name(kind)) for kind in CHECK_KINDS), ref("OutgoingCheck")],
            "discriminator": {
                "propertyName": "kind",
                "mapping": {kind: ref(_name(kind))["$ref"] for kind in (*CHECK_KINDS, "outgoing")},
            },
        },
        "OutgoingCheck": {
            "title": "OutgoingCheck",
            "description": "Work for a checker of your own: whatever stands beside `kind` is handed over as it is.",
            "type": "object",
            "properties": {"kind": {"const": "outgoing"}},
            "required": ["kind"],
            "additionalProperties": True,
        },
        "MonitorBody": {**body, "title": "MonitorBody", "additionalProperties": False},
        "BulkItem": {**bulk_item, "title": "BulkItem", "additionalProperties": False},
        "OutcomesBody": {
            "title": "OutcomesBody",
            "description": "Each item is judged by itself. Of several of one run the first counts.",
            "type": "object",
            "properties": {"items": {"type": "array", "items": ref("OutcomeItem"), "maxItems": OUTCOMES_MAX}},
            "required": ["items"],
            "additionalProperties": False,
        },
        "BulkBody": {
            "title": "BulkBody",
            "description": "Each item is judged by itself. Of several with one id the first counts.",
            "type": "object",
            "properties": {"items": bulk_items},
            "required": ["items"],
            "additionalProperties": False,
        },
        "MonitorPatchBody": {
            "title": "MonitorPatchBody",
            "description": "Fields of MonitorBody: null removes one, objects merge, the rest replaces.",
            "type": "object",
            "properties": {name: {} for name in fields},
            "additionalProperties": False,
        },
    }


def batch_schemas() -> dict[str, Schema]:
    record: Schema = {
        "description": "A record: what is asked of which provider, once a day.",
        "type": "object",
        "properties": {
            "id": id_schema(),
            "provider": id_schema(),
            "endpoint": {
                "type": "string",
                "maxLength": ENDPOINT_CHARS_MAX,
                "default": "",
                "description": "What follows the provider's `base_url`; percent-encoded.",
            },
            "body": {"default": None, "description": "Any JSON, sent as it is; a text is sent as that text."},
            "active": {"type": "boolean", "default": True, "description": "`false`: it does not run."},
        },
        "required": ["id", "provider"],
        "additionalProperties": False,
    }
    body: Schema = {
        "description": "Each record is judged by itself.",
        "type": "object",
        "properties": {"items": {"type": "array", "items": ref("Record")}},
        "required": ["items"],
        "additionalProperties": False,
    }
    return {"Record": record, "RecordsBody": body}


def job_schemas() -> dict[str, Schema]:
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


def narrowed(schemas: dict[str, Schema]) -> dict[str, Schema]:
    """The schemas of the checks as the types say, with the ranges that the core checks."""
    for name, bounds in _BOUNDS.items():
        for property_, bound in bounds.items():
            schemas[name]["properties"][property_] |= bound
    del schemas["HttpCheck"]["properties"]["sealed"]  # only stored ones have it
    return schemas


def _fields() -> dict[str, Schema]:
    return {
        "check": ref("Check"),
        "every": {"type": "string", "pattern": DURATION_PATTERN, "description": "The interval, from 1s up."},
        "cron": {"type": "string", "description": "Five fields: minute, hour, day of month, month, day of week."},
        "timezone": {"type": "string", "default": "UTC", "description": "Of the cron expression; an IANA name."},
        "initial_delay": duration("0s", "Before the first firing."),
        "jitter": duration("0s", "Shifts all firings of this monitor by a fixed part of it."),
        "missed": {
            "enum": ["skip", "once", "all"],
            "default": "skip",
            "description": "What becomes of firings that were missed.",
        },
        "overlap": {
            "enum": ["skip", "queue"],
            "default": "skip",
            "description": "What a firing does while an earlier run of the monitor is waiting or out: it makes no run, "
            "or its run queues.",
        },
        "paused": {"type": "boolean", "default": False},
        "tags": {
            "type": "array",
            "items": {"type": "string", "maxLength": TAG_CHARS_MAX},
            "maxItems": TAGS_MAX,
            "default": [],
        },
    }


def _name(kind: str) -> str:
    return CHECK_KINDS[kind].__name__ if kind in CHECK_KINDS else "OutgoingCheck"


_HOST = {"minLength": 1, "maxLength": HOST_CHARS_MAX}
_LIMIT = {"minimum": 0, "maximum": LIMIT_MAX}
_PORT = {"minimum": 1, "maximum": 65_535}
_TIMEOUT = {"pattern": DURATION_PATTERN, "description": "For all of it together; from 100ms to 2m."}
_BOUNDS: dict[str, dict[str, Schema]] = {
    "HttpCheck": {
        "url": {"maxLength": URL_CHARS_MAX, "pattern": "^https?://"},
        "headers": {"maxProperties": HEADERS_MAX, "description": "Values are kept sealed, and shown as `***`."},
        "follow_redirects": {"minimum": 0, "maximum": 10},
        "max_bytes": {"minimum": 1, "maximum": BYTES_CAP_MAX},
        "timeout": _TIMEOUT,
    },
    "HttpExpect": {
        "headers": {"maxProperties": HEADERS_MAX, "description": f"Texts of at most {TEXT_CHARS_MAX} characters."},
    },
    "TcpCheck": {"host": _HOST, "port": _PORT, "timeout": _TIMEOUT},
    "DnsCheck": {"name": _HOST, "port": _PORT, "timeout": _TIMEOUT},
    "ProviderSpec": {
        "base_url": {"maxLength": URL_CHARS_MAX, "pattern": "^https?://[^?#]*$"},
        "headers": {
            "maxProperties": PROVIDER_HEADERS_MAX,
            "description": "Values are kept sealed, and shown as `***`.",
        },
        "max_in_flight": {"minimum": 1, "maximum": IN_FLIGHT_MAX},
        "rate": {
            "pattern": "^[0-9]{1,7}/[0-9]{1,12}(ms|s|m|h|d)$",
            "description": f"{RATE_RULE[0].upper()}{RATE_RULE[1:]}.",
        },
        "timeout": {"pattern": DURATION_PATTERN, "description": "For one call; from 100ms to 10m."},
    },
    "AccountSpec": {
        "concurrent": {**_LIMIT, "description": "Measurements that run at once."},
        "daily_results": {**_LIMIT, "description": "Results in any 24 hours."},
        "daily_credits": {**_LIMIT, "description": "Credits in any 24 hours."},
    },
    "RetrySpec": {
        "max_attempts": {"minimum": 1, "maximum": ATTEMPTS_MAX},
        "base": {"pattern": DURATION_PATTERN},
        "cap": {"pattern": DURATION_PATTERN},
    },
    "BreakerSpec": {
        "failures": {"minimum": 1, "maximum": FAILURES_MAX},
        "open_for": {"pattern": DURATION_PATTERN},
    },
    "BatchSpec": {
        "start": {"pattern": "^([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?$", "description": "A time of day."},
        "window": {"pattern": DURATION_PATTERN, "description": "From 1s; `24h` is the whole local day."},
        "timezone": {"description": "An IANA name."},
        "jitter": {"pattern": DURATION_PATTERN, "description": "Delays each record by a fixed part of it."},
        "missed": {"description": "What becomes of runs whose time was missed."},
    },
    "TlsCheck": {"host": _HOST, "port": _PORT, "min_days": {"minimum": 0, "maximum": 3_650}, "timeout": _TIMEOUT},
}
