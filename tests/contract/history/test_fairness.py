"""Fairness: ``verify`` passes a store that gives turns and notices one that does not, from stored facts alone."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from paceline.core.monitors.places import OwnerDemand, Seats
from paceline.core.monitors.values import CHECKS
from paceline.core.users import UserEdit
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Verdict
from paceline.ports import Store
from paceline.steps import access
from paceline.steps.history.notes import DISABLED, Disabled
from paceline.steps.history.verify import verify
from tests.contract.support.fair_stage import MINUTES, live, send_all
from tests.contract.support.job_stage import add_account, admitted
from tests.contract.support.stage import DAY_MS, HOUR_MS, LEASE_MS, T0_MS, settle, user


def fairness(store: Store, *, now_ms: int) -> Verdict:
    rules = Rules(now_ms, keep_ms=DAY_MS, expire_ms=DAY_MS, lease_ms=LEASE_MS)
    report = verify(store, rules, progress=lambda _done, _total: None)
    assert {verdict.promise for verdict in report.verdicts if not verdict.passed} <= {"fair"}, report
    return report.verdicts[-1]


def first_takes_all(self: Seats, wishes: Sequence[OwnerDemand]) -> list[int]:
    """A claim that ignores turns: the first owner by name gets everything."""
    left, shares = self.room, dict.fromkeys([wish.owner for wish in wishes], 0)
    for owner, wanted in sorted(wishes):
        shares[owner] = min(left, wanted)
        left -= shares[owner]
    return [shares[wish.owner] for wish in wishes]


def test_claims_in_turn_are_fair(store: Store) -> None:
    verdict = fairness(store, now_ms=live(store))
    assert verdict.passed, verdict
    assert verdict.judged >= MINUTES


def test_claim_that_ignores_turns_is_noticed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seats, "shares", first_takes_all)
    verdict = fairness(store, now_ms=live(store))
    assert verdict.smallest is not None
    assert "bob/m0#4@0 waited, its owner had nothing out, and ann started" in verdict.smallest.says


def test_wait_of_a_disabled_user_is_not_unfair(store: Store) -> None:
    store.add_user(user("bob"))
    access.edit_user(store, "bob", UserEdit(disabled=True), now_ms=T0_MS)
    now_ms = live(store)
    access.edit_user(store, "bob", UserEdit(disabled=False), now_ms=now_ms)
    claimed = store.claim(CHECKS, now_ms=now_ms + HOUR_MS, runs_max=99, lease_ms=LEASE_MS)
    assert "bob" in {item.owner for item in claimed}
    settle(store, claimed, now_ms=now_ms + HOUR_MS)
    assert fairness(store, now_ms=now_ms + HOUR_MS).passed
    DISABLED.put(store, "bob", Disabled())
    assert not fairness(store, now_ms=now_ms + HOUR_MS).passed


@pytest.mark.parametrize("starved", ["", "bob"])
def test_sends_in_turn_are_fair_and_a_sender_that_starves_a_user_is_noticed(store: Store, starved: str) -> None:
    store.add_user(user("bob"))
    key = add_account(store)
    admitted(store, 12)
    admitted(store, 2, owner="bob")
    verdict = fairness(store, now_ms=send_all(store, key, starved=starved))
    assert verdict.judged == 14
    assert verdict.passed == (not starved)
    if verdict.smallest is not None:
        assert "waited while 12 of another user were sent that are alike" in verdict.smallest.says
