"""Charges of accounts. They are made in batches, long after the results have arrived."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from paceline.simulators.ripe_atlas.accounts import SimulatedAccount
from paceline.simulators.ripe_atlas.measurements import API, FORCED, SimulatedMeasurement
from paceline.simulators.ripe_atlas.messages import AtlasRequest
from paceline.simulators.ripe_atlas.model import DAY_MS


class Charge(NamedTuple):
    at_ms: int
    account: str
    measurement: int
    results: int
    credits: int


@dataclass(slots=True)
class ChargeBook:
    """The charges.

    With ``every_ms`` 0 they are made at each look. A negative balance stops an account's measurements.
    """

    every_ms: int
    charged_until_ms: int
    accounts: dict[str, SimulatedAccount]
    charges: dict[str, deque[Charge]] = field(default_factory=dict)
    spent: Counter[str] = field(default_factory=Counter)
    _open: dict[str, dict[int, SimulatedMeasurement]] = field(default_factory=dict)
    _ended: dict[str, list[SimulatedMeasurement]] = field(default_factory=dict)
    _ended_owed: Counter[str] = field(default_factory=Counter)

    def add(self, measurement: SimulatedMeasurement) -> None:
        self._open.setdefault(measurement.payer, {})[measurement.id] = measurement

    def charge_until(self, now_ms: int) -> None:
        """Charge the batches that are due, oldest first."""
        if self.every_ms == 0:
            self._charge(now_ms)
            self.charged_until_ms = max(now_ms, self.charged_until_ms)
            return
        while self.charged_until_ms + self.every_ms <= now_ms:
            if not any(self._open.values()) and not any(self._ended.values()):
                self.charged_until_ms += (now_ms - self.charged_until_ms) // self.every_ms * self.every_ms
                return
            self.charged_until_ms += self.every_ms
            self._charge(self.charged_until_ms)

    def owed(self, account: str, now_ms: int) -> int:
        """Return the credits for results that have arrived and are not charged yet."""
        still = self._open.setdefault(account, {})
        for one in list(still.values()):
            if one.finish_ms is not None and one.finish_ms <= now_ms:
                # It ended before the next batch, so its sum stays the same until then.
                del still[one.id]
                self._ended.setdefault(account, []).append(one)
                self._ended_owed[account] += _owed(one, now_ms)
        return self._ended_owed[account] + sum(_owed(one, now_ms) for one in still.values())

    def past_day(self, account: str, now_ms: int) -> list[Charge]:
        return [one for one in self.charges.get(account, ()) if one.at_ms > now_ms - DAY_MS]

    def _charge(self, at_ms: int) -> None:
        for account, still in self._open.items():
            for one in (*self._ended.pop(account, ()), *still.values()):
                self._charge_one(one, at_ms)
                if one.finish_ms is not None and one.finish_ms <= at_ms:
                    still.pop(one.id, None)
            if self.accounts[account].balance < 0:
                for one in still.values():
                    one.end(FORCED, at_ms)
        self._ended_owed.clear()
        for charges in self.charges.values():
            while charges[0].at_ms < at_ms - 2 * DAY_MS and len(charges) > 1:  # the last one keeps its date
                charges.popleft()

    def _charge_one(self, one: SimulatedMeasurement, at_ms: int) -> None:
        results, credits_ = one.results_until(at_ms) - one.charged_results, _owed(one, at_ms)
        if results:
            one.charged_results += results
            self.accounts[one.payer].balance -= credits_
            self.spent[one.payer] += credits_
            self.charges.setdefault(one.payer, deque()).append(Charge(at_ms, one.payer, one.id, results, credits_))


def _owed(one: SimulatedMeasurement, now_ms: int) -> int:
    return (one.results_until(now_ms) - one.charged_results) * one.price


def credits_document(
    books: ChargeBook, account: SimulatedAccount, *, now_ms: int, flow: int, request: AtlasRequest
) -> dict[str, Any]:
    """Return the credits document, as of the last batch. ``flow`` is the account's estimated spending in a day."""
    past_day = books.past_day(account.name, now_ms)
    charges = books.charges.get(account.name)
    url: Callable[[str], str] = lambda name: request.url(f"{API}/credits/{name}/")  # noqa: E731
    return {
        "current_balance": account.balance,
        "credit_checked": True,
        "max_daily_credits": account.limits.daily_credits,
        "estimated_daily_income": 0,
        "estimated_daily_expenditure": flow,
        "estimated_daily_balance": -flow,
        "calculation_time": _stamp(books.charged_until_ms),
        "estimated_runout_seconds": account.balance * 86_400 // flow if flow and account.balance > 0 else None,
        "past_day_measurement_results": sum(one.results for one in past_day),
        "past_day_credits_spent": sum(one.credits for one in past_day),
        "last_date_debited": _stamp(charges[-1].at_ms) if charges else None,
        "last_date_credited": None,
        "income_items": url("income-items"),
        "expense_items": url("expense-items"),
        "transactions": url("transactions"),
    }


def _stamp(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1_000, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
