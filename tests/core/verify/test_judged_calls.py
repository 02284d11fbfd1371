"""Batches before the judges: a clean day passes, and each kind of damage breaks the promise that it breaks."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from paceline.core.verify.facts import CallFact, DayFact, Fact, ProviderFact, SetBackFact
from paceline.core.verify.rules import RepeatedSpans, Rules
from paceline.core.verify.verdict import Promise
from tests.core.support.ledgers import count_judged, judged

T0_MS = 1_800_000_000_000
RUNS = 16
GAP_MS = 60_000
DAY = DayFact(1, "daily", "2027-01-15", T0_MS, T0_MS + RUNS * GAP_MS, planned=True, runs=RUNS)
SHOP = ProviderFact(5, "shop", max_in_flight=1)
RULES = Rules(now_ms=T0_MS + 2 * RUNS * GAP_MS, keep_ms=10**9)


def call(slot: int, **fields: Any) -> CallFact:
    due_ms = T0_MS + slot * GAP_MS
    one = CallFact(5, due_ms, 1, slot, "done", attempt=1, started_ms=due_ms + 10, ended_ms=due_ms + 500)
    return replace(one, **fields)


CALLS = tuple(call(slot) for slot in range(RUNS))


def ledger(*changed: CallFact, day: DayFact = DAY, provider: ProviderFact = SHOP) -> list[Fact]:
    """The clean day with some of its calls changed, each by its record."""
    by_record = {one.record: one for one in changed}
    return [day, provider, *(by_record.get(one.record, one) for one in CALLS)]


def test_clean_day_keeps_every_promise() -> None:
    assert judged(ledger(), RULES) == {}
    counts = count_judged(ledger(), RULES)
    assert (counts["once"], counts["in order"]) == (RUNS, RUNS)
    assert counts["evenly"] >= RUNS
    assert counts["nothing lost"] >= RUNS + 1


CASES: list[tuple[list[Fact], Promise, str]] = [
    (ledger(call(3, in_ledger=False)), "once", "stands where the ledger does not have it"),
    (ledger(call(3, due_ms=T0_MS + 2 * GAP_MS)), "once", "shares its place with another run"),
    (ledger(call(3, attempt=0)), "once", "daily/(record 3)@2027-01-15 has an outcome and nobody ever claimed it"),
    (
        ledger(call(3, state="out", ended_ms=None, until_ms=T0_MS + 3 * GAP_MS + 20)),
        "once",
        "is out under a lease of 10 ms",
    ),
    (ledger(call(3, started_ms=T0_MS)), "in order", "started before it was due"),
    (ledger(call(3, ended_ms=T0_MS)), "in order", "ended before it started"),
    (ledger(call(3, ended_ms=RULES.now_ms + 5_000)), "in order", "has a time that has not come yet"),
    (
        ledger(
            call(3, started_ms=T0_MS + 4 * GAP_MS + 50_000, ended_ms=T0_MS + 4 * GAP_MS + 50_100),
            call(4, started_ms=T0_MS + 4 * GAP_MS + 5_000, ended_ms=T0_MS + 4 * GAP_MS + 5_100),
        ),
        "in order",
        "started in another order than they were due",
    ),
    (ledger(call(3, ended_ms=T0_MS + 9 * GAP_MS)), "in order", "2 calls of shop were out at once, where 1 are allowed"),
    (ledger(call(3, state="")), "nothing lost", "has neither ended nor waits"),
    (ledger(call(3, ended_ms=None)), "nothing lost", "has ended and nobody knows when"),
    (ledger(call(3, state="failed")), "nothing lost", "is failed for no reason"),
    (ledger(call(3, dead=True)), "nothing lost", "is done and a dead letter"),
    (ledger(call(3, day=9)), "nothing lost", "1 runs of daily@2027-01-15 are gone"),
    (ledger(call(3, day=9, state="")), "nothing lost", "(day 9, record 3) has neither ended nor waits"),
    (ledger(day=replace(DAY, runs=RUNS - 2)), "nothing lost", "2 runs are too many"),
    (
        ledger(call(3, due_ms=T0_MS + 2 * GAP_MS)),
        "evenly",
        "two runs of daily@2027-01-15 are planned for one slot of 16",
    ),
]


@pytest.mark.parametrize(("facts", "promise", "words"), CASES, ids=[case[2] for case in CASES])
def test_damage_to_a_batchs_ledger_breaks_its_promise(facts: list[Fact], promise: Promise, words: str) -> None:
    broken = judged([*facts, ProviderFact(6, "bank")], RULES)
    assert any(words in says for says in broken.get(promise, [])), broken


def test_provider_whose_runs_are_crowded_into_part_of_the_day_is_not_even() -> None:
    day = replace(DAY, end_ms=T0_MS + 64 * GAP_MS, runs=64)
    calls = [call(slot, provider=5 if slot < 10 else 6) for slot in range(64)]
    facts = [day, SHOP, *calls[:10], ProviderFact(6, "bank", max_in_flight=1), *calls[10:]]
    rules = RULES._replace(now_ms=T0_MS + 100 * GAP_MS)
    told = judged(facts, rules)["evenly"]
    assert told[0].startswith("10 runs of provider 5 on daily@2027-01-15 leave a gap of 8.6 ideal ones")


INNOCENT: dict[str, list[Fact]] = {
    "a run that waits": ledger(call(15, state="waiting", attempt=0, started_ms=None, ended_ms=None)),
    "a run that is out": ledger(
        call(15, state="out", ended_ms=None, until_ms=T0_MS + 17 * GAP_MS),
    ),
    "a run that failed with a reason": ledger(call(3, state="failed", reason="status 500", dead=True)),
    "a rerun, which has times of its own": [
        DAY,
        replace(DAY, number=2, date="2027-01-15~1", runs=1),
        SHOP,
        *CALLS,
        call(20, day=2, due_ms=T0_MS + 20 * GAP_MS + 7),
    ],
    "a late record beside the grid": [
        replace(DAY, runs=RUNS + 1),
        SHOP,
        *CALLS,
        call(16, due_ms=T0_MS + 15 * GAP_MS + 7_777, started_ms=T0_MS + 15 * GAP_MS + 7_800),
    ],
    "a run that was redriven to a time of its own": ledger(
        call(
            15, due_ms=T0_MS + 15 * GAP_MS + 7_777, started_ms=T0_MS + 15 * GAP_MS + 7_800, ended_ms=T0_MS + 16 * GAP_MS
        )
    ),
    "a day that is being deleted": [replace(DAY, deleting=True), SHOP, *CALLS[4:]],
    "a day that nobody has counted": [replace(DAY, runs=None), SHOP, *CALLS[4:]],
    "a removed provider": ledger(call(3, ended_ms=T0_MS + 4 * GAP_MS), provider=ProviderFact(5)),
    "more places than are used": ledger(call(3, ended_ms=T0_MS + 9 * GAP_MS), provider=replace(SHOP, max_in_flight=2)),
    "a policy that came into force later": ledger(
        call(3, ended_ms=T0_MS + 4 * GAP_MS + 5_000), provider=replace(SHOP, updated_ms=T0_MS + 4 * GAP_MS + 100)
    ),
    "a run that follows another": ledger(
        call(3, started_ms=T0_MS + 5 * GAP_MS + 600, ended_ms=T0_MS + 5 * GAP_MS + 700, follows=True)
    ),
    "a run that was tried again": ledger(
        call(3, started_ms=T0_MS + 5 * GAP_MS + 600, ended_ms=T0_MS + 5 * GAP_MS + 700, attempt=2)
    ),
}


@pytest.mark.parametrize("name", INNOCENT)
def test_day_that_only_looks_unusual_keeps_every_promise(name: str) -> None:
    rules = RULES._replace(now_ms=T0_MS + 40 * GAP_MS)
    assert judged(INNOCENT[name], rules) == {}


def test_calls_from_before_the_asked_time_are_not_judged_for_their_order() -> None:
    facts = ledger(call(3, started_ms=T0_MS))
    assert "in order" in judged(facts, RULES)
    assert "in order" not in judged(facts, RULES._replace(since_ms=T0_MS + 4 * GAP_MS))


def test_clock_that_was_set_back_excuses_calls_that_seem_to_be_out_at_once() -> None:
    facts = ledger(call(3, ended_ms=T0_MS + 9 * GAP_MS))
    clock = RepeatedSpans([SetBackFact(T0_MS + 12 * GAP_MS, T0_MS)])
    assert judged(facts, RULES._replace(clock=clock)) == {}


def test_old_days_may_have_lost_runs_to_the_purge() -> None:
    facts = [DAY, SHOP, *CALLS[4:]]
    assert "nothing lost" in judged(facts, RULES)
    assert judged(facts, RULES._replace(keep_ms=1_000)) == {}
