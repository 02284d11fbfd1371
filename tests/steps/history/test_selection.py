"""Parts of history: one batch, one day, one job."""

from __future__ import annotations

from contextlib import closing

import pytest

from paceline.adapters.sqlite.store import SqliteStore
from paceline.core.verify.facts import CallFact, DayFact, JobFact
from paceline.core.verify.rules import Rules
from paceline.errors import NotFound
from paceline.steps.history.selection import only_batch, only_job
from paceline.steps.history.verify import store_facts, verify
from tests.contract.support.batch_stage import DATE
from tests.contract.support.job_stage import add_account, admitted, send
from tests.contract.support.stage import DAY_MS, T0_MS, user
from tests.steps.history.support.batch_past import live_two_days


def test_history_of_one_day_of_a_batch_has_its_runs_alone() -> None:
    with closing(SqliteStore(":memory:")) as store:
        now_ms = live_two_days(store)
        chosen = list(only_batch(store_facts(store), "daily", DATE.isoformat()))
        (day,) = [fact for fact in chosen if isinstance(fact, DayFact)]
        calls = [fact for fact in chosen if isinstance(fact, CallFact)]
        assert (len(calls), {call.day for call in calls}) == (day.runs, {day.number})
        rules = Rules(now_ms, keep_ms=7 * DAY_MS, expire_ms=DAY_MS)
        report = verify(
            store, rules, progress=lambda _done, _total: None, select=lambda facts: only_batch(facts, "daily", None)
        )
        assert (report.passed, report.runs) == (True, 2 * len(calls))
        with pytest.raises(NotFound):
            list(only_batch(store_facts(store), "weekly", None))


def test_history_of_one_job_is_judged_without_the_sums_of_meters() -> None:
    with closing(SqliteStore(":memory:")) as store:
        store.add_user(user("ann"))
        key = add_account(store)
        first, _ = admitted(store, 2), admitted(store, 1)
        send(store, key)
        chosen = list(only_job(store_facts(store), first.id))
        assert [fact.id for fact in chosen if isinstance(fact, JobFact)] == [first.id]
        report = verify(
            store,
            Rules(T0_MS),
            progress=lambda _done, _total: None,
            select=lambda facts: only_job(facts, first.id),
        )
        assert (report.passed, report.runs) == (True, 2)
        with pytest.raises(NotFound):
            list(only_job(store_facts(store), "nobody"))
