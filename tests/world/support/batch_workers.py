"""Outside workers in the world of batches: scripted, slow, and gone at any moment."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Literal, NamedTuple

from paceline.core.batches.provider import ProviderSpec
from paceline.errors import NotClaimable, StaleLease
from paceline.ports import Store
from paceline.steps.batches.outgoing import CallItem, claim_for_worker, extend_call_lease, settle_reports
from paceline.steps.monitors.outgoing import OutcomeReport

if TYPE_CHECKING:
    from tests.world.support.batch_actors import ModelProviders, Surroundings

Status = Literal["ok", "failed", "retry"]
KINDS = ("slow", "flapping", "strict")
"""Providers that are of kind ``outgoing`` now and then: nobody can be asked about what a worker has done."""


class Held(NamedTuple):
    """A run that a worker has, and when it reports what."""

    at_ms: int
    item: CallItem
    status: Status


class BatchWorker:
    """Claims from each outgoing provider and reports later. A crash is a new one: its leases run out."""

    def __init__(self, world: Surroundings, store: Store, outside: ModelProviders) -> None:
        self._world = world
        self._store = store
        self._outside = outside
        self._held: list[Held] = []

    def work(self) -> None:
        world, random = self._world, self._world.random
        for name in KINDS:
            lease_ms = 60_000 if world.calm else random.choice((1_000, 30_000, 600_000))
            with suppress(NotClaimable):  # Paceline calls it itself, for now
                claim = claim_for_worker(
                    self._store, name, now_ms=world.now_ms, runs_max=random.randint(1, 5), lease_ms=lease_ms
                )
                self._held += [self._begin(item) for item in claim.items]

    def _begin(self, item: CallItem) -> Held:
        """The work is done at once; only whether and when it is reported differs."""
        world, random = self._world, self._world.random
        statuses: tuple[Status, ...] = ("ok",) if world.calm else ("ok", "ok", "ok", "ok", "failed", "retry", "retry")
        status = random.choice(statuses)
        world.ledger.arrived(0, item.run, looks_up=False, safe=False)
        if status == "ok" or random.random() < 0.2:
            self._outside.effects[item.run] = self._outside.effects.get(item.run, 0) + 1
        latency_ms = 5 if world.calm else random.choice((5, 900, 20_000, 90_000))
        return Held(world.true_ms + latency_ms, item, status)

    def report(self) -> None:
        world, random = self._world, self._world.random
        ended = [held for held in self._held if held.at_ms <= world.true_ms]
        self._held = [held for held in self._held if held.at_ms > world.true_ms]
        for held in self._held:
            if random.random() < 0.2:
                self._extend(held.item)
        after_ms = random.choice((None, 0, 5_000, 60_000))
        reports = [
            OutcomeReport(held.item.run, held.item.lease, held.status, {}, None, random.random(), after_ms)
            for held in ended
        ]
        if reports:
            settle_reports(self._store, reports, now_ms=world.now_ms)

    def _extend(self, item: CallItem) -> None:
        by_ms = self._world.random.choice((1_000, 60_000))
        with suppress(StaleLease):
            extend_call_lease(
                self._store, item.run, lease=item.lease, by_ms=by_ms, provider=None, now_ms=self._world.now_ms
            )


def as_outgoing(spec: ProviderSpec) -> ProviderSpec:
    """The same policy for workers."""
    return ProviderSpec(
        kind="outgoing",
        max_in_flight=spec.max_in_flight,
        rate=spec.rate,
        retry=spec.retry,
        breaker=spec.breaker,
        unknown=spec.unknown,
        paused=spec.paused,
    )
