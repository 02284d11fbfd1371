"""Alerts and webhooks of jobs alike: tries that are due, begun in passes by one process, and ended when a test says."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Protocol

from paceline.core.batches.calls import CallResult
from paceline.core.try_turns import PLACES, TryPlaces, TryQueue
from paceline.ports import Store
from paceline.steps.alerts.deliver import Message, begin_deliveries, end_deliveries
from paceline.steps.jobs.webhook import WebhookTry, begin_webhooks, end_webhooks
from tests.contract.support.alert_stage import SECRET, VAULT, add, alert, channel
from tests.contract.support.job_stage import admitted, limit
from tests.contract.support.stage import T0_MS


class Telling(Protocol):
    """One process that makes tries of one kind."""

    more: bool
    waiting: bool

    def due(self, user: str, many: int, *, at_ms: int = T0_MS) -> list[str]:
        """Makes so many tries of the user due; returns their names."""

    def begin(self, *, now_ms: int = T0_MS) -> list[tuple[str, str]]:
        """One pass with the free places; returns user and name of each try that it begins."""

    def end(self, *users: str, code: int | None = 204, now_ms: int = T0_MS) -> None:
        """Ends one try of each of these users."""

    def held(self) -> Counter[str]:
        """Tries in flight by user."""


class AlertTelling:
    """Messages of alerts, through one channel of each user."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.more = self.waiting = False
        self.out: list[Message] = []
        self.queue: TryQueue[str] = TryQueue()
        self._told: set[str] = set()
        self._numbers = count()

    def due(self, user: str, many: int, *, at_ms: int = T0_MS) -> list[str]:
        if user not in self._told:
            channel(self.store, user=user)
            self._told.add(user)
        alerts = [alert(f"{user}/{next(self._numbers)}", user=user, at_ms=at_ms) for _ in range(many)]
        add(self.store, *alerts)
        return [one.id for one in alerts]

    def begin(self, *, now_ms: int = T0_MS) -> list[tuple[str, str]]:
        held = self.held()
        begun = begin_deliveries(
            self.store,
            VAULT,
            secret=SECRET,
            now_ms=now_ms,
            chance=lambda: 0.0,
            queue=self.queue,
            places=TryPlaces(max(0, PLACES - held.total()), held),
        )
        self.out += begun.tries
        self.more, self.waiting = begun.more, begun.waiting
        return [(one.user, one.record.alert.id) for one in begun.tries]

    def end(self, *users: str, code: int | None = 204, now_ms: int = T0_MS) -> None:
        ended = [self.out.pop(next(i for i, one in enumerate(self.out) if one.user == user)) for user in users]
        end_deliveries(self.store, [(one, result(one.fence, code, now_ms)) for one in ended])

    def held(self) -> Counter[str]:
        return Counter(one.user for one in self.out)


class WebhookTelling:
    """Calls of webhooks of jobs."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.more = self.waiting = False
        self.out: list[WebhookTry] = []
        self.queue: TryQueue[int] = TryQueue()

    def due(self, user: str, many: int, *, at_ms: int = T0_MS) -> list[str]:
        limit(self.store, 10**9, owner=user)
        jobs = [admitted(self.store, 1, owner=user, webhook="https://hooks.example.org/job") for _ in range(many)]
        for job in jobs:
            assert self.store.cancel_job(job.number, now_ms=at_ms)
        assert len(self.store.finish_jobs(now_ms=at_ms, limit=many)) == many
        return [job.id for job in jobs]

    def begin(self, *, now_ms: int = T0_MS) -> list[tuple[str, str]]:
        held = self.held()
        begun = begin_webhooks(
            self.store,
            secret=SECRET,
            now_ms=now_ms,
            chance=lambda: 0.0,
            queue=self.queue,
            places=TryPlaces(max(0, PLACES - held.total()), held),
        )
        self.out += begun.tries
        self.more, self.waiting = begun.more, begun.waiting
        return [(one.user, one.job.id) for one in begun.tries]

    def end(self, *users: str, code: int | None = 204, now_ms: int = T0_MS) -> None:
        ended = [self.out.pop(next(i for i, one in enumerate(self.out) if one.user == user)) for user in users]
        hooks = {one.fence: one for one in ended}
        end_webhooks(self.store, hooks, [result(one.fence, code, now_ms) for one in ended])

    def held(self) -> Counter[str]:
        return Counter(one.user for one in self.out)


def result(fence: tuple[int, int], code: int | None, now_ms: int) -> CallResult:
    return CallResult(*fence, now_ms, now_ms, code=code, reason="" if code is not None else "timed out")


def users_of(begun: Sequence[tuple[str, str]]) -> Counter[str]:
    return Counter(user for user, _ in begun)


def names_of(begun: Sequence[tuple[str, str]], user: str) -> list[str]:
    return [name for one, name in begun if one == user]
