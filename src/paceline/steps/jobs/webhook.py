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
from paceline.core.jobs.values import PendingWebhook, StoredJob
from paceline.core.jobs.webhook import SIGNATURE_HEADER, TRIES_MAX, again_ms, signature_text, signed_bytes
from paceline.core.try_turns import PAGE, DuePosition, DueTries, TryPlaces, TryQueue, TryTurn
from paceline.ports import Store
from paceline.steps.tries import FREE, TriesBegun, TriesToMake, Waiting, begin_by_turns
from paceline.steps.views.job_report import job_progress

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

    @property
    def user(self) -> str:
        return self.job.owner


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
    store: Store,
    *,
    secret: bytes,
    now_ms: int,
    chance: Callable[[], float],
    queue: TryQueue[int] | None = None,
    places: TryPlaces = FREE,
) -> TriesToMake[WebhookTry]:
    """Write tries that are due, by turns of users, and return them; those that another process took are left out.

    ``queue``: what earlier passes of this process remember; None: users take turns within this pass.
    """
    records = _Pass(store, secret=secret, now_ms=now_ms, chance=chance)
    return begin_by_turns(records, TryQueue[int]() if queue is None else queue, places, now_ms=now_ms)


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


class _Pass:
    """One pass over webhooks that are due, a ``TryRecords``."""

    def __init__(self, store: Store, *, secret: bytes, now_ms: int, chance: Callable[[], float]) -> None:
        self._store = store
        self._secret = secret
        self._now_ms = now_ms
        self._chance = chance
        self._read: dict[int, PendingWebhook] = {}

    def due(self, after: DuePosition[int] | None) -> list[DuePosition[int]]:
        return self._store.due_webhooks(now_ms=self._now_ms, limit=PAGE, after=after)

    def look(self, positions: Sequence[DuePosition[int]]) -> Waiting[int]:
        waiting = []
        for one in self._store.pending_webhooks([position.id for position in positions]):
            if one.next_ms > self._now_ms:
                continue
            if not one.job.owner or one.tries >= TRIES_MAX:
                # Nobody is left to be told; or the process that made the last try died during it.
                self._store.note_webhook(one.job.number, tries=one.tries, next_ms=None)
                continue
            self._read[one.job.number] = one
            waiting.append(DueTries(one.job.owner, DuePosition(one.next_ms, one.job.number)))
        return Waiting(waiting)

    def begin(self, turns: Sequence[TryTurn[int]]) -> TriesBegun[int, WebhookTry]:
        if unread := [turn.due.position for turn in turns if turn.due.position.id not in self._read]:
            self.look(unread)
        due = [self._read.pop(turn.due.position.id) for turn in turns if turn.due.position.id in self._read]
        begun = [self._begin(one) for one in due]
        return TriesBegun([one for one in begun if one is not None], [])

    def _begin(self, due: PendingWebhook) -> WebhookTry | None:
        tries = due.tries + 1
        next_ms = again_ms(tries, now_ms=self._now_ms, timeout_ms=TIMEOUT_MS, chance=self._chance())
        if not self._store.note_webhook(due.job.number, tries=due.tries, next_ms=next_ms):
            return None
        call = _call(self._store, due.job, tries=tries, secret=self._secret, now_ms=self._now_ms)
        return WebhookTry(due.job, tries, call, next_ms)


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
