"""What DynamoDB's time to live deletes, and when: things that are over, long after a purge should have deleted them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from paceline.adapters.aws.client.connect import Clients
from paceline.adapters.aws.client.expiry import MARGIN_MS, Retention
from paceline.adapters.aws.client.items import Item, decode_item
from paceline.adapters.aws.client.tables import EXPIRES, LEDGER, RUNS, TABLES
from paceline.adapters.aws.monitors.claim_memory import KEPT_S, _write
from paceline.adapters.aws.store import AwsStore
from paceline.config import Settings
from paceline.core.alerts.record import decode_record
from paceline.core.alerts.silence import FOR_MS_MAX, Silence
from paceline.core.batches.batch import BatchSpec, RecordSpec
from paceline.core.batches.deletion import GRACE_MS
from paceline.core.batches.values import DeadChoice
from paceline.core.jobs.values import Admitted
from paceline.core.monitors.due import CatchUp
from paceline.core.monitors.leases import TERMINAL
from paceline.core.monitors.outcome import Done
from paceline.core.monitors.uptime.figures import WINDOWS_DAYS, figures
from paceline.core.monitors.values import RemoveMonitor
from paceline.core.verify.facts import CallFact
from paceline.steps.alerts.silences import KEPT_MS, add_silence
from paceline.steps.monitors.tick import tick
from paceline.steps.sessions import SESSION_BYTES, SESSION_MS, begin_session
from paceline.steps.upkeep.clock import note_time
from paceline.wiring import open_system
from tests.aws.support.ministack import Emulator
from tests.contract.support import alert_stage, batch_stage, call_stage, job_stage
from tests.contract.support.stage import (
    DAY_MS,
    MINUTE_MS,
    OUTGOING,
    T0_MS,
    arm_all,
    armed,
    claim,
    make_runs,
    settle,
    token,
    user,
)

pytestmark = pytest.mark.aws

TABLE_NAMES = [table.name for table in TABLES]
KEEP = Retention(runs_ms=3 * DAY_MS, dead_ms=30 * DAY_MS, alerts_ms=20 * DAY_MS)
CALL_ENDED = {"done", "failed", "skipped", "unknown"}
STAYING = {
    RUNS: {
        "m lane": "goes with its monitor and the last of its runs",
        "uptime -": "goes with its monitor",
        "q lane": "goes with its provider",
        "d N": "each run once: it must outlive the run, and only a purge sees that the run is gone",
        "aside": "goes when the run comes back",
    },
    LEDGER: {
        **dict.fromkeys(
            ("job -", "job N", "jobs N", "numbered N", "once -", "posting hold", "posting close", "credits -"),
            "a ledger: it adds up only if the sums are written in the transaction that deletes the lines",
        ),
        **dict.fromkeys(
            ("account -", "account key", "account vault", "accounts", "secret -", "item channel"), "until it is removed"
        ),
        **dict.fromkeys(("account slot", "account until"), "goes when the slot or the credits come back"),
        **dict.fromkeys(
            ("turn", "line -", "duty -", "number -", "changes -", "item clock"), "one that is written again"
        ),
    },
}
"""Kinds of items without a time to live, and why. A kind that is not here must have one."""


@pytest.fixture
def keeping(aws_store: AwsStore) -> AwsStore:
    """Has other retentions than the defaults, so that each can be told from the others."""
    aws_store._database.retention = KEEP
    aws_store.alarms.sends = False
    aws_store.add_user(user("ann"))
    return aws_store


def with_everything(store: AwsStore) -> None:
    """Runs of a monitor, of a batch and of a job that have ended or wait, and what is there beside them."""
    store.add_token(token("t1", "ann"), tokens_max=10)
    monitor = armed(store, "home")
    make_runs(store, monitor, 2)
    settle(store, claim(store, runs_max=1))
    with_each_end_of_a_batch_run(store)
    key = job_stage.add_account(store)
    job_stage.limit(store, 10**9)
    assert isinstance(job_stage.submit(store, job_stage.submission(1, key="once")), Admitted)
    job_stage.admitted(store, 2, webhook="https://example.org/hook")
    job_stage.done(store, job_stage.send(store, key), spent=10)
    job_stage.send(store, key)
    store.finish_jobs(now_ms=T0_MS, limit=10)
    note_time(store, lambda: T0_MS)
    alert_stage.channel(store)
    alert_stage.add(store, alert_stage.alert())
    begin_session(store, "pl_t1_secret", session_bytes=bytes(SESSION_BYTES), secret_key=bytes(32), now_ms=T0_MS + 1)
    silence = Silence(monitor="home", tag=None, from_ms=T0_MS, until_ms=T0_MS + MINUTE_MS)
    add_silence(store, "ann", silence, chance_id="00ff")
    _write(store._database, "ann", {"1": "no place"}, now_ms=T0_MS)


def with_each_end_of_a_batch_run(store: AwsStore) -> None:
    """Runs that are done, failed, discarded, redriven, unwanted, skipped by the plan, or aside."""
    number = call_stage.provide(store, "a", max_in_flight=9)
    batch = call_stage.make_batch(store)
    day = call_stage.plan(store, batch, call_stage.every(10, 6))
    first, *failed = call_stage.claim(store, T0_MS + 30)
    call_stage.settle(store, first, now_ms=T0_MS + 30)
    for call in failed:
        call_stage.settle(store, call, "failed", now_ms=T0_MS + 30)
    _, discarded, redriven = (call_stage.run_of(store, call.record).handle for call in failed)
    assert store.discard(DeadChoice(handles=(discarded,)), limit=9) == 1
    assert store.redrive(DeadChoice(handles=(redriven,)), gap_ms=1, now_ms=T0_MS + 40, limit=9) == 1
    assert store.remove_record(batch, "r4")
    store.put_batch("daily", BatchSpec(paused=True), expected_revision=None, now_ms=T0_MS)
    call_stage.claim(store, T0_MS + MINUTE_MS)
    store.put_records(batch, [RecordSpec("late", "a", "/late")], now_ms=T0_MS)
    late = max(store.record_numbers(batch))
    skipped = batch_stage.placements((late, number, T0_MS + 500))
    assert store.plan_page(day, call_stage.NONE, cursor=(number, late), skipped=skipped, now_ms=T0_MS).skipped == 1


def rows(clients: Clients, prefix: str, table: str) -> list[Item]:
    answer = clients.dynamodb.scan(TableName=f"{prefix}-{table}")
    assert "LastEvaluatedKey" not in answer
    return [decode_item(row) for row in answer["Items"]]


def kind_of(item: Item) -> str:
    """Begins as the key does; then what tells kinds of one partition apart."""
    head, _, rest = item["pk"].partition("#")
    match head, item["sk"]:
        case "item", _:
            return f"item {rest}"
        case "account", sk:
            return f"account {sk.partition('#')[0]}"
        case "posting", sk:
            return f"posting {sk.partition('#')[2]}"
        case _, sk if sk in ("-", "lane"):
            return f"{head} {sk}"
        case _, sk if sk.isdigit():
            return f"{head} N"
        case _:
            return str(head)


def run_expires_s(item: Item) -> int | None:
    return (item["ended_ms"] + KEEP.runs_ms + MARGIN_MS) // 1_000 if item["state"] in TERMINAL else None


def call_expires_s(item: Item) -> int | None:
    keep_ms = KEEP.dead_ms if item.get("dead") else KEEP.runs_ms
    return -(-(item["ended_ms"] + keep_ms + MARGIN_MS) // 1_000) if item["state"] in CALL_ENDED else None


def alert_expires_s(item: Item) -> int | None:
    over = decode_record(item["record"]).next_ms is None
    return (T0_MS + KEEP.alerts_ms + MARGIN_MS) // 1_000 if over else None


EXPIRING: dict[str, dict[str, Callable[[Item], int | None]]] = {
    RUNS: {"m N": run_expires_s, "q N": call_expires_s, "places -": lambda _: T0_MS // 1_000 + KEPT_S},
    LEDGER: {
        "alert -": alert_expires_s,
        "alerts": lambda _: (T0_MS + FOR_MS_MAX + KEEP.alerts_ms + MARGIN_MS) // 1_000,
        "item session": lambda _: (T0_MS + SESSION_MS) // 1_000 + 1,
        "item silence": lambda _: (T0_MS + MINUTE_MS + KEPT_MS) // 1_000,
    },
}
"""By kind, the time to live that an item has; None: it has none yet."""


def test_each_kind_of_item_has_the_time_to_live_that_was_decided_for_it(
    keeping: AwsStore, clients: Clients, prefix: str
) -> None:
    with_everything(keeping)
    for table in TABLES:
        items = rows(clients, prefix, table.name)
        assert items, table.name
        if not table.expiring:
            assert not [item for item in items if EXPIRES in item], f"{table.name} has no time to live"
            continue
        for item in items:
            kind = kind_of(item)
            expires_s = EXPIRING[table.name].get(kind)
            assert expires_s or kind in STAYING[table.name], f"decide on the time to live of {kind!r} in {table.name}"
            assert item.get(EXPIRES) == (expires_s(item) if expires_s else None), item
        assert EXPIRING[table.name].keys() <= {kind_of(item) for item in items}


def test_each_end_of_a_batch_run_is_in_the_scene(keeping: AwsStore, clients: Clients, prefix: str) -> None:
    with_each_end_of_a_batch_run(keeping)
    calls = [item for item in rows(clients, prefix, RUNS) if kind_of(item) == "q N"]
    found = sorted((item["state"], bool(item.get("dead"))) for item in calls)
    assert found == [
        *[("aside", False)] * 2, ("done", False), ("failed", False), ("failed", True), *[("skipped", False)] * 2
    ]  # fmt: skip


def test_monitor_run_gets_its_time_to_live_however_it_ends(keeping: AwsStore, clients: Clients, prefix: str) -> None:
    armed(keeping, "queues", overlap="queue")
    catch_up = CatchUp(waiting_max=1)
    for minute in range(4):
        tick(keeping, now_ms=T0_MS + minute * MINUTE_MS, catch_up=catch_up)
    make_runs(keeping, armed(keeping, "fails"))
    make_runs(keeping, armed(keeping, "unclaimed", check=OUTGOING))
    failing = [one for one in claim(keeping) if one.monitor == "fails"]
    settle(keeping, failing, Done(ok=False, reason="answered 500"))
    now_ms = T0_MS + DAY_MS
    keeping.purge(settled_before_ms=0, due_before_ms=T0_MS + 1, now_ms=now_ms, limit=100)
    runs = [item for item in rows(clients, prefix, RUNS) if kind_of(item) == "m N"]
    ended = [item for item in runs if item["state"] in TERMINAL]
    assert {item["reason"].partition(":")[0] for item in ended} == {"superseded", "answered 500", "expired"}
    assert len(runs) > len(ended)
    assert [item.get(EXPIRES) for item in runs] == [run_expires_s(item) for item in runs]


def test_alert_gets_its_time_to_live_when_it_is_over(keeping: AwsStore, clients: Clients, prefix: str) -> None:
    alert_stage.add(keeping, alert_stage.alert())

    def stored() -> Item:
        (found,) = (item for item in rows(clients, prefix, LEDGER) if kind_of(item) == "alert -")
        return found

    assert EXPIRES not in stored()
    assert alert_stage.begin(keeping) == []  # nobody has a channel for it
    assert stored()[EXPIRES] == alert_expires_s(stored()) is not None


def test_default_retention_is_that_of_the_settings(aws: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in aws.environment.items():
        monkeypatch.setenv(name, value)

    def retention_of(**chosen: Any) -> Retention:
        store = open_system(Settings(store="aws://?prefix=x", **chosen)).store
        assert isinstance(store, AwsStore)
        with closing(store):
            return store._database.retention

    assert retention_of() == Retention()
    assert retention_of(runs_keep="3d", dead_keep="30d", alerts_keep="20d") == KEEP


# -- where nobody purges


class At:
    """A clock that stands."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms

    def now_ms(self) -> int:
        return self._now_ms


def let_expire(clients: Clients, prefix: str, *, now_ms: int) -> Iterator[str]:
    """Does what DynamoDB does, and yields the kinds of items that are gone."""
    for table in TABLE_NAMES:
        for item in rows(clients, prefix, table):
            if item.get(EXPIRES, now_ms) <= now_ms // 1_000:
                key = {"pk": {"S": item["pk"]}, "sk": {"S": item["sk"]}}
                clients.dynamodb.delete_item(TableName=f"{prefix}-{table}", Key=key)
                yield kind_of(item)


LATER_MS = T0_MS + DAY_MS + KEEP.runs_ms + MARGIN_MS + 1_000


@pytest.fixture
def later(keeping: AwsStore, clients: Clients, prefix: str) -> Iterator[AwsStore]:
    """A store long after a monitor was removed, and a batch has ended with one dead letter; nobody has purged."""
    monitor = armed(keeping, "home")
    make_runs(keeping, monitor)
    settle(keeping, claim(keeping))
    keeping.remove_monitors([RemoveMonitor("ann", "home")])
    arm_all(keeping, T0_MS)
    call_stage.provide(keeping, "a", max_in_flight=9)
    call_stage.plan(keeping, call_stage.make_batch(keeping), call_stage.every(10, 4))
    done, dead, *_ = call_stage.claim(keeping, T0_MS + 30)
    assert call_stage.settle(keeping, done, now_ms=T0_MS + 30)
    assert call_stage.settle(keeping, dead, "failed", now_ms=T0_MS + 30)
    with closing(AwsStore(prefix, clients=clients, clock=At(LATER_MS), retention=KEEP)) as store:
        yield store


def test_run_of_a_batch_that_has_expired_is_neither_shown_nor_missed(
    later: AwsStore, clients: Clients, prefix: str
) -> None:
    assert sorted(let_expire(clients, prefix, now_ms=LATER_MS)) == ["m N", "q N"]
    batch = later.batch("daily")
    assert batch is not None
    day = later.day(batch, call_stage.DATE)
    assert day is not None
    assert sorted((one.state, one.runs) for one in later.day_counts(day)) == [("failed", 1), ("out", 2)]
    assert len(later.day_dues(day)[0]) == 3
    assert later.find_call_run("daily", "r0", call_stage.DATE) is None
    assert later.verify() == []
    assert "" not in [fact.state for fact in later.call_facts() if isinstance(fact, CallFact)]


def test_purge_deletes_what_is_left_of_a_run_that_has_expired(later: AwsStore, clients: Clients, prefix: str) -> None:
    list(let_expire(clients, prefix, now_ms=LATER_MS))
    kept_ms = LATER_MS - KEEP.runs_ms
    later.purge(settled_before_ms=kept_ms, due_before_ms=0, now_ms=LATER_MS, limit=100)
    purged = later.purge_calls(ended_before_ms=kept_ms, dead_before_ms=LATER_MS - KEEP.dead_ms, after=-1, limit=100)
    assert purged.deleted == 2  # one row of the ledger alone, one dead letter that is old enough for a purge
    kinds = sorted(kind_of(item) for item in rows(clients, prefix, RUNS))
    assert kinds == ["d N", "d N", "q N", "q N", "q lane"]


def test_run_that_is_lost_before_it_can_have_expired_is_still_a_finding(
    keeping: AwsStore, clients: Clients, prefix: str, later: AwsStore
) -> None:
    del keeping
    soon_ms = T0_MS + MARGIN_MS
    list(let_expire(clients, prefix, now_ms=LATER_MS))
    with closing(AwsStore(prefix, clients=clients, clock=At(soon_ms), retention=KEEP)) as store:
        assert any("promise 10" in problem for problem in store.verify())
        dead_ms = T0_MS - DAY_MS
        store.purge_calls(ended_before_ms=soon_ms - KEEP.runs_ms, dead_before_ms=dead_ms, after=-1, limit=100)
        assert any("promise 10" in problem for problem in store.verify())
    assert later.verify() == []


def test_batch_whose_runs_have_expired_can_be_deleted(later: AwsStore, clients: Clients, prefix: str) -> None:
    list(let_expire(clients, prefix, now_ms=LATER_MS))
    assert later.mark_batch_deleted("daily", now_ms=LATER_MS) is not None
    for _ in range(10):
        batch = later.batch("daily")
        if batch is None:
            break
        later.delete_batch_pass(batch, now_ms=LATER_MS + GRACE_MS + 1_000, limit=100)
    assert later.batch("daily") is None
    assert [kind_of(item) for item in rows(clients, prefix, RUNS) if item["pk"].startswith("d#")] == []


def test_outcome_that_expires_before_it_was_folded_is_in_no_window_of_uptime(
    keeping: AwsStore, clients: Clients, prefix: str
) -> None:
    monitor = armed(keeping, "home")
    make_runs(keeping, monitor)
    settle(keeping, claim(keeping))
    now_ms = T0_MS + KEEP.runs_ms + MARGIN_MS + 1_000
    before = figures(keeping.uptimes([monitor], now_ms=now_ms)[0], now_ms=now_ms)
    assert list(let_expire(clients, prefix, now_ms=now_ms)) == ["m N"]
    after = figures(keeping.uptimes([monitor], now_ms=now_ms)[0], now_ms=now_ms)
    assert before.shares == after.shares == (None,) * len(WINDOWS_DAYS)
    assert keeping.verify() == []
