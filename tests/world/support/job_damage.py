"""Stores of jobs that break one promise each by a plausible mistake: the world must notice every one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace

from paceline.core.jobs.atlas import MeterName
from paceline.core.jobs.meters import Reading, used
from paceline.core.jobs.values import (
    AccountSpec,
    EndResult,
    MeasurementEnd,
    NotSent,
    Rejected,
    SendOutcome,
    StoredMeasurement,
    Submission,
    Unsure,
)
from paceline.core.users import UserEdit
from tests.world.support.damage import Faulty


class SendsAgainAfterALostReply(Faulty):
    """Takes a missing answer for a failed send."""

    def answer(self, handle: int, attempt: int, outcome: SendOutcome, **more: Any) -> bool:
        if isinstance(outcome, Unsure):
            outcome = NotSent(outcome.reason)
        return self._inner.answer(handle, attempt, outcome, **more)


class LooksOnce(Faulty):
    """Trusts RIPE's list at the first lookup."""

    def to_look_up(self, *, now_ms: int, limit: int) -> list[StoredMeasurement]:
        return [replace(item, lookups=1) for item in self._inner.to_look_up(now_ms=now_ms, limit=limit)]


class RefundsTheUnknown(Faulty):
    """Fails sends without an answer, at no cost."""

    def answer(self, handle: int, attempt: int, outcome: SendOutcome, **more: Any) -> bool:
        if isinstance(outcome, Unsure):
            outcome = Rejected(outcome.reason)
        return self._inner.answer(handle, attempt, outcome, **more)


class OverwritesItsCounters(Faulty):
    """Takes RIPE's counters as exact and ignores later sends."""

    def sync_account(self, account_id: str, readings: Sequence[tuple[MeterName, Reading]], *, now_ms: int) -> bool:
        synced = self._inner.sync_account(account_id, readings, now_ms=now_ms)
        account = self._inner.account(account_id, now_ms=now_ms)
        assert account is not None
        figures = {name: reading.figure for name, reading in readings}
        meters = {"concurrent": account.concurrent, "results": account.results, "credits": account.credits}
        room = {
            name: meter.limit + max(0, used(meter) - figures[name]) if name in figures else meter.limit
            for name, meter in meters.items()
        }
        self._inner.put_account(account_id, AccountSpec(room["concurrent"], room["results"], room["credits"]))
        return synced


class CallsEverythingDone(Faulty):
    """Takes every measurement that no longer runs as complete."""

    def end(self, endings: Sequence[MeasurementEnd], *, now_ms: int) -> list[EndResult]:
        return self._inner.end([one._replace(state="done") for one in endings], now_ms=now_ms)


class ChargesTheMost(Faulty):
    """Settles on what was reserved."""

    def end(self, endings: Sequence[MeasurementEnd], *, now_ms: int) -> list[EndResult]:
        items = [self._inner.measurement(one.handle) for one in endings]
        pairs = zip(endings, items, strict=True)
        most = [one._replace(credits=item.cost.credits) if item else one for one, item in pairs]
        return self._inner.end(most, now_ms=now_ms)


class FreesSlotsTooSoon(Faulty):
    """Frees the slot as soon as all results are there."""

    def end(self, endings: Sequence[MeasurementEnd], *, now_ms: int) -> list[EndResult]:
        return self._inner.end([one._replace(frees_slot=True) for one in endings], now_ms=now_ms)


class ForgetsIdempotencyKeys(Faulty):
    def submit(self, submission: Submission, *, now_ms: int) -> Any:
        return self._inner.submit(replace(submission, idempotency_key=None), now_ms=now_ms)


class AdmitsOverTheLimit(Faulty):
    """Counts spent credits only, not held ones."""

    def submit(self, submission: Submission, *, now_ms: int) -> Any:
        budget = self._inner.budget(submission.owner, now_ms=now_ms)
        if budget is None:
            return self._inner.submit(submission, now_ms=now_ms)
        self._inner.edit_user(submission.owner, UserEdit(daily_credits=budget.limit + budget.held))
        found = self._inner.submit(submission, now_ms=now_ms)
        self._inner.edit_user(submission.owner, UserEdit(daily_credits=budget.limit))
        return found


JOB_FAULTS: dict[type[Faulty], str] = {
    SendsAgainAfterALostReply: "promise (8: RIPE counts|9: sent more than once|9: taken for orphans)",
    LooksOnce: "promise (8: RIPE counts|9: sent more than once|9: taken for orphans)",
    RefundsTheUnknown: "promise (8: RIPE counts|10: .* nobody followed it)",
    OverwritesItsCounters: "promise 8: RIPE refused .* which nobody else uses",
    CallsEverythingDone: "promise 11: .* is done, and at RIPE .* did not succeed",
    ChargesTheMost: "promise 8: .* was charged .* were delivered",
    FreesSlotsTooSoon: "promise 8: RIPE (counts .* concurrent of .* and we count|refused .*'concurrent')",
    ForgetsIdempotencyKeys: "promise 5: .* was admitted twice",
    AdmitsOverTheLimit: "promise 8: .* credits in use, over",
}
"""Each fault with what the world must say of it."""
