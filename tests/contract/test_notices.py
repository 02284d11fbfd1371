"""Alerts for admins and owners of jobs: ended days, new dead letters, refused keys, finished jobs."""

from __future__ import annotations

from paceline.core.alerts.alert import Alert
from paceline.core.batches.values import DeadChoice
from paceline.core.jobs.accounts import enable_key, quarantine_key
from paceline.ports import Store
from paceline.steps.alerts import notice as notices
from paceline.steps.alerts.notice import EVERY_MS, SETTLED_MS, Noticed, notice
from tests.contract.support.call_stage import claim, every, make_batch, plan, provide, settle
from tests.contract.support.job_stage import add_account, admitted
from tests.contract.support.stage import DAY_MS, MINUTE_MS, T0_MS


def told(store: Store, user: str = "") -> list[Alert]:
    """Oldest first."""
    return [one.alert for one in reversed(store.alerts(user, since_ms=0, before=None, limit=100))]


def look(store: Store, now_ms: int) -> Noticed | None:
    return notice(store, now_ms=now_ms)


def bury(store: Store, count: int, *, batch: str = "daily", first_ms: int = T0_MS, state: str = "failed") -> None:
    """Runs of the batch end one after the other."""
    provide(store, "a")
    made = make_batch(store, batch, channels=("night",))
    assert store.close_day(plan(store, made, every(10, count, first_ms=first_ms), provider="a"))
    for index in range(count):
        (call,) = claim(store, first_ms + index * 10)
        assert settle(store, call, state, now_ms=first_ms + index * 10, reason="status 400")


def test_notices_are_looked_for_once_a_minute_by_one_process(store: Store, other: Store) -> None:
    assert look(store, T0_MS) == Noticed()
    assert look(other, T0_MS + EVERY_MS - 1) is None
    assert look(other, T0_MS + EVERY_MS) == Noticed()


def test_ended_day_raises_one_alert_with_its_totals(store: Store) -> None:
    look(store, T0_MS)
    bury(store, 3, state="done")
    end_ms = store.days(make_batch(store, "daily", channels=("night",)), before=None, limit=1)[0].end_ms
    assert look(store, max(T0_MS + EVERY_MS, end_ms - 1)) == Noticed()
    assert look(store, end_ms + EVERY_MS) == Noticed(days=1)
    [alert] = told(store)
    assert (alert.event, alert.channels) == ("batch.day_ended", ("night",))
    assert (alert.data["runs"], alert.data["done"], alert.data["failed"]) == (3, 3, 0)
    assert look(store, end_ms + 3 * EVERY_MS) == Noticed()


def test_day_with_an_open_run_raises_no_alert_until_the_run_ends(store: Store) -> None:
    look(store, T0_MS)
    provide(store, "a")
    batch = make_batch(store, "daily")
    assert store.close_day(plan(store, batch, every(10, 1), provider="a", end_ms=T0_MS + 1_000))
    (call,) = claim(store, T0_MS)
    assert look(store, T0_MS + MINUTE_MS) == Noticed()
    assert settle(store, call, "done", now_ms=T0_MS + 2_000)
    assert look(store, T0_MS + 2 * MINUTE_MS) == Noticed(days=1)


def test_new_dead_letters_of_a_batch_raise_one_alert_and_old_ones_none(store: Store) -> None:
    bury(store, 2)
    now_ms = T0_MS + SETTLED_MS + MINUTE_MS
    assert look(store, now_ms) == Noticed(), "existing dead letters raise no alert"
    bury(store, 3, batch="second", first_ms=now_ms + 1_000)
    assert look(store, now_ms + MINUTE_MS) == Noticed(), "they may not all be written yet"
    assert look(store, now_ms + 3 * MINUTE_MS) == Noticed(dead_letters=1)
    [alert] = told(store)
    assert (alert.event, alert.subject, alert.data["count"]) == ("batch.dead_letters", "second", 3)
    assert "status 400" in alert.reason
    assert alert.channels == ("night",)
    assert look(store, now_ms + 5 * MINUTE_MS) == Noticed()
    store.discard(DeadChoice(batch="second"), limit=10)
    assert look(store, now_ms + 7 * MINUTE_MS) == Noticed()


def test_interrupted_walk_over_dead_letters_counts_each_once(store: Store, other: Store) -> None:
    look(store, T0_MS)
    bury(store, 3, first_ms=T0_MS + 1_000)
    now_ms = T0_MS + 3 * MINUTE_MS
    # The process dies after the alert was added and before that was noted.
    before = notices.DEAD.find(store, notices.ALL)
    assert before.value is not None
    assert look(store, now_ms) == Noticed(dead_letters=1)
    begun = notices.DeadWatch(before.value.until_ms, now_ms - SETTLED_MS, walking=True)
    notices.DEAD.put(store, notices.ALL, begun)
    assert look(other, now_ms + MINUTE_MS) == Noticed()
    assert len(told(store)) == 1
    bury(store, 1, batch="second", first_ms=now_ms + 1_000)
    assert look(other, now_ms + 5 * MINUTE_MS) == Noticed(dead_letters=1)


def test_refused_key_raises_another_alert_only_after_it_was_enabled(store: Store) -> None:
    key = add_account(store)
    look(store, T0_MS)
    store.change_key("lab", key, quarantine_key("the key was revoked"))
    assert look(store, T0_MS + MINUTE_MS) == Noticed(accounts=1)
    assert look(store, T0_MS + 2 * MINUTE_MS) == Noticed()
    store.change_key("lab", key, enable_key(enabled=True))
    assert look(store, T0_MS + 3 * MINUTE_MS) == Noticed()
    store.change_key("lab", key, quarantine_key("the key was revoked"))
    assert look(store, T0_MS + 4 * MINUTE_MS) == Noticed(accounts=1)
    alerts = told(store)
    assert [(one.event, one.subject) for one in alerts] == [("account.quarantined", "lab")] * 2
    assert "revoked" in alerts[0].reason


def test_finished_job_has_one_alert_for_its_user(store: Store, other: Store) -> None:
    job = admitted(store, 2)
    assert store.cancel_job(job.number, now_ms=T0_MS)
    store.finish_jobs(now_ms=T0_MS, limit=10)
    other.finish_jobs(now_ms=T0_MS + 1, limit=10)
    [alert] = told(store, "ann")
    assert (alert.event, alert.subject, alert.data["success"]) == ("job.finished", job.id, False)
    assert alert.data["cancelled"] == 2
    assert told(store, "bob") == []


def test_days_that_ended_long_before_the_first_look_raise_no_alert(store: Store) -> None:
    bury(store, 1, state="done")
    assert look(store, T0_MS + 5 * DAY_MS) == Noticed()
    assert look(store, T0_MS + 5 * DAY_MS + MINUTE_MS) == Noticed()
