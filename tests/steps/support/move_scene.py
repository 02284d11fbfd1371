"""A store with something of everything, and what of it must be the same after a move."""

from __future__ import annotations

from typing import Any

from paceline.adapters.vault import SecretVault
from paceline.core.batches.batch import RecordSpec
from paceline.core.batches.records.expect import ExpectSpec
from paceline.core.batches.records.options import RecordOptions
from paceline.core.jobs.accounts import enable_key, quarantine_key
from paceline.core.jobs.values import AccountSpec, AddKey
from paceline.core.users import UserEdit
from paceline.ports import Store
from paceline.steps.access import add_token, add_user
from paceline.steps.batches.headers import seal_headers
from paceline.steps.move.move_in import Imported, import_lines
from paceline.steps.move.move_out import Exported, export
from tests.contract.support import batch_stage, call_stage, job_stage
from tests.contract.support.batch_stage import DATE, put_provider, put_records
from tests.contract.support.stage import user
from tests.steps.support.scene import DAY_MS, HOUR_MS, MINUTE_MS, OUTGOING, T0_MS, put, run_tick, send_all

SECRET_KEY = b"the installation's own secret..."
VAULT = SecretVault(SECRET_KEY)
NOW_MS = T0_MS + 10 * MINUTE_MS
NOON_MS = 1_790_035_200_000 + DAY_MS // 2
"""Noon of the day that ``with_batch`` plans."""
RECORDS = {f"r{number:02}": "ab"[number % 2] for number in range(12)}


def with_users_and_monitors(store: Store) -> str:
    """Three users; monitors that fired, rest, wait, or never fired. Gives a token's secret."""
    store.add_user(user("ann"))
    store.add_user(user("bob"))
    store.edit_user("bob", UserEdit(disabled=True, daily_credits=77))
    root, token = add_user(
        store, "root", role="admin", daily_credits=5, token_bytes=b"r" * 32, secret_key=SECRET_KEY, now_ms=T0_MS
    )
    add_token(store, root.id, label="second", token_bytes=b"s" * 32, secret_key=SECRET_KEY, now_ms=T0_MS + 1)
    put(store, "each-minute", now_ms=T0_MS, tags=["web"], jitter="30s")
    put(store, "daily", now_ms=T0_MS + 5, every=None, cron="0 3 * * *", timezone="Europe/Madrid", missed="once")
    put(store, "own", now_ms=T0_MS + 5, check=OUTGOING, every="7m", initial_delay="3h")
    put(store, "of-bob", owner="bob", now_ms=T0_MS)
    put(store, "resting", now_ms=T0_MS, paused=True)
    for minute in range(1, 11):
        run_tick(store, now_ms=T0_MS + minute * MINUTE_MS)
        send_all(store, now_ms=T0_MS + minute * MINUTE_MS)
    return token.secret


def with_batch(store: Store) -> None:
    """A day of twelve runs, planned, of which the first six had their turn: five are done, one failed."""
    for name in "ab":
        put_provider(store, name, headers={"X-Key": VAULT.seal(f"secret of {name}")}, max_in_flight=2)
    batch = put_records(store, RECORDS)
    headers = seal_headers({"X-Own": "{date}", "X-Plain": "secret of off"}, VAULT)
    own = RecordOptions(
        method="PUT", headers=headers, timeout="5s", expect=ExpectSpec(done=(409, "2xx")), priority=4, after="r01"
    )
    store.put_records(batch, [RecordSpec("off", "a", "/off", '{"a": 1}', False, own)], now_ms=T0_MS)
    batch_stage.plan(store, batch)
    ended = 0
    for minute in range(12 * 60):
        now_ms = NOON_MS - 12 * HOUR_MS + minute * MINUTE_MS
        for call in store.claim_calls(now_ms=now_ms, runs_max=1, lease_ms=MINUTE_MS):
            assert call_stage.settle(store, call, "failed" if ended == 5 else "done", now_ms=now_ms)
            ended += 1
    assert ended == 6


def with_accounts(store: Store) -> None:
    store.put_account("lab", AccountSpec(concurrent=9, daily_results=1_000, daily_credits=5_000))
    for number, secret in enumerate(("first-key", "second-key", "third-key")):
        added = store.add_key(AddKey("lab", VAULT.seal(secret), secret[-4:], f"label {number}"), now_ms=T0_MS).key
        assert added is not None
        if number == 1:
            store.change_key("lab", added.id, enable_key(enabled=False))
        if number == 2:
            store.change_key("lab", added.id, quarantine_key("RIPE says no"))
    store.put_account("off", AccountSpec(enabled=False))


def with_finished_job(store: Store) -> None:
    job_stage.admitted(store, owner="ann")
    (key, *_) = store.keys("lab")
    item = job_stage.send(store, key.id)
    assert job_stage.done(store, item, spent=40).won
    assert len(store.finish_jobs(now_ms=T0_MS, limit=10)) == 1


def take_out(store: Store, *, now_ms: int = NOW_MS) -> tuple[bytes, Exported]:
    parts: list[bytes] = []
    report = export(store, VAULT, parts.append, now_ms=now_ms)
    return b"".join(parts), report


def take_in(store: Store, stream: bytes, *, now_ms: int = NOW_MS) -> Imported:
    return import_lines(store, VAULT, stream.splitlines(), now_ms=now_ms)


def picture(store: Store, *, now_ms: int = NOW_MS) -> dict[str, Any]:
    """All that a user or an operator declared, and when each monitor fires next; without the store's own numbers."""
    users = store.users(after="", limit=100)
    monitors = [one for each in users for one in store.monitors(each.id, after="", limit=100)]
    entries = store.entries([one.generation for one in monitors], now_ms=now_ms)
    return {
        "users": users,
        "tokens": [sorted(store.tokens(each.id), key=lambda one: one.id) for each in users],
        "monitors": [(one.owner, one.id, one.spec, one.created_ms, entries[one.generation].due_ms) for one in monitors],
        "providers": [(one.id, one.spec) for one in store.providers(after="", limit=100)],
        "batches": [(one.id, one.spec, store.find_records(one, after="", limit=100)[0]) for one in all_batches(store)],
        "accounts": [
            (one.id, one.enabled, one.concurrent.limit, one.results.limit, one.credits.limit)
            for one in store.accounts(now_ms=now_ms, releases_until_ms=now_ms)
        ],
        "keys": [
            (key.last_four, key.label, key.enabled, key.quarantine, store.sealed_key(one.id, key.id))
            for one in store.accounts(now_ms=now_ms, releases_until_ms=now_ms)
            for key in sorted(store.keys(one.id), key=lambda key: key.label)
        ],
    }


def all_batches(store: Store) -> Any:
    return store.batches(after="", limit=100)


def open_runs(store: Store) -> list[tuple[int, str]]:
    """Returns the waiting runs of the day that ``with_batch`` plans, in due order."""
    (batch,) = all_batches(store)
    day = store.day(batch, DATE.isoformat())
    assert day is not None
    runs, _ = store.day_runs(day, state="waiting", provider=None, after=0, limit=100)
    return sorted((run.due_ms, run.record) for run in runs)
