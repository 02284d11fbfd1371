"""Fast paths in SQL, compared with the functions of core that they stand for, on random facts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paceline.adapters.sqlite.batches.claim_reads import ReadyProvider, ready_providers
from paceline.adapters.sqlite.batches.claims import _Claiming
from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.batches.batch import Batch, BatchSpec, RecordSpec
from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.pace import FirstRun, decide_starts
from paceline.core.batches.provider import ProviderSpec, policy_of
from paceline.core.batches.put import put_record, wanted_state
from paceline.core.batches.run_keys import NEVER_MS, due_ms_of, queue_key, run_key
from paceline.core.batches.settle import Held, counts, first_ready_ms, pulled_back, released
from paceline.core.batches.unwanted import RunFacts, judge_run
from paceline.core.batches.values import PutProvider
from paceline.core.ids import stable_fraction

T0_MS = 1_790_000_000_000
DAY_MS = 86_400_000
FAST = settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)


class Queued(NamedTuple):
    """A row of the queue, as a test draws it; times are offsets from T0."""

    due: int
    state: Literal["waiting", "out", "retry"]
    at: int
    attempt: int
    lost: int
    started: int


offsets = st.integers(-3_000, 3_000)
rows = st.builds(
    Queued,
    offsets,
    st.sampled_from(["waiting", "out", "retry"]),
    offsets,
    st.integers(1, 3),
    st.integers(0, 1),
    offsets,
)
queues = st.lists(rows, max_size=6, unique_by=lambda row: row.due)


@pytest.fixture
def store() -> Iterator[SqliteStore]:
    opened = SqliteStore(":memory:")
    yield opened
    opened.close()


def provide(store: SqliteStore, *, places: int = 1) -> None:
    spec = ProviderSpec("https://a.test", max_in_flight=places)
    store.put_provider(PutProvider("a", spec), now_ms=T0_MS)


def make_batch(store: SqliteStore, spec: BatchSpec) -> Batch:
    batch = store.put_batch("daily", spec, expected_revision=None, now_ms=T0_MS).batch
    assert batch is not None
    store.open_day(batch, "2026-11-15", start_ms=T0_MS - DAY_MS // 2, end_ms=T0_MS + DAY_MS // 2)
    store.put_records(batch, [RecordSpec(f"r{index}", "a", "/") for index in range(6)], now_ms=T0_MS)
    return batch


def fill(store: SqliteStore, queue: list[Queued]) -> None:
    """Puts exactly these runs into the provider's queue."""
    with store._db.write() as db:
        for table in ("queue", "planned", "result", "aside"):
            db.execute(f"DELETE FROM {table}")  # noqa: S608  fixed names
        db.execute("UPDATE pace SET ready_ms = 0, closed_until_ms = 0, paced_ms = 0, failures = 0")
        for index, row in enumerate(sorted(queue), start=1):
            waits = row.state == "waiting"
            facts = (0, 0, 0, None) if waits else (T0_MS + row.at, row.attempt, row.lost, T0_MS + row.started)
            k, run = queue_key(1, T0_MS + row.due), run_key(1, index)
            db.execute(
                """INSERT INTO queue (k, run, state, at_ms, attempt, lost, started_ms) VALUES (?, ?, ?, ?, ?, ?, ?)""",
                (k, run, row.state, *facts),
            )
            db.execute("INSERT INTO planned (k, run) VALUES (?, ?)", (k, run))


def held_by_key(store: SqliteStore) -> dict[int, Held]:
    with store._db.read() as db:
        found = db.execute("SELECT k, run, state, at_ms, attempt, lost, started_ms FROM queue WHERE state <> 'waiting'")
        return {row[0]: Held._make(row[1:]) for row in found}


def first_due_ms(store: SqliteStore) -> int:
    with store._db.read() as db:
        k = db.execute("SELECT min(k) FROM queue WHERE state = 'waiting'").get
    return NEVER_MS if k is None else due_ms_of(k)


def ready_ms(store: SqliteStore) -> int:
    with store._db.read() as db:
        return int(db.execute("SELECT ready_ms FROM pace").get)


@FAST
@given(queue=queues, closed=offsets, places=st.integers(1, 3), ended=offsets)
def test_ready_time_after_a_plain_settlement_equals_that_of_core(
    store: SqliteStore, queue: list[Queued], closed: int, places: int, ended: int
) -> None:
    provide(store, places=places)
    make_batch(store, BatchSpec())
    fill(store, [*queue, Queued(5_000, "out", 9_000, 1, 0, 0)])
    with store._db.write() as db:
        db.execute("UPDATE pace SET closed_until_ms = ?", (T0_MS + closed,))
    settled = CallSettlement(queue_key(1, T0_MS + 5_000), 1, "done", T0_MS, T0_MS + ended, verdict="good")
    assert store.settle_calls([settled]) == [True]
    held_at_ms = [held.at_ms for held in held_by_key(store).values()]
    assert ready_ms(store) == first_ready_ms(
        first_due_ms(store), held_at_ms, closed_until_ms=T0_MS + closed, now_ms=T0_MS + ended
    )


@FAST
@given(queue=queues, attempt=st.integers(1, 3), ended=offsets)
def test_settlement_counts_exactly_where_core_accepts_it(
    store: SqliteStore, queue: list[Queued], attempt: int, ended: int
) -> None:
    provide(store, places=3)
    make_batch(store, BatchSpec())
    fill(store, queue)
    held = held_by_key(store)
    keys = [queue_key(1, T0_MS + row.due) for row in queue]
    items = [CallSettlement(k, attempt, "done", T0_MS, T0_MS + ended, verdict="good") for k in keys]
    assert store.settle_calls(items) == [counts(held.get(item.handle), item) for item in items]


@FAST
@given(queue=queues)
def test_released_runs_are_changed_as_core_decides(store: SqliteStore, queue: list[Queued]) -> None:
    provide(store, places=3)
    make_batch(store, BatchSpec())
    fill(store, queue)
    out = {k: held for k, held in held_by_key(store).items() if held.state == "out"}
    assert all(store.release_calls([(k, held.attempt) for k, held in out.items()], now_ms=T0_MS))
    after = held_by_key(store)
    for k, held in out.items():
        assert after.get(k) == released(held, now_ms=T0_MS)


@FAST
@given(queue=queues, now=offsets, wait_ms_max=st.integers(0, 3_000))
def test_pulled_back_runs_are_changed_as_core_decides(
    store: SqliteStore, queue: list[Queued], now: int, wait_ms_max: int
) -> None:
    provide(store, places=3)
    make_batch(store, BatchSpec())
    fill(store, queue)
    before, now_ms = held_by_key(store), T0_MS + now
    store.pull_back_calls(lambda: now_ms, wait_ms_max=wait_ms_max)
    assert held_by_key(store) == {
        k: pulled_back(held, now_ms=now_ms, wait_ms_max=wait_ms_max) for k, held in before.items()
    }


@FAST
@given(
    due=offsets,
    missed=st.sampled_from(["once", "skip"]),
    paused=st.booleans(),
    active=st.booleans(),
    closed=offsets,
    places=st.integers(1, 2),
)
def test_first_run_starts_at_once_only_where_core_starts_it(
    store: SqliteStore,
    due: int,
    missed: Literal["once", "skip"],
    closed: int,
    places: int,
    *,
    paused: bool,
    active: bool,
) -> None:
    provide(store, places=places)
    batch = make_batch(store, BatchSpec(missed=missed))
    fill(store, [Queued(due, "waiting", 0, 1, 0, 0)])
    store.put_records(batch, [RecordSpec("r0", "a", "/", active=active)], now_ms=T0_MS)
    store.put_batch("daily", BatchSpec(missed=missed, paused=paused), expected_revision=None, now_ms=T0_MS)
    with store._db.write() as db:
        db.execute("UPDATE pace SET closed_until_ms = ?", (T0_MS + closed,))
        (row,) = ready_providers(db, now_ms=T0_MS, limit=10).fetchall()
        claiming = _Claiming(db, store._policies, now_ms=T0_MS, lease_ms=1)
        started = claiming.start_head(row)
        day = claiming._days[1]
    ready = ReadyProvider._make(row)
    facts = RunFacts("waiting", T0_MS + due, T0_MS + due, 0, 0, 1, 1 if active else None)
    head = FirstRun(queue_key(1, T0_MS + due), "waiting", T0_MS + due, T0_MS + due)
    policy = policy_of(ProviderSpec("https://a.test", max_in_flight=places))
    decided = decide_starts(
        policy, ready.pace, [head], now_ms=T0_MS, runs_max=1, backlog=None, phase=stable_fraction("a")
    )
    if started:
        assert judge_run(facts, day, now_ms=T0_MS) is None
        assert decided.starts == [head]
        assert decided.pace == ready.pace


names = st.lists(st.sampled_from("abcdef"), max_size=6)


@FAST
@given(before=names, after=names, active=st.booleans())
def test_put_of_a_page_of_records_equals_cores_decision_for_each_record(
    store: SqliteStore, before: list[str], after: list[str], *, active: bool
) -> None:
    provide(store)
    batch = make_batch(store, BatchSpec())
    with store._db.write() as db:
        db.execute("DELETE FROM record")
        db.execute("DELETE FROM newcomer")
    store.put_records(batch, [RecordSpec(name, "a", "/") for name in before], now_ms=T0_MS + DAY_MS)  # no day is on
    states = {name: wanted_state(RecordSpec(name, "a", "/"), number=0, provider=1) for name in before}
    late: set[str] = set()
    expected = []
    for name in after:
        state = wanted_state(RecordSpec(name, "a", "/", active=active), number=0, provider=1)
        change = put_record(states.get(name), state)
        states[name] = state
        expected.append(change.disposition)
        if change.late == "comes":
            late.add(name)
        elif change.late == "goes":
            late.discard(name)
    records = [RecordSpec(name, "a", "/", active=active) for name in after]
    assert store.put_records(batch, records, now_ms=T0_MS) == expected
    numbers = [newcomer.record for newcomer in store.late_records(batch, limit=10)]
    assert set(store.record_names(numbers).values()) == late
