"""Following of measurements that run at RIPE: statuses are read in bulk, results counted, and each is ended once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar, assert_never

import msgspec

from paceline.core.jobs import observations
from paceline.core.jobs.answers import cut
from paceline.core.jobs.atlas import RETRY_AFTER_MS_MAX, RUNNING, Failed, Lost, Ongoing, Refused, Succeeded, Verdict
from paceline.core.jobs.atlas_replies import ListedMeasurement, Unanswered
from paceline.core.jobs.cost import settle_cost
from paceline.core.jobs.observations import Beyond, Count, Gone, Observation, PriceDiffers
from paceline.core.jobs.values import (
    EndState,
    HeldState,
    MeasurementEnd,
    MeasurementProgress,
    StoredJob,
    StoredMeasurement,
)
from paceline.ports import Atlas, Clock, JobStore, Vault
from paceline.steps.jobs import account_queries
from paceline.steps.jobs.counting import Watch, count_results

__all__ = ["FollowReport", "FollowedEnd", "Watch", "finish", "follow"]

T = TypeVar("T")
PAGE = 500
COUNTS_MAX = 500
"""Maximum number of measurements counted in one pass; the others wait for the next."""
COUNT_GIVE_UP_MS = 21_600_000
JOBS_PAGE = 100
JOB_PAGES_MAX = 100
KNOWN = frozenset({*RUNNING, 4, 5, 6, 7, 8})
HELD: tuple[HeldState, ...] = ("ongoing", "done", "failed", "cancelled")


class FollowedEnd(msgspec.Struct, frozen=True):
    """End of a measurement. ``overrun``: credits beyond what was held, which nobody was charged with."""

    job: str
    index: int
    account: str
    state: EndState
    reason: str
    credits: int
    results: int
    overrun: int


class UnknownStatus(NamedTuple):
    account: str
    atlas_id: int
    status: int


class FollowReport(NamedTuple):
    """Report of one pass.

    ``looked``: measurements whose status was read. ``missing``: definitions that RIPE's list does not show.
    """

    looked: int = 0
    missing: int = 0
    counted: int = 0
    put_off: int = 0
    """Number of measurements whose count was left for the next pass."""
    stopped: int = 0
    freed: int = 0
    ended: tuple[FollowedEnd, ...] = ()
    unknown_statuses: tuple[UnknownStatus, ...] = ()
    prices: tuple[PriceDiffers, ...] = ()
    quarantined: tuple[account_queries.Quarantined, ...] = ()
    troubles: tuple[account_queries.Trouble, ...] = ()
    paused_until_ms: int | None = None
    """End of the pause that RIPE asked for, until which it is asked nothing."""


def follow(store: JobStore, atlas: Atlas, vault: Vault, watch: Watch, *, clock: Clock) -> FollowReport:
    """Make one pass over all measurements that hold a slot. A slot is freed once both RIPE and Paceline ended it."""
    now_ms = clock.now_ms()
    if now_ms < watch.paused_until_ms <= now_ms + RETRY_AFTER_MS_MAX:
        return FollowReport(paused_until_ms=watch.paused_until_ms)
    items = _held(store)
    watch.keep(items)
    by_account: dict[str, list[StoredMeasurement]] = {}
    for item in items:
        assert item.account is not None  # a slot is always held at an account
        by_account.setdefault(item.account, []).append(item)
    tally = _Tally()
    for account, those in by_account.items():
        _AccountPass(store, atlas, vault, watch, clock, account, tally).run(those)
        if tally.is_over:
            break
    if tally.paused is None:
        watch.refusals = 0
        return tally.report(None)
    watch.refusals += 1
    watch.paused_until_ms = account_queries.pause_until_ms(tally.paused, refusals=watch.refusals, now_ms=clock.now_ms())
    return tally.report(watch.paused_until_ms)


def finish(store: JobStore, *, now_ms: int) -> list[StoredJob]:
    """Finish jobs whose measurements have all ended, each once. Return them."""
    found: list[StoredJob] = []
    for _ in range(JOB_PAGES_MAX):
        page = store.finish_jobs(now_ms=now_ms, limit=JOBS_PAGE)
        found += page
        if len(page) < JOBS_PAGE:
            break
    return found


def _held(store: JobStore) -> list[StoredMeasurement]:
    found: list[StoredMeasurement] = []
    for state in HELD:
        after = 0
        while page := store.holding(state, after=after, limit=PAGE):
            found += page
            if len(page) < PAGE:
                break
            after = page[-1].handle
    return found


class _Tally:
    """Sums of one pass, and whether the pass stops early."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()
        """Counts by their names in ``FollowReport``."""
        self.losts = 0
        self.ended: list[FollowedEnd] = []
        self.unknown_statuses: list[UnknownStatus] = []
        self.prices: list[PriceDiffers] = []
        self.quarantined: list[account_queries.Quarantined] = []
        self.troubles: dict[account_queries.Trouble, None] = {}
        self.paused: Unanswered | None = None

    @property
    def is_over(self) -> bool:
        return self.paused is not None or self.losts >= account_queries.LOSTS_MAX

    def note_trouble(self, account: str, failed: Unanswered) -> None:
        self.troubles[account_queries.Trouble(account, failed.reason)] = None
        self.losts += isinstance(failed, Lost)
        if account_queries.says_pause(failed):
            self.paused = failed

    def report(self, paused_until_ms: int | None) -> FollowReport:
        return FollowReport(
            **self.counts,
            ended=tuple(self.ended),
            unknown_statuses=tuple(self.unknown_statuses),
            prices=tuple(self.prices),
            quarantined=tuple(self.quarantined),
            troubles=tuple(self.troubles),
            paused_until_ms=paused_until_ms,
        )


class _AccountPass:
    """Part of a pass for one account: its statuses first, in one question, and then what follows from them."""

    def __init__(
        self, store: JobStore, atlas: Atlas, vault: Vault, watch: Watch, clock: Clock, account: str, tally: _Tally
    ) -> None:
        self._store, self._atlas, self._vault = store, atlas, vault
        self._watch, self._clock = watch, clock
        self._account, self._tally = account, tally
        self._key = account_queries.NOBODY
        self._in_the_way: str | None = None
        self._progress: list[MeasurementProgress] = []

    def run(self, items: Sequence[StoredMeasurement]) -> None:
        ids = [one.atlas_id for item in items for one in item.atlas]
        asked = account_queries.ask(
            self._store, self._vault, self._account, lambda key: self._atlas.statuses(key, ids), prefer=items[-1].key
        )
        self._tally.quarantined += asked.quarantined
        if isinstance(asked.answer, Refused | Lost):
            self._tally.note_trouble(self._account, asked.answer)
            return
        self._key = asked.key
        for item in items:
            if self._tally.is_over:
                break
            self._look_at(item, asked.answer)
        self._store.note_progress(self._progress)

    def _look_at(self, item: StoredMeasurement, listed: dict[int, ListedMeasurement]) -> None:
        observed = observations.observe(item, listed)
        self._in_the_way = None
        self._tally.counts["looked"] += 1
        self._tally.counts["missing"] += sum(one.listed is None for one in observed)
        if item.ended_ms is None:
            self._follow(item, observed)
        else:
            self._let_go(item, observed)

    def _follow(self, item: StoredMeasurement, observed: Sequence[Observation]) -> None:
        now_ms = self._clock.now_ms()
        by_status = observations.judge_by_status(item, observed, now_ms=now_ms)
        if item.stopping:
            self._stop([one for one in observed if one.may_deliver])
        elif now_ms >= observations.given_up_ms(item):
            # A measurement that still runs would deliver, and cost, after it was settled.
            self._stop([one for one in observed if one.may_deliver and one.listed is not None])
        if not self._is_to_count(item, observed, by_status, now_ms):
            self._note(item, observed, observations.reported_of(observed))
            return
        if self._tally.is_over or self._tally.counts["counted"] >= COUNTS_MAX:
            self._tally.counts["put_off"] += 1
            return
        self._tally.counts["counted"] += 1
        ids = [one.atlas_id for one in observed]
        counts = self._ask(lambda key: count_results(self._atlas, key, ids))
        if isinstance(counts, Refused | Lost):
            self._tally.note_trouble(self._account, counts)
            self._in_the_way = f"its results cannot be read: {counts.reason}"
            self._do_without(item, observed, by_status, counts.reason)
        elif reason := self._why_uncounted(item, observed, counts, now_ms):
            self._tally.note_trouble(self._account, Refused("request", reason))
            self._in_the_way = f"its results cannot be read: {reason}"
            self._do_without(item, observed, by_status, reason)
        else:
            self._in_the_way = self._in_the_way or ""
            self._watch.note_count(item, begins_ms=observations.begins_ms(item), now_ms=now_ms)
            self._judge(item, observed, counts, now_ms)

    def _is_to_count(
        self, item: StoredMeasurement, observed: Sequence[Observation], by_status: Verdict, now_ms: int
    ) -> bool:
        if not isinstance(by_status, Ongoing):
            return self._watch.may_count(item, now_ms=now_ms)
        # Without a key RIPE hides private measurements, so a missing one says nothing.
        unseen = self._key != account_queries.NOBODY and any(
            observations.is_unseen(item, one, now_ms=now_ms) for one in observed
        )
        if not unseen and (item.stopping or not observations.may_end_early(observed)):
            return False
        return self._watch.may_count_early(item, begins_ms=observations.begins_ms(item), now_ms=now_ms)

    def _why_uncounted(
        self, item: StoredMeasurement, observed: Sequence[Observation], counts: Sequence[Count], now_ms: int
    ) -> str:
        if self._key == account_queries.NOBODY and any(isinstance(one, Gone) for one in counts):
            return "RIPE shows it to its account alone, which has no key that can be used"
        return observations.uncounted(item, observed, counts, now_ms=now_ms)

    def _judge(
        self, item: StoredMeasurement, observed: Sequence[Observation], counts: Sequence[Count], now_ms: int
    ) -> None:
        verdict = observations.judge_by_count(item, observed, counts, now_ms=now_ms)
        reported = observations.reported_of(observed, counts)
        without = next((one for one in counts if isinstance(one, Gone | Beyond)), None)
        if isinstance(verdict, Ongoing):
            self._note(item, observed, reported)
        elif without is not None:
            self._end_at_the_most(item, observed, verdict, without.reason)
        else:
            self._store.note_progress(
                [MeasurementProgress(item.handle, item.attempt, reported, observations.scheduled_of(observed))]
            )
            delivered = [results for _, results in reported]
            credits_spent = settle_cost(item.measurement, delivered)
            self._end(item, observed, verdict, credits_spent=credits_spent, results=sum(delivered))

    def _do_without(
        self, item: StoredMeasurement, observed: Sequence[Observation], by_status: Verdict, reason: str
    ) -> None:
        """Handle a count that failed: it is repeated in a later pass, but not for ever."""
        now_ms = self._clock.now_ms()
        self._watch.note_failure(item, now_ms=now_ms)
        if not isinstance(by_status, Ongoing) and now_ms >= observations.given_up_ms(item) + COUNT_GIVE_UP_MS:
            self._end_at_the_most(item, observed, by_status, reason)
        else:
            self._note(item, observed, observations.reported_of(observed))

    def _end_at_the_most(
        self, item: StoredMeasurement, observed: Sequence[Observation], verdict: Verdict, reason: str
    ) -> None:
        """End a measurement whose results cannot be counted: it is settled on the most that RIPE may have charged."""
        words = f"settled on the most it can cost, because its results could not be counted: {reason}"
        cost = item.cost
        self._end(item, observed, verdict, credits_spent=cost.credits, results=cost.results, words=words)

    def _end(
        self,
        item: StoredMeasurement,
        observed: Sequence[Observation],
        verdict: Verdict,
        *,
        credits_spent: int,
        results: int,
        words: str = "",
    ) -> None:
        assert not isinstance(verdict, Ongoing)
        state, reason = _outcome(item, verdict)
        reason = cut("; ".join(part for part in (reason, words) if part))
        ending = MeasurementEnd(item.handle, item.attempt, state, reason, credits_spent, results, verdict.frees_slot)
        [ended] = self._store.end([ending], now_ms=self._clock.now_ms())
        if not ended.won:
            return
        self._tally.ended.append(
            FollowedEnd(
                item.job, item.index, self._account, state, reason, credits_spent, results, overrun=ended.overrun
            )
        )
        self._tally.prices += observations.price_differences(item, observed)
        if isinstance(verdict, Failed) and verdict.unknown_status:
            self._tally.unknown_statuses += [
                UnknownStatus(self._account, one.atlas_id, one.status) for one in observed if one.status not in KNOWN
            ]

    def _let_go(self, item: StoredMeasurement, observed: Sequence[Observation]) -> None:
        """Free the slot of an ended measurement once RIPE no longer counts it as running."""
        now_ms = self._clock.now_ms()
        late = now_ms >= observations.given_up_ms(item)
        running = [one for one in observed if self._may_hold(item, one, now_ms, late=late)]
        if not running:
            [won] = self._store.free_slots([(item.handle, item.attempt)], now_ms=now_ms)
            self._tally.counts["freed"] += won
        elif late or item.state == "cancelled":
            self._stop(running)

    def _may_hold(self, item: StoredMeasurement, one: Observation, now_ms: int, *, late: bool) -> bool:
        if one.listed is not None:
            return one.status in RUNNING
        hidden = self._key == account_queries.NOBODY or not observations.is_unseen(item, one, now_ms=now_ms)
        return hidden and not late

    def _stop(self, observed: Sequence[Observation]) -> None:
        """Ask RIPE to stop them, in every pass again until RIPE shows that they have stopped."""
        for one in observed:
            if self._key == account_queries.NOBODY:
                self._cannot_stop(Refused("key", "nothing can be stopped without a key"))
            elif not self._tally.is_over:
                self._stop_one(one.atlas_id)

    def _stop_one(self, atlas_id: int) -> None:
        answer = self._ask(lambda key: self._atlas.stop(key, atlas_id))
        if not isinstance(answer, Refused | Lost):
            self._tally.counts["stopped"] += 1
            self._in_the_way = self._in_the_way or ""
        elif not (isinstance(answer, Refused) and answer.scope == "request"):
            self._cannot_stop(answer)

    def _cannot_stop(self, answer: Unanswered) -> None:
        """Note that no key of the account could stop it; it is tried again, and ends by itself at the latest."""
        self._tally.note_trouble(self._account, answer)
        self._in_the_way = f"RIPE does not stop it: {answer.reason.rstrip('.')}. It ends when it has run its time"

    def _ask(self, question: Callable[[str], T | Unanswered]) -> T | Unanswered:
        return account_queries.ask_any(self._store, self._vault, self._account, self._key, question)

    def _note(
        self, item: StoredMeasurement, observed: Sequence[Observation], reported: tuple[tuple[int, int], ...]
    ) -> None:
        scheduled = observations.scheduled_of(observed)
        reason = item.reason if self._in_the_way is None else cut(self._in_the_way)
        known = tuple((one.status, one.delivered) for one in item.atlas)
        learned = any(new not in (None, one.scheduled) for new, one in zip(scheduled, item.atlas, strict=True))
        if reported != known or learned or reason != item.reason:
            self._progress.append(MeasurementProgress(item.handle, item.attempt, reported, scheduled, reason))


def _outcome(item: StoredMeasurement, verdict: Succeeded | Failed) -> tuple[EndState, str]:
    if item.stopping:
        return "cancelled", "cancelled"
    match verdict:
        case Succeeded():
            return "done", ""
        case Failed():
            return "failed", verdict.reason
        case _:
            assert_never(verdict)
