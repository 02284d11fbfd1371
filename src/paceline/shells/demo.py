"""``paceline up --demo``: a user, monitors of every kind, a batch at two model providers, and a job of measurements.

The providers and the RIPE Atlas simulator live in the demo's own process: nothing leaves this machine.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from datetime import timedelta
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import msgspec

from paceline.config import Settings
from paceline.core.batches.batch import RecordSpec, day_at
from paceline.core.jobs.values import AccountSpec, Ending, HeldState
from paceline.errors import AlreadyExists, OverDailyCredits
from paceline.simulators.ripe_atlas import AtlasSimulator, SimulatorModel
from paceline.steps import access
from paceline.steps.batches.batches import get_batch, put_batch, put_records
from paceline.steps.batches.plan import plan_day
from paceline.steps.batches.providers import put_provider
from paceline.steps.jobs.accounts import add_key, put_account_spec, set_key_enabled
from paceline.steps.jobs.submit import submit_job
from paceline.steps.monitors import define
from paceline.wiring import System

USER = "demo"
TOKEN_LABEL = "made by up --demo"  # noqa: S105  # a label, not a token
LOOPBACK = "127.0.0.0/8"
BATCH = "demo"
RECORDS = 300
WINDOW = "20m"
"""Window of the batch. A plan that begins late spreads over at least a quarter of it: about one run a second."""
DATES_MAX = 60
ACCOUNTS = ("demo-1", "demo-2")
KEYS_EACH = 2
ATLAS_EVERY = "2s"
ATLAS_SETTLE = "5s"
LEFT_BEHIND_MAX = 1_000


class Demo(NamedTuple):
    """Names and addresses that the welcome text shows."""

    user: str
    token: str
    model_url: str
    atlas_url: str
    job: str


def demo_atlas(*, now_ms: int) -> AtlasSimulator:
    """Starts a RIPE Atlas simulator that takes seconds where the real one takes minutes.

    Its clock is right, so that a ``stop_time`` means what it says. Its ids continue from start to start: the store
    remembers the earlier ones, and no two measurements may have the same id.
    """
    simulator = AtlasSimulator(
        SimulatorModel(
            first_id=now_ms // 100,
            index_lag_ms=500,
            schedule_after_ms=300,
            start_after_ms=800,
            one_off_ms=4_500,
            result_after_ms=500,
            result_before_ms=3_500,
        )
    )
    for name in ACCOUNTS:
        simulator.add_account(name, keys=KEYS_EACH, http_allowed=True)
    return simulator


def demo_settings(settings: Settings, *, atlas_url: str) -> Settings:
    """Returns settings that allow checks of this machine, where the model server runs, with the simulator as RIPE."""
    allowed = ",".join(filter(None, [settings.outbound_allow, LOOPBACK]))
    return settings.model_copy(
        update={
            "outbound_allow": allowed,
            "atlas_url": atlas_url,
            "atlas_every": ATLAS_EVERY,
            "atlas_settle": ATLAS_SETTLE,
        }
    )


def prepare_demo(system: System, *, model_url: str, atlas: AtlasSimulator, started_ms: int) -> Demo:
    """Prepares the store for this start.

    Repeated starts leave one user, one set of monitors and one batch, aimed at the newest server. Each start submits a
    job of its own, because a job is small.
    """
    token = _fresh_token(system)
    _put_monitors(system, model_url)
    _put_batch(system, model_url)
    _end_left_behind(system, started_ms=started_ms)
    _put_accounts(system, atlas)
    return Demo(USER, token, model_url, atlas.base_url, _submit_job(system))


def end_demo(system: System) -> None:
    """Disables the simulator's keys: the next process on this store must not try them at RIPE."""
    for account in ACCOUNTS:
        for key in system.store.keys(account):
            set_key_enabled(system.store, account, key.id, enabled=False)


def demo_monitors(model_url: str) -> dict[str, dict[str, Any]]:
    """Returns a monitor of every kind that works without the Internet."""
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
    """Returns a provider that always answers well, and one that often fails."""
    return {
        "steady": {"base_url": model_url, "headers": {"X-Key": secrets.token_hex(8)}, "timeout": "5s"},
        "moody": {"base_url": model_url, "timeout": "5s", "retry": {"max_attempts": 4, "base": "200ms", "cap": "2s"}},
    }


def demo_records() -> list[RecordSpec]:
    """Returns the records of the batch. The provider refuses every 50th of them, which becomes a dead letter."""
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


def demo_job() -> dict[str, Any]:
    """Returns a job with a measurement of every type."""
    definitions: list[dict[str, Any]] = [
        {"type": "ping", "af": 4, "target": "192.0.2.1"},
        {"type": "ping", "af": 6, "target": "2001:db8::1", "packets": 5},
        {"type": "ping", "af": 4, "target": "www.example.org", "size": 512},
        {"type": "traceroute", "af": 4, "target": "192.0.2.1", "protocol": "ICMP"},
        {"type": "traceroute", "af": 6, "target": "2001:db8::1", "protocol": "UDP"},
        {"type": "traceroute", "af": 4, "target": "www.example.org", "protocol": "TCP", "port": 443},
        {"type": "dns", "af": 4, "query_class": "IN", "query_type": "AAAA", "query_argument": "www.example.org"},
        {"type": "dns", "af": 4, "query_class": "IN", "query_type": "SOA", "query_argument": "example.org"},
        {"type": "sslcert", "af": 4, "target": "www.example.org"},
        {"type": "ntp", "af": 4, "target": "ntp.example.net"},
        {"type": "http", "af": 4, "target": "www.example.org", "path": "/"},
        {"type": "ntp", "af": 6, "target": "ntp.example.net", "packets": 4},
    ]
    definitions[6] |= {"use_probe_resolver": True}
    definitions[7] |= {"target": "192.0.2.53"}
    measurements = [
        {
            "definitions": [one | {"description": f"demo {one['type']}"}],
            "probes": [{"requested": 5 + number, "type": "area", "value": "WW"}],
            "is_oneoff": True,
        }
        for number, one in enumerate(definitions)
    ]
    return {"title": "a demo of every type", "measurements": measurements}


def _end_left_behind(system: System, *, started_ms: int) -> None:
    """Ends measurements of an earlier start: its simulator has stopped, so they can never finish."""
    store, now_ms = system.store, system.clock.now_ms()
    store.lose_sends(intent_before_ms=started_ms, look_ms=now_ms)
    states: tuple[HeldState, ...] = ("ongoing", "done", "failed", "cancelled")
    for state in states:
        held = store.holding(state, after=0, limit=LEFT_BEHIND_MAX)
        left = [one for one in held if one.account in ACCOUNTS and (one.answered_ms or 0) < started_ms]
        if state == "ongoing":
            why = "the simulator that it ran on was stopped"
            endings = [Ending(one.handle, one.attempt, "failed", why, 0, 0, frees_slot=True) for one in left]
            store.end(endings, now_ms=now_ms)
        else:
            store.free_slots([(one.handle, one.attempt) for one in left], now_ms=now_ms)


def _put_accounts(system: System, atlas: AtlasSimulator) -> None:
    """Puts the accounts, with the same names and keys at each start, so that older jobs find their account."""
    store, now_ms = system.store, system.clock.now_ms()
    for name in ACCOUNTS:
        put_account_spec(store, name, AccountSpec())
        secrets_ = [key.uuid for key in atlas.world.registry.keys.values() if key.account == name]
        for number, secret in enumerate(secrets_, start=1):
            with suppress(AlreadyExists):  # an earlier start added it
                add_key(store, system.vault, name, secret, label=f"demo key {number}", now_ms=now_ms)
        for key in store.keys(name):
            set_key_enabled(store, name, key.id, enabled=True)


def _submit_job(system: System) -> str:
    """Submits the demo's job. Returns its id, or the newest job's id if the credits of the day are used up."""
    body = msgspec.json.encode(demo_job())
    try:
        done = submit_job(system.store, USER, body, limits=system.job_limits, now_ms=system.clock.now_ms())
    except OverDailyCredits:
        return next((job.id for job in system.store.jobs(USER, before=None, limit=1)), "")
    return done.job.id


def _put_batch(system: System, model_url: str) -> None:
    """Puts the providers, the batch and its records; plans the newest unplanned day, so that each start has runs."""
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
    results, _ = define.put_monitors_and_entries(
        system.store, puts, monitors_max=monitors_max, now_ms=system.clock.now_ms()
    )
    for put, result in zip(puts, results, strict=True):
        if error := define.put_error(result, put, monitors_max=monitors_max):
            raise error


def _fresh_token(system: System) -> str:
    """Returns a token for this start, and revokes those of earlier starts."""
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
