"""Webhooks of finished jobs: a signed call, repeated until it succeeds.

A try is written before it is made, with the time of the next one. So a process that dies in the middle loses nothing,
two processes do not make the same call, and only a success has to be written afterwards.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from paceline.core.batches.calls import Call, CallResult
from paceline.core.jobs.values import StoredJob
from paceline.core.jobs.webhook import SIGNATURE_HEADER, TRIES_MAX, again_ms, signature_text, signed_bytes
from paceline.ports import Store
from paceline.steps.views.job_report import job_progress

HOOKS_MAX = 50
TIMEOUT_MS = 10_000


class WebhookTry(NamedTuple):
    """A try that is written and now has to be made. ``tries`` includes it."""

    job: StoredJob
    tries: int
    order: Call
    next_ms: int
    """Time from which another process may make the next try: this one must be over by then."""

    @property
    def fence(self) -> tuple[int, int]:
        return self.order.handle, self.order.attempt


class HookEnded(NamedTuple):
    """Result of a try. ``over``: no further one follows, because this one succeeded or was the last."""

    job: StoredJob
    tries: int
    ok: bool
    over: bool
    reason: str = ""


def webhook_secret(secret_key: bytes, user: str) -> str:
    """Return the secret by which the user's receiver verifies signatures: one for all jobs, computed, not stored."""
    return hmac.digest(secret_key, b"webhook/" + user.encode("utf-8", "surrogatepass"), "sha256").hex()


def sign(secret: str, body: bytes, *, at_s: int) -> str:
    """Return the value of the signature's header. The secret is used as text, letter by letter."""
    return signature_text(hmac.digest(secret.encode(), signed_bytes(body, at_s=at_s), "sha256").hex(), at_s=at_s)


def begin_webhooks(
    store: Store, *, secret: bytes, now_ms: int, chance: Callable[[], float], limit: int = HOOKS_MAX
) -> list[WebhookTry]:
    """Return the tries that this process makes; those that another process took first are left out."""
    begun = []
    for job, before in store.due_webhooks(now_ms=now_ms, limit=limit):
        tries = before + 1
        if not job.owner or tries > TRIES_MAX:
            # Nobody is left to be told; or the process that made the last try died during it.
            store.note_webhook(job.number, tries=before, next_ms=None)
            continue
        next_ms = again_ms(tries, now_ms=now_ms, timeout_ms=TIMEOUT_MS, chance=chance())
        if store.note_webhook(job.number, tries=before, next_ms=next_ms):
            call = _call(store, job, tries=tries, secret=secret, now_ms=now_ms)
            begun.append(WebhookTry(job, tries, call, next_ms))
    return begun


def end_webhooks(
    store: Store, hooks: Mapping[tuple[int, int], WebhookTry], results: Sequence[CallResult]
) -> list[HookEnded]:
    """Record the results of tries.

    Only a 2xx ends a webhook before its last try; a redirect is not followed. For a failed one the next try is written
    already.
    """
    ended = []
    for result in results:
        hook = hooks[result.handle, result.attempt]
        ok = result.code is not None and 200 <= result.code < 300
        over = ok or hook.tries >= TRIES_MAX
        if over:
            store.note_webhook(hook.job.number, tries=hook.tries, next_ms=None)
        ended.append(HookEnded(hook.job, hook.tries, ok, over, "" if ok else result.reason))
    return ended


def _call(store: Store, job: StoredJob, *, tries: int, secret: bytes, now_ms: int) -> Call:
    assert job.webhook is not None
    body = msgspec.json.encode(job_progress(store, job, now_ms=now_ms, viewer=job.owner))
    signature = sign(webhook_secret(secret, job.owner), body, at_s=now_ms // 1_000)
    return Call(
        handle=job.number,
        attempt=tries,
        run_id=job.id,
        method="POST",
        url=job.webhook,
        # The same key at each try, so that a receiver whose answer was lost recognises the call.
        headers={SIGNATURE_HEADER: signature, "Idempotency-Key": f"webhook/{job.id}", "Paceline-Try": str(tries)},
        body=body.decode(),
        timeout_ms=TIMEOUT_MS,
    )
