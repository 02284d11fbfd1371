"""Checks that Paceline makes itself: claimed, handed to the provider and settled, many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple, assert_never, cast

from msgspec.structs import replace

from paceline.core.leases import Leased, check_lease, fits_lease, sort_out
from paceline.core.monitors.check_secrets import is_sealed
from paceline.core.monitors.checks import OutgoingCheck
from paceline.core.monitors.definition import duration_ms
from paceline.core.monitors.dispatch import MakeCheck, RefuseCheck, RetryPolicy, after_attempt, decide
from paceline.core.monitors.outcome import Dead, Outcome, Retry
from paceline.core.monitors.places import Places, target_of
from paceline.core.monitors.values import CHECKS, CheckOrder, Claimed, Finished, RunQueue, Settlement
from paceline.ports import Store
from paceline.steps.monitors.check_secrets import CheckOpener

ONCE = RetryPolicy()
SEALED_OTHERWISE = "its headers or body were sealed with another PACELINE_SECRET_KEY: put the monitor with them again"


class Claims(NamedTuple):
    """Claimed runs: ``granted`` may start; ``refused`` were settled without being sent."""

    granted: list[Claimed]
    refused: list[Settlement]


class CheckSettleReport(NamedTuple):
    settled: list[Finished]
    stale: int
    """Number of outcomes that came after their lease had run out and were refused."""
    again: Sequence[Settlement] = ()
    """Failed attempts whose check is tried again: their outcome is a retry."""


def claim(store: Store, queue: RunQueue, *, now_ms: int, runs_max: int, lease_ms: int, policy: RetryPolicy) -> Claims:
    """Lease the runs that may start now, and settle at once those that must not be sent."""
    claimed = store.claim(queue, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms)
    return admit(store, claimed, now_ms=now_ms, policy=policy)


def admit(store: Store, claimed: Iterable[Claimed], *, now_ms: int, policy: RetryPolicy) -> Claims:
    """Settle at once the claimed runs that must not be sent."""
    granted: list[Claimed] = []
    refused: list[Settlement] = []
    for item in claimed:
        match decide(item.check, attempt=item.attempt, lost=item.lost, policy=policy):
            case MakeCheck():
                granted.append(item)
            case RefuseCheck(outcome=outcome):
                refused.append(_settlement(item, outcome, now_ms))
            case never:
                assert_never(never)
    if refused:
        store.settle(refused)
    return Claims(granted, refused)


def claim_orders(
    store: Store,
    *,
    now_ms: int,
    runs_max: int,
    lease_ms: int,
    policy: RetryPolicy,
    places: Places | None = None,
    opener: CheckOpener | None = None,
) -> list[CheckOrder]:
    """Return the checks to be made now. ``places``: checks that are out, and the limits of an owner and a target."""
    claimed = store.claim(CHECKS, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms, places=places)
    return make_orders(store, claimed, now_ms=now_ms, policy=policy, opener=opener)


def settle_and_claim(
    store: Store,
    finished: Sequence[Finished],
    *,
    now_ms: int,
    runs_max: int,
    lease_ms: int,
    policy: RetryPolicy,
    places: Places | None = None,
    opener: CheckOpener | None = None,
) -> tuple[CheckSettleReport, list[CheckOrder]]:
    """Settle and claim like ``settle`` and ``claim_orders``, in one act: a commit costs more than what it carries."""
    written = _settlements(finished, policy)
    won, claimed = store.settle_and_claim(written, now_ms=now_ms, runs_max=runs_max, lease_ms=lease_ms, places=places)
    return _report(finished, written, won), make_orders(store, claimed, now_ms=now_ms, policy=policy, opener=opener)


def make_orders(
    store: Store,
    claimed: Iterable[Claimed],
    *,
    now_ms: int,
    policy: RetryPolicy,
    opener: CheckOpener | None = None,
) -> list[CheckOrder]:
    """Return the claimed checks that are to be made; those that must not be sent are settled at once.

    ``opener`` opens their sealed parts.
    """
    orders: list[CheckOrder] = []
    ended: list[Settlement] = []
    for item in claimed:
        check = item.check
        if item.target and check is not None and item.attempt == 1 and not (item.lost or is_sealed(check)):
            orders.append(cast("CheckOrder", item))  # nearly always: ``decide`` would send it, and nothing is copied
            continue
        if check is None or item.attempt > 1 or item.lost:
            decision = decide(check, attempt=item.attempt, lost=item.lost, policy=policy)
            if isinstance(decision, RefuseCheck):
                ended.append(_settlement(item, decision.outcome, now_ms))
                continue
            check = decision.check
        if isinstance(check, OutgoingCheck):
            # The kind was edited after the run was made: the newest definition belongs to another queue.
            reason = "the check became 'outgoing' before this run started"
            ended.append(_settlement(item, Dead(reason, edited=True), now_ms))
            continue
        if is_sealed(check):
            opened = opener.open(check) if opener is not None else None
            if opened is None:
                ended.append(_settlement(item, Dead(SEALED_OTHERWISE), now_ms))
                continue
            check = opened
        orders.append(cast("CheckOrder", replace(item, check=check, target=item.target or target_of(check))))
    if ended:
        store.settle(ended)
    return orders


def orders_in_time(
    orders: Iterable[CheckOrder], *, lease_ms: int, now_ms: int
) -> tuple[list[CheckOrder], list[CheckOrder]]:
    """Divide the checks into those to make now, and those to give back because they may outlive their lease."""
    orders = list(orders)
    if not orders:
        return [], []

    def lease(until_ms: int, timeout: str) -> Leased:
        return check_lease(until_ms, timeout_ms=duration_ms(timeout), lease_ms=lease_ms)

    # Checks claimed together have few time-outs and nearly always one lease: if all fit into the shortest, all do.
    until_ms = min([order.lease_until_ms for order in orders])
    if all(
        fits_lease(lease(until_ms, timeout), now_ms=now_ms) for timeout in {order.check.timeout for order in orders}
    ):
        return orders, []
    return sort_out(orders, lambda order: lease(order.lease_until_ms, order.check.timeout), now_ms=now_ms)


def settle(store: Store, finished: Sequence[Finished], *, policy: RetryPolicy = ONCE) -> CheckSettleReport:
    """Record the results of the checks. A failure with attempts left is tried again and settles nothing."""
    if not finished:
        return CheckSettleReport([], 0)
    written = _settlements(finished, policy)
    return _report(finished, written, store.settle(written))


def _settlements(finished: Sequence[Finished], policy: RetryPolicy) -> Sequence[Settlement]:
    """Return the settlements to write for these results; nearly always the results themselves."""
    if {item.attempts for item in finished} == {1}:
        return finished
    return [_settled(item, policy) for item in finished]


def _settled(item: Finished, policy: RetryPolicy) -> Settlement:
    attempt, ended_ms = item.attempt, item.ended_ms
    outcome = after_attempt(item.outcome, attempt=attempt, attempts=item.attempts, ended_ms=ended_ms, policy=policy)
    return item if outcome is item.outcome else Settlement(item.handle, attempt, outcome, item.started_ms, ended_ms)


def _report(finished: Sequence[Finished], written: Sequence[Settlement], won: Sequence[bool]) -> CheckSettleReport:
    if written is finished and all(won):
        return CheckSettleReport(list(finished), 0)
    rows = list(zip(finished, written, won, strict=True))
    again = [one for _, one, counts in rows if counts and isinstance(one.outcome, Retry)]
    settled = [item for item, one, counts in rows if counts and not isinstance(one.outcome, Retry)]
    return CheckSettleReport(settled, won.count(False), again)


def _settlement(item: Claimed, outcome: Outcome, now_ms: int) -> Settlement:
    return Settlement(item.handle, item.attempt, outcome, started_ms=now_ms, ended_ms=now_ms)
