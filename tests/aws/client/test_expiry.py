"""Items with a time to live: only those that simply expire, never one that is still counted."""

from __future__ import annotations

from typing import Any

import pytest

from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.client.tables import EXPIRES, TABLES
from paceline.adapters.aws.monitors.claim_memory import KEPT_S, _write
from paceline.adapters.aws.store import AwsStore
from paceline.core.alerts.silence import Silence
from paceline.steps.alerts.silences import add_silence
from paceline.steps.sessions import SESSION_BYTES, SESSION_MS, begin_session
from paceline.steps.upkeep.clock import note_time
from tests.contract.support import call_stage, job_stage
from tests.contract.support.stage import T0_MS, armed, claim, make_runs, settle, token, user

pytestmark = pytest.mark.aws


def with_everything(store: AwsStore) -> None:
    """A run of a monitor, of a batch and of a job that have ended, and what is there beside them."""
    store.add_user(user("ann"))
    store.add_token(token("t1", "ann"), tokens_max=10)
    monitor = armed(store, "home")
    make_runs(store, monitor, 2)
    (taken,) = claim(store, runs_max=1)
    settle(store, [taken])
    call_stage.provide(store, "a")
    call_stage.plan(store, call_stage.make_batch(store), call_stage.every(1_000, 2))
    call_stage.settle(store, call_stage.claim(store)[0])
    key = job_stage.add_account(store)
    job_stage.admitted(store, 2)
    job_stage.done(store, job_stage.send(store, key), spent=10)
    note_time(store, lambda: T0_MS)


def expiring(clients: Clients, prefix: str) -> dict[str, int]:
    """Key and time of each item that expires."""
    found: dict[str, int] = {}
    for table in TABLES:
        rows: list[dict[str, Any]] = clients.dynamodb.scan(TableName=f"{prefix}-{table.name}")["Items"]
        assert rows, table.name
        marked = [row for row in rows if EXPIRES in row]
        assert table.expiring or not marked, f"{table.name} has no time to live"
        found |= {row["pk"]["S"]: int(row[EXPIRES]["N"]) for row in marked}
    return found


def test_only_sessions_silences_and_wait_reasons_have_a_time_to_live(
    aws_store: AwsStore, clients: Clients, prefix: str
) -> None:
    with_everything(aws_store)
    assert expiring(clients, prefix) == {}
    begin_session(aws_store, "pl_t1_secret", session_bytes=bytes(SESSION_BYTES), secret_key=bytes(32), now_ms=T0_MS + 1)
    silence = Silence(monitor="home", tag=None, from_ms=T0_MS, until_ms=T0_MS + 60_000)
    add_silence(aws_store, "ann", silence, chance_id="00ff")
    _write(aws_store._database, "ann", {"1": "no place"}, now_ms=T0_MS)
    found = expiring(clients, prefix)
    assert set(found) == {"item#session", "item#silence", "places#ann"}
    # Rounded up to a second: an item is never deleted before its time.
    assert found["item#session"] == (T0_MS + SESSION_MS) // 1_000 + 1
    assert found["item#silence"] >= silence.until_ms // 1_000
    assert found["places#ann"] == T0_MS // 1_000 + KEPT_S
