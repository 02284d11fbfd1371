"""What ``paceline check`` says of meters and jobs: nothing if the rules wrote them, else what is wrong."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.findings import SHOWN_MAX, Finding, examples
from paceline.core.jobs import findings
from paceline.core.jobs.findings import JOB_COUNTS, MeterFacts, StateSums, job_findings, meter_findings
from paceline.core.jobs.meters import Balance, Meter, Posting, Taken, add_up, balances, close, expire, take
from paceline.core.jobs.transitions import ENDED, LIVE, job_sums
from paceline.core.jobs.values import EndState

sends = st.lists(st.tuples(st.integers(0, 50), st.integers(0, 60), st.booleans()), max_size=8)


def books(sends: list[tuple[int, int, bool]]) -> tuple[Meter, list[Posting]]:
    """A sliding meter and its postings after sends that hold, use and mostly settle; the first has left its window."""
    meter, postings = Meter("m", 10**6, "sliding"), list[Posting]()
    for number, (held, used, settles) in enumerate(sends):
        taken = take(str(number), {"m": held}, {"m": meter}, now_ms=number)
        assert isinstance(taken, Taken)
        meter, postings = taken.meters["m"], [*postings, *taken.postings]
        if settles:
            closed = close(taken.hold, {"m": used}, {"m": meter}, now_ms=number * 60_000)
            meter, postings = closed.meters["m"], [*postings, *closed.postings]
    meter, expired = expire(meter, now_ms=86_400_000)
    return meter, [*postings, *expired]


def facts(meter: Meter, postings: list[Posting], *, removed: int = 0) -> MeterFacts:
    opened = add_up(postings[:removed]).balances.get("m", Balance())
    posted = balances((one.meter, one.kind, one.amount) for one in postings[removed:]).get("m", Balance())
    released = sum(one.amount for one in meter.releases)
    return MeterFacts("m", meter.window, Balance(meter.held, meter.spent), opened, posted, released)


@given(sends=sends, removed=st.integers(0, 30))
def test_meter_that_the_rules_wrote_has_no_finding(sends: list[tuple[int, int, bool]], removed: int) -> None:
    assert list(meter_findings(facts(*books(sends), removed=removed))) == []


@given(sends=sends, wrong=st.integers(1, 9), what=st.sampled_from(["held", "spent", "opened", "released"]))
def test_meter_with_a_wrong_figure_has_a_finding(sends: list[tuple[int, int, bool]], wrong: int, what: str) -> None:
    good = facts(*books(sends))
    bad = {
        "held": good._replace(stored=good.stored._replace(held=good.stored.held + wrong)),
        "spent": good._replace(stored=good.stored._replace(spent=good.stored.spent + wrong)),
        "opened": good._replace(opened=good.opened._replace(held=good.opened.held + wrong)),
        "released": good._replace(released=good.released + wrong),
    }[what]
    text = findings.RELEASES if what == "released" else findings.POSTINGS
    assert Finding(text, "m") in set(meter_findings(bad))


@given(amounts=st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["hold", "settle", "refund", "expire"]),
                                  st.integers(0, 9))))  # fmt: skip
def test_sums_of_amounts_balance_as_the_amounts_do(amounts: list[Any]) -> None:
    sums: dict[tuple[str, Any], int] = {}
    for meter, kind, amount in amounts:
        sums[meter, kind] = sums.get((meter, kind), 0) + amount
    assert balances((*key, amount) for key, amount in sums.items()) == balances(amounts)


measurements = st.lists(
    st.tuples(st.sampled_from(sorted({*LIVE, *ENDED})), st.integers(1, 3), st.integers(0, 9), st.integers(0, 9)),
    min_size=1,
    max_size=12,
)


def job(rows: list[tuple[str, int, int, int]]) -> tuple[dict[str, Any], list[StateSums]]:
    """A job as its measurements' ends leave it, and the measurements."""
    stored: dict[str, Any] = dict.fromkeys(JOB_COUNTS, 0) | {"purged": 0, "finished_ms": None}
    sums = []
    for state, definitions, held, settled in rows:
        stored["measurements"] += 1
        stored["open"] += 1
        stored["waiting"] += 1
        stored["reserved"] += held
        stored["definitions"] += definitions
        if state in ENDED:
            end = cast("EndState", state)
            adds = job_sums(end, was="queued", held=held, settled=settled, definitions=definitions)
            for name, amount in adds.items():
                stored[name] += amount
        elif state not in {"queued", "parked"}:
            stored["waiting"] -= 1
        sums.append(StateSums(state, 1, definitions, held, settled if state in ENDED else 0, 0))
    return stored, sums


@given(rows=measurements)
def test_job_that_the_rules_wrote_has_no_finding(rows: list[tuple[str, int, int, int]]) -> None:
    stored, sums = job(rows)
    assert list(job_findings("j", stored, sums)) == []
    assert list(job_findings("j", stored, reversed(sums))) == []


@given(rows=measurements, name=st.sampled_from(JOB_COUNTS), wrong=st.integers(1, 9))
def test_job_with_a_wrong_count_has_a_finding_that_names_it(
    rows: list[tuple[str, int, int, int]], name: str, wrong: int
) -> None:
    stored, sums = job(rows)
    text = findings.DEFINITIONS if name.startswith("definitions") else findings.COUNTS
    assert list(job_findings("j", stored | {name: stored[name] + wrong}, sums)) == [Finding(text, f"j: {name}")]


@given(rows=measurements, purged=st.integers(1, 9), lost=st.integers(0, 1))
def test_job_on_its_way_out_is_finished_and_has_all_that_was_not_removed(
    rows: list[tuple[str, int, int, int]], purged: int, lost: int
) -> None:
    stored, sums = job(rows)
    stored |= {"measurements": len(rows) + purged + lost, "purged": purged, "finished_ms": 1}
    assert list(job_findings("j", stored, sums)) == [Finding(findings.REMOVAL, "j")] * lost
    assert list(job_findings("j", stored | {"finished_ms": None}, sums)) == [Finding(findings.REMOVAL, "j")]


def test_job_without_measurements_has_a_finding() -> None:
    stored, _ = job([])
    assert [str(one) for one in job_findings("j", stored, [])] == ["promise 10: a job has no measurements (job j)"]


def test_few_examples_of_each_finding_are_shown() -> None:
    many = [Finding(text, str(number)) for number in range(9) for text in ("one {}", "two {}")]
    assert len(examples(many)) == 2 * SHOWN_MAX
    assert examples(many)[:3] == ["one 0", "two 0", "one 1"]
