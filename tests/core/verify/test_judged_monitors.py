"""Monitors before the judges: a clean ledger passes, and each kind of damage breaks the promise that it breaks."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from paceline.core.monitors.leases import EXPIRED
from paceline.core.verify.cron_times import is_cron_time
from paceline.core.verify.facts import EntryFact, Fact, MonitorFact, RunFact, SetBackFact
from paceline.core.verify.judge import Judges
from paceline.core.verify.rules import RepeatedSpans, Rules
from paceline.core.verify.verdict import Promise
from tests.core.support.ledgers import count_judged, judged

T0_MS = 1_800_000_000_000
MINUTE_MS = 60_000
RULES = Rules(now_ms=T0_MS + 170_000, keep_ms=10**9, expire_ms=600_000)
MONITOR = MonitorFact(7, "ada", "web", defined=True, failures=0)
ENTRY = EntryFact(7, 3, T0_MS + 3 * MINUTE_MS, every_ms=MINUTE_MS, base_ms=T0_MS)


def run(counter: int, **fields: Any) -> RunFact:
    due_ms = T0_MS + counter * MINUTE_MS
    one = RunFact(7, counter, due_ms, "ok", attempt=1, started_ms=due_ms + 10, ended_ms=due_ms + 60)
    return replace(one, **fields)


RUNS = (run(0), run(1), run(2))
OTHER = MonitorFact(8, "bob", "db", defined=True)
CLEAN = (MONITOR, ENTRY, *RUNS, OTHER, EntryFact(8, 0, None))


def with_run(counter: int, **fields: Any) -> tuple[Fact, ...]:
    runs = [replace(one, **fields) if one.counter == counter else one for one in RUNS]
    return (MONITOR, ENTRY, *runs)


def waits(counter: int, state: str = "waiting", **fields: Any) -> RunFact:
    return run(counter, **{"state": state, "attempt": 0, "started_ms": None, "ended_ms": None} | fields)


def test_clean_monitors_keep_every_promise() -> None:
    assert judged(CLEAN, RULES) == {}
    counts = count_judged(CLEAN, RULES)
    assert counts["once"] >= 5
    assert counts["on the grid"] == 4
    assert counts["in order"] >= 3
    assert counts["nothing lost"] >= 5


CASES: list[tuple[tuple[Fact, ...], Promise, str]] = [
    ((MONITOR, ENTRY, replace(ENTRY, counter=4), *RUNS), "once", "ada/web#7 has two next firings"),
    ((MONITOR, ENTRY, *RUNS, run(3, due_ms=T0_MS + 170_000)), "once", "the entry will make it again"),
    ((replace(MONITOR, folded=3), ENTRY, *RUNS), "once", "has a run that was never made"),
    ((MONITOR, ENTRY, *RUNS[:2], RUNS[1], RUNS[2]), "once", "ada/web#7@1 was made twice"),
    (with_run(2, due_ms=T0_MS + MINUTE_MS), "once", "fired twice for one due time"),
    (with_run(1, open_too=True), "once", "has ended and may be started again"),
    (with_run(1, attempt=0), "once", "nobody ever claimed it"),
    (with_run(2, state="out", ended_ms=None, until_ms=T0_MS + 120_500), "once", "under a lease of 490 ms"),
    (with_run(1, attempt=2, claimed_ms=T0_MS + 62_000), "once", "an earlier one reported it"),
    (
        (replace(MONITOR, repeatable=False), *with_run(1, attempt=2, claimed_ms=T0_MS + 60_005, lost=True)[1:]),
        "once",
        "was carried out again, and an earlier attempt may have reached its target",
    ),
    (with_run(1, ended_ms=T0_MS + 55_000), "in order", "ended before it started"),
    (with_run(1, started_ms=T0_MS + 55_000), "in order", "started before it was due"),
    (with_run(2, ended_ms=T0_MS + 999_000), "in order", "has a time that has not come yet"),
    (with_run(2, due_ms=T0_MS + MINUTE_MS - 50), "in order", "were made in another order than they were due"),
    (with_run(0, ended_ms=T0_MS + 65_000), "in order", "started before the run before it had ended"),
    ((MONITOR, ENTRY, RUNS[0], waits(1), RUNS[2]), "in order", "the run before it has not ended"),
    (with_run(1, due_ms=T0_MS + MINUTE_MS + 25), "on the grid", "between two points of the raster"),
    (with_run(1, due_ms=T0_MS + MINUTE_MS + 50), "on the grid", "is not due on the grid of its entry"),
    ((MONITOR, replace(ENTRY, due_ms=T0_MS + 200_050), *RUNS), "on the grid", "the next firing of ada/web#7"),
    ((MONITOR, *RUNS), "nothing lost", "it will never fire"),
    ((replace(MONITOR, defined=False), ENTRY, *RUNS), "nothing lost", "is deleted and its entry would fire again"),
    ((MONITOR, ENTRY, RUNS[0], RUNS[2]), "nothing lost", "ada/web#7@1 is gone and in no roll-up"),
    ((MONITOR, ENTRY, *RUNS[1:]), "nothing lost", "ada/web#7@0 is gone and in no roll-up"),
    ((MONITOR, ENTRY, *RUNS[:2]), "nothing lost", "ada/web#7@2 is gone and in no roll-up"),
    ((MONITOR, ENTRY), "nothing lost", "ada/web#7@2 is gone and in no roll-up"),
    ((replace(MONITOR, folded=2, folded_ms=T0_MS), ENTRY), "nothing lost", "ended a moment ago and was deleted"),
    (with_run(1, state=""), "nothing lost", "has neither ended nor waits"),
    (with_run(1, ended_ms=None), "nothing lost", "has ended and nobody knows when"),
    (with_run(0, state="failed"), "nothing lost", "is failed for no reason"),
    (with_run(1, state="dead", reason=EXPIRED, attempt=0), "nothing lost", "ended as expired before its time"),
    (with_run(2, state="failed", reason="503"), "nothing lost", "failed, and nothing of it is remembered"),
    ((replace(MONITOR, failures=2), ENTRY, *RUNS), "nothing lost", "is remembered as a failure"),
]


@pytest.mark.parametrize(("facts", "promise", "words"), CASES, ids=[case[2] for case in CASES])
def test_damage_to_a_monitors_ledger_breaks_its_promise(facts: tuple[Fact, ...], promise: Promise, words: str) -> None:
    broken = judged((*facts, OTHER, EntryFact(8, 0, None)), RULES)
    assert any(words in says for says in broken.get(promise, [])), broken


INNOCENT: dict[str, tuple[Fact, ...]] = {
    "runs that wait": (MONITOR, ENTRY, RUNS[0], waits(1), waits(2, "parked")),
    "a run that is out": with_run(2, state="out", ended_ms=None, until_ms=T0_MS + 180_000),
    "a recorded change": (replace(MONITOR, changed=True), *RUNS),
    "a deleted monitor": (replace(MONITOR, defined=False), *RUNS),
    "an extra run": (MONITOR, replace(ENTRY, counter=4), *RUNS, run(3, due_ms=T0_MS + 120_070, extra=True)),
    "runs in the roll-up": (replace(MONITOR, folded=1, folded_ms=T0_MS - 2 * 10**9), ENTRY, RUNS[2]),
    "a roll-up beside its runs": (replace(MONITOR, folded=2, folded_ms=T0_MS + 120_060), ENTRY, *RUNS),
    "a failure that is remembered": (
        replace(MONITOR, failures=1),
        ENTRY,
        *RUNS[:2],
        run(2, state="failed", reason="x"),
    ),
    "a run given up": with_run(1, state="dead", attempt=0, started_ms=None, reason="given up"),
    "an expired run": with_run(2, state="dead", attempt=0, started_ms=None, ended_ms=T0_MS + 720_000, reason=EXPIRED),
    "an engine that tells no health": (replace(MONITOR, failures=None), ENTRY, *RUNS),
    "an unknown outcome": with_run(2, state="unknown", reason="cut short"),
    "an entry that was armed later": (
        MONITOR,
        replace(ENTRY, base_ms=T0_MS + MINUTE_MS),
        run(0, due_ms=T0_MS - 50),
        *RUNS[1:],
    ),
    "an entry that rests": (MONITOR, replace(ENTRY, due_ms=None, base_ms=None), *RUNS),
    "a later attempt that reported itself": with_run(1, attempt=2, claimed_ms=T0_MS + 60_005, lost=True),
    "a lost attempt of before an edit": (
        replace(MONITOR, repeatable=False, edited_ms=T0_MS + 100_000),
        *with_run(1, attempt=2, claimed_ms=T0_MS + 60_005, lost=True)[1:],
    ),
    "a generation without a name": (MonitorFact(9),),
}


@pytest.mark.parametrize("name", INNOCENT)
def test_ledger_that_only_looks_unusual_keeps_every_promise(name: str) -> None:
    rules = RULES._replace(now_ms=T0_MS + 800_000)
    assert judged(INNOCENT[name], rules) == {}


def test_facts_from_before_the_asked_time_are_not_judged() -> None:
    facts = with_run(0, state="", due_ms=T0_MS)
    assert judged(facts, RULES)
    assert judged(facts, RULES._replace(since_ms=T0_MS + 1)) == {}


def test_clock_set_back_excuses_the_findings_that_it_explains() -> None:
    twice = with_run(2, due_ms=T0_MS + MINUTE_MS, started_ms=T0_MS + MINUTE_MS + 90, ended_ms=T0_MS + MINUTE_MS + 99)
    assert set(judged(twice, RULES)) >= {"once"}
    clock = RepeatedSpans([SetBackFact(T0_MS + 119_000, T0_MS + 59_000)])
    assert judged(twice, RULES._replace(clock=clock)) == {}


def test_entry_with_a_lead_fires_beside_its_grid_once_and_then_on_it() -> None:
    entry = replace(ENTRY, base_ms=T0_MS, lead_ms=90_000, due_ms=T0_MS + 150_000, counter=2)
    runs = (run(0), run(1, due_ms=T0_MS + 90_000, started_ms=T0_MS + 90_001, ended_ms=T0_MS + 90_002))
    assert judged((MONITOR, entry, *runs), RULES) == {}
    assert "on the grid" in judged((MONITOR, replace(entry, lead_ms=80_000), *runs), RULES)


@pytest.mark.parametrize(("cron", "jitter_ms", "kept"), [("* * * * *", 0, True), ("0 4 * * *", 0, False)])
def test_cron_entry_fires_at_times_of_its_expression(cron: str, jitter_ms: int, *, kept: bool) -> None:
    entry = replace(ENTRY, every_ms=0, cron=cron, jitter_ms=jitter_ms)
    assert ("on the grid" not in judged((MONITOR, entry, *RUNS), RULES)) is kept


def test_jitter_of_a_cron_entry_is_the_same_at_every_firing() -> None:
    entry = replace(ENTRY, every_ms=0, cron="* * * * *", jitter_ms=30_000)
    assert "on the grid" in judged((MONITOR, entry, *RUNS), RULES)
    shifted = [
        shift_ms
        for shift_ms in range(50, 30_000, 50)
        if "on the grid" not in judged((MONITOR, replace(entry, due_ms=T0_MS + 180_000 + shift_ms, counter=0)), RULES)
    ]
    assert len(shifted) == 1


@pytest.mark.parametrize("expression", ["* * * *", "* * * nonsense *", "60-50 * * * *", "5-4 * * * *"])
def test_cron_expression_that_cannot_be_read_says_nothing(expression: str) -> None:
    assert is_cron_time(expression, "UTC", T0_MS)


def test_judges_of_one_kind_of_work_have_nothing_to_say_of_another() -> None:
    judges = Judges(RULES)
    for mine in (judges._lives, judges._calls):
        assert not list(mine.see(SetBackFact(T0_MS, T0_MS - 1)))
