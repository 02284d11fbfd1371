"""Retention of batches' runs, their counts, and what ``check`` finds."""

from __future__ import annotations

from datetime import UTC, date, datetime
from pathlib import Path

import apsw
import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.batches.batch import Batch, BatchSpec, Day, RecordSpec
from paceline.core.batches.calls import CallSettlement
from paceline.core.batches.provider import ProviderSpec
from paceline.core.batches.values import DeadChoice, PutProvider
from paceline.core.instants import to_ms
from paceline.ports import Store
from paceline.steps.batches.plan import plan_day
from paceline.steps.upkeep.purge import PurgeWalk, purge_calls

DAY_MS = 86_400_000
DATE = date(2026, 11, 15)
FAR_MS = to_ms(datetime(2026, 11, 14, tzinfo=UTC))
END_MS = FAR_MS + 2 * DAY_MS
SPEC = ProviderSpec(base_url="http://example.org", max_in_flight=1_000)


def stage(store: Store, records: int = 6) -> tuple[Batch, Day]:
    """One provider, one batch, one day planned before it begins."""
    store.put_provider(PutProvider("p", SPEC), now_ms=FAR_MS)
    batch = store.put_batch("b", BatchSpec(), expected_revision=None, now_ms=FAR_MS).batch
    assert batch is not None
    store.put_records(batch, [RecordSpec(f"r{n}", "p") for n in range(records)], now_ms=FAR_MS)
    assert plan_day(store, batch, DATE, now_ms=FAR_MS).enqueued == records
    day = store.day(batch, DATE.isoformat())
    assert day is not None
    return batch, day


def settle(store: Store, *, failed: frozenset[str] = frozenset()) -> int:
    """Ends every run of the day on time, one after the other. Returns how many ended."""
    ended = 0
    for _ in range(1_000):
        now_ms = store.next_call_ms()
        if now_ms is None:
            break
        for one in store.claim_calls(now_ms=now_ms, runs_max=1, lease_ms=60_000):
            bad = one.record in failed
            item = CallSettlement(
                one.handle,
                one.attempt,
                "failed" if bad else "done",
                started_ms=now_ms,
                ended_ms=now_ms,
                reason="status 404" if bad else "",
                verdict="good",
            )
            assert store.settle_calls([item]) == [True]
            ended += 1
    return ended


def walk(store: Store, *, now_ms: int, keep_ms: int = 7 * DAY_MS, dead_keep_ms: int = 90 * DAY_MS) -> PurgeWalk:
    """All passes of one walk, in small steps."""
    at = PurgeWalk()
    for _ in range(1_000):
        if at.over:
            return at
        at = purge_calls(store, at, keep_ms=keep_ms, dead_keep_ms=dead_keep_ms, now_ms=now_ms, limit=2)
    raise AssertionError("the walk does not end")


def test_runs_are_kept_from_the_end_of_their_day_on_and_then_deleted_in_small_passes(store: Store) -> None:
    _, day = stage(store)
    assert settle(store) == 6
    assert walk(store, now_ms=END_MS + 6 * DAY_MS).runs_deleted == 0
    assert walk(store, now_ms=END_MS + 8 * DAY_MS).runs_deleted == 6
    assert store.day_runs(day, state=None, provider=None, after=0, limit=10) == ([], None)
    assert walk(store, now_ms=END_MS + 8 * DAY_MS).runs_deleted == 0


def test_promise_5_a_day_whose_runs_are_deleted_is_not_run_again(store: Store) -> None:
    batch, _ = stage(store)
    settle(store)
    walk(store, now_ms=END_MS + 8 * DAY_MS)
    assert plan_day(store, batch, DATE, now_ms=END_MS + 8 * DAY_MS).enqueued == 0
    assert store.claim_calls(now_ms=END_MS + 20 * DAY_MS, runs_max=10, lease_ms=1_000) == []


def test_promise_10_unfinished_run_of_a_batch_is_never_deleted(store: Store) -> None:
    stage(store)
    assert walk(store, now_ms=END_MS + 1_000 * DAY_MS).runs_deleted == 0
    assert store.status().calls_waiting == 6


def test_purge_does_not_change_when_a_run_that_still_waits_may_start(store: Store) -> None:
    """One run of the provider is out: the next one may start when its lease has ended."""
    stage(store)
    narrow = ProviderSpec(base_url="http://example.org", max_in_flight=1)
    store.put_provider(PutProvider("p", narrow), now_ms=FAR_MS)
    (out,) = store.claim_calls(now_ms=FAR_MS + DAY_MS, runs_max=10, lease_ms=20 * DAY_MS)
    before = (store.next_call_ms(), store.status().call_start_ms)
    walk(store, now_ms=END_MS + 8 * DAY_MS)
    assert (store.next_call_ms(), store.status().call_start_ms) == before == (out.lease_until_ms, out.lease_until_ms)


def test_dead_letters_are_kept_longer_than_other_runs(store: Store) -> None:
    _, day = stage(store)
    settle(store, failed=frozenset({"r1", "r4"}))
    assert walk(store, now_ms=END_MS + 8 * DAY_MS).runs_deleted == 4
    assert store.status().dead_letters == 2
    dead, _ = store.dead(DeadChoice(), after=0, limit=10)
    assert sorted(run.record for run in dead) == ["r1", "r4"]
    assert walk(store, now_ms=END_MS + 91 * DAY_MS).runs_deleted == 2
    assert store.day_counts(day) == []


def test_a_discarded_dead_letter_is_kept_no_longer_than_any_other_run(store: Store) -> None:
    stage(store)
    settle(store, failed=frozenset({"r1"}))
    assert store.discard(DeadChoice(provider="p"), limit=10) == 1
    assert walk(store, now_ms=END_MS + 8 * DAY_MS).runs_deleted == 6


def test_removed_record_is_purged_together_with_the_last_run_that_names_it(store: Store) -> None:
    batch, _ = stage(store)
    settle(store)
    assert store.remove_record(batch, "r2")
    assert walk(store, now_ms=END_MS).records_deleted == 0
    assert walk(store, now_ms=END_MS + 8 * DAY_MS).records_deleted == 1
    assert walk(store, now_ms=END_MS + 8 * DAY_MS).records_deleted == 0
    assert [record.id for record in store.find_records(batch, after="", limit=10)[0]] == ["r0", "r1", "r3", "r4", "r5"]


def test_promise_5_record_removed_and_created_again_on_one_day_runs_once_even_after_a_purge(store: Store) -> None:
    batch, _ = stage(store)
    settle(store)
    store.remove_record(batch, "r2")
    walk(store, now_ms=END_MS - 1)
    assert store.put_records(batch, [RecordSpec("r2", "p")], now_ms=END_MS - 1) == ["created"]
    assert plan_day(store, batch, DATE, now_ms=END_MS - 1).enqueued == 0


def test_status_counts_providers_batches_calls_and_dead_letters(store: Store) -> None:
    stage(store)
    status = store.status()
    assert (status.providers, status.batches, status.calls_waiting, status.calls_aside) == (1, 1, 6, 0)
    assert status.oldest_call_due_ms == FAR_MS + DAY_MS
    settle(store, failed=frozenset({"r0"}))
    status = store.status()
    assert (status.calls_waiting, status.dead_letters, status.oldest_call_due_ms) == (0, 1, None)


@pytest.mark.sqlite  # the damage is done in SQL
@pytest.mark.parametrize(
    ("damage", "words"),
    [
        ("DELETE FROM queue WHERE k = (SELECT max(k) FROM queue)", "neither waiting nor aside nor ended"),
        ("INSERT INTO aside (k, run, batch) SELECT k, run, 1 FROM queue LIMIT 1", "in more than one place"),
        (
            """INSERT INTO result (k, run, state, attempt, ended_ms, reason)
               SELECT k, run, 'done', 1, 1, '' FROM queue LIMIT 1""",
            "in more than one place",
        ),
        ("UPDATE planned SET k = k + 1", "not the one that the ledger has there"),
        ("DELETE FROM planned", "not the one that the ledger has there"),
        ("DELETE FROM pace", "has no lane"),
        ("UPDATE pace SET revision = revision + 1", "another revision of its provider"),
        ("UPDATE pace SET ready_ms = 1152921504606846976", "would never be looked at"),
        ("UPDATE queue SET state = 'out' WHERE k = (SELECT min(k) FROM queue)", "out without a lease"),
        ("PRAGMA foreign_keys = OFF; DELETE FROM day", "has no day or no record"),
        (
            "UPDATE tally SET value = 7 WHERE name = 'calls_waiting'",
            "number of waiting runs of batches is wrong (it says 7)",
        ),
        (
            "UPDATE tally SET value = 1 WHERE name = 'calls_aside'",
            "number of runs that stand aside is wrong (it says 1)",
        ),
        ("UPDATE tally SET value = 2 WHERE name = 'dead_letters'", "number of dead letters is wrong (it says 2)"),
    ],
)
def test_a_broken_promise_is_found(tmp_path: Path, damage: str, words: str) -> None:
    path = tmp_path / "p.db"
    store = SqliteStore(str(path))
    stage(store)
    assert store.verify() == []
    connection = apsw.Connection(str(path))
    connection.execute(damage)
    connection.close()
    assert any(words in problem for problem in store.verify()), store.verify()
    store.close()
