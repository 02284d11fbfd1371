"""The queue of sends, read without changing it, and the place of a job in it."""

from __future__ import annotations

import pytest

from paceline.core.daemons import Daemon
from paceline.core.instants import to_text
from paceline.core.jobs.send_order import QueuedUser
from paceline.core.jobs.values import AccountSpec, Paused, StoredJob, Unsure
from paceline.core.users import UserEdit
from paceline.ports import Store
from paceline.steps.upkeep.daemons import beat
from paceline.steps.views.job_report import JobSummary, JobView, job_progress, job_summaries, job_view
from tests.contract.support.job_stage import add_account, admitted, begin, done, job_of, send
from tests.contract.support.stage import T0_MS, user

MINUTE_MS = 60_000


@pytest.fixture
def staged(store: Store) -> Store:
    """Users ann and bob, and a daemon that has just written its row."""
    beat(store, Daemon("up-1", "up", "host", 7, "", T0_MS, T0_MS, every_ms=600_000))
    for name in ("ann", "bob"):
        store.add_user(user(name))
    return store


def line(store: Store) -> list[QueuedUser]:
    return store.send_line(users_max=10, each_max=2, count_max=100)


def shown(store: Store, job: StoredJob) -> tuple[JobView, JobSummary]:
    """The job in full; a poll and a list say the same."""
    now = job_of(store, job)
    view, poll = job_view(store, now, now_ms=T0_MS), job_progress(store, now, now_ms=T0_MS)
    [listed] = [one for one in job_summaries(store, None, before=None, limit=9, now_ms=T0_MS)[0] if one.job == job.id]
    for other in (poll, listed):
        assert (other.place, other.eta, other.reason) == (view.place, view.eta, view.reason)
    return view, listed


def eta(view: JobView) -> tuple[int, int] | None:
    """In seconds from now."""
    if view.eta is None:
        return None
    moments = [T0_MS + 1_000 * second for second in range(-1, 100_000)]
    texts = {to_text(at_ms): (at_ms - T0_MS) // 1_000 for at_ms in moments}
    return texts[view.eta.from_], texts[view.eta.to]


def test_line_of_sends_shows_the_users_in_turn_and_changes_nothing(staged: Store) -> None:
    key = add_account(staged)
    first, second = admitted(staged, 3), admitted(staged, 2, owner="bob")
    assert [(one.owner, one.queued) for one in line(staged)] == [("ann", 3), ("bob", 2)]
    assert [item.job for item in line(staged)[0].first] == [first.id, first.id]
    assert staged.park([(first.number << 14, 0)], next_ms=T0_MS, reason="full") == [True]
    assert [(one.owner, one.queued) for one in line(staged)] == [("ann", 2), ("bob", 2)], "what is due stays parked"
    assert send(staged, key).job == first.id
    assert [(one.owner, one.queued) for one in line(staged)] == [("bob", 2), ("ann", 2)], "it came back with the look"
    staged.edit_user("bob", UserEdit(disabled=True))
    assert [one.owner for one in line(staged)] == ["ann"]
    assert staged.queued_before("bob", second.number + 1 << 14, limit=10) == 2


def test_queued_measurements_of_a_user_before_one_are_counted_to_a_limit(staged: Store) -> None:
    first, second = admitted(staged, 4), admitted(staged, 2)
    assert staged.queued_before("ann", first.number << 14, limit=10) == 0
    assert staged.queued_before("ann", second.number << 14, limit=10) == 4
    assert staged.queued_before("ann", second.number << 14 | 1, limit=3) == 3
    assert staged.queued_before("nobody", second.number << 14, limit=3) == 0


def test_job_that_waits_has_its_place_by_turns_of_users_and_begins_after_the_sends_before_it(staged: Store) -> None:
    add_account(staged)
    first, theirs, second = admitted(staged, 3), admitted(staged, 5, owner="bob"), admitted(staged, 1)
    assert [shown(staged, job)[0].place for job in (first, theirs, second)] == [0, 1, 6]
    assert [eta(shown(staged, job)[0]) for job in (first, theirs, second)] == [(0, 0), (0, 30), (0, 180)]
    assert shown(staged, second)[0].reason == "it waits for its turn"


def test_job_that_waits_for_a_slot_begins_when_one_comes_back(staged: Store) -> None:
    key = add_account(staged, "lab", AccountSpec(concurrent=1))
    admitted(staged)
    job = admitted(staged, 1, owner="bob")
    send(staged, key)
    view = shown(staged, job)[0]
    assert (view.place, eta(view)) == (0, (540, 960)), "a one-off keeps its slot for 9 to 15 minutes, and a minute more"
    assert "every account is full" in view.reason


def test_job_that_runs_ends_when_its_last_measurement_does(staged: Store) -> None:
    key = add_account(staged)
    job = admitted(staged, 2)
    sent = send(staged, key)
    view = shown(staged, job)[0]
    assert (view.place, eta(view)) == (0, (0, 990)), "the one that waits is sent at once, and takes up to 16 minutes"
    send(staged, key)
    done(staged, sent)
    view = shown(staged, job)[0]
    assert (view.place, eta(view), view.reason) == (None, (0, 960), "all that is left of it runs at RIPE")
    done(staged, staged.holding("ongoing", after=0, limit=1)[0])
    staged.finish_jobs(now_ms=T0_MS, limit=9)
    assert (shown(staged, job)[0].eta, shown(staged, job)[0].reason) == (None, "")


def test_job_that_needs_somebody_to_act_has_no_eta_and_says_who(staged: Store) -> None:
    job = admitted(staged)
    assert (eta(shown(staged, job)[0]), shown(staged, job)[0].reason) == (None, "there is no account yet")
    key = add_account(staged)
    staged.edit_user("ann", UserEdit(disabled=True))
    assert (eta(shown(staged, job)[0]), shown(staged, job)[0].reason) == (None, "its user ann is disabled")
    staged.edit_user("ann", UserEdit(disabled=False))
    begun = begin(staged, key)
    pause = Paused(T0_MS + MINUTE_MS, 1, "the reply was cut")
    unsure = Unsure("the reply was cut", T0_MS + MINUTE_MS)
    assert staged.answer(begun.handle, begun.attempt, unsure, effect=pause, now_ms=T0_MS)
    view = shown(staged, job)[0]
    assert (view.place, eta(view), view.reason) == (
        None,
        None,
        "RIPE's reply to one of its sends was lost: it is looked up",
    )
    later = admitted(staged, 1, owner="bob")
    assert eta(shown(staged, later)[0]) == (60, 120), "RIPE's pause, and the one that may come back"
    staged.cancel_job(job.number, now_ms=T0_MS)
    assert shown(staged, job)[0].reason == "it is cancelled, and what runs of it is being stopped"
