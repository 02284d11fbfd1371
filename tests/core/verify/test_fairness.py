"""Fairness before the judges: a user who is passed too often is noticed, and one who waits for a reason is not."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from paceline.core.verify.absences import LATER_MS
from paceline.core.verify.facts import (
    DisabledFact,
    EntryFact,
    Fact,
    JobFact,
    MeasurementFact,
    MonitorFact,
    PostingFact,
    RunFact,
    SetBackFact,
)
from paceline.core.verify.rules import RepeatedSpans, Rules
from tests.core.support.ledgers import count_judged, judged

T0_MS = 1_800_000_000_000
RULES = Rules(now_ms=T0_MS + 5_000_000, keep_ms=10**9, lease_ms=180_000)
ADA, BOB = MonitorFact(1, "ada", "web", defined=True), MonitorFact(2, "bob", "db", defined=True)
ENTRY = EntryFact(1, 1, None)
WAITED = RunFact(1, 0, T0_MS, "ok", attempt=1, started_ms=T0_MS + 1_000_000, ended_ms=T0_MS + 1_000_050, made=1)


def started(generation: int, counter: int, at_ms: int, **fields: Any) -> RunFact:
    one = RunFact(generation, counter, at_ms, "ok", attempt=1, started_ms=at_ms, ended_ms=at_ms + 50, made=2 + counter)
    return replace(one, **fields)


PASSING = [started(2, number, T0_MS + 200_000 + 10_000 * number) for number in range(30)]


def checks(
    *,
    run: RunFact = WAITED,
    ada: MonitorFact = ADA,
    entry: EntryFact = ENTRY,
    bob: MonitorFact = BOB,
    passing: list[RunFact] = PASSING,
) -> list[Fact]:
    return [ada, entry, run, bob, EntryFact(2, len(passing), None), *passing]


def unfair(facts: list[Fact], rules: Rules = RULES) -> list[str]:
    return judged(facts, rules).get("fair", [])


def test_promise_13_run_that_is_passed_by_many_checks_of_another_user_is_noticed() -> None:
    assert unfair(checks()) == ["ada/web#1@0 waited, its owner had nothing out, and bob started 29 checks"]
    assert count_judged(checks(), RULES)["fair"] == 31


def test_run_that_still_waits_is_judged_up_to_now() -> None:
    waits = replace(WAITED, state="waiting", attempt=0, started_ms=None, ended_ms=None)
    assert unfair(checks(run=waits), RULES._replace(now_ms=T0_MS + 600_000))


def test_run_at_a_full_target_is_judged_by_the_checks_of_that_target_alone() -> None:
    ada, bob = replace(ADA, target="a:80"), replace(BOB, target="a:80")
    assert unfair(checks(ada=ada, bob=bob))
    full = [MonitorFact(3, "cyd", "x", defined=True, target="a:80"), EntryFact(3, 1, None)]
    full.append(started(3, 0, T0_MS + 190_000, ended_ms=T0_MS + 900_000, made=40))
    assert unfair([*checks(ada=ada), *full]) == []
    assert unfair(checks(ada=ada)), "the target had room"


def test_run_of_an_engine_that_keeps_no_order_of_making_is_judged_by_later_ones() -> None:
    run = replace(WAITED, made=0, started_ms=T0_MS + 2_000_000, ended_ms=T0_MS + 2_000_050)
    later = [started(2, number, T0_MS + 910_000 + 10_000 * number, made=0) for number in range(30)]
    assert unfair(checks(run=run, passing=later))
    older = [replace(one, due_ms=T0_MS - 5) for one in later]
    assert unfair(checks(run=run, passing=older)) == []


OUT = [MonitorFact(3, "ada", "x", defined=True), EntryFact(3, 1, None)]
INNOCENT_CHECKS: dict[str, list[Fact]] = {
    "few were started meanwhile": checks(passing=PASSING[:20]),
    "its owner was disabled": [DisabledFact("ada", T0_MS + 500_000), *checks()],
    "its owner was disabled shortly before": [DisabledFact("ada", 0, T0_MS - LATER_MS), *checks()],
    "its owner had a check out": [*checks(), *OUT, started(3, 0, T0_MS + 190_000, ended_ms=T0_MS + 900_000, made=40)],
    "it was made after all others": checks(run=replace(WAITED, made=99)),
    "nobody knows when it was made": checks(run=replace(WAITED, made=0)),
    "it was edited since": checks(ada=replace(ADA, edited_ms=T0_MS + 5)),
    "it was tried before": checks(run=replace(WAITED, attempt=2)),
    "a checker of its owner's takes it": checks(ada=replace(ADA, outgoing=True)),
    "its owner is not known": checks(ada=replace(ADA, owner="")),
    "it makes up for what it missed": checks(entry=replace(ENTRY, missed="all")),
    "it waited no longer than a lease": checks(run=replace(WAITED, started_ms=T0_MS + 100_000)),
}


@pytest.mark.parametrize("name", INNOCENT_CHECKS)
def test_check_that_waits_for_a_reason_is_not_called_unfair(name: str) -> None:
    assert unfair(INNOCENT_CHECKS[name]) == []


def test_clock_that_was_set_back_excuses_a_long_wait() -> None:
    rules = RULES._replace(clock=RepeatedSpans([SetBackFact(T0_MS + 300_000, T0_MS + 100_000)]))
    assert unfair(checks(), rules) == []


def job(number: int, owner: int, user: str, **fields: Any) -> JobFact:
    return replace(JobFact(number, f"j{number}", 1, 0, 1, 0, 0, 0, 0, 0, T0_MS, owner=owner, user=user), **fields)


def sent(number: int, index: int, at_ms: int, **fields: Any) -> list[Fact]:
    item = MeasurementFact(number, index, "done", 1, 60, ended_ms=T0_MS + 9**9, statuses=(4,))
    item = replace(item, needs=(1, 10, 60), types=("ping",), targets=("a",))
    hold = PostingFact(number, index, 1, "account/a/concurrent", "hold", 1, at_ms)
    return [replace(item, **fields), hold, replace(hold, move="settle")]


def sends(*, of_ada: JobFact | None = None, more: list[Fact] | None = None, **of_bob: Any) -> list[Fact]:
    """Ada's measurement, sent after a hundred seconds, and twelve of Bob's, one each second, sent before it."""
    bob = [fact for index in range(12) for fact in sent(2, index, T0_MS + 1_000 * (index + 1), **of_bob)]
    ada = [of_ada or job(1, 1, "ada"), *sent(1, 0, T0_MS + 100_000)]
    return [*ada, job(2, 2, "bob"), *bob, *(more or [])]


def test_promise_13_measurement_that_another_user_passes_again_and_again_is_noticed() -> None:
    assert unfair(sends()) == ["1/0 waited while 12 of another user were sent that are alike and no smaller"]
    waits = replace(sent(1, 0, 0)[0], state="queued", attempt=0, ended_ms=None, statuses=())
    assert isinstance(waits, MeasurementFact)
    assert unfair([job(1, 1, "ada"), waits, *sends()[4:]])


INNOCENT_SENDS: dict[str, list[Fact]] = {
    "those of the other are smaller": sends(needs=(1, 9, 60)),
    "those of the other have another type": sends(types=("dns",)),
    "RIPE refused their target": sends(statuses=()),
    "its user was disabled": [DisabledFact("ada", T0_MS, T0_MS + 9), *sends()],
    "its user was removed": sends(of_ada=job(1, 1, "")),
    "another of its user's was sent in between": sends(
        more=[job(3, 1, "ada"), *sent(3, 0, T0_MS + 6_500, types=("dns",))]
    ),
    "nothing is known of what it takes": [job(1, 1, "ada"), *sent(1, 0, T0_MS + 100_000, needs=()), *sends()[4:]],
    "it is of no job": sent(1, 0, T0_MS + 100_000),
    "an earlier one of its user's waited first": [
        job(1, 1, "ada"),
        *sent(1, 0, T0_MS + 500),
        *sent(1, 1, T0_MS + 400),
        *sends()[4:],
    ],
}


@pytest.mark.parametrize("name", INNOCENT_SENDS)
def test_measurement_that_waits_for_a_reason_is_not_called_unfair(name: str) -> None:
    assert unfair(INNOCENT_SENDS[name]) == []
