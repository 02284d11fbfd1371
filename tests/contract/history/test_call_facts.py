"""Facts of batches: both engines yield the same ones, as they are stored."""

from __future__ import annotations

from msgspec.structs import replace

from paceline.core.verify.facts import CallFact, DayFact, Fact, ProviderFact
from paceline.core.verify.rules import Rules
from paceline.ports import Store
from paceline.steps.history.verify import verify
from tests.contract.support.call_stage import (
    DATE,
    LEASE_MS,
    SECOND_MS,
    TIMEOUT_MS,
    claim,
    every,
    make_batch,
    plan,
    provide,
    settle,
)
from tests.contract.support.stage import DAY_MS, T0_MS

LATER_MS = T0_MS + 2 * SECOND_MS


def facts_of(store: Store) -> list[Fact]:
    """Not every engine counts a day's runs, or says when it is planned."""
    return [replace(one, planned=False, runs=None) if isinstance(one, DayFact) else one for one in store.call_facts()]


def test_call_facts_are_days_providers_and_runs_as_they_are_stored(store: Store) -> None:
    number, batch = provide(store, "a"), make_batch(store)
    day = plan(store, batch, every(SECOND_MS, 3))
    (first,) = claim(store, T0_MS)
    assert settle(store, first, "failed", now_ms=T0_MS + 100)
    (second,) = claim(store, LATER_MS)
    found = facts_of(store)
    records = {call.due_ms: call.record for call in found if isinstance(call, CallFact)}
    dues = sorted(records)
    assert found == [
        DayFact(day.number, "daily", DATE, T0_MS, T0_MS + DAY_MS),
        ProviderFact(number, "a", 1, T0_MS),
        CallFact(
            *(number, dues[0], day.number, records[dues[0]], "failed"),
            attempt=1,
            started_ms=T0_MS + 100,
            ended_ms=T0_MS + 100,
            dead=True,
            reason="it is failed",
        ),
        CallFact(
            *(number, dues[1], day.number, records[dues[1]], "out"),
            attempt=1,
            started_ms=LATER_MS,
            until_ms=LATER_MS + LEASE_MS + TIMEOUT_MS,
        ),
        CallFact(number, dues[2], day.number, records[dues[2]], "waiting"),
    ]
    assert second.due_ms == dues[1]
    report = verify(store, Rules(LATER_MS, keep_ms=DAY_MS, expire_ms=DAY_MS), progress=lambda _done, _total: None)
    assert report.passed, report
