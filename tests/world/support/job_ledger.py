"""Independent books of jobs: what was admitted, sent and ended here, beside what really happened at RIPE.

The store's acts are watched as they take effect, also those whose caller died before it could read the result. RIPE's
side is the simulator's own world, which no lag and no lost reply hides from us.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from paceline.core.jobs.atlas import Marker, parse_marker_tag, site_tag
from paceline.core.jobs.meters import DAY_MS
from paceline.core.jobs.values import (
    Admitted,
    Already,
    EndResult,
    MeasurementEnd,
    OverCredits,
    SendOutcome,
    Sent,
    StoredJob,
    StoredMeasurement,
    Submission,
)
from paceline.core.users import User, UserEdit
from paceline.ports import JobStore
from paceline.simulators.ripe_atlas.measurements import STOPPED, SimulatedMeasurement
from paceline.simulators.ripe_atlas.world import World
from paceline.steps.jobs.reconcile import Reconciled
from tests.world.support.ledger import demand

QUOTAS = ("concurrent", "daily_results", "daily_credits", "balance")
TERMINAL = frozenset({"done", "failed", "cancelled"})
EVERYTHING = 10_000
SITE = "w0rld"
UNCOUNTED = "settled on the most it can cost"


class Truth:
    """What is so at RIPE, whatever RIPE says."""

    def __init__(self, world: World, site: str) -> None:
        self._world = world
        self._tag = site_tag(site)
        self._site = site

    def ours(self) -> list[tuple[Marker, SimulatedMeasurement]]:
        found = []
        for one in self._world.measurements.values():
            markers = [parse_marker_tag(tag) for tag in one.tags]
            marker = next((one for one in markers if one is not None and one.site == self._site), None)
            if marker is not None:
                found.append((marker, one))
        return found

    def refusals(self, account: str) -> dict[str, int]:
        """For want of room."""
        counts: Counter[str] = self._world.refusals.get(account, Counter())
        return {reason: counts[reason] for reason in QUOTAS if counts.get(reason)}

    def used(self, account: str) -> dict[str, int]:
        """What RIPE counts for our measurements of an account, computed like ``simulators.ripe_atlas.quotas``."""
        now_ms = self._world.now_ms()
        used = {"concurrent": 0, "results": 0, "credits": 0}
        for _, one in self.ours():
            if one.account != account:
                continue
            count = one.results_between(now_ms - DAY_MS, now_ms)
            if one.is_running(now_ms):
                used["concurrent"] += 1
                count = max(count, one.results_per_day)
            used["results"] += count
            used["credits"] += count * one.price
        return used

    def charge(self, atlas_id: int) -> int:
        """What it delivered by now, in credits."""
        one = self._world.measurements[atlas_id]
        return one.results_until(self._world.now_ms()) * one.price

    def stopped(self, atlas_id: int) -> bool:
        """It ended as it should."""
        return self._world.measurements[atlas_id].status_at(self._world.now_ms()).id == STOPPED

    def all_came(self, atlas_id: int) -> bool:
        """All that could come of a one-off had come, whatever it was ended with afterwards."""
        one = self._world.measurements[atlas_id]
        return one.is_oneoff and 0 < len(one.probes) <= one.results_until(self._world.now_ms())


@dataclass
class JobBook:
    """A job that was admitted. ``owner`` is the user's life: a user removed and added again is another."""

    id: str
    number: int
    owner: str
    measurements: int
    reserved: int
    created_ms: int
    finished: StoredJob | None = None
    purged: bool = False


@dataclass
class JobBooks:
    truth: Truth
    site: str = SITE
    jobs: dict[str, JobBook] = field(default_factory=dict)
    keys: dict[tuple[str, str], str] = field(default_factory=dict)
    """Idempotency keys, and what they stand for."""
    limits: dict[str, int] = field(default_factory=dict)
    """The highest that a user's daily limit ever was."""
    lives: dict[str, int] = field(default_factory=dict)
    sent: dict[int, tuple[int, ...]] = field(default_factory=dict)
    ended: dict[int, StoredMeasurement] = field(default_factory=dict)
    """What was sent and has ended, as the store had it then."""
    last: dict[int, StoredMeasurement] = field(default_factory=dict)
    """Each measurement when it was last looked at."""
    outcomes: Counter[str] = field(default_factory=Counter)
    """What came of sends and lookups."""
    events: int = 0

    def some_job(self, random: Random) -> JobBook | None:
        open_jobs = [job for job in self.jobs.values() if job.finished is None]
        return random.choice(open_jobs) if open_jobs else None

    def life_of(self, owner: str) -> str:
        return f"{owner}#{self.lives.get(owner, 0)}"

    # -- what took effect

    def submitted(self, item: Submission, found: Admitted | Already | OverCredits | None) -> None:
        name = (self.life_of(item.owner), item.idempotency_key or "")
        known = self.keys.get(name) if item.idempotency_key else None
        if known is not None and self.jobs[known].purged:
            known = None  # nobody sees it any more, so its key is free
        match found:
            case Admitted():
                demand(5, known is None, f"{name} was admitted twice: {known} and {found.job.id}")
                job = found.job
                self.jobs[job.id] = JobBook(job.id, job.number, name[0], job.measurements, job.reserved, job.created_ms)
                if item.idempotency_key:
                    self.keys[name] = job.id
                used = found.budget.spent + found.budget.held
                demand(8, used <= self.limits[item.owner], f"{item.owner} has {used} credits in use, over the limit")
            case Already():
                demand(5, known == found.job.id, f"{name} is {found.job.id}, and was admitted as {known}")
            case OverCredits():
                demand(8, found.cost > found.budget.left, f"{item.owner} was refused what would fit: {found}")
            case None:
                pass
        self.events += 1

    def answered(self, handle: int, outcome: SendOutcome) -> None:
        self.events += 1
        if isinstance(outcome, Sent):
            demand(9, handle not in self.sent, f"measurement {handle} was sent twice: {outcome}")
            self.sent[handle] = outcome.atlas_ids

    def ends(self, item: StoredMeasurement) -> None:
        self.events += 1
        demand(8, item.handle not in self.ended, f"measurement {item.handle} ended twice")
        demand(9, item.handle in self.sent, f"measurement {item.handle} ended and was never sent")
        self.ended[item.handle] = item
        judge_end(self, item)

    def finishes(self, jobs: Iterable[StoredJob]) -> None:
        for job in jobs:
            self.events += 1
            book = self.jobs[job.id]
            demand(11, book.finished is None, f"job {job.id} finished twice")
            demand(11, job.open == 0 and job.finished, f"job {job.id} finished with {job.open} open")
            book.finished = job

    def reconciled(self, report: Reconciled) -> None:
        """Nothing here is ever sent twice or forgotten, so whatever is stopped as an orphan is somebody's.

        To stop one more time what has ended, because RIPE's list is old, does no harm.
        """
        strays = [one for one in report.orphans if one.why != "its measurement ended"]
        demand(9, not strays, f"taken for orphans: {strays}")


class WatchedJobs:
    """Reports calls that took effect to the books; all other methods are those of the store."""

    def __init__(self, inner: Any, books: JobBooks, past: Any) -> None:
        self._inner = inner
        self._books = books
        self._past = past

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def add_user(self, user: User) -> bool:
        added: bool = self._inner.add_user(user)
        if added:
            self._books.lives[user.id] = self._books.lives.get(user.id, 0) + 1
            self._books.limits[user.id] = user.daily_credits
        return added

    def edit_user(self, user_id: str, edit: UserEdit) -> User | None:
        user: User | None = self._inner.edit_user(user_id, edit)
        if user is not None:
            self._books.limits[user_id] = max(self._books.limits[user_id], user.daily_credits)
        return user

    def submit(self, item: Submission, *, now_ms: int) -> Any:
        found = self._inner.submit(item, now_ms=now_ms)
        self._books.submitted(item, found)
        return found

    def answer(self, handle: int, attempt: int, outcome: SendOutcome, **more: Any) -> bool:
        won: bool = self._inner.answer(handle, attempt, outcome, **more)
        if won:
            self._books.answered(handle, outcome)
        self._past.append(("answer", (handle, attempt, outcome), more))
        return won

    def end(self, endings: Sequence[MeasurementEnd], *, now_ms: int) -> list[EndResult]:
        found: list[EndResult] = self._inner.end(endings, now_ms=now_ms)
        for ending, ended in zip(endings, found, strict=True):
            if ended.won:
                self._books.ends(self._inner.measurement(ending.handle))
        self._past.append(("end", (endings,), {"now_ms": now_ms}))
        return found

    def free_slots(self, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
        found: list[bool] = self._inner.free_slots(fences, now_ms=now_ms)
        self._past.append(("free_slots", (fences,), {"now_ms": now_ms}))
        return found

    def purge_jobs(self, *, finished_before_ms: int, limit: int) -> int:
        removed: int = self._inner.purge_jobs(finished_before_ms=finished_before_ms, limit=limit)
        for book in self._books.jobs.values() if removed else ():
            if not book.purged and book.finished is not None and self._inner.job(book.id) is None:
                assert book.finished.finished_ms is not None
                soon = book.finished.finished_ms >= finished_before_ms
                demand(10, not soon, f"job {book.id} was removed too soon")
                book.purged = True
        return removed

    def finish_jobs(self, *, now_ms: int, limit: int) -> list[StoredJob]:
        jobs: list[StoredJob] = self._inner.finish_jobs(now_ms=now_ms, limit=limit)
        self._books.finishes(jobs)
        return jobs


def look(books: JobBooks, store: JobStore) -> None:
    """Every job and measurement as the store has it: none is lost, none that has ended changes."""
    there = {job.id: job for job in store.jobs(None, before=None, limit=EVERYTHING)}
    for job_id, book in books.jobs.items():
        job = there.get(job_id)
        if job is None:
            demand(10, book.purged, f"job {job_id} is lost")
            continue
        demand(11, job.finished == (book.finished is not None), f"job {job_id}: finished is {job.finished}")
        if book.finished is not None:
            demand(11, _same_end(job, book.finished), f"job {job_id} changed after it had finished")
        for item in store.measurements(job.number, after=-1, limit=EVERYTHING):
            _look_at(books, item)


def _same_end(job: StoredJob, finished: StoredJob) -> bool:
    names = ("done", "failed", "cancelled", "settled", "refunded", "open", "finished_ms", "success")
    return all(getattr(job, name) == getattr(finished, name) for name in names)


def _look_at(books: JobBooks, item: StoredMeasurement) -> None:
    before = books.last.get(item.handle)
    if before is not None and before.state in TERMINAL:
        same = (item.state, item.settled, item.ended_ms) == (before.state, before.settled, before.ended_ms)
        demand(11, same, f"{item.job}/{item.index} had ended as {before.state}, and is {item.state}")
    if before is not None and before.stopping:
        demand(11, item.stopping, f"{item.job}/{item.index} was to be stopped, and is not any more")
    books.last[item.handle] = item


def check_budgets(books: JobBooks, store: JobStore, owners: Iterable[str], *, now_ms: int) -> None:
    """A user's day is what its jobs of that day hold and cost."""
    for owner in owners:
        budget = store.budget(owner, now_ms=now_ms)
        if budget is None:
            continue
        used = budget.spent + budget.held
        demand(8, used <= books.limits[owner], f"{owner} has {used} credits in use, over {books.limits[owner]}")
        of_day = [
            book
            for book in books.jobs.values()
            if book.owner == books.life_of(owner) and book.created_ms // DAY_MS == now_ms // DAY_MS
        ]
        if any(book.purged for book in of_day):
            continue
        found = [store.job(book.id) for book in of_day]
        due = sum(job.reserved - job.refunded for job in found if job is not None)
        demand(8, used == due, f"{owner} has {used} credits in use, and its jobs make {due}")


def check_quotas(truth: Truth, store: JobStore, accounts: Iterable[tuple[str, bool]], *, now_ms: int) -> None:
    """No account counts less than RIPE does; and where nobody else measures, RIPE has no reason to refuse."""
    for name, only_ours in accounts:
        if only_ours:
            refused = truth.refusals(name)
            demand(8, not refused, f"RIPE refused {name}, which nobody else uses: {refused}")
        account = store.account(name, now_ms=now_ms)
        assert account is not None
        real = truth.used(name)
        for meter in (account.concurrent, account.results, account.credits):
            word = meter.name.rpartition("/")[2]
            mine = meter.spent + meter.held
            demand(8, real[word] <= mine, f"RIPE counts {real[word]} {word} of {name}, and we count {mine}")


def check_duplicates(truth: Truth) -> None:
    posts: dict[tuple[str, int], set[int]] = {}
    for marker, one in truth.ours():
        posts.setdefault((marker.job, marker.index), set()).add(one.post)
    doubled = {name: those for name, those in posts.items() if len(those) > 1}
    demand(9, not doubled, f"sent more than once: {doubled}")


def check_true_end(books: JobBooks) -> None:
    """All has ended here as it ended there, and costs what was delivered."""
    truth = books.truth
    for job in books.jobs.values():
        demand(10, job.finished is not None, f"job {job.id} never finished")
    numbers = {book.id: book.number for book in books.jobs.values()}
    at_ripe: dict[int, list[SimulatedMeasurement]] = {}
    for marker, one in truth.ours():
        at_ripe.setdefault(numbers[marker.job] << 14 | marker.index, []).append(one)
    for handle, those in at_ripe.items():
        demand(10, handle in books.ended, f"{handle} is at RIPE as {[one.id for one in those]}, and nobody followed it")
        demand(9, books.sent[handle] == tuple(one.id for one in those), f"{handle} took others for its own")
        judge_end(books, books.ended[handle])
    for handle in books.ended:
        demand(11, handle in at_ripe, f"{handle} ended and was never at RIPE")
    for handle, item in books.last.items():
        if item.state == "done":
            demand(11, handle in at_ripe, f"{item.job}/{item.index} is done and was never at RIPE")
        demand(8, handle in at_ripe or not item.settled, f"{item.job}/{item.index} was never at RIPE, and is charged")


def judge_end(books: JobBooks, item: StoredMeasurement) -> None:
    """Nothing comes after it has ended here, so what is true then is true for ever."""
    truth, ids, settled = books.truth, books.sent[item.handle], item.settled or 0
    name = f"{item.job}/{item.index}"
    real = sum(truth.charge(one) for one in ids)
    if UNCOUNTED in item.reason:
        # For hours no key could ask for it: then it may cost the most it can, and not less than it did.
        demand(8, settled >= real, f"{name} was charged {settled}, and {real} were delivered")
        return
    if item.state == "done":
        well = all(truth.stopped(one) or truth.all_came(one) for one in ids)
        demand(11, well, f"{name} is done, and at RIPE {ids} did not succeed")
    if item.state == "failed":
        well = all(truth.stopped(one) for one in ids)
        demand(11, not well, f"{name} failed ({item.reason}), and at RIPE {ids} succeeded")
    demand(8, settled == real, f"{name} ({item.state}) was charged {settled}, and {real} were delivered")
