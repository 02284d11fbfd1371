"""Promise "once" for jobs: a job is submitted once for each idempotency key, and a measurement runs once at RIPE."""

from __future__ import annotations

from paceline.core.verify.facts import Fact, JobFact, StrayFact
from paceline.core.verify.verdict import Counterexample, JudgeFinding


class SubmissionJudge:
    """Takes strays, then jobs."""

    def __init__(self) -> None:
        self._judged = 0
        self._broken: list[Counterexample] = []
        self._strays: dict[str, StrayFact] = {}

    def see(self, fact: Fact) -> None:
        match fact:
            case StrayFact():
                self._judged += 1
                self._strays.setdefault(fact.job, fact)
            case JobFact():
                self._judged += 1
                self._see_job(fact)
            case _:
                pass

    def finding(self) -> JudgeFinding:
        return JudgeFinding("once", self._judged, self._broken)

    def _see_job(self, job: JobFact) -> None:
        if job.digest and not job.key and not job.purged:
            says = f"job {job.id} was submitted under an idempotency key, which is gone: it may be submitted twice"
            self._broken.append(Counterexample(says, (job,)))
        stray = self._strays.get(job.id)
        if stray is not None:
            says = f"{job.number}/{stray.index} ran at RIPE and is not what the ledger says was sent: it was sent twice"
            self._broken.append(Counterexample(says, (job, stray)))
