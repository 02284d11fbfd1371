"""``paceline up --demo``: a user, a model HTTP server, monitors of every kind, and a batch at two model providers."""

from __future__ import annotations

import secrets
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from paceline.config import Settings
from paceline.core.batch import RecordSpec, day_at
from paceline.errors import AlreadyExists
from paceline.steps import access, define
from paceline.steps.batches import get_batch, put_batch, put_records
from paceline.steps.plan import plan_day
from paceline.steps.providers import put_provider
from paceline.wiring import System

USER = "demo"
TOKEN_LABEL = "made by up --demo"  # noqa: S105  # a label, not a token
LOOPBACK = "127.0.0.0/8"
BATCH = "demo"
RECORDS = 300
WINDOW = "20m"
"""A plan that begins late spreads over a quarter of it at least: about a run each second."""
DATES_MAX = 60


class Demo(NamedTuple):
    """What the newcomer needs to know."""

    user: str
    token: str
    model_url: str


def demo_settings(settings: Settings) -> Settings:
    """Checks may reach this machine: the model server is nowhere else."""
    allowed = ",".join(filter(None, [settings.outbound_allow, LOOPBACK]))
    return settings.model_copy(update={"outbound_allow": allowed})


def prepare_demo(system: System, *, model_url: str) -> Demo:
    """Doing it at every start leaves one user, one set of monitors and one batch, aimed at this start's server."""
    token = _fresh_token(system)
    _put_monitors(system, model_url)
    _put_batch(system, model_url)
    return Demo(USER, token, model_url)


def demo_monitors(model_url: str) -> dict[str, dict[str, Any]]:
    """Something of every kind that works without the Internet."""
    parts = urlsplit(model_url)
    return {
        "web": {
            "check": {"kind": "http", "url": f"{model_url}/ok", "expect": {"status": [200]}},
            "every": "2s",
            "tags": ["demo", "steady"],
        },
        "flapping": {"check": {"kind": "http", "url": f"{model_url}/flap"}, "every": "3s", "tags": ["demo"]},
        "slow": {
            "check": {"kind": "http", "url": f"{model_url}/slow/400", "timeout": "2s"},
            "every": "5s",
            "jitter": "2s",
            "tags": ["demo"],
        },
        "broken": {"check": {"kind": "http", "url": f"{model_url}/status/503"}, "every": "4s", "tags": ["demo"]},
        "port": {"check": {"kind": "tcp", "host": parts.hostname, "port": parts.port}, "every": "5s", "tags": ["demo"]},
        "each-minute": {
            "check": {"kind": "http", "url": f"{model_url}/ok"},
            "cron": "* * * * *",
            "timezone": "Europe/Berlin",
            "tags": ["demo"],
        },
        "by-hand": {
            "check": {"kind": "outgoing", "question": "Is the coffee machine full?"},
            "every": "30s",
            "tags": ["demo"],
        },
    }


def demo_providers(model_url: str) -> dict[str, dict[str, Any]]:
    """One that is steady, and one that is not."""
    return {
        "steady": {"base_url": model_url, "headers": {"X-Key": secrets.token_hex(8)}, "timeout": "5s"},
        "moody": {"base_url": model_url, "timeout": "5s", "retry": {"max_attempts": 4, "base": "200ms", "cap": "2s"}},
    }


def demo_records() -> list[RecordSpec]:
    """Every 50th is refused by its provider, and becomes a dead letter."""
    records = []
    for number in range(RECORDS):
        steady = number % 3 > 0
        endpoint = f"/slow/40?record={number}" if steady else f"/flaky?percent=10&record={number}"
        if number % 50 == 49:
            endpoint = f"/status/422?record={number}"
        provider = "steady" if steady else "moody"
        body = msgspec.json.encode({"question": "How are you today?", "number": number}).decode()
        records.append(RecordSpec(f"record-{number:03d}", provider, endpoint, body))
    return records


def _put_batch(system: System, model_url: str) -> None:
    """The newest day that is not planned yet is planned now, so that something moves at every start."""
    store, now_ms = system.store, system.clock.now_ms()
    for name, document in demo_providers(model_url).items():
        put_provider(store, system.vault, name, msgspec.json.encode(document), now_ms=now_ms)
    put_batch(store, BATCH, msgspec.json.encode({"window": WINDOW, "missed": "once"}), now_ms=now_ms)
    batch = get_batch(store, BATCH)
    put_records(store, batch, demo_records(), now_ms=now_ms)
    today = day_at(batch.spec, now_ms)
    for back in range(DATES_MAX):
        date = today - timedelta(days=back)
        if store.day(batch, date.isoformat()) is None:
            plan_day(store, batch, date, now_ms=now_ms)
            return


def _put_monitors(system: System, model_url: str) -> None:
    puts = [
        define.parse_put(USER, monitor_id, msgspec.json.encode(document), system.limits)
        for monitor_id, document in demo_monitors(model_url).items()
    ]
    monitors_max = system.settings.monitors_max
    results = define.put_monitors(system.store, puts, monitors_max=monitors_max, now_ms=system.clock.now_ms())
    for put, result in zip(puts, results, strict=True):
        if error := define.put_error(result, put, monitors_max=monitors_max):
            raise error


def _fresh_token(system: System) -> str:
    """A token for this start; those of earlier starts are revoked, so that they do not pile up."""
    key, now_ms = system.secret_key, system.clock.now_ms()
    with suppress(AlreadyExists):  # an earlier start made it
        access.add_user(
            system.store,
            USER,
            role="admin",
            daily_credits=access.DAILY_CREDITS_DEFAULT,
            token_bytes=secrets.token_bytes(access.TOKEN_BYTES),
            secret_key=key,
            now_ms=now_ms,
        )
    for token in system.store.tokens(USER):
        if token.label in (TOKEN_LABEL, "first"):
            access.revoke_token(system.store, USER, token.id)
    token_bytes = secrets.token_bytes(access.TOKEN_BYTES)
    made = access.add_token(
        system.store, USER, label=TOKEN_LABEL, token_bytes=token_bytes, secret_key=key, now_ms=now_ms
    )
    return made.secret
