"""Promise "nothing lost" for jobs: counts and sums match the measurements, and a done one succeeded at RIPE."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from paceline.core.verify.budget import JOB_ENDED
from paceline.core.verify.facts import Fact, JobFact, MeasurementFact
from paceline.core.verify.verdict import Counterexample, JudgeFinding

FAILED_AT_RIPE = frozenset({5, 6, 7})
"""RIPE's statuses "forced to stop", "no suitable probes" and "failed"."""


class CompletionJudge:
    """Takes jobs with their measurements, and keeps the sums of one job."""

    def __init__(self) -> None:
        self._judged = 0
        self._broken: list[Counterexample] = []
        self._job: JobFact | None = None
        self._sums: Counter[str] = Counter()

    def see(self, fact: Fact) -> None:
        match fact:
            case JobFact():
                self._end_job()
                self._job = fact
                self._judged += 1
            case MeasurementFact():
                self._judged += 1
                self._add(fact)
                self._broken += _judge_one(fact)
            case _:
                pass

    def finding(self) -> JudgeFinding:
        self._end_job()
        return JudgeFinding("nothing lost", self._judged, self._broken)

    def _add(self, fact: MeasurementFact) -> None:
        ended = fact.state in JOB_ENDED
        settled = fact.settled or 0
        self._sums.update({"measurements": 1, "reserved": fact.credits, fact.state if ended else "open": 1})
        if ended:
            self._sums.update(settled=settled, refunded=fact.credits - settled)

    def _end_job(self) -> None:
        job, sums = self._job, self._sums
        self._job, self._sums = None, Counter()
        if job is None or job.purged:
            return
        names = ("measurements", "open", "done", "failed", "cancelled", "reserved", "settled", "refunded")
        wrong = [name for name in names if getattr(job, name) != sums[name]]
        if wrong:
            says = f"job {job.id}: its measurements come to {', '.join(f'{sums[name]} {name}' for name in wrong)}"
            self._broken.append(Counterexample(says, (job,)))
        if job.finished_ms is not None and sums["open"]:
            self._broken.append(Counterexample(f"job {job.id} is finished, and {sums['open']} are not", (job,)))


def _judge_one(fact: MeasurementFact) -> Iterator[Counterexample]:
    name = f"{fact.job}/{fact.index}"
    if (fact.ended_ms is not None) != (fact.state in JOB_ENDED):
        yield Counterexample(f"{name} is {fact.state}, and when it ended does not fit", (fact,))
    if fact.state == "done" and FAILED_AT_RIPE.intersection(fact.statuses):
        yield Counterexample(f"{name} is done, and did not succeed at RIPE", (fact,))
    if fact.state == "failed" and not fact.reason:
        yield Counterexample(f"{name} is failed for no reason", (fact,))
    if fact.state == "done" and not fact.attempt:
        yield Counterexample(f"{name} is done and was never sent", (fact,))
