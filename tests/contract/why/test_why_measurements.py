"""Why a measurement waits, and why a job is not done, on both engines."""

from __future__ import annotations

import msgspec
import pytest

from paceline.core.daemons import Daemon
from paceline.core.instants import to_text
from paceline.core.jobs.values import AccountSpec, NotSent, Paused, StoredJob, TargetFull, Unsure
from paceline.core.users import UserEdit
from paceline.errors import NotFound
from paceline.ports import Store
from paceline.steps.upkeep.daemons import beat
from paceline.steps.why.runs import explain_run
from paceline.steps.why.view import WhyView
from paceline.steps.why.why_not import explain_job
from tests.contract.support.job_stage import add_account, admitted, begin, done, job_of, send
from tests.contract.support.stage import T0_MS, user

LATER_MS = T0_MS + 60_000


@pytest.fixture
def staged(store: Store) -> Store:
    """Users ann and bob, and a daemon that has just written its row."""
    beat(store, Daemon("up-1", "up", "host", 7, "", T0_MS, T0_MS, every_ms=600_000))
    for name in ("ann", "bob"):
        store.add_user(user(name))
    return store


def why(store: Store, job: StoredJob, index: int = 0, *, viewer: str | None = "ann", now_ms: int = T0_MS) -> WhyView:
    view = explain_run(store, f"{job.id}/{index}", viewer=viewer, now_ms=now_ms)
    assert view.chain[0].link == "budget"
    assert all(link.text and link.change for link in view.chain)
    return view


def links(view: WhyView) -> list[str]:
    return [str(link.link) for link in view.chain[1:]]


def texts(view: WhyView) -> str:
    return " ".join(link.text for link in view.chain)


def test_measurement_behind_others_of_its_user_waits_for_its_turn(staged: Store) -> None:
    add_account(staged)
    job = admitted(staged, 3)
    assert links(why(staged, job)) == ["turn"]
    assert "2 measurements of the same user came before it" in texts(why(staged, job, 2))
    other = admitted(staged, 1, owner="bob")
    assert "came before it" not in texts(why(staged, other, viewer="bob"))


def test_full_accounts_are_named_to_admins_alone(staged: Store) -> None:
    key = add_account(staged, "lab", AccountSpec(concurrent=1))
    job = admitted(staged, 2)
    send(staged, key)
    mine, theirs = why(staged, job, 1), why(staged, job, 1, viewer=None)
    assert links(mine) == ["account"]
    assert "Every account is full" in texts(mine)
    assert "lab" not in texts(mine)
    assert links(theirs) == ["account", "account"]
    assert "lab: concurrent measurements: 1 of 1 in use, 1 needed." in texts(theirs)


def test_measurement_without_an_account_says_that_there_is_none(staged: Store) -> None:
    view = why(staged, admitted(staged))
    assert "There is no account yet." in texts(view)
    assert view.eta is None


def test_full_target_and_pause_of_ripe_are_named_until_they_are_over(staged: Store) -> None:
    key = add_account(staged)
    job = admitted(staged, 2)
    begun = begin(staged, key)
    full = TargetFull("192.0.2.1", LATER_MS, 1, "too many measurements")
    waits = NotSent("the target is full", LATER_MS)
    assert staged.answer(begun.handle, begun.attempt, waits, effect=full, now_ms=T0_MS)
    view = why(staged, job)
    assert (view.state, links(view)) == ("parked", ["target"])
    assert view.chain[1].until == to_text(LATER_MS)
    second = begin(staged, key)
    effect = Paused(LATER_MS, 1, "too many requests")
    assert staged.answer(second.handle, second.attempt, NotSent("too many requests"), effect=effect, now_ms=T0_MS)
    assert "RIPE asked everybody to wait: too many requests." in texts(why(staged, job, 1))
    assert "RIPE asked" not in texts(why(staged, job, 1, now_ms=LATER_MS))


def test_why_of_a_measurement_follows_its_states_from_sending_to_done(staged: Store) -> None:
    key = add_account(staged)
    job = admitted(staged, 2)
    sending = begin(staged, key)
    assert (why(staged, job).state, links(why(staged, job))) == ("sending", ["provider"])
    assert "lab" not in texts(why(staged, job))
    assert staged.answer(sending.handle, sending.attempt, Unsure("the reply was cut", LATER_MS), now_ms=T0_MS)
    unknown = why(staged, job)
    assert (unknown.state, unknown.chain[-1].until) == ("unknown", to_text(LATER_MS))
    ongoing = send(staged, key)
    view = why(staged, job, ongoing.index, viewer=None)
    assert (view.state, links(view)) == ("ongoing", ["turn", "provider"])
    assert "with account lab" in texts(view)
    assert done(staged, ongoing).won
    assert "It ended as done. 60 of 60 credits were spent." in texts(why(staged, job, ongoing.index))


def test_disabled_user_and_cancelled_job_are_named(staged: Store) -> None:
    add_account(staged)
    job = admitted(staged)
    staged.edit_user("ann", UserEdit(disabled=True))
    assert links(why(staged, job)) == ["pause"]
    staged.cancel_job(job.number, now_ms=T0_MS)
    assert why(staged, job).state == "cancelled"


def test_job_is_explained_by_its_waiting_measurement_until_it_is_finished(staged: Store) -> None:
    key = add_account(staged, "lab", AccountSpec(concurrent=1))
    job = admitted(staged, 2)
    first = send(staged, key)
    view = explain_job(staged, job_of(staged, job), viewer="ann", now_ms=T0_MS)
    assert (view.run, view.state) == (f"{job.id}/1", "running")
    assert view == msgspec.structs.replace(why(staged, job, 1), state="running")
    done(staged, first)
    done(staged, send(staged, key))
    staged.finish_jobs(now_ms=T0_MS, limit=10)
    ended = explain_job(staged, job_of(staged, job), viewer="ann", now_ms=T0_MS)
    assert (ended.run, ended.state) == (None, "finished")
    assert "2 of 2 measurements are done" in ended.chain[0].text


def test_job_of_several_that_wait_has_the_chain_of_the_first(staged: Store) -> None:
    key = add_account(staged)
    job = admitted(staged, 4)
    assert explain_job(staged, job_of(staged, job), viewer="ann", now_ms=T0_MS).run == f"{job.id}/0"
    send(staged, key)
    assert explain_job(staged, job_of(staged, job), viewer="ann", now_ms=T0_MS).run == f"{job.id}/1"
    for _ in range(3):
        send(staged, key)
    assert explain_job(staged, job_of(staged, job), viewer="ann", now_ms=T0_MS).run == f"{job.id}/0"


def test_measurement_of_another_user_is_not_found(staged: Store) -> None:
    job = admitted(staged)
    for run in (f"{job.id}/0", f"{job.id}/7", "nothing/0"):
        with pytest.raises(NotFound):
            explain_run(staged, run, viewer="bob", now_ms=T0_MS)
