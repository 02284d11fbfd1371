"""Why a job was refused, on both engines."""

from __future__ import annotations

import pytest

from paceline.core.instants import to_text
from paceline.core.jobs.job import Job
from paceline.core.jobs.meters import DAY_MS, resets_ms
from paceline.core.why.refusals import KEPT_MAX, KEPT_MS
from paceline.errors import NotFound, OverDailyCredits
from paceline.ports import Store
from paceline.steps.access import remove_user
from paceline.steps.jobs.submit import submit_parsed
from paceline.steps.why.runs import explain_run
from paceline.steps.why.view import WhyView
from tests.contract.support.job_stage import CREDITS, limit, ping
from tests.contract.support.stage import T0_MS, user


@pytest.fixture
def staged(store: Store) -> Store:
    """Users ann and bob; ann has credits for two measurements a day."""
    for name in ("ann", "bob"):
        store.add_user(user(name))
    limit(store, 2 * CREDITS)
    return store


def refused(store: Store, count: int, *, now_ms: int = T0_MS) -> str:
    """The id of a job that is refused."""
    with pytest.raises(OverDailyCredits) as over:
        submit_parsed(store, "ann", Job((ping(),) * count, "a job"), now_ms=now_ms)
    assert over.value.refusal is not None
    return over.value.refusal


def why(store: Store, name: str, *, viewer: str | None = "ann", now_ms: int = T0_MS) -> WhyView:
    view = explain_run(store, name, viewer=viewer, now_ms=now_ms)
    assert (view.state, view.eta) == ("refused", None)
    assert all(link.link == "budget" and link.text and link.change for link in view.chain)
    return view


def test_refused_job_is_explained_until_its_day_is_over_and_says_whether_it_would_fit_now(staged: Store) -> None:
    submit_parsed(staged, "ann", Job((ping(),), "the first"), now_ms=T0_MS)
    name = refused(staged, 2)
    then, now = why(staged, name).chain
    assert name == "ann/refused#1"
    assert (then.since, then.until) == (to_text(T0_MS), to_text(resets_ms(T0_MS)))
    assert "'a job' of ann was refused whole (over_daily_credits): it costs up to 120 credits, and 60" in then.text
    assert "an admin: `paceline user limit ann --daily-credits N`" in then.change
    assert "It would be refused now as well: 60 of 120" in now.text
    _, tomorrow = why(staged, name, now_ms=T0_MS + DAY_MS).chain
    assert "It would be admitted now" in tomorrow.text


def test_job_that_costs_more_than_a_day_says_that_no_day_helps(staged: Store) -> None:
    then, now = why(staged, refused(staged, 3)).chain
    assert then.until is None
    assert "it does not fit on any day" in now.text
    limit(staged, 10 * CREDITS)
    assert "It would be admitted now" in why(staged, "ann/refused").chain[1].text


def test_only_its_user_and_admins_see_a_refusal_and_another_user_of_the_same_name_does_not(staged: Store) -> None:
    name = refused(staged, 3)
    assert why(staged, name, viewer=None) == why(staged, name)
    for other in (name, "ann/refused", "bob/refused", "ann/refused#7", "nobody/refused#1"):
        with pytest.raises(NotFound):
            explain_run(staged, other, viewer="bob", now_ms=T0_MS)
    remove_user(staged, "ann", now_ms=T0_MS)
    staged.add_user(user("ann"))
    with pytest.raises(NotFound):
        explain_run(staged, name, viewer="ann", now_ms=T0_MS)


def test_newest_refusals_of_a_user_are_kept_for_thirty_days(staged: Store) -> None:
    names = [refused(staged, 3, now_ms=T0_MS + number) for number in range(KEPT_MAX + 1)]
    assert names[-1] == f"ann/refused#{KEPT_MAX + 1}"
    with pytest.raises(NotFound):
        explain_run(staged, names[0], viewer="ann", now_ms=T0_MS)
    assert why(staged, names[1]).run == names[1]
    assert why(staged, "ann/refused").run == names[-1]
    with pytest.raises(NotFound):
        explain_run(staged, names[1], viewer="ann", now_ms=T0_MS + KEPT_MS + KEPT_MAX)


def test_dry_run_and_admitted_job_leave_no_refusal(staged: Store) -> None:
    submit_parsed(staged, "ann", Job((ping(),), "fits"), now_ms=T0_MS)
    with pytest.raises(NotFound):
        explain_run(staged, "ann/refused", viewer="ann", now_ms=T0_MS)
