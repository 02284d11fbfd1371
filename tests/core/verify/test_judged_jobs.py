"""Jobs before the judges: clean books pass, and each kind of damage breaks the promise that it breaks."""

from __future__ import annotations

from typing import Any

import pytest
from msgspec.structs import replace

from paceline.core.verify.facts import (
    AccountLimitFact,
    Fact,
    JobFact,
    LimitFact,
    MeasurementFact,
    MeterFact,
    PostingFact,
    StrayFact,
)
from paceline.core.verify.rules import Rules
from paceline.core.verify.verdict import Promise
from tests.core.support.ledgers import count_judged, judged

T0_MS = 1_800_000_000_000
RULES = Rules(now_ms=T0_MS + 10**7, keep_ms=10**9)
USER, SLOTS, SPEND = "user/1/2027-01-15", "account/a/concurrent", "account/a/credits"
DAY_METER = MeterFact(USER, "day", 1_000, held=60, spent=40, user="ada")
SLOT_METER = MeterFact(SLOTS, "until_released", 100, held=1, spent=0)
SPEND_METER = MeterFact(SPEND, "sliding", 1_000, held=60, spent=40, released=40)
JOB = JobFact(1, "j1", 2, 1, 1, 0, 0, 120, 40, 20, T0_MS)
DONE = MeasurementFact(
    1,
    0,
    "done",
    1,
    60,
    account="a",
    intent_ms=T0_MS,
    ended_ms=T0_MS + 500_000,
    settled=40,
    statuses=(4,),
    delivered=(10,),
    prices=(4,),
)
OPEN = MeasurementFact(1, 1, "ongoing", 1, 60, slot=True, account="a", intent_ms=T0_MS, statuses=(2,))


def posting(index: int, attempt: int, meter: str, move: str, amount: int) -> PostingFact:
    return PostingFact(1, index, attempt, meter, move, amount, T0_MS)


def closed(attempt: int, meter: str, held: int, spent: int) -> list[Fact]:
    return [
        posting(0, attempt, meter, "hold", held),
        posting(0, attempt, meter, "settle", spent),
        posting(0, attempt, meter, "refund", held - spent),
    ]


OWN, SLOT, PAID = closed(0, USER, 60, 40), closed(1, SLOTS, 1, 0), closed(1, SPEND, 60, 40)
HELD: list[Fact] = [
    posting(1, 0, USER, "hold", 60),
    posting(1, 1, SLOTS, "hold", 1),
    posting(1, 1, SPEND, "hold", 60),
]
METERS: list[Fact] = [DAY_METER, SLOT_METER, SPEND_METER]


def ledger(
    *,
    meters: list[Fact] | None = None,
    job: JobFact = JOB,
    done: MeasurementFact = DONE,
    own: list[Fact] | None = None,
    slot: list[Fact] | None = None,
    still: MeasurementFact = OPEN,
    held: list[Fact] | None = None,
    **_: Any,
) -> list[Fact]:
    """The clean books of a job with one measurement that is done and one that runs, with parts of them changed."""
    found = [*(METERS if meters is None else meters), job, done, *(OWN if own is None else own)]
    return [*found, *(SLOT if slot is None else slot), *PAID, still, *(HELD if held is None else held)]


def test_clean_books_keep_every_promise() -> None:
    assert judged(ledger(), RULES) == {}
    counts = count_judged(ledger(), RULES)
    assert counts["within budget"] == 3 + 9 + 3
    assert counts["nothing lost"] >= 3


CASES: list[tuple[list[Fact], Promise, str]] = [
    (ledger(meters=METERS[:2]), "within budget", "a posting is on no meter"),
    (ledger(own=[*OWN, OWN[1]]), "within budget", "a hold was posted twice"),
    ([*METERS, HELD[0], *ledger()[3:]], "within budget", "a posting is of no measurement"),
    (ledger(slot=SLOT[1:]), "within budget", "1/0, attempt 1 closed what was never held"),
    (ledger(slot=SLOT[:2]), "within budget", "1/0, attempt 1 is half closed"),
    (ledger(own=[*OWN[:2], posting(0, 0, USER, "refund", 19)]), "within budget", "held 60 and closed 59"),
    (ledger(slot=SLOT[:1]), "within budget", "1/0: its slot is held and the line is closed, or the other way"),
    (ledger(still=replace(OPEN, slot=False)), "within budget", "1/1: its slot is held and the line is closed"),
    (
        ledger(meters=[replace(DAY_METER, spent=41), *METERS[1:]]),
        "within budget",
        f"{USER}: the postings come to 60 held and 40 spent",
    ),
    (ledger(meters=[*METERS[:2], replace(SPEND_METER, released=39)]), "within budget", "the releases come to 39"),
    (
        ledger(meters=[replace(DAY_METER, limit=99), *METERS[1:]]),
        "within budget",
        "100 are in use, and never were more than 99 allowed",
    ),
    (ledger(own=[]), "within budget", "1/0 has 0 holds on its user's day"),
    (ledger(done=replace(DONE, credits=61)), "within budget", "holds another sum than it can cost"),
    (ledger(own=OWN[:1]), "within budget", "1/0 has ended and is not settled, or the other way round"),
    (ledger(done=replace(DONE, settled=39)), "within budget", "was settled on another sum than was posted"),
    (ledger(done=replace(DONE, delivered=(9,))), "within budget", "was charged 40, and what was delivered costs 36"),
    (
        [AccountLimitFact("a", 50, 9, 2_000), AccountLimitFact("a", 40, 9, 2_000), *ledger()],
        "within budget",
        f"{SLOTS}: its limit is 100, and never more than 50 was declared",
    ),
    (
        ledger(done=replace(DONE, ended_ms=T0_MS, statuses=(2,))),
        "within budget",
        "1/0 gave its slot back when it ended, and RIPE still counted it as running",
    ),
    (ledger(job=replace(JOB, digest=True)), "once", "under an idempotency key, which is gone"),
    (
        [StrayFact("a", 9, "j1", 1, T0_MS), *ledger()],
        "once",
        "1/1 ran at RIPE and is not what the ledger says was sent",
    ),
    (ledger(job=replace(JOB, done=2, open=0)), "nothing lost", "job j1: its measurements come to 1 open, 1 done"),
    (ledger(job=replace(JOB, refunded=21)), "nothing lost", "come to 20 refunded"),
    (ledger(job=replace(JOB, finished_ms=T0_MS)), "nothing lost", "job j1 is finished, and 1 are not"),
    (ledger(still=replace(OPEN, ended_ms=T0_MS)), "nothing lost", "is ongoing, and when it ended does not fit"),
    (ledger(done=replace(DONE, statuses=(7,))), "nothing lost", "is done, and did not succeed at RIPE"),
    (ledger(done=replace(DONE, state="failed")), "nothing lost", "1/0 is failed for no reason"),
    (ledger(done=replace(DONE, attempt=0)), "nothing lost", "is done and was never sent"),
]


@pytest.mark.parametrize(("facts", "promise", "words"), CASES, ids=[case[2] for case in CASES])
def test_damage_to_a_jobs_books_breaks_its_promise(facts: list[Fact], promise: Promise, words: str) -> None:
    broken = judged(facts, RULES)
    assert any(words in says for says in broken.get(promise, [])), broken


INNOCENT: dict[str, list[Fact]] = {
    "a limit that was lowered since": [
        LimitFact("ada", 500, T0_MS + 5),
        *ledger(meters=[replace(DAY_METER, limit=50), *METERS[1:]]),
    ],
    "what a sliding window gave back": [
        *METERS[:2],
        replace(SPEND_METER, spent=10, released=10),
        PostingFact(0, 0, 0, SPEND, "expire", 30, T0_MS),
        *ledger()[3:],
    ],
    "what earlier postings came to": ledger(
        meters=[replace(DAY_METER, held=65, spent=47, opened_held=5, opened_spent=7), *METERS[1:]]
    ),
    "a meter of one job alone": ledger(meters=[replace(DAY_METER, limit=-1, held=9), *METERS[1:]]),
    "a limit within what was declared": [AccountLimitFact("a", 100, 9, 1_000), *ledger()],
    "a job under an idempotency key": ledger(job=replace(JOB, digest=True, key=True)),
    "a job that is being removed": ledger(job=replace(JOB, purged=True, done=9)),
    "a failure with a reason": ledger(
        job=replace(JOB, done=0, failed=1), done=replace(DONE, state="failed", reason="no suitable probes")
    ),
}


@pytest.mark.parametrize("name", INNOCENT)
def test_books_that_only_look_unusual_keep_every_promise(name: str) -> None:
    assert judged(INNOCENT[name], RULES) == {}
