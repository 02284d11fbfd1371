"""Bursts before the judges: planned for one gap, caught up at once, or faster than a rate allows."""

from __future__ import annotations

from msgspec.structs import replace

from paceline.core.verify.facts import CallFact, DayFact, Fact, ProviderFact, SetBackFact
from paceline.core.verify.rules import RepeatedSpans, Rules
from tests.core.support.ledgers import judged

T0_MS = 1_800_000_000_000
GAP_MS = 60_000
RUNS = 64
END_MS = T0_MS + RUNS * GAP_MS
DAY = DayFact(1, "daily", "2027-01-15", T0_MS, END_MS, planned=True, runs=RUNS)
SHOP = ProviderFact(5, "shop", max_in_flight=1)
RULES = Rules(now_ms=END_MS + 10**8, keep_ms=10**9)
LATE_MS = END_MS + 10 * GAP_MS


def call(slot: int, started_ms: int | None, provider: int = 5) -> CallFact:
    due_ms = T0_MS + slot * GAP_MS
    ended_ms = (started_ms or due_ms) + 1
    return CallFact(provider, due_ms, 1, slot, "done", attempt=1, started_ms=started_ms, ended_ms=ended_ms)


def uneven(*facts: Fact, rules: Rules = RULES) -> list[str]:
    return judged(facts, rules).get("evenly", [])


def test_promise_7_late_runs_that_are_caught_up_at_once_are_noticed() -> None:
    at_once = [call(slot, LATE_MS + slot) for slot in range(RUNS)]
    assert uneven(DAY, SHOP, *at_once) == ["late runs of shop on daily@2027-01-15 were caught up in a burst"]
    set_back = RULES._replace(clock=RepeatedSpans([SetBackFact(END_MS, T0_MS)]))
    assert uneven(DAY, SHOP, *at_once, rules=set_back) == []
    assert uneven(DAY, ProviderFact(5), *at_once) == [], "nothing is known of a provider that was removed"


def test_late_runs_that_are_caught_up_at_a_pace_keep_the_promise() -> None:
    paced = [call(slot, LATE_MS + slot * GAP_MS // 2) for slot in range(RUNS)]
    assert uneven(DAY, SHOP, *paced) == []


def test_calls_that_start_faster_than_the_rate_are_noticed() -> None:
    rated = replace(SHOP, rate_gap_us=20_000_000)
    in_time = [call(slot, T0_MS + slot * GAP_MS) for slot in range(RUNS)]
    assert uneven(DAY, rated, *in_time) == []
    hurried = [*in_time[:54], *(call(slot, T0_MS + 62 * GAP_MS + slot) for slot in range(54, 63)), call(63, None)]
    assert any(
        says.startswith("calls of shop started faster than its rate allows") for says in uneven(DAY, rated, *hurried)
    )
    assert uneven(DAY, replace(rated, updated_ms=END_MS), *hurried) == [], "the policy came into force later"
    assert uneven(DAY, SHOP, *hurried) == []


def test_many_runs_that_are_planned_for_one_gap_are_noticed() -> None:
    total = 640
    day = replace(DAY, end_ms=T0_MS + total * GAP_MS, runs=total)
    mine = {*range(9), *range(90, 640, 10)}
    assert len(mine) == RUNS
    calls = [call(slot, T0_MS + slot * GAP_MS, 5 if slot in mine else 6) for slot in range(total)]
    facts = [day, SHOP, *(one for one in calls if one.provider == 5)]
    facts += [ProviderFact(6, "bank", max_in_flight=1), *(one for one in calls if one.provider == 6)]
    assert any("more than 8 runs of provider 5" in says for says in uneven(*facts))
