"""A finished job's webhook: signed, delivered once, tried again for about a day."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence

import pytest

from paceline.core.batches.calls import CallResult
from paceline.core.jobs.values import StoredJob
from paceline.core.jobs.webhook import TRIES_MAX
from paceline.ports import Store
from paceline.steps.jobs.webhook import HookEnded, WebhookTry, begin_webhooks, end_webhooks, sign, webhook_secret
from tests.contract.support.job_stage import admitted, job_of
from tests.contract.support.stage import DAY_MS, HOUR_MS, T0_MS

SECRET = b"the secret key of an installation"
URL = "https://hooks.example.org/job"


def finished(store: Store, *, owner: str = "ann", webhook: str | None = URL) -> StoredJob:
    job = admitted(store, 2, owner=owner, webhook=webhook)
    assert store.cancel_job(job.number, now_ms=T0_MS)
    store.finish_jobs(now_ms=T0_MS, limit=10)
    return job_of(store, job)


def begin(store: Store, *, now_ms: int = T0_MS, chance: float = 0.0) -> list[WebhookTry]:
    return begin_webhooks(store, secret=SECRET, now_ms=now_ms, chance=lambda: chance).tries


def end(store: Store, hooks: Sequence[WebhookTry], code: int | None, *, reason: str = "") -> list[HookEnded]:
    results = [CallResult(*hook.fence, T0_MS, T0_MS, code=code, reason=reason) for hook in hooks]
    return end_webhooks(store, {hook.fence: hook for hook in hooks}, results)


def test_webhook_of_a_finished_job_has_its_document_and_a_valid_signature(store: Store) -> None:
    job = finished(store)
    [hook] = begin(store)
    call = hook.order
    assert (call.method, call.url, call.body is not None) == ("POST", URL, True)
    document = json.loads(call.body or "")
    assert (document["job"], document["state"], document["finished"], document["success"]) == (
        job.id,
        "finished",
        True,
        False,
    )
    assert document["counts"]["cancelled"] == 2
    assert document["cost"] == {"reserved": 120, "settled": 0, "refunded": 120}
    stamp, _, digest = call.headers["Paceline-Signature"].partition(",v1=")
    assert stamp == f"t={T0_MS // 1_000}"
    # As a receiver computes it, from the secret that the user was shown.
    secret = hmac.new(SECRET, b"webhook/ann", hashlib.sha256).hexdigest()
    signed = f"{T0_MS // 1_000}.{call.body}".encode()
    assert hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest() == digest


def test_webhook_secrets_of_users_cannot_be_derived_from_each_other(store: Store) -> None:
    finished(store, owner="ann")
    finished(store, owner="bob")
    [one, other] = begin(store)
    assert webhook_secret(SECRET, "ann") != webhook_secret(SECRET, "bob")
    assert webhook_secret(SECRET, "ann") != webhook_secret(b"another installation", "ann")
    for hook, user in ((one, "ann"), (other, "bob")):
        body = (hook.order.body or "").encode()
        assert hook.order.headers["Paceline-Signature"] == sign(webhook_secret(SECRET, user), body, at_s=T0_MS // 1_000)
        assert webhook_secret(SECRET, user) not in str(hook)


def test_successful_webhook_call_is_the_last(store: Store) -> None:
    finished(store)
    hooks = begin(store)
    [ended] = end(store, hooks, 204)
    assert (ended.ok, ended.over, ended.tries) == (True, True, 1)
    assert begin(store, now_ms=T0_MS + DAY_MS) == []


@pytest.mark.parametrize("code", [None, 301, 404, 500])
def test_failed_webhook_call_is_tried_again_later(store: Store, code: int | None) -> None:
    finished(store)
    [ended] = end(store, begin(store), code, reason="no")
    assert (ended.ok, ended.over, ended.reason) == (False, False, "no")
    assert begin(store, now_ms=T0_MS + 10_999) == [], "the try's own time-out, and half of two seconds"
    [hook] = begin(store, now_ms=T0_MS + 11_000)
    assert (hook.tries, hook.order.headers["Paceline-Try"]) == (2, "2")


def test_pauses_between_webhook_tries_grow_and_end_after_about_a_day(store: Store) -> None:
    finished(store)
    now_ms, tries, pauses = T0_MS, 0, []
    while hooks := begin(store, now_ms=now_ms, chance=0.99):
        tries += 1
        over = end(store, hooks, 503)[0].over
        if over:
            break
        assert len(store.due_webhooks(now_ms=now_ms + DAY_MS, limit=10)) == 1
        step_ms = next(ms for ms in range(0, DAY_MS, 500) if store.due_webhooks(now_ms=now_ms + ms, limit=1))
        pauses.append(step_ms)
        now_ms += step_ms
    assert tries == TRIES_MAX
    assert pauses == sorted(pauses)
    assert pauses[0] < 15_000
    assert 18 * HOUR_MS < now_ms - T0_MS < 26 * HOUR_MS
    assert store.due_webhooks(now_ms=now_ms + 10 * DAY_MS, limit=10) == []


def test_exactly_one_of_two_processes_calls_the_webhook(store: Store, second: Store) -> None:
    finished(store)
    [due] = store.pending_webhooks([one.id for one in store.due_webhooks(now_ms=T0_MS, limit=10)])
    assert len(begin(second)) == 1
    assert not store.note_webhook(due.job.number, tries=due.tries, next_ms=None)
    assert begin(store) == []


def test_webhook_call_of_a_dead_process_is_repeated_by_another(store: Store) -> None:
    finished(store)
    begin(store)
    assert begin(store, now_ms=T0_MS + 5_000) == []
    assert [hook.tries for hook in begin(store, now_ms=T0_MS + 60_000)] == [2]


def test_webhook_is_given_up_if_its_process_died_within_the_last_try(store: Store) -> None:
    job = finished(store)
    for tries in range(TRIES_MAX):
        assert store.note_webhook(job.number, tries=tries, next_ms=T0_MS)
    assert begin(store) == []
    assert store.due_webhooks(now_ms=T0_MS + DAY_MS, limit=10) == []


def test_webhook_of_a_removed_user_is_not_called(store: Store) -> None:
    finished(store)
    assert store.remove_user("ann")
    assert begin(store) == []
    assert store.due_webhooks(now_ms=T0_MS + DAY_MS, limit=10) == []


def test_job_without_a_webhook_calls_no_url(store: Store) -> None:
    finished(store, webhook=None)
    assert begin(store) == []
