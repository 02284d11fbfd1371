from __future__ import annotations

from typing import Any

import pytest

from paceline.core.batches.batch import BatchSpec, RecordSpec, parse_record
from paceline.core.batches.values import CallRun
from paceline.ports import Store
from tests.contract.support.batch_stage import due_runs, plan, put_batch, put_provider, put_records
from tests.contract.support.stage import DAY_MS, HOUR_MS, LEASE_MS, T0_MS


@pytest.fixture(autouse=True)
def providers(store: Store) -> tuple[int, int]:
    return put_provider(store, "a"), put_provider(store, "b")


def test_a_batch_is_created_replaced_or_left_as_it_is(store: Store, other: Store) -> None:
    created = store.put_batch("x", BatchSpec(), expected_revision=0, now_ms=T0_MS)
    replaced = other.put_batch("x", BatchSpec(window="1h"), expected_revision=1, now_ms=T0_MS + 1)
    unchanged = store.put_batch("x", BatchSpec(window="1h"), expected_revision=2, now_ms=T0_MS + 2)
    late = store.put_batch("x", BatchSpec(), expected_revision=1, now_ms=T0_MS + 3)
    results = [created, replaced, unchanged, late]
    assert [result.disposition for result in results] == ["created", "replaced", "unchanged", "revision_mismatch"]
    assert unchanged.batch == late.batch == store.batch("x") == other.batch("x")
    assert unchanged.batch is not None
    assert (unchanged.batch.revision, unchanged.batch.created_ms, unchanged.batch.updated_ms) == (2, T0_MS, T0_MS + 1)


def test_batches_are_listed_in_order_of_their_ids(store: Store) -> None:
    for name in ("y", "z", "x"):
        put_batch(store, name)
    assert [batch.id for batch in store.batches(after="", limit=2)] == ["x", "y"]
    assert [batch.id for batch in store.batches(after="y", limit=2)] == ["z"]


def test_each_record_is_judged_by_itself_and_in_order(store: Store) -> None:
    batch = put_batch(store)
    records = [
        RecordSpec("r", "a"),
        RecordSpec("r", "a"),
        RecordSpec("r", "b"),
        RecordSpec("s", "nobody"),
        RecordSpec("t", "a", "/t", '{"n":1}', active=False),
        RecordSpec("r", "b", body="1"),
    ]
    results = store.put_records(batch, records, now_ms=T0_MS)
    assert results == ["created", "unchanged", "replaced", "no_provider", "created", "replaced"]
    assert store.find_records(batch, after="", limit=10)[0] == [records[5], records[4]]
    assert store.record(batch, "r") == records[5]
    assert store.record(batch, "s") is None
    assert store.put_records(batch, [records[5], records[4]], now_ms=T0_MS) == ["unchanged"] * 2
    assert store.put_records(batch, [], now_ms=T0_MS) == []


def test_record_with_changed_options_is_replaced(store: Store) -> None:
    batch = put_batch(store)
    plain, templated = (
        RecordSpec("r", "a", "/{date}"),
        parse_record(b'{"id": "r", "provider": "a", "endpoint": "/{date}"}'),
    )
    assert templated.options.templated
    assert store.put_records(batch, [plain, templated, templated], now_ms=T0_MS) == ["created", "replaced", "unchanged"]
    assert store.record(batch, "r") == templated
    assert store.find_records(batch, after="", limit=9)[0] == [templated]
    assert store.put_records(batch, [plain], now_ms=T0_MS) == ["replaced"]
    assert store.record(batch, "r") == plain


def test_records_of_two_batches_are_kept_apart(store: Store) -> None:
    put_records(store, {"r": "a"}, batch="x")
    batch = put_records(store, {"s": "a"}, batch="x-1")
    assert [record.id for record in store.find_records(batch, after="", limit=10)[0]] == ["s"]
    assert store.remove_record(batch, "r") is False


def test_records_are_listed_in_order_of_their_ids_in_pages(store: Store) -> None:
    batch = put_records(store, {f"r{number}": "a" for number in (3, 1, 2)})
    assert [record.id for record in store.find_records(batch, after="", limit=2)[0]] == ["r1", "r2"]
    assert [record.id for record in store.find_records(batch, after="r2", limit=2)[0]] == ["r3"]


def test_record_put_after_its_removal_is_created(store: Store) -> None:
    batch = put_records(store, {"r": "a"})
    assert store.remove_record(batch, "r") is True
    assert store.remove_record(batch, "r") is False
    assert store.record(batch, "r") is None
    assert store.find_records(batch, after="", limit=10)[0] == []
    assert store.put_records(batch, [RecordSpec("r", "b")], now_ms=T0_MS) == ["created"]
    assert store.record(batch, "r") == RecordSpec("r", "b")


@pytest.mark.parametrize("beside", [{}, {"early": "b"}])
def test_newcomers_of_one_put_come_in_the_order_of_the_put(store: Store, beside: dict[str, str]) -> None:
    """Holds beside an existing record, too."""
    batch = put_records(store, {"early": "a"})
    store.open_day(batch, "2026-09-22", start_ms=T0_MS, end_ms=T0_MS + DAY_MS)
    names = ["r8", "r11", "b", "z", "a"]
    put_records(store, dict.fromkeys(names, "a") | beside)
    came = [newcomer.record for newcomer in store.late_records(batch, limit=10)]
    found = store.record_names(came)
    assert [found[number] for number in came] == [*beside, *names]


def test_records_are_newcomers_only_while_a_day_is_on(store: Store, providers: tuple[int, int]) -> None:
    batch = put_records(store, {"early": "a", "off": "a"})
    assert store.late_records(batch, limit=10) == [], "no day yet"
    day = store.open_day(batch, "2026-09-22", start_ms=T0_MS, end_ms=T0_MS + DAY_MS)
    asleep = RecordSpec("asleep", "a", active=False)
    records = [RecordSpec("late", "a"), asleep, RecordSpec("off", "a", active=False), RecordSpec("early", "a", "/new")]
    store.put_records(batch, records, now_ms=T0_MS)
    assert [newcomer.provider for newcomer in store.late_records(batch, limit=10)] == [providers[0]]
    comes = [RecordSpec("off", "a"), RecordSpec("early", "b", "/new")]
    store.put_records(batch, comes, now_ms=T0_MS + 1)
    assert len(store.late_records(batch, limit=10)) == 3, "records that became active or changed their provider, too"
    assert len(store.late_records(batch, limit=2)) == 2
    assert len(store.late_order(batch).records) == 3
    store.remove_record(batch, "late")
    store.put_records(batch, [RecordSpec("off", "a", active=False)], now_ms=T0_MS + 2)
    (left,) = store.late_records(batch, limit=10)
    assert store.record_names([left.record]) == {left.record: "early"}
    store.forget_late_records([left.record])
    store.put_records(batch, [RecordSpec("tomorrow", "a")], now_ms=day.end_ms)
    assert store.late_records(batch, limit=10) == [], "the day is over"


def test_runs_held_by_a_paused_batch_come_back_in_their_places(store: Store, other: Store) -> None:
    batch = put_records(store, {f"r{number}": "a" for number in range(6)})
    plan(store, batch)
    before = due_runs(store)
    put_batch(other, paused=True)
    now_ms = before[3][0]
    assert store.claim_calls(now_ms=now_ms, runs_max=10, lease_ms=LEASE_MS) == []
    states = {run.state for run in day_runs(store)}
    assert states == {"aside", "waiting"}
    put_batch(other, paused=False)
    assert due_runs(store) == before
    assert {run.state for run in day_runs(store)} == {"waiting"}
    seen = []
    for turn in range(60):
        for call in store.claim_calls(now_ms=now_ms + turn * HOUR_MS, runs_max=10, lease_ms=40 * DAY_MS):
            seen.append(call.record)
            store.release_calls([(call.handle, call.attempt)], now_ms=now_ms + turn * HOUR_MS)
    assert seen[0] == before[0][1], "the first that was due is the first to go"


def day_runs(store: Store) -> list[CallRun]:
    batch = store.batch("daily")
    assert batch is not None
    day = store.day(batch, "2026-09-22")
    assert day is not None
    return store.day_runs(day, state=None, provider=None, after=0, limit=100)[0]


def test_records_are_found_by_provider_and_by_whether_they_run(store: Store) -> None:
    batch = put_records(store, {f"r{number}": "ab"[number % 2] for number in range(6)})
    store.put_records(batch, [RecordSpec("r0", "a", active=False)], now_ms=T0_MS)
    store.remove_record(batch, "r4")

    def find(limit: int = 9, after: str = "", **which: Any) -> tuple[list[str], str | None]:
        wanted = {"provider": None, "active": None} | which
        found, following = store.find_records(batch, after=after, limit=limit, **wanted)
        return [record.id for record in found], following

    assert find() == (["r0", "r1", "r2", "r3", "r5"], None)
    assert find(provider="a") == (["r0", "r2"], None)
    assert find(provider="a", active=True) == (["r2"], None)
    assert find(active=False) == (["r0"], None)
    assert find(2, provider="b") == (["r1", "r3"], "r3")
    assert find(2, after="r3", provider="b") == (["r5"], None)
    assert find(provider="nobody") == ([], None)
