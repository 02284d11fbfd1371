"""What is shown of jobs, accounts and budgets is what the store holds."""

from __future__ import annotations

import pytest

from paceline.core.instants import to_text
from paceline.core.jobs.meters import Reading
from paceline.core.jobs.values import AccountSpec, NotSent, Paused, TargetFull, Unsure
from paceline.errors import JobFinished, NotFound
from paceline.ports import Store
from paceline.steps.views import account_report, job_report
from tests.contract.support.job_stage import CREDITS, add_account, admitted, begin, done, job_of, send
from tests.contract.support.stage import HOUR_MS, T0_MS

MINUTE_MS = 60_000


def test_job_is_found_by_its_owner_and_by_admins(store: Store) -> None:
    job = admitted(store)
    assert job_report.find_job(store, "ann", job.id) == job
    assert job_report.find_job(store, None, job.id) == job
    for viewer, wanted in (("bob", job.id), ("ann", "nothing"), ("", job.id)):
        with pytest.raises(NotFound):
            job_report.find_job(store, viewer, wanted)


def test_a_view_has_every_measurement_also_over_many_pages(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_report, "PAGE_MEASUREMENTS", 3)
    job = admitted(store, 7)
    view = job_report.job_view(store, job, now_ms=T0_MS)
    assert isinstance(view.measurements, list)
    assert [one.index for one in view.measurements] == list(range(7))
    assert view.counts.queued == 7


def test_progress_is_the_view_without_its_measurements(store: Store) -> None:
    key = add_account(store)
    job = admitted(store, 4)
    done(store, send(store, key), spent=50)
    send(store, key)
    begun = begin(store, key)
    store.answer(begun.handle, begun.attempt, Unsure("lost", T0_MS + MINUTE_MS), now_ms=T0_MS)
    job = job_of(store, job)
    view = job_report.job_view(store, job, now_ms=T0_MS)
    short = job_report.job_progress(store, job, now_ms=T0_MS)
    assert (short.counts, short.cost, short.waiting) == (view.counts, view.cost, view.waiting)
    assert (short.counts.done, short.counts.ongoing, short.counts.unknown, short.counts.queued) == (1, 1, 1, 1)
    assert (short.cost.reserved, short.cost.settled, short.cost.refunded) == (4 * CREDITS, 50, CREDITS - 50)


def test_a_job_with_nothing_left_to_send_does_not_wait_though_another_of_its_user_does(store: Store) -> None:
    key = add_account(store)
    first = admitted(store)
    send(store, key)
    second = admitted(store, 2)
    assert job_report.job_progress(store, job_of(store, first), now_ms=T0_MS).waiting is None
    for show in (job_report.job_view, job_report.job_progress):
        waiting = show(store, second, now_ms=T0_MS).waiting
        assert waiting is not None
        assert waiting.reason == "it waits for its turn"
        assert waiting.next_try is None


def test_sent_job_does_not_wait_while_an_older_job_of_its_user_waits(store: Store) -> None:
    key = add_account(store)
    older = admitted(store)
    begun = begin(store, key)
    later = NotSent("full", T0_MS + HOUR_MS)
    assert store.answer(begun.handle, begun.attempt, later, now_ms=T0_MS)
    newer = admitted(store)
    send(store, key)
    assert job_report.job_progress(store, job_of(store, newer), now_ms=T0_MS).waiting is None
    waiting = job_report.job_progress(store, job_of(store, older), now_ms=T0_MS).waiting
    assert waiting is not None
    assert (waiting.reason, waiting.next_try) == ("full", to_text(T0_MS + HOUR_MS))


def test_job_waits_for_an_account_while_there_is_none(store: Store) -> None:
    job = admitted(store)
    waiting = job_report.job_view(store, job, now_ms=T0_MS).waiting
    assert waiting is not None
    assert waiting.reason == "there is no account yet"
    assert waiting.expected_room_at is None


def test_full_pool_shows_when_room_is_expected_and_hides_account_names_from_users(store: Store) -> None:
    key = add_account(store, spec=AccountSpec(concurrent=1))
    job = admitted(store, 2)
    send(store, key)
    job = job_of(store, job)
    told = job_report.job_view(store, job, now_ms=T0_MS).waiting
    assert told is not None
    assert told.accounts is not None
    assert [(one.account, "1 of 1 in use" in one.reason) for one in told.accounts] == [("lab", True)]
    assert told.expected_room_at is not None
    own = job_report.job_view(store, job, now_ms=T0_MS, viewer="ann").waiting
    assert own is not None
    assert (own.accounts, own.expected_room_at) == (None, told.expected_room_at)
    assert "lab" not in own.reason


@pytest.mark.parametrize(
    ("blame", "word"),
    [
        (TargetFull("192.0.2.1", T0_MS + HOUR_MS, 1, "too many"), "the target 192.0.2.1 is full: too many"),
        (Paused(T0_MS + HOUR_MS, 1, "RIPE asks for a pause"), "RIPE asks for a pause"),
    ],
)
def test_closed_gate_is_shown_as_the_reason_of_a_queued_job(
    store: Store, blame: TargetFull | Paused, word: str
) -> None:
    key = add_account(store)
    job = admitted(store, 2)
    begun = begin(store, key)
    assert store.answer(begun.handle, begun.attempt, NotSent("later"), effect=blame, now_ms=T0_MS)
    for show in (job_report.job_view, job_report.job_progress):
        waiting = show(store, job_of(store, job), now_ms=T0_MS).waiting
        assert waiting is not None
        assert (waiting.reason, waiting.next_try) == (word, to_text(T0_MS + HOUR_MS))


def test_a_cancelled_job_is_finished_and_not_cancelled_again(store: Store) -> None:
    job = admitted(store, 2)
    after = job_report.cancel_job(store, job, now_ms=T0_MS)
    assert (after.cancelled, after.refunded, after.open) == (2, 2 * CREDITS, 0)
    with pytest.raises(JobFinished):
        job_report.cancel_job(store, after, now_ms=T0_MS)


def test_jobs_come_newest_first_and_pages_join_without_gap_or_overlap(store: Store) -> None:
    made = [admitted(store).id for _ in range(5)]
    admitted(store, owner="bob")
    found: list[str] = []
    before: int | None = None
    for _ in range(5):
        page, before = job_report.job_summaries(store, "ann", before=before, limit=2, now_ms=T0_MS)
        found += [one.job for one in page]
        if before is None:
            break
    assert found == made[::-1]
    everybody, _ = job_report.job_summaries(store, None, before=None, limit=10, now_ms=T0_MS)
    assert len(everybody) == 6


def test_a_summary_counts_the_same_as_the_view(store: Store) -> None:
    key = add_account(store)
    job = admitted(store, 3)
    done(store, send(store, key))
    send(store, key)
    [summary], _ = job_report.job_summaries(store, "ann", before=None, limit=5, now_ms=T0_MS)
    assert summary.counts == job_report.job_progress(store, job_of(store, job), now_ms=T0_MS).counts
    assert (summary.measurements, summary.open, summary.done) == (3, 2, 1)
    job_report.cancel_job(store, job_of(store, job), now_ms=T0_MS)
    done(store, store.measurements(job.number, after=0, limit=1)[0])
    [summary], _ = job_report.job_summaries(store, "ann", before=None, limit=5, now_ms=T0_MS)
    assert (summary.counts.done, summary.counts.cancelled, summary.open) == (2, 1, 0)


def test_use_by_others_is_shown_apart_from_our_own(store: Store) -> None:
    key = add_account(store)
    admitted(store)
    send(store, key)
    store.sync_account("lab", [("credits", Reading(T0_MS, 500, CREDITS))], now_ms=T0_MS)
    view = account_report.account_view(store, "lab", now_ms=T0_MS)
    meter = view.usage.daily_credits
    assert (meter.spent, meter.held, meter.foreign, meter.left) == (0, CREDITS, 500 - CREDITS, 1_000_000 - 500)
    assert account_report.account_views(store, now_ms=T0_MS) == [view]
    with pytest.raises(NotFound):
        account_report.account_view(store, "other", now_ms=T0_MS)
    with pytest.raises(NotFound):
        account_report.find_key_view(store, "lab", "k99")


def test_a_budget_is_the_days_and_unknown_users_have_none(store: Store) -> None:
    admitted(store, 2)
    budget = job_report.budget_view(store, "ann", now_ms=T0_MS)
    assert (budget.held, budget.left) == (2 * CREDITS, 10**12 - 2 * CREDITS)
    with pytest.raises(NotFound):
        job_report.budget_view(store, "nobody", now_ms=T0_MS)
