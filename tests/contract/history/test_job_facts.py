"""Facts of jobs: both engines yield meters, jobs, measurements and postings that add up."""

from __future__ import annotations

from msgspec.structs import replace

from paceline.core.jobs.values import AccountSpec, MeasurementProgress
from paceline.core.users import UserEdit
from paceline.core.verify.facts import JobFact, MeasurementFact, MeterFact, PostingFact, StrayFact
from paceline.core.verify.rules import Rules
from paceline.ports import Store
from paceline.steps import access
from paceline.steps.history.notes import note_stray
from paceline.steps.history.verify import verify
from paceline.steps.jobs.accounts import put_account_spec
from tests.contract.support.job_stage import CREDITS, add_account, admitted, done, limit, send, submission, submit
from tests.contract.support.stage import DAY_MS, T0_MS


def broken(store: Store) -> set[str]:
    report = verify(store, Rules(T0_MS, keep_ms=DAY_MS, expire_ms=DAY_MS), progress=lambda _done, _total: None)
    return {verdict.promise for verdict in report.verdicts if not verdict.passed}


def with_job(store: Store) -> None:
    """Of three measurements one is done, one runs and one waits."""
    key = add_account(store)
    admitted(store, 3)
    first = send(store, key)
    assert store.note_progress([MeasurementProgress(first.handle, first.attempt, ((4, 10),))]) == [True]
    assert done(store, first).won
    send(store, key)


def test_job_facts_are_meters_jobs_measurements_and_postings(store: Store) -> None:
    with_job(store)
    facts = list(store.job_facts())
    (job,) = [fact for fact in facts if isinstance(fact, JobFact)]
    assert (job.measurements, job.open, job.done, job.reserved, job.settled) == (3, 2, 1, 3 * CREDITS, CREDITS)
    measurements = [fact for fact in facts if isinstance(fact, MeasurementFact)]
    assert [one.state for one in measurements] == ["done", "ongoing", "queued"]
    assert measurements[0].delivered == (10,)
    (day,) = [fact for fact in facts if isinstance(fact, MeterFact) and fact.user]
    assert (day.user, day.window, day.held, day.spent) == ("ann", "day", 2 * CREDITS, CREDITS)
    own = [fact for fact in facts if isinstance(fact, PostingFact) and fact.meter == day.name]
    assert [(one.index, one.move, one.amount) for one in own if one.index == 0] == [
        (0, "hold", CREDITS),
        *sorted([(0, "refund", 0), (0, "settle", CREDITS)], key=lambda one: [line.move for line in own].index(one[1])),
    ]
    assert broken(store) == set()


def test_use_beyond_the_daily_credits_is_noticed_unless_they_were_lowered_by_an_edit(store: Store) -> None:
    with_job(store)
    store.edit_user("ann", UserEdit(daily_credits=CREDITS))
    assert broken(store) == {"within budget"}
    store.edit_user("ann", UserEdit(daily_credits=10**9))
    access.edit_user(store, "ann", UserEdit(daily_credits=CREDITS), now_ms=T0_MS)
    assert broken(store) == set()


def test_undeclared_limit_of_an_account_is_noticed(store: Store) -> None:
    for concurrent in (10, 5):
        put_account_spec(store, "lab", AccountSpec(concurrent=concurrent))
    assert broken(store) == set()
    store.put_account("lab", AccountSpec(concurrent=11))
    assert broken(store) == {"within budget"}


def test_limits_of_an_account_from_before_they_were_noted_are_taken_as_declared(store: Store) -> None:
    store.put_account("lab", AccountSpec(concurrent=50))
    assert broken(store) == set()
    put_account_spec(store, "lab", AccountSpec(concurrent=5))
    store.put_account("lab", AccountSpec(concurrent=50))
    assert broken(store) == set()


def test_job_that_lost_its_idempotency_key_is_noticed(store: Store) -> None:
    limit(store, 10**9)
    submit(store, submission(key="a key"))
    assert broken(store) == set()
    submit(store, replace(submission(key="another"), idempotency_key=None))
    assert broken(store) == {"once"}


def test_slot_that_came_back_while_the_measurement_ran_at_ripe_is_noticed(store: Store) -> None:
    key = add_account(store)
    admitted(store, 2)
    for frees_slot in (False, True):
        item = send(store, key)
        assert store.note_progress([MeasurementProgress(item.handle, item.attempt, ((2, 10),))]) == [True]
        assert done(store, item, frees_slot=frees_slot).won
        assert broken(store) == ({"within budget"} if frees_slot else set())


def test_measurement_that_ran_at_ripe_beside_its_own_is_noticed(store: Store) -> None:
    key = add_account(store)
    job = admitted(store, 1)
    send(store, key)
    assert broken(store) == set()
    note_stray(store, StrayFact("lab", 77, job.id, 0, T0_MS))
    assert broken(store) == {"once"}
