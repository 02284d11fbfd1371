"""Acts of workers that claim batches' runs themselves."""

from __future__ import annotations

from typing import Literal

from paceline.core.batches.provider import ProviderSpec, RetrySpec, WhenUnknown
from paceline.steps.batches import batches, outgoing, providers
from paceline.steps.monitors.outgoing import OutcomeReport
from tests.contract.support.stage import MINUTE_MS
from tests.differential.support.batch_rules import BatchRules, a_batch, a_lease, a_provider, a_record
from tests.differential.support.history import act
from tests.differential.support.machine import a_pick
from tests.differential.support.pair import Both, Side
from tests.differential.support.views import VAULT

WORK_MAX = 8


def without_lease(claim: outgoing.WorkerClaim) -> object:
    """A lease is opaque, and each store has its own. When there may be more is known too early on AWS."""
    return [(one.run, one.record, one.due, one.attempt, one.lease_until) for one in claim.items]


class WorkerRules(BatchRules):
    """``work``: what workers claimed last, also what is settled, stale or lost by now."""

    def __init__(self) -> None:
        self.work: list[Both] = []
        super().__init__()

    def can(self, act: str) -> bool:
        return super().can(act) and (bool(self.work) or act not in {"report_work", "extend_work", "give_back_work"})

    @act(3, provider=a_provider, in_flight=(1, 2), rate=(None, "1/1s"), unknown=("retry", "hold"))
    def put_outgoing_provider(self, provider: str, in_flight: int, rate: str | None, unknown: WhenUnknown) -> None:
        """Also changes the kind of one that Paceline called itself so far, and back with ``put_provider``."""
        retry = RetrySpec(max_attempts=3)
        spec = ProviderSpec(kind="outgoing", max_in_flight=in_flight, rate=rate, retry=retry, unknown=unknown)

        def put(side: Side) -> object:
            return providers.put_provider_spec(
                side.store, VAULT, provider, spec, expected_revision=None, now_ms=self.now_ms
            )

        self.ask("put_outgoing_provider", put)

    @act(10, provider=a_provider, runs_max=(1, 2, 100), lease_ms=a_lease)
    def claim_work(self, provider: str, runs_max: int, lease_ms: int) -> None:
        def claim(side: Side) -> object:
            return outgoing.claim_for_worker(
                side.store, provider, now_ms=self.now_ms, runs_max=runs_max, lease_ms=lease_ms
            )

        both = self.ask("claim_work", claim, arrange=without_lease)
        if not both.raised:
            pairs = zip(both.sqlite.items, both.aws.items, strict=True)
            self.work = [*(Both(*pair) for pair in pairs), *self.work][:WORK_MAX]

    @act(3, batch=a_batch, record=a_record, attempt=(None, None, 1))
    def claim_named_work(self, batch: str, record: str, attempt: int | None) -> None:
        def claim(side: Side) -> object:
            days = side.store.days(batches.get_batch(side.store, batch), before=None, limit=1)
            ask = outgoing.CallRunClaim(f"{batch}/{record}@{days[0].date if days else ''}", attempt, MINUTE_MS)
            item = outgoing.claim_call_run(side.store, ask, now_ms=self.now_ms)
            return outgoing.WorkerClaim([item], None)

        both = self.ask("claim_named_work", claim, arrange=without_lease)
        if not both.raised:
            self.work = [Both(both.sqlite.items[0], both.aws.items[0]), *self.work][:WORK_MAX]

    @act(8, pick=a_pick, status=("ok", "failed", "retry"), after_ms=(None, 5 * MINUTE_MS))
    def report_work(self, pick: int, status: Literal["ok", "failed", "retry"], after_ms: int | None) -> None:
        item = self.work[pick % len(self.work)]

        def report(side: Side) -> object:
            held: outgoing.CallItem = item.of(side)
            told = OutcomeReport(held.run, held.lease, status, {"reason": "why"}, None, 0.5, after_ms)
            return outgoing.settle_reports(side.store, [told], now_ms=self.now_ms)

        self.ask("report_work", report)

    @act(2, pick=a_pick, by_ms=a_lease)
    def extend_work(self, pick: int, by_ms: int) -> None:
        item = self.work[pick % len(self.work)]

        def extend(side: Side) -> object:
            held: outgoing.CallItem = item.of(side)
            return outgoing.extend_call_lease(
                side.store, held.run, lease=held.lease, by_ms=by_ms, provider=None, now_ms=self.now_ms
            )

        self.ask("extend_work", extend)

    @act(1, pick=a_pick)
    def give_back_work(self, pick: int) -> None:
        item = self.work[pick % len(self.work)]

        def give_back(side: Side) -> object:
            outgoing.give_back_calls(side.store, [item.of(side)], now_ms=self.now_ms)
            return None

        self.ask("give_back_work", give_back)
