"""Examples of the OpenAPI document: bodies as people write them, and answers assembled from their schemas."""

from __future__ import annotations

from typing import Any

from paceline.errors import InvalidInput, OverDailyCredits, PacelineError
from paceline.shells.api.openapi.schemas import Schema, name_of

NOW = "2026-11-15T12:00:00Z"
LATER = "2026-11-16T00:00:00Z"
DATE = "2026-11-15"
ALERT = "al_0f1e2d3c4b5a69788796a5b4c3d2e1f0"
RUN, CALL_RUN = "alice/home#7@42", f"daily/order-1@{DATE}"
_HTTP_CHECK = {"kind": "http", "url": "https://example.org/", "expect": {"status": [200], "body_contains": "ok"}}
_ASKING_CHECK = {
    "kind": "http",
    "url": "https://example.org/health",
    "auth": {"kind": "bearer", "token": "a-secret"},
    "expect": {
        "status": ["2xx"],
        "body_matches": "(?i)up|ready",
        "json": [{"pointer": "/status", "is": "up"}, {"pointer": "/free", "at_least": 10}],
        "header": {"Content-Type": {"contains": "json"}},
        "latency_max": "500ms",
        "days_left": 14,
    },
}
_INTERVAL = {"check": _HTTP_CHECK, "every": "60s", "tags": ["web"], "alert": {"after": 3, "recover": 1, "channels": []}}
_CRON = {"check": {"kind": "tls", "host": "example.org"}, "cron": "0 6 * * 1-5", "timezone": "Europe/Berlin"}
_RECORD = {"id": "order-1", "provider": "shop", "endpoint": "/orders/1", "body": {"amount": 3}}
_RUNS = {
    "place": None,
    "eta": {"from": "2026-11-15T12:00:00Z", "to": LATER},
    "reason": "all that is left of it runs at RIPE",
}
_OUTCOME = {"lease": "1.9f86d081", "status": "ok", "detail": {"latency_ms": 12.5}}

BODIES: dict[str, dict[str, Any]] = {
    "AccountSpec": {"standard": {"concurrent": 100, "daily_results": 100_000, "daily_credits": 1_000_000}},
    "BatchSpec": {"standard": {"start": "02:00", "window": "6h", "timezone": "Europe/Berlin", "missed": "once"}},
    "BulkBody": {"standard": {"items": [{"id": "home", **_INTERVAL}, {"id": "certificate", **_CRON}]}},
    "ChannelBody": {
        "webhook": {"kind": "webhook", "url": "https://hooks.example.org/paceline", "default": True},
        "apprise": {"kind": "apprise", "url": "mailtos://robot:a-password@example.org?to=ops@example.org"},
    },
    "ClaimBody": {
        "standard": {"max": 10, "lease": "60s", "wait": "20s"},
        "queue": {"queue": "browser"},
        "worker": {"provider": "depot", "max": 1, "lease": "60s"},
    },
    "DeadBody": {"runs": {"runs": [CALL_RUN]}, "batch": {"batch": "daily", "date": DATE}},
    "ExtendBody": {"standard": {"lease": _OUTCOME["lease"], "by": "60s"}},
    "JobBody": {
        "standard": {
            "title": "Is it reachable?",
            "measurements": [
                {
                    "definitions": [{"type": "ping", "af": 4, "target": "192.0.2.1", "description": "From anywhere"}],
                    "probes": [{"requested": 10, "type": "area", "value": "WW"}],
                    "is_oneoff": True,
                }
            ],
        }
    },
    "KeyPatchBody": {"standard": {"enabled": False}},
    "MonitorBody": {
        "interval": _INTERVAL,
        "cron": _CRON,
        "expectations": {"check": _ASKING_CHECK, "every": "30s"},
        "outgoing": {"check": {"kind": "outgoing", "page": "/shop"}, "every": "5m"},
    },
    "MonitorPatchBody": {"standard": {"every": "5m", "check": {"timeout": "5s"}}},
    "NewKeyBody": {"standard": {"key": "00000000-0000-4000-8000-000000000000", "label": "lab"}},
    "NewTokenBody": {"standard": {"label": "laptop"}},
    "NewUserBody": {"standard": {"id": "carol", "role": "user", "daily_credits": 100_000}},
    "OutcomeBody": {"standard": _OUTCOME, "later": {**_OUTCOME, "status": "retry", "after": "30s"}},
    "OutcomesBody": {"standard": {"items": [{"run": RUN, **_OUTCOME}]}},
    "PlanBody": {"standard": {"date": DATE}},
    "ProviderSpec": {
        "standard": {
            "base_url": "https://shop.example/api",
            "headers": {"Authorization": "Bearer a-secret"},
            "max_in_flight": 2,
            "rate": "5/1s",
        },
        "outgoing": {"kind": "outgoing", "max_in_flight": 4},
    },
    "RecordsBody": {"standard": {"items": [_RECORD]}},
    "RedriveBody": {"provider": {"provider": "shop"}, "batch": {"batch": "daily", "date": DATE}},
    "RerunBody": {"state": {"state": "done"}, "records": {"records": ["order-1"]}},
    "RunClaimBody": {"standard": {"attempt": 1, "lease": "60s"}},
    "SilenceBody": {"standard": {"for": "2h", "reason": "moving to another rack"}},
    "TagSilenceBody": {"standard": {"tag": "web", "for": "30m"}},
    "UserPatchBody": {"standard": {"daily_credits": 200_000}},
}
"""Examples of bodies, each with its title, by the name of the schema. A test sends all of them to a server."""

TEXTS = {
    "application/x-ndjson": {"example": f'{{"run":"{CALL_RUN}","state":"done"}}\n'},
    "text/csv": {"example": f"run,state\r\n{CALL_RUN},done\r\n"},
    "text/plain": {"example": "paceline_in_flight 2.0\n"},
}
RECORD_LINES = '{"id":"order-1","provider":"shop","endpoint":"/orders/1"}\n'

_BY_FIELD: dict[str, Any] = {
    "account": "lab",
    "active": True,
    "attempt": 1,
    "base_url": "https://shop.example/api",
    "batch": "daily",
    "check": _HTTP_CHECK,
    "closed_until": None,
    "counter": 42,
    "enabled": True,
    "error": None,
    "every": "60s",
    "generation": 7,
    "headers": {"Authorization": "***"},
    "health": "ok",
    "histogram_window": "15m",
    "host": "vm-1",
    "id": "home",
    "initial_delay": "0s",
    "jitter": "0s",
    "job": "j8f14e45f",
    "key": "alice/home",
    "label": "laptop",
    "last_four": "0000",
    "latency_ms": 41.5,
    "lease": _OUTCOME["lease"],
    "lease_until": LATER,
    "left": 99_880,
    "limit": 100_000,
    "look_up": None,
    "method": None,
    "missed": "once",
    "monitor": "home",
    "next_cursor": None,
    "next_due": LATER,
    "overlap": "skip",
    "owner": "alice",
    "pid": 4711,
    "provider": "shop",
    "rate": "5/1s",
    "reason": "",
    "record": "order-1",
    "resets_at": LATER,
    "revision": 1,
    "role": "user",
    "room_at": None,
    "run": RUN,
    "secret": "whsec_c2VjcmV0",
    "spent": 120,
    "start_late_s": {"checks": 0.0, "outgoing": 0.0, "batches": 0.0, "workers": 0.0},
    "status_code": 200,
    "tags": ["web"],
    "targets": ["192.0.2.1"],
    "timeout": "30s",
    "timezone": "UTC",
    "title": "Is it reachable?",
    "token": "pl_a-token-that-is-shown-once",
    "totals": {"done": 1},
    "types": ["ping"],
    "unknown": "retry",
    "until": None,
    "url": "http://127.0.0.1:8080",
    "user": "alice",
    "verify_tls": True,
    "webhook": None,
    "window": "6h",
}
"""Example values of fields by name. None means null, or left out if the field is optional."""
_BY_SCHEMA: dict[str, dict[str, Any]] = {
    "AccountView": {
        "id": "lab",
        "state": "ready",
        "barred": [],
        "concurrent": 100,
        "daily_results": 100_000,
        "daily_credits": 1_000_000,
    },
    "AlertView": {
        "id": ALERT,
        "event": "monitor.failing",
        "subject": "home",
        "reason": "answered 500",
        "data": {},
        "state": "told",
        "silence": None,
        "note": "",
    },
    "AddedKeyView": {"id": "k1", "label": "lab", "state": "ready", "unverified": []},
    "AheadAsk": {"name": "0 0 * * * UTC", "starts": 3_300},
    "AheadMinute": {"start": LATER, "monitors": 4_520, "batches": 120, "jobs": 0, "capacity": 30_120},
    "AheadPart": {
        "kind": "monitors",
        "name": "every 60s",
        "starts": 1_440_000,
        "busiest": 1_000,
        "windows": [15_000],
    },
    "AheadView": {"hours": 24, "window": "15m", "user": None, "left_out": 0, "complete": True},
    "AheadWindow": {"start": LATER, "monitors": 21_100, "batches": 1_800, "jobs": 0, "capacity": 451_800},
    "WorstMinute": {
        "start": LATER,
        "kind": "monitors",
        "limit": "places for checks",
        "starts": 4_520,
        "capacity": 30_000,
        "share": 0.1507,
        "text": "3,300 of 4,520 checks have the cadence 0 0 * * * UTC; 30,000 can start in a minute.",
    },
    "BatchView": {"id": "daily", "start": "02:00", "next_start": LATER},
    "BulkResult": {"disposition": "created"},
    "CallItem": {"run": CALL_RUN, "record": _RECORD, "date": DATE},
    "CallRunView": {"run": CALL_RUN, "state": "done", "payload": None},
    "ChannelView": {"id": "ops", "kind": "webhook", "url": "***", "default": True},
    "CountsView": {"unknown": 0},
    "DaemonView": {"id": "vm-1-4711", "state": "running"},
    "DeliveryView": {"channel": "ops", "state": "told", "tries": 1, "next_try": None, "reason": ""},
    "DaySummary": {"end": LATER},
    "DayReport": {"end": LATER, "runs": 1},
    "RunningDay": {"end": LATER, "runs": 1},
    "EtaView": {"to": LATER},
    "JobQuote": {"cost": 120, "fits": True, "measurements": 1},
    "JobAccepted": {"cost": 120, "measurements": 1},
    "JobSummary": {"state": "running", "measurements": 1, "open": 1, "finished_at": None} | _RUNS,
    "JobView": {"state": "running", "cancelled_at": None, "finished_at": None, "waiting": None} | _RUNS,
    "KeyView": {"id": "k1", "label": "lab", "state": "ready"},
    "LoopView": {"name": "ticker", "turning": True},
    "MeasurementView": {
        "state": "ongoing",
        "probes": 10,
        "cost": 120,
        "next_try": None,
        "settled": None,
        "ended_at": None,
    },
    "MonitorView": {"missed": "skip", "cron": None, "timezone": None, "skipped": None},
    "OutcomeResult": {"disposition": "settled", "state": "ok"},
    "OutgoingItem": {"check": {"kind": "outgoing", "page": "/shop"}},
    "Preview": {"end": LATER, "records": 1, "warnings": []},
    "ProviderView": {"id": "shop", "kind": "http", "max_in_flight": 2},
    "RecordView": _RECORD,
    "RecordsAnswer": {"created": 1, "refusals": None},
    "RunView": {"state": "ok", "outcome": "ok", "detail": {}},
    "ServiceStatus": {"accounts_aside": [], "atlas_pause": None, "store": "sqlite:///paceline.db"},
    "SilenceView": {"id": "s0a1b2c3d4e5f", "monitor": "home", "tag": None, "until": LATER, "reason": "moving"},
    "StandingView": {"state": "open"},
    "TrialView": {"channel": "ops", "ok": True, "code": 200, "reason": "", "took_ms": 84},
    "TokenMade": {"id": "t1"},
    "TokenView": {"id": "t1"},
    "UpcomingView": {"items": [NOW, LATER], "reason": None},
    "IncidentView": {"ended": LATER, "reason": "HTTP 503"},
    "LatencyView": {"p50": 41.6, "p95": 87.3, "p99": 142.0},
    "UptimeDayView": {
        "share": 0.9998,
        "good_s": 86_382.7,
        "known_s": 86_400.0,
        "ok": 1_439,
        "failed": 1,
        "incidents": 1,
        "p50": 41.6,
        "p95": 87.3,
        "p99": 142.0,
    },
    "UptimeView": {
        "1d": 0.9998,
        "7d": 0.9999,
        "30d": 0.9999,
        "90d": 0.9999,
        "since": {
            "1d": "2026-11-14T00:00:00Z",
            "7d": "2026-11-08T00:00:00Z",
            "30d": "2026-10-16T00:00:00Z",
            "90d": "2026-08-17T00:00:00Z",
        },
        "latency_ms": {"p50": 41.6, "p95": 87.3, "p99": 142.0},
    },
    "UserView": {"id": "alice", "daily_credits": 100_000, "monitors": 1},
}
"""Example values for one schema alone, used if the name of the field is not enough."""


def example_of(schema: Schema, schemas: dict[str, Schema], name: str = "") -> Any:
    """Returns an example that fits the schema. ``name`` is the schema's name. The tables above come first."""
    if "$ref" in schema:
        name = name_of(schema)
        return example_of(schemas[name], schemas, name)
    if "const" in schema or "enum" in schema:
        return schema.get("const", schema.get("default", schema.get("enum", [None])[0]))
    if schema.get("default") is not None:
        return schema["default"]
    if choices := schema.get("anyOf") or schema.get("oneOf"):
        return example_of(choices[0], schemas, name)
    match schema.get("type"):
        case "object":
            return _object(schema, schemas, name)
        case "array":
            return [example_of(schema["items"], schemas)]
        case "boolean":
            return False
        case "integer" | "number":
            return schema.get("minimum", 0)
        case "string":
            return {"date-time": NOW, "date": DATE}.get(schema.get("format", ""), "…")
        case _:
            return None


def problem_example(error: type[PacelineError]) -> dict[str, Any]:
    """Returns an example of the problem document of an error."""
    problem: dict[str, Any] = {
        "type": f"/docs#error-{error.code}",
        "title": error.title,
        "status": error.status,
        "detail": f"{error.title}.",
        "code": error.code,
        "errors": [],
    }
    if error is InvalidInput:
        problem["errors"] = [{"pointer": "/every", "detail": 'write a whole number and a unit, for example "30s"'}]
    if error is OverDailyCredits:
        problem |= {"cost": 120, "credits_left": 20, "resets_at": LATER, "refusal": "alice/refused#1"}
    return problem


def _object(schema: Schema, schemas: dict[str, Schema], name: str) -> dict[str, Any]:
    known = _BY_FIELD | _BY_SCHEMA.get(name, {})
    found: dict[str, Any] = {}
    for field, part in schema.get("properties", {}).items():
        value = known[field] if field in known else example_of(part, schemas)
        if value is not None or field in schema.get("required", ()):
            found[field] = value
    return found
