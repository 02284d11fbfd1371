"""Refusals because a limit is reached. Most limits are per account; the limit per target is for all accounts."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from paceline.simulators.ripe_atlas.accounts import SimulatedAccount
from paceline.simulators.ripe_atlas.measurements import SimulatedMeasurement
from paceline.simulators.ripe_atlas.messages import ErrorAnswer, ErrorLine
from paceline.simulators.ripe_atlas.model import DAY_MS

_STOP_SOME = "Please stop some of your currently running measurements and try again."


def check_probes(account: SimulatedAccount, new: Sequence[SimulatedMeasurement]) -> None:
    for index, one in enumerate(new):
        if one.requested > account.limits.probes:
            raise _refused(
                "probes", f"You are not permitted to use more than {account.limits.probes} probes.", "/probes"
            )
        spread_s = one.definition.get("spread", min(one.interval_s // 2, 400))
        if not one.is_oneoff and one.requested > account.limits.results_per_s * spread_s:
            text = f"This measurement would exceed {account.limits.results_per_s} results per second."
            raise _refused("results_per_s", text, f"/definitions/{index}/spread")


def check_target(target: str, *, running: int, cap: int) -> None:
    if running > cap:
        text = f"We do not allow more than {cap} concurrent measurements to the same target: {target}."
        raise _refused("target", text)


def check_concurrent(account: SimulatedAccount, *, running: int) -> None:
    most = account.limits.concurrent
    if running > most:
        raise _refused("concurrent", f"You are not permitted to run more than {most} concurrent measurements.")


def check_results(account: SimulatedAccount, *, current: int, more: int) -> None:
    most = account.limits.daily_results
    if current + more > most:
        raise _refused(
            "daily_results",
            f"Executing this measurement request will increase your current ({current}) number of results by "
            f"{float(more)} totalling {float(current + more)} which is higher than your maximum daily results limit "
            f"{most}. {_STOP_SOME}",
        )


def check_credits(account: SimulatedAccount, *, current: int, more: int) -> None:
    most = account.limits.daily_credits
    if current + more > most:
        raise _refused(
            "daily_credits",
            f"Executing this measurement request will increase your current ({current}) credits spending by "
            f"{float(more)} totalling {float(current + more)} which is higher than your maximum daily credits limit "
            f"{most}. {_STOP_SOME}",
        )


def check_balance(payer: SimulatedAccount, *, owed: int, more: int) -> None:
    if payer.balance - owed < more:
        raise _refused("balance", "You do not have enough credits to schedule this measurement.")


class DailyUsage:
    """The usage of an account in the past 24 hours. Ended measurements are added up once, not at each order."""

    def __init__(self) -> None:
        self._open: dict[int, SimulatedMeasurement] = {}
        self._inside: list[
            tuple[int, int, SimulatedMeasurement]
        ] = []  # a heap by start: ended, and wholly in the window
        self._leaving: list[SimulatedMeasurement] = []
        self._results = 0
        self._credits = 0

    def add(self, measurement: SimulatedMeasurement) -> None:
        self._open[measurement.id] = measurement

    def totals(self, now_ms: int) -> tuple[int, int]:
        """Return results and credits. A measurement that still runs counts at least with its estimate."""
        self._move(now_ms)
        results, credits_ = self._results, self._credits
        for one in (*self._leaving, *self._open.values()):
            count = one.results_between(now_ms - DAY_MS, now_ms)
            if one.is_running(now_ms):
                count = max(count, one.results_per_day)
            results += count
            credits_ += count * one.price
        return results, credits_

    def _move(self, now_ms: int) -> None:
        for one in list(self._open.values()):
            if one.finish_ms is not None and one.finish_ms <= now_ms:
                del self._open[one.id]
                heapq.heappush(self._inside, (one.start_ms, one.id, one))
                self._sum(one, 1, now_ms)
        begin_ms = now_ms - DAY_MS
        while self._inside and self._inside[0][0] < begin_ms:
            one = heapq.heappop(self._inside)[2]
            self._sum(one, -1, now_ms)
            self._leaving.append(one)
        self._leaving = [one for one in self._leaving if (one.finish_ms or 0) > begin_ms]

    def _sum(self, ended: SimulatedMeasurement, sign: int, now_ms: int) -> None:
        count = sign * ended.results_until(now_ms)
        self._results += count
        self._credits += count * ended.price


def _refused(reason: str, detail: str, where: str = "") -> ErrorAnswer:
    return ErrorAnswer(400, problems=[ErrorLine(where, detail)], reason=reason)
