"""Independent books: what was declared, armed, fired, handed out and settled, and what must be true of it.

The ledger is told every store call that took effect, with its result, also those whose caller crashed before it could
read the result. It believes nothing: what breaks a promise raises Broken.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal

from paceline.core.monitors.alerting.stored import HealthChange
from paceline.core.monitors.checks import Check, HttpCheck
from paceline.core.monitors.definition import Monitor, duration_ms
from paceline.core.monitors.due import Advance, CatchUp, ExtraRun
from paceline.core.monitors.outcome import Dead, Done, Retry, Unknown
from paceline.core.monitors.overlap import superseded
from paceline.core.monitors.phases.circle import bucket_of
from paceline.core.monitors.schedule import SLOT_MS, Arm, Cadence, Keep, Remove, Rest, jitter_offset_ms
from paceline.core.monitors.values import Claimed, PutResult, Reacted, RemoveMonitor, RemoveResult, Run, Settlement
from tests.world.support.alert_books import AlertBooks, Pulse
from tests.world.support.broken import Broken, demand

__all__ = ["Broken", "demand"]

TERMINAL = {"ok", "failed", "dead", "unknown"}


@dataclass
class RunRecord:
    """One firing, by (generation, counter)."""

    counter: int
    due_ms: int
    after_ms: int
    state: Literal["waiting", "out", "retry", "ended", "gone", "faded"] = "waiting"
    """Faded: it may have expired, but nobody can see it any more, as its monitor is deleted."""
    handle: int = 0
    attempt: int = 0
    lost: bool = False
    until_ms: int = 0
    """Out: when the lease ends. Retry: when it may start."""
    started_ms: int = 0
    ended_ms: int = 0
    posts: int = 0
    handed_alive: bool = False
    outcome: Done | Dead | Unknown | None = None
    may_have_expired: bool = False
    """Its monitor is deleted and its lease ran out: it may have been held and expired, and nobody can see that."""

    @property
    def over(self) -> bool:
        return self.state in ("ended", "gone", "faded")


@dataclass
class Life:
    """One generation of a monitor, from its creation to the last of its runs."""

    monitor: Monitor
    deleted: bool = False
    has_entry: bool = False
    due_ms: int | None = None
    lead_ms: int = 0
    """From a due time beside the allotted grid to the first point of the grid."""
    phase_ms: int | None = None
    """The phase that its entry is armed on, if one was allotted."""
    cadence: Cadence = field(default_factory=Cadence)
    counter: int = 0
    last_due_ms: int | None = None
    extra: set[int] = field(default_factory=set)
    """Counters of runs that somebody asked for, beside the cadence."""
    runs: dict[int, RunRecord] = field(default_factory=dict)
    pulse: Pulse = field(default_factory=Pulse)

    def firings(self) -> list[RunRecord]:
        """Returns the runs of the cadence."""
        return [run for counter, run in self.runs.items() if counter not in self.extra]

    @property
    def name(self) -> str:
        return f"{self.monitor.owner}/{self.monitor.id}#{self.monitor.generation}"


class Ledger:
    def __init__(self, catch_up: CatchUp) -> None:
        self._catch_up = catch_up
        self.lives: dict[int, Life] = {}
        self.disabled: set[str] = set()
        self.handles: dict[int, tuple[Life, RunRecord]] = {}
        self.events = 0
        """The number of claims and settlements so far."""
        self.superseded = 0
        self.alerts = AlertBooks()
        self.now_ms = 0
        self.latest_ms = 0
        """The latest that the clock has ever shown."""

    def set_clock(self, now_ms: int) -> None:
        if now_ms < self.now_ms:
            for life in self.lives.values():
                life.last_due_ms = None  # times that were over may come again
        self.now_ms = now_ms
        self.latest_ms = max(self.latest_ms, now_ms)

    @property
    def clock_is_behind(self) -> bool:
        """True if the clock was set back and has not caught up yet."""
        return self.now_ms < self.latest_ms

    @property
    def latest_until_ms(self) -> int:
        """By then every lease has run out and every retry may start."""
        open_runs = (run for life in self.lives.values() for run in life.runs.values() if not run.over)
        return max((max(run.until_ms, run.after_ms) for run in open_runs), default=0)

    @property
    def follow_ms(self) -> int:
        """The longest that a queued run waits after the one before it has started."""
        longest_ms = 0
        for life in self.lives.values():
            dues = [run.due_ms for run in life.runs.values()]
            if any(run.state not in ("ended", "gone") for run in life.runs.values()):  # the faded may be there still
                longest_ms = max([longest_ms, *(later - sooner for sooner, later in pairwise(dues))])
        return longest_ms // 2

    def living(self) -> list[Life]:
        return [life for life in self.lives.values() if not life.deleted]

    def find(self, owner: str, name: str) -> Life | None:
        found = [life for life in self.living() if (life.monitor.owner, life.monitor.id) == (owner, name)]
        demand(1, len(found) <= 1, f"{owner}/{name} lives twice")
        return found[0] if found else None

    def resting(self, life: Life) -> bool:
        return life.monitor.spec.paused or life.monitor.owner in self.disabled

    # -- definitions

    def put(self, results: Sequence[PutResult]) -> None:
        for result in results:
            monitor = result.monitor
            if monitor is None or result.disposition not in ("created", "replaced"):
                continue
            before = self.find(monitor.owner, monitor.id)
            if result.disposition == "created":
                demand(3, monitor.generation not in self.lives, f"generation {monitor.generation} is used again")
                demand(3, before is None, f"{monitor.owner}/{monitor.id} was created while it lives")
                self.lives[monitor.generation] = Life(monitor)
                continue
            assert before is not None
            demand(2, monitor.revision == before.monitor.revision + 1, f"{before.name} skipped a revision")
            demand(3, monitor.generation == before.monitor.generation, f"{before.name} changed its generation")
            before.monitor = monitor

    def remove(self, removes: Sequence[RemoveMonitor], results: Sequence[RemoveResult]) -> None:
        for remove, result in zip(removes, results, strict=True):
            life = self.find(remove.owner, remove.id)
            demand(3, (life is not None) == (result != "not_found"), f"{remove.owner}/{remove.id}: wrong answer")
            if result == "removed" and life is not None:
                life.deleted = True

    def remove_user(self, owner: str) -> None:
        self.disabled.discard(owner)
        for life in self.living():
            life.deleted = life.deleted or life.monitor.owner == owner

    # -- entries

    def react(self, reacted: Sequence[Reacted], won: Sequence[bool]) -> None:
        for item, moved in zip(reacted, won, strict=True):
            life = self.lives[item.change.generation]
            if not moved:
                continue
            match item.reaction:
                case Keep():
                    pass
                case Remove():
                    demand(10, life.deleted, f"the entry of {life.name} was removed while it lives")
                    life.has_entry, life.due_ms, life.phase_ms = False, None, None
                case Rest(cadence=cadence):
                    life.has_entry, life.due_ms, life.cadence, life.phase_ms = True, None, cadence, None
                case Arm(due_ms=due_ms, cadence=cadence):
                    monitor = item.change.monitor
                    assert monitor is not None
                    self._judge_arm(life, monitor, due_ms, cadence)
                    self._judge_phase(life, monitor, item.reaction)
                    life.has_entry, life.due_ms, life.cadence = True, due_ms, cadence
                    life.lead_ms = item.reaction.lead_ms or 0
                    life.phase_ms = monitor.spec.phase.ms if monitor.spec.phase else None

    def _judge_arm(self, life: Life, monitor: Monitor, due_ms: int, cadence: Cadence) -> None:
        """An edit is exact: what is owed stays owed, what is new takes effect now, nothing fires twice."""
        demand(2, due_ms % SLOT_MS == 0, f"{life.name} is armed off the raster")
        if life.due_ms is not None and life.due_ms <= self.now_ms:
            demand(
                2, due_ms == life.due_ms, f"an edit moved the owed firing of {life.name} by {due_ms - life.due_ms} ms"
            )
            return
        if self.clock_is_behind:
            return
        if life.counter == len(life.extra):
            start_ms = monitor.created_ms + duration_ms(monitor.spec.initial_delay or "0s")
            demand(2, due_ms >= start_ms, f"{life.name} is armed before its initial delay is over")
            return
        if life.last_due_ms is not None:
            demand(2, due_ms > life.last_due_ms, f"an edit lets {life.name} fire twice for one time")
        if cadence.every_ms:
            since_ms = self.now_ms if life.last_due_ms is None else max(self.now_ms, life.last_due_ms)
            longest_ms = cadence.every_ms + min(cadence.jitter_ms, cadence.every_ms)
            demand(2, due_ms <= since_ms + longest_ms, f"{life.name} is armed later than its new interval allows")

    def _judge_phase(self, life: Life, monitor: Monitor, arm: Arm) -> None:
        """An allotted grid is reached with the next firing or the one after it, at most an interval later."""
        phase = monitor.spec.phase
        demand(7, (phase is None) == (arm.lead_ms is None), f"{life.name} is on another grid than its definition says")
        if phase is None or arm.lead_ms is None:
            return
        offset_ms = jitter_offset_ms(arm.cadence, monitor.generation)
        reached_ms = arm.due_ms + arm.lead_ms - offset_ms - phase.ms
        demand(7, reached_ms % arm.cadence.every_ms == 0, f"{life.name} never comes onto its grid")
        latest_ms = arm.cadence.every_ms * 5 // 4
        demand(7, 0 <= arm.lead_ms <= latest_ms, f"{life.name} comes onto its grid late")

    def circles(self) -> dict[str, Counter[int]]:
        """How many armed entries are in each bucket, by interval, as the store should count them."""
        found: dict[str, Counter[int]] = {}
        for life in self.lives.values():
            if life.phase_ms is not None:
                every_ms = life.cadence.every_ms
                found.setdefault(str(every_ms), Counter())[bucket_of(life.phase_ms, every_ms)] += 1
        return found

    def commit(self, advances: Sequence[Advance], won: Sequence[bool], *, now_ms: int) -> None:
        for advance, moved in zip(advances, won, strict=True):
            life = self.lives[advance.due.generation]
            believed = (advance.due.counter, advance.due.due_ms)
            if not moved:
                demand(
                    4,
                    believed != (life.counter, life.due_ms) or advance.due.revision,
                    f"{life.name} lost for no reason",
                )
                continue
            demand(3, life.has_entry, f"{life.name} fires without an entry")
            demand(4, believed == (life.counter, life.due_ms), f"{life.name} advanced from a stale belief {believed}")
            self._judge_slots(life, advance, now_ms)
            self._fire(life, advance)

    def make_extra_runs(self, extra: Sequence[ExtraRun], won: Sequence[bool]) -> None:
        """An extra run needs an entry as it was read and no open run, and moves nothing but the counter."""
        for one, made in zip(extra, won, strict=True):
            life = self.lives[one.entry.generation]
            believed = (one.entry.counter, one.entry.due_ms)
            open_runs = [run for run in life.runs.values() if not (run.over or run.may_have_expired)]
            if not made:
                continue  # the entry has moved, or was armed again at the same time
            demand(3, life.has_entry, f"{life.name} got an extra run without an entry")
            demand(
                4, believed == (life.counter, life.due_ms), f"{life.name}: an extra run of a stale belief {believed}"
            )
            demand(1, not open_runs, f"{life.name} got an extra run beside {[run.counter for run in open_runs]}")
            demand(5, life.counter not in life.runs, f"{life.name}@{life.counter} was made twice")
            life.runs[life.counter] = RunRecord(life.counter, one.due_ms, 0)
            life.extra.add(life.counter)
            life.counter += 1

    def _judge_slots(self, life: Life, advance: Advance, now_ms: int) -> None:
        """Which slots of an interval run is the policy's affair, and the next due time lies ahead."""
        due_ms, every_ms = advance.due.due_ms, life.cadence.every_ms
        demand(1, advance.next_due_ms > now_ms, f"{life.name} was left due")
        if not every_ms or advance.next_due_ms < due_ms:
            return  # cron has its own oracle; backwards it goes when the clock was set back
        slots = [due_ms, *range(due_ms + life.lead_ms, now_ms + 1, every_ms)] if life.lead_ms else None
        count = len(slots) if slots else (now_ms - due_ms) // every_ms + 1
        newest_ms = slots[-1] if slots else due_ms + (count - 1) * every_ms
        on_time = now_ms - newest_ms <= self._catch_up.grace_ms
        kept = {"skip": int(on_time), "once": 1, "all": min(count, self._catch_up.runs_max)}[life.cadence.missed]
        expected = [newest_ms - back * every_ms for back in range(kept - 1, -1, -1)]
        if slots:
            expected = slots[count - kept :]
        allowed = self._after_overlap(life, advance, expected, made_up=count > 1 or not on_time)
        fired = [firing.due_ms for firing in advance.firings]
        policy = f"{life.cadence.missed}, {life.cadence.overlap}"
        demand(2, fired in allowed, f"{life.name} ({policy}) fired {fired} instead of one of {allowed}")

    def _after_overlap(
        self, life: Life, advance: Advance, expected: list[int], *, made_up: bool
    ) -> tuple[list[int], ...]:
        """A firing is skipped if a run was open when the entry was read, and still is: then the policy decides.

        A run that ended in between, or of which nobody can tell, leaves both ways open.
        """
        if life.cadence.overlap == "queue" or (life.cadence.missed == "all" and made_up):
            return (expected,)
        open_runs = [run for run in life.runs.values() if not run.over]
        if any(not run.may_have_expired for run in open_runs):
            return ([],)
        return ([], expected) if open_runs or advance.due.busy else (expected,)

    def _fire(self, life: Life, advance: Advance) -> None:
        if every_ms := life.cadence.every_ms:
            for ms in (advance.next_due_ms, *(firing.due_ms for firing in advance.firings)):
                if ms != advance.due.due_ms:
                    off_ms = (ms - advance.due.due_ms - life.lead_ms) % every_ms
                    demand(2, off_ms == 0, f"{life.name} drifted off its grid")
        self._supersede(life, advance)
        for firing in advance.firings:
            demand(5, firing.counter not in life.runs, f"{life.name}@{firing.counter} was made twice")
            demand(4, firing.counter == life.counter, f"{life.name} skipped from {life.counter} to {firing.counter}")
            fresh = life.last_due_ms is None or firing.due_ms > life.last_due_ms
            demand(2, fresh, f"{life.name} fired twice for {firing.due_ms}")
            life.runs[firing.counter] = RunRecord(firing.counter, firing.due_ms, firing.after_ms)
            life.counter += 1
            life.last_due_ms = firing.due_ms
        life.due_ms, life.lead_ms = advance.next_due_ms, 0

    def _supersede(self, life: Life, advance: Advance) -> None:
        """Of the runs that wait behind the first one, the newest are kept: nobody may be handed the others."""
        waiting = [run for run in life.runs.values() if not run.over][1:]
        made = len(advance.firings)
        ended = superseded(waiting=len(waiting), made=made, waiting_max=advance.waiting_max) if made else 0
        for run in waiting[:ended]:
            run.state, run.ended_ms = "ended", self.now_ms
        self.superseded += ended

    # -- runs

    def may_be_held(self, run: RunRecord | None) -> bool:
        """A run whose lease ran out is held instead of handed out, if its owner is disabled then."""
        return run is None or self.latest_ms >= run.until_ms

    def may_wait_again(self, run: RunRecord, state: str) -> bool:
        """A run whose lease ran out waits once a claim has looked at it: for a place, or until its owner is enabled."""
        return state in ("held", "waiting", "parked") and self.may_be_held(run)

    def claim(self, claimed: Sequence[Claimed]) -> None:
        self.events += len(claimed)
        for item in claimed:
            life = self.lives[item.generation]
            demand(5, item.counter in life.runs, f"{life.name}@{item.counter} was handed out but never made")
            run = life.runs[item.counter]
            label = f"{life.name}@{run.counter}"
            demand(5, not run.over or run.state == "faded", f"{label} was handed out after it ended")
            # Once its moment has come it has come, even if the clock was set back since.
            demand(6, self.latest_ms >= run.after_ms, f"{label} was handed out before its moment")
            free = run.state == "waiting" or self.latest_ms >= run.until_ms
            demand(6, free, f"{label} was handed out too early")
            earlier = [
                other.counter
                for other in life.runs.values()
                if other.counter < run.counter and not (other.over or other.may_have_expired)
            ]
            demand(6, not earlier, f"{label} was handed out before {earlier} ended")
            demand(10, item.attempt > run.attempt, f"{label} came back with an old fence")
            run.lost = run.lost or run.state == "out"
            demand(9, item.lost == run.lost, f"{label}: lost is {item.lost}, should be {run.lost}")
            self._judge_check(life, label, item.check)
            run.state, run.attempt, run.until_ms, run.handle = "out", item.attempt, item.lease_until_ms, item.handle
            run.started_ms = self.now_ms
            run.handed_alive = item.check is not None
            self.handles[item.handle] = (life, run)

    def _judge_check(self, life: Life, label: str, check: Check | None) -> None:
        demand(3, (check is None) == life.deleted, f"{label}: deleted is {life.deleted}, but the check is {check}")
        if not life.deleted:
            demand(2, check == life.monitor.spec.check, f"{label} was handed out with an old definition")
            demand(12, life.monitor.owner not in self.disabled, f"{label} was handed out though its owner is disabled")

    def sent(self, handle: int, attempt: int, check: Check) -> None:
        """Notes that the check was sent."""
        life, run = self.handles[handle]
        label = f"{life.name}@{run.counter}"
        # A checker that was handed a run before its monitor was deleted could not know.
        demand(3, run.handed_alive, f"{label} was sent after its monitor was deleted")
        demand(5, run.state == "out" and run.attempt == attempt, f"{label} was sent though it is not out")
        if isinstance(check, HttpCheck) and check.method == "POST":
            run.posts += 1
            demand(9, run.posts == 1, f"{label} cannot be repeated safely and was sent {run.posts} times")

    def settle(self, settlements: Sequence[Settlement], won: Sequence[bool]) -> None:
        for item, counted in zip(settlements, won, strict=True):
            if item.handle not in self.handles:
                demand(5, not counted, f"run {item.handle} was settled but never handed out")
                continue
            life, run = self.handles[item.handle]
            label = f"{life.name}@{run.counter}"
            right = run.state == "out" and run.attempt == item.attempt and item.ended_ms <= run.until_ms
            demand(5, right or not counted, f"{label} was settled from a stale lease (attempt {item.attempt})")
            demand(10, counted or not right or self.may_be_held(run), f"a rightful outcome of {label} was refused")
            if not counted:
                continue
            self.events += 1
            if isinstance(item.outcome, Retry):
                run.state, run.until_ms = "retry", item.outcome.not_before_ms
            else:
                run.state, run.ended_ms, run.outcome = "ended", item.ended_ms, item.outcome
                self.alerts.ended(life, run.counter, item.outcome, item.ended_ms)

    def change_health(self, changes: Sequence[HealthChange], won: Sequence[bool]) -> None:
        for change, happened in zip(changes, won, strict=True):
            life = self.lives[change.generation]
            demand(3, not (happened and life.deleted), f"{life.name} is deleted, and its health changed")
            if happened:
                self.alerts.changed(life, change, now_ms=self.now_ms)

    def extend(self, handle: int, attempt: int, *, until_ms: int, granted: bool) -> None:
        run = self.handles[handle][1] if handle in self.handles else None
        right = run is not None and run.state == "out" and run.attempt == attempt and self.now_ms <= run.until_ms
        demand(10, right or not granted, f"the lease of run {handle} was extended, wrongly")
        demand(10, granted or not right or self.may_be_held(run), f"the lease of run {handle} was not extended")
        if run is not None and granted:
            run.until_ms = until_ms

    def release(self, fences: Sequence[tuple[int, int]], won: Sequence[bool]) -> None:
        for (handle, attempt), given_back in zip(fences, won, strict=True):
            run = self.handles[handle][1]
            right = run.state == "out" and run.attempt == attempt
            demand(10, right or not given_back, f"run {handle} was given back, wrongly")
            demand(10, given_back or not right or self.may_be_held(run), f"run {handle} was not given back")
            if given_back:
                run.state, run.until_ms = "retry", self.now_ms

    def pull_back(self, *, now_ms: int, wait_ms_max: int) -> None:
        """A lease keeps its length by the clock that counts now, and nothing waits for a time that was never near."""
        for run in (run for life in self.lives.values() for run in life.runs.values() if not run.over):
            if run.state == "out" and run.started_ms > now_ms:
                run.until_ms, run.started_ms = now_ms + run.until_ms - run.started_ms, now_ms
            elif run.state == "retry":
                run.until_ms = min(run.until_ms, now_ms + wait_ms_max)
            run.after_ms = min(run.after_ms, now_ms + wait_ms_max)

    def fade(self, *, due_before_ms: int) -> None:
        """Runs of deleted monitors cannot be looked at: what may have expired is let go."""
        for life in self.lives.values():
            for run in life.runs.values() if life.deleted else ():
                if run.state in ("waiting", "retry") and run.due_ms < due_before_ms:
                    run.state = "faded"
                elif run.state == "out" and run.due_ms < due_before_ms and self.may_be_held(run):
                    run.may_have_expired = True

    def purged(self, life: Life, kept: dict[int, Run], *, settled_before_ms: int, due_before_ms: int) -> None:
        """What is left of a life's runs after a purge; only what was old may be gone or ended."""
        cut = False
        for run in reversed(life.runs.values()):
            label = f"{life.name}@{run.counter}"
            if run.state == "gone":
                demand(5, run.counter not in kept, f"{label} came back from the dead")
            elif run.counter not in kept:
                # A set-back clock lets a later run end "earlier"; once that is deleted, older ones are out of reach.
                demand(10, run.state == "ended" and (cut or run.ended_ms < settled_before_ms), f"{label} is lost")
                run.state = "gone"
                cut = True
            elif kept[run.counter].state in TERMINAL and run.state != "ended":
                ended_early = run.state == "out" and not self.may_be_held(run)
                demand(10, not ended_early, f"{label} was ended while it was out")
                demand(10, run.due_ms < due_before_ms, f"{label} expired too early")
                demand(10, kept[run.counter].reason, f"{label} ended without a reason")
                run.state, run.ended_ms = "ended", self.now_ms
