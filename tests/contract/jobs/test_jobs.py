"""Jobs: admitted whole or not at all, cancelled, and finished truly."""

from __future__ import annotations

from collections import Counter

from paceline.core.jobs.cost import Cost
from paceline.core.jobs.measurement import MeasurementState
from paceline.core.jobs.values import Admitted, Already, MeasurementEnd, NotSent, OverCredits, PendingWebhook
from paceline.core.try_turns import DuePosition
from paceline.core.users import UserEdit
from paceline.ports import Store
from tests.contract.conftest import Opener
from tests.contract.monitors.test_races import RACERS, race
from tests.contract.support.job_stage import (
    COST,
    add_account,
    admitted,
    again,
    begin,
    done,
    heads,
    job_of,
    limit,
    money,
    send,
    submission,
    submit,
)
from tests.contract.support.stage import DAY_MS, HOUR_MS, T0_MS, user

TWO = Cost(credits=120, results=20, concurrent=2, daily_credits=120, daily_results=20)
NEXT_DAY_MS = (T0_MS // DAY_MS + 1) * DAY_MS


def test_a_job_is_admitted_with_its_maximum_held_on_its_users_day(store: Store) -> None:
    limit(store, 200)
    found = submit(store, submission(3, title="three"))
    assert isinstance(found, Admitted)
    assert found.budget == (200, 0, 180, 20, NEXT_DAY_MS)
    assert store.budget("ann", now_ms=T0_MS) == found.budget
    assert (found.job.reserved, found.job.measurements, found.job.state) == (180, 3, "queued")
    assert store.job(found.job.id) == found.job
    page = store.measurements(found.job.number, after=0, limit=10)
    assert [(one.index, one.state, one.cost) for one in page] == [(1, "queued", COST), (2, "queued", COST)]
    assert [one.index for one in store.measurements(found.job.number, after=-1, limit=2)] == [0, 1]
    assert store.job_counts(found.job.number) == {"queued": 3}


def test_promise_8_job_over_the_daily_credits_is_refused_whole_with_the_figures(store: Store) -> None:
    limit(store, 130)
    admitted_first = submit(store, submission(1))
    assert isinstance(admitted_first, Admitted)
    refused = submit(store, submission(2))
    assert isinstance(refused, OverCredits)
    assert (refused.cost, refused.budget.left, refused.budget.resets_ms) == (120, 70, NEXT_DAY_MS)
    assert money(store) == (0, 60)
    assert [job.id for job in store.jobs("ann", before=None, limit=10)] == [admitted_first.job.id]


def test_the_next_day_has_credits_of_its_own_and_a_hold_stays_on_its_day(store: Store) -> None:
    key = add_account(store)
    limit(store, 60)
    assert isinstance(submit(store, submission(1)), Admitted)
    assert isinstance(submit(store, submission(1), now_ms=NEXT_DAY_MS), Admitted)
    assert money(store, now_ms=NEXT_DAY_MS) == (0, 60)
    done(store, send(store, key), spent=20, now_ms=NEXT_DAY_MS)
    assert money(store) == (20, 0)
    assert money(store, now_ms=NEXT_DAY_MS) == (0, 60)


def test_a_users_limit_counts_as_it_is_now(store: Store) -> None:
    limit(store, 60)
    assert isinstance(submit(store, submission(1)), Admitted)
    limit(store, 30)
    budget = store.budget("ann", now_ms=T0_MS)
    assert budget is not None
    assert (budget.limit, budget.left) == (30, 0)
    limit(store, 120)
    assert isinstance(submit(store, submission(1)), Admitted)


def test_unknown_and_disabled_users_cannot_submit_jobs(store: Store) -> None:
    assert store.submit(submission(owner="zoe"), now_ms=T0_MS) is None
    store.edit_user("ann", UserEdit(disabled=True))
    assert store.submit(submission(), now_ms=T0_MS) is None
    assert store.budget("zoe", now_ms=T0_MS) is None


def test_an_idempotency_key_submits_once_for_each_user(store: Store, other: Store) -> None:
    limit(store, 1_000)
    limit(store, 1_000, owner="bob")
    first = submit(store, submission(2, key="k"))
    assert isinstance(first, Admitted)
    second = submit(other, submission(2, key="k"), now_ms=T0_MS + HOUR_MS)
    assert isinstance(second, Already)
    assert (second.job, second.same) == (first.job, True)
    third = submit(store, submission(3, key="k"))
    assert isinstance(third, Already)
    assert (third.job.id, third.same) == (first.job.id, False)
    assert isinstance(submit(store, submission(2, owner="bob", key="k")), Admitted)
    assert money(store) == (0, 120)


def test_promise_8_exactly_one_of_two_submissions_gets_the_last_credits(store: Store, store_factory: Opener) -> None:
    limit(store, 60 * 3)
    assert isinstance(submit(store, submission(2)), Admitted)
    results = race(lambda handle: submit(handle, submission(1)), store_factory)
    assert Counter(type(one) for one in results) == {Admitted: 1, OverCredits: RACERS - 1}
    assert money(store) == (0, 180)


def test_simultaneous_submissions_under_one_idempotency_key_make_one_job(store: Store, store_factory: Opener) -> None:
    limit(store, 10_000)
    results = race(lambda handle: submit(handle, submission(1, key="k")), store_factory)
    assert Counter(type(one) for one in results) == {Admitted: 1, Already: RACERS - 1}
    assert money(store) == (0, 60)


def test_jobs_are_listed_newest_first_and_each_user_sees_only_their_own(store: Store) -> None:
    made = [admitted(store, owner=owner).id for owner in ("ann", "bob", "ann")]
    assert [job.id for job in store.jobs("ann", before=None, limit=10)] == [made[2], made[0]]
    assert [job.id for job in store.jobs(None, before=None, limit=10)] == made[::-1]
    newest = store.jobs(None, before=None, limit=1)[0]
    assert [job.id for job in store.jobs(None, before=newest.number, limit=10)] == [made[1], made[0]]


def test_the_job_of_an_idempotency_key_is_found_by_its_user_alone(store: Store) -> None:
    limit(store, 1_000)
    found = submit(store, submission(2, key="k"))
    assert isinstance(found, Admitted)
    assert store.submitted_as("ann", "k") == found.job
    assert [store.submitted_as(*one) for one in (("ann", "other"), ("bob", "k"), ("zoe", "k"))] == [None] * 3


def test_a_users_measurements_of_all_jobs_are_listed_newest_first(store: Store) -> None:
    first, _, third = admitted(store, 3), admitted(store, 2, owner="bob"), admitted(store, 2)
    every = store.measurements_of("ann", states=[], before=None, limit=10)
    assert [(one.job, one.index) for one in every] == [
        (third.id, 1),
        (third.id, 0),
        *((first.id, n) for n in (2, 1, 0)),
    ]
    for limit_ in (1, 2, 3):
        pages, before = [], None
        while page := store.measurements_of("ann", states=[], before=before, limit=limit_):
            pages += page
            before = page[-1].handle
        assert pages == every
    assert store.measurements_of("zoe", states=[], before=None, limit=10) == []


def test_a_users_measurements_are_listed_and_their_definitions_counted_by_state(store: Store) -> None:
    key = add_account(store)
    admitted(store, 5, cost=TWO)
    admitted(store, 1, owner="bob", cost=TWO)
    ended = [send(store, key) for _ in range(3)]  # ann, bob, ann
    done(store, ended[0], spent=0)
    store.refuse([(heads(store)[0].handle, 0)], reason="no", now_ms=T0_MS)
    store.cancel_measurement(heads(store)[0].handle, now_ms=T0_MS)
    expected: dict[tuple[MeasurementState, ...], list[int]] = {
        (): [4, 3, 2, 1, 0],
        ("done",): [0],
        ("ongoing",): [1],
        ("failed",): [2],
        ("cancelled",): [3],
        ("queued",): [4],
        ("parked", "sending"): [],
        ("done", "ongoing"): [1, 0],
        ("queued", "parked", "sending", "unknown", "ongoing"): [4, 1],
        ("failed", "cancelled", "queued"): [4, 3, 2],
    }
    for states, indexes in expected.items():
        found = store.measurements_of("ann", states=states, before=None, limit=10)
        assert [one.index for one in found] == indexes
        assert store.count_of("ann", states=states) == 2 * len(indexes)
    assert store.count_of("zoe", states=[]) == 0


def test_promise_12_a_new_user_of_an_old_name_does_not_get_the_old_jobs(store: Store) -> None:
    key = add_account(store)
    job = admitted(store, 3)
    sent = send(store, key)
    store.remove_user("ann")
    store.add_user(user("ann"))
    assert store.jobs("ann", before=None, limit=10) == []
    assert job_of(store, job).owner == ""
    assert money(store) == (0, 0)
    assert heads(store) == []
    assert store.finish_jobs(now_ms=T0_MS, limit=10) == []
    assert (job_of(store, job).cancelled, again(store, sent).stopping) == (2, True)


def test_cancel_refunds_unsent_measurements_and_stops_the_others(store: Store) -> None:
    key = add_account(store)
    job = admitted(store, 4)
    sent, begun = send(store, key), begin(store, key)
    parked = heads(store)[0]
    store.park([(parked.handle, 0)], next_ms=T0_MS + 1, reason="full")
    assert store.cancel_job(job.number, now_ms=T0_MS)
    assert store.job_counts(job.number) == {"ongoing": 1, "sending": 1, "cancelled": 2}
    assert money(store) == (0, 120)
    assert job_of(store, job).state == "cancelling"
    assert again(store, sent).stopping
    assert store.answer(begun.handle, 1, NotSent("too many"), now_ms=T0_MS)
    assert again(store, begun).state == "cancelled"
    store.end([MeasurementEnd(sent.handle, 1, "cancelled", "cancelled", 12, 2, frees_slot=True)], now_ms=T0_MS)
    assert money(store) == (12, 0)
    [finished] = store.finish_jobs(now_ms=T0_MS, limit=10)
    assert (finished.state, finished.success, finished.cancelled) == ("finished", False, 4)
    assert not store.cancel_job(job.number, now_ms=T0_MS)


def test_single_measurement_can_be_cancelled_once(store: Store) -> None:
    job = admitted(store, 2)
    head = heads(store)[0]
    assert store.cancel_measurement(head.handle, now_ms=T0_MS)
    assert not store.cancel_measurement(head.handle, now_ms=T0_MS)
    assert store.job_counts(job.number) == {"queued": 1, "cancelled": 1}
    assert money(store) == (0, 60)


def test_promise_11_a_job_is_finished_once_when_its_last_measurement_has_ended(store: Store, other: Store) -> None:
    key = add_account(store)
    job = admitted(store, 2, webhook="https://example.org/hook")
    first, second = send(store, key), send(store, key)
    done(store, first)
    assert store.finish_jobs(now_ms=T0_MS, limit=10) == []
    assert store.due_webhooks(now_ms=T0_MS, limit=10) == []
    done(store, second)
    [finished] = other.finish_jobs(now_ms=T0_MS + 5, limit=10)
    assert (finished.id, finished.success, finished.finished_ms) == (job.id, True, T0_MS + 5)
    assert store.finish_jobs(now_ms=T0_MS + 6, limit=10) == []
    assert store.due_webhooks(now_ms=T0_MS + 5, limit=10) == [DuePosition(T0_MS + 5, job.number)]
    assert store.pending_webhooks([job.number, 4_711]) == [PendingWebhook(finished, 0, T0_MS + 5)]
    assert store.note_webhook(job.number, tries=0, next_ms=T0_MS + 60)
    assert not other.note_webhook(job.number, tries=0, next_ms=None)
    assert store.due_webhooks(now_ms=T0_MS + 59, limit=10) == []
    assert store.note_webhook(job.number, tries=1, next_ms=None)
    assert store.due_webhooks(now_ms=T0_MS + DAY_MS, limit=10) == []
    assert store.pending_webhooks([job.number]) == []


def test_ids_of_jobs_fit_into_a_marker(store: Store) -> None:
    names = {admitted(store).id for _ in range(40)}
    assert len(names) == 40
    assert all(name.isalnum() and name.islower() and len(name) <= 32 for name in names)
