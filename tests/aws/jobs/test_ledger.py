"""Promise 8 on DynamoDB: conservation, never over, no leak, whatever is cut short before whichever request.

The scenes are those of SQLite's ledger; but a cut may leave one write of an act and not the next, so what holds at
every instant is that the books add up, and that whatever was begun can be gone on with.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, invariant

from paceline.adapters.aws.client.items import DynamoKey, delete, update
from paceline.adapters.aws.client.tables import LEDGER
from paceline.adapters.aws.jobs import keys as jobs_keys
from paceline.adapters.aws.jobs import meters as jobs_meters
from paceline.adapters.aws.jobs import submit as jobs_submit
from paceline.adapters.aws.jobs.keys import account_key, job_key, posting_key, row_key
from paceline.adapters.aws.store import AwsStore
from paceline.core.jobs.values import AccountSpec, MeasurementEnd, NotSent, Sent, StoredMeasurement
from tests.aws.support.jobs_bench import AwsBench
from tests.contract.jobs.test_ledger import DAILY_CREDITS, SENDING_MAX, Ledger
from tests.contract.support.job_stage import add_account, limit, submission, submit
from tests.contract.support.stage import DAY_MS, T0_MS, user

pytestmark = pytest.mark.aws
REQUESTS_MAX = 7
"""Of most acts: a cut is before one of so many."""


class CutBench(AwsBench):
    def act(self, work: Callable[[AwsStore], Any], *, cut: int | None) -> Any:
        return super().act(work, cut=None if cut is None else cut % REQUESTS_MAX)


class AwsLedger(Ledger):
    """A job of more than two measurements is large here, so that its rows are written before it is admitted."""

    def __init__(self) -> None:
        RuleBasedStateMachine.__init__(self)
        self._patch = pytest.MonkeyPatch()
        self._patch.setattr(jobs_submit, "TOGETHER_MAX", 2)
        self._folder = TemporaryDirectory()
        self.bench = CutBench(daily_credits=DAILY_CREDITS)  # type: ignore[assignment]
        self.now_ms = T0_MS
        self.atlas_id = 0
        self.keys: dict[str, str] = {}

    @invariant()
    def in_order(self) -> None:
        assert self.bench.store.verify_jobs() == []  # type: ignore[attr-defined]

    def teardown(self) -> None:
        try:
            super().teardown()
        finally:
            self._patch.undo()


TestAwsLedger = AwsLedger.TestCase
TestAwsLedger.settings = settings(
    max_examples=6, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


def people(bench: AwsBench) -> str:
    bench.store.add_user(user("ann"))
    limit(bench.store, 60)
    return add_account(bench.store)


def lead_to_send(store: AwsStore, key: str) -> object:
    """Again and again until it is sending; a cut may have come after the write."""
    if store.holding("sending", after=0, limit=1):
        return True
    [item] = store.next_to_send(now_ms=T0_MS, users_max=1, each_max=1)
    begun = store.begin_send(item, account="lab", key=key, sending_max=SENDING_MAX, now_ms=T0_MS)
    assert isinstance(begun, StoredMeasurement)
    return True


def sent(store: AwsStore) -> object:
    for item in store.holding("sending", after=0, limit=1):
        assert store.answer(item.handle, item.attempt, Sent((7,)), now_ms=T0_MS)
    return True


def ended(store: AwsStore) -> object:
    for item in store.holding("ongoing", after=0, limit=1):
        assert store.end([MeasurementEnd(item.handle, item.attempt, "done", "", 30, 5, frees_slot=True)], now_ms=T0_MS)
    return True


def test_promise_10_job_whose_process_dies_before_any_request_ends_like_an_undisturbed_job() -> None:
    ends = []
    for cutting in (False, True):
        with closing(AwsBench()) as bench:
            key = people(bench)
            acts: list[Callable[[AwsStore], object]] = [
                lambda store: submit(store, submission(1, key="once")),
                lambda store, key=key: lead_to_send(store, key),  # type: ignore[misc]
                sent,
                ended,
                lambda store: store.finish_jobs(now_ms=T0_MS, limit=1) or True,
                lambda store: store.purge_jobs(finished_before_ms=T0_MS + 1, limit=1) or True,
            ]
            for act in acts:
                cut = 0 if cutting else None
                while bench.act(act, cut=cut) is None:
                    assert cut is not None
                    cut += 1
                    assert bench.store.verify_jobs() == []
            ends.append((bench.meters(), bench.opened(), bench.postings(), bench.books().jobs))
            assert bench.cuts > 20 or not cutting
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    ("key", "change", "words"),
    [
        (account_key("lab"), "ADD #credits_held :n, #credits_free :less", "do not add up to what is held"),
        (account_key("lab"), "ADD #credits_free :n", "is not what is left of its limit"),
        (account_key("lab"), "ADD #results_opened_spent :n", "do not add up to what is held"),
        (posting_key(1 << 14, 1, "close"), "ADD #credits_settle :n", "closed on exactly what it held"),
        (row_key(1 << 14), "ADD #settled :n", "counts or sums"),
        (row_key(1 << 14), "SET #slot = :n", "slot is held and its line is closed"),
        (row_key(1 << 14), "SET #state = :queued", "is not in the line"),
        (row_key(1 << 14), "REMOVE #atlas", "no id at RIPE"),
        (row_key(1 << 14), "SET #shard = :queued, #at = :n", "not where it is looked for"),
        (job_key(1), "ADD #settled :n", "the jobs do not add up"),
        (job_key(1), "ADD #definitions_done :n", "counts or sums"),
        (job_key(1), "ADD #purged :n", "on its way out"),
        (DynamoKey("line", "-"), "ADD #sending :n", "not being sent as are counted"),
        (row_key(1 << 14), None, "of no measurement"),
        (job_key(1), None, "of no job"),
    ],
)
def test_check_reports_books_that_do_not_add_up(key: DynamoKey, change: str | None, words: str) -> None:
    with closing(AwsBench()) as bench:
        account_key_id = people(bench)
        submit(bench.store, submission(1))
        for act in (lambda store: lead_to_send(store, account_key_id), sent, ended):
            act(bench.store)
        assert bench.store.verify_jobs() == []
        if change is None:
            damage = delete(LEDGER, key)
        else:
            values = {":n": 1, ":less": -1, ":queued": "queued"}
            given = {name[1:]: value for name, value in values.items() if name in change}
            damage = update(LEDGER, key, change, when="attribute_exists(#pk)", **given)  # type: ignore[arg-type]
        assert bench.database.write(damage).won
        assert any(words in problem for problem in bench.store.verify_jobs())


def test_expired_usage_of_an_account_is_removed_in_bounded_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """More releases than one write takes, as of an account that was busy every minute of a day.

    However many pieces there are, none of them is a try that was lost.
    """
    monkeypatch.setattr(jobs_meters, "EXPIRED_MAX", 3)
    monkeypatch.setattr(jobs_keys, "TRIES_MAX", 2)
    with closing(AwsBench()) as bench:
        people(bench)
        limit(bench.store, 10**6)
        key = add_account(bench.store, "lab", AccountSpec(daily_credits=8 * 60))
        for minute in range(8):
            now_ms = T0_MS + minute * 60_000
            submit(bench.store, submission(1), now_ms=now_ms)
            [item] = bench.store.next_to_send(now_ms=now_ms, users_max=1, each_max=1)
            begun = bench.store.begin_send(item, account="lab", key=key, sending_max=1, now_ms=now_ms)
            assert isinstance(begun, StoredMeasurement)
            assert bench.store.answer(begun.handle, 1, Sent((minute,)), now_ms=now_ms)
            ending = MeasurementEnd(begun.handle, 1, "done", "", 60, 10, frees_slot=True)
            assert bench.store.end([ending], now_ms=now_ms)[0].won
        later_ms = T0_MS + 2 * DAY_MS
        submit(bench.store, submission(1), now_ms=later_ms)
        [item] = bench.store.next_to_send(now_ms=later_ms, users_max=1, each_max=1)
        assert isinstance(
            bench.store.begin_send(item, account="lab", key=key, sending_max=1, now_ms=later_ms), StoredMeasurement
        )
        books = bench.books()
        assert (books.releases, books.accounts["lab"]["credits_spent"]) == ({}, 0)
        assert bench.store.verify_jobs() == []


def test_a_measurement_that_was_tried_very_often_is_removed_with_all_its_postings() -> None:
    with closing(AwsBench()) as bench:
        key = people(bench)
        submit(bench.store, submission(1))
        for _ in range(45):
            [item] = bench.store.next_to_send(now_ms=T0_MS, users_max=1, each_max=1)
            begun = bench.store.begin_send(item, account="lab", key=key, sending_max=1, now_ms=T0_MS)
            assert isinstance(begun, StoredMeasurement)
            assert bench.store.answer(begun.handle, begun.attempt, NotSent("no"), now_ms=T0_MS)
        for act in (lambda store: lead_to_send(store, key), sent, ended):
            act(bench.store)
        before = bench.meters()
        assert len(bench.store.finish_jobs(now_ms=T0_MS, limit=1)) == 1
        assert len(bench.books().closes) == 46
        assert bench.store.purge_jobs(finished_before_ms=T0_MS + 1, limit=1) == 1
        assert (bench.postings(), bench.meters()) == ([], before)
        assert bench.store.verify_jobs() == []
