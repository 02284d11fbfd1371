from __future__ import annotations

import random
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.pace import (
    IDLE_MS,
    SPEED_MAX,
    Backlog,
    FirstRun,
    Pace,
    StartDecision,
    decide_starts,
    pace_after,
    pace_pulled_back,
)
from paceline.core.batches.provider import BURST_US, Policy
from paceline.core.batches.run_keys import NEVER_MS
from paceline.core.ids import stable_fraction

T0_MS = 1_800_000_000_000
POLICY = Policy(
    max_in_flight=1,
    rate_gap_us=0,
    timeout_ms=1_000,
    attempts_max=5,
    retry_base_ms=100,
    retry_cap_ms=1_000,
    breaker_failures=5,
    breaker_open_ms=2_000,
    unknown="retry",
    paused=False,
)
FRONT_GAPS = 16


def policy(**changes: int | bool) -> Policy:
    return msgspec.structs.replace(POLICY, **changes)


def waiting(*dues_ms: int) -> list[FirstRun]:
    return [FirstRun(due_ms, "waiting", due_ms, due_ms) for due_ms in dues_ms]


def look(
    front: list[FirstRun],
    *,
    by: Policy = POLICY,
    pace: Pace = Pace(),  # noqa: B008  frozen
    now_ms: int = T0_MS,
    runs_max: int = 1_000,
    backlog: Backlog | None = None,
    phase: float = 0.0,
) -> StartDecision:
    return decide_starts(by, pace, front, now_ms=now_ms, runs_max=runs_max, backlog=backlog, phase=phase)


class Provider:
    """A provider's queue with the pace that core keeps of it, on a virtual clock."""

    def __init__(self, by: Policy, dues_ms: list[int], *, end_ms: int, phase: float = 0.0) -> None:
        self.policy = by
        self.phase = phase
        self.pace = Pace()
        self.end_ms = end_ms
        self.runs = {due_ms: FirstRun(due_ms, "waiting", due_ms, due_ms) for due_ms in sorted(dues_ms)}
        self.starts: list[tuple[int, int]] = []
        self.first_starts: list[tuple[int, int]] = []

    def front(self) -> list[FirstRun]:
        held = [run for run in self.runs.values() if run.state != "waiting"]
        free = [run for run in self.runs.values() if run.state == "waiting"][: self.policy.max_in_flight - len(held)]
        return sorted(held + free)

    def backlog(self, now_ms: int) -> Backlog | None:
        late = [run for run in self.front() if now_ms - run.at_ms > 250]
        if not late:
            return None
        following = [due_ms for due_ms in self.runs if due_ms >= late[0].due_ms][: FRONT_GAPS + 1]
        if len(following) < 2:
            return Backlog(max(self.end_ms - late[0].due_ms, 1), self.end_ms)
        return Backlog((following[-1] - following[0]) // (len(following) - 1), self.end_ms)

    def claim(self, now_ms: int, *, lease_ms: int) -> tuple[list[FirstRun], int]:
        opening = look(
            self.front(), by=self.policy, pace=self.pace, now_ms=now_ms, backlog=self.backlog(now_ms), phase=self.phase
        )
        self.pace = opening.pace
        for run in opening.starts:
            self.starts.append((now_ms, run.due_ms))
            if run.state == "waiting":
                self.first_starts.append((now_ms, run.due_ms))
            self.runs[run.handle] = run._replace(state="out", at_ms=now_ms + lease_ms)
        ready_ms = min([opening.ready_ms, *([now_ms + lease_ms] if opening.starts else [])])
        return opening.starts, ready_ms

    def end(self, run: FirstRun, now_ms: int, *, good: bool, retry_ms: int) -> None:
        self.pace = pace_after(
            self.pace, self.policy, verdict="good" if good else "bad", closed_until_ms=0, now_ms=now_ms
        )
        if good:
            del self.runs[run.handle]
        else:
            self.runs[run.handle] = run._replace(state="retry", at_ms=now_ms + retry_ms)

    @property
    def flying(self) -> int:
        return sum(run.state == "out" for run in self.runs.values())


policies = st.builds(
    policy,
    max_in_flight=st.integers(1, 4),
    rate_gap_us=st.sampled_from([0, 0, 7_000, 250_000]),
    breaker_failures=st.sampled_from([2, 1_000]),
)


@given(policies, st.lists(st.integers(0, 30_000), min_size=1, max_size=40, unique=True), st.integers(0, 10**6))
def test_every_run_starts_in_order_and_within_the_policy_whatever_happens(
    by: Policy, offsets_ms: list[int], seed: int
) -> None:
    """Slow and failing calls, workers that vanish with a lease, a claimer that looks only at the announced times."""
    chance = random.Random(seed)
    provider = Provider(by, [T0_MS + offset for offset in offsets_ms], end_ms=T0_MS + 30_000, phase=chance.random())
    now_ms, ready_ms = T0_MS + chance.randrange(0, 40_000), 0
    ends: list[tuple[int, int, FirstRun]] = []
    for _ in range(20_000):
        while ends and ends[0][0] <= now_ms:
            _, kind, run = ends.pop(0)
            if kind < 6:
                provider.end(run, now_ms, good=kind < 4, retry_ms=chance.randrange(500))
                ready_ms = now_ms
        if ready_ms <= now_ms:
            starts, ready_ms = provider.claim(now_ms, lease_ms=1_200)
            ends += [(now_ms + chance.randrange(1, 1_000), chance.choice([0, 1, 2, 3, 4, 6]), run) for run in starts]
            ends.sort()
            assert provider.flying <= by.max_in_flight
        if not provider.runs:
            break
        now_ms = max(now_ms + 1, min([ready_ms, *(end[0] for end in ends[:1])]))
    assert provider.runs == {}
    dues = [due_ms for _, due_ms in provider.first_starts]
    assert dues == sorted(T0_MS + offset for offset in offsets_ms)
    for count, (first_ms, _) in enumerate(provider.starts):
        for later, (next_ms, _) in enumerate(provider.starts[count + 1 :], start=1):
            assert later * by.rate_gap_us <= (next_ms - first_ms) * 1_000 + BURST_US + 1_000


fronts = st.lists(
    st.tuples(st.integers(-6_000, 2_000), st.sampled_from(["waiting", "out", "retry"]), st.integers(-500, 1_500)),
    min_size=1,
    max_size=5,
    unique_by=lambda run: run[0],
).map(
    lambda runs: [
        FirstRun(T0_MS + due, state, T0_MS + due, T0_MS + (due if state == "waiting" else at))  # type: ignore[arg-type]
        for due, state, at in sorted(runs)
    ]
)
lanes = st.builds(
    Pace,
    rate_us=st.integers(T0_MS * 1_000 - 10**6, T0_MS * 1_000 + 10**6),
    paced_ms=st.integers(T0_MS - 5_000, T0_MS + 1_000),
    closed_until_ms=st.integers(T0_MS - 1_000, T0_MS + 1_000),
    failures=st.integers(0, 3),
    staggered=st.booleans(),
)


@given(policies, lanes, fronts, st.floats(0, 0.99))
def test_look_before_the_announced_time_starts_nothing(
    by: Policy, pace: Pace, front: list[FirstRun], phase: float
) -> None:
    backlog = Backlog(500, T0_MS + 10_000)
    opening = look(front, by=by, pace=pace, backlog=backlog, phase=phase)
    started = {run.handle for run in opening.starts}
    rest = [
        run._replace(state="out", at_ms=NEVER_MS) if run.handle in started else run  # a lease is the claimer's own
        for run in front
    ]
    for now_ms in range(T0_MS, min(opening.ready_ms, T0_MS + 2_500), 50):
        again = look(rest, by=by, pace=opening.pace, now_ms=now_ms, backlog=backlog, phase=phase)
        assert again.starts == []
        assert again.ready_ms >= opening.ready_ms or again.ready_ms > now_ms


@given(policies, lanes, fronts, st.integers(1, 3))
def test_starts_never_exceed_the_request_or_the_free_places(
    by: Policy, pace: Pace, front: list[FirstRun], runs_max: int
) -> None:
    opening = look(front, by=by, pace=pace, runs_max=runs_max)
    flying = sum(run.state == "out" and run.at_ms > T0_MS for run in front)
    places = 1 if pace.failures >= by.breaker_failures else by.max_in_flight
    assert len(opening.starts) <= runs_max
    assert not opening.starts or flying + len(opening.starts) <= places
    fresh = [run.due_ms for run in front if run.state == "waiting"]
    begun = [run.due_ms for run in opening.starts if run.state == "waiting"]
    assert begun == fresh[: len(begun)]


def test_provider_is_ready_at_once_for_runs_that_the_claim_had_no_room_for() -> None:
    opening = look(waiting(T0_MS - 2, T0_MS - 1), by=policy(max_in_flight=2), runs_max=1)
    assert [run.due_ms for run in opening.starts] == [T0_MS - 2]
    assert opening.ready_ms == T0_MS


def test_shortcut_for_one_waiting_run_decides_like_the_general_rule() -> None:
    for late_ms in (-1, 0, 1, 250):
        for pace in (Pace(), Pace(closed_until_ms=T0_MS + 1), Pace(failures=99)):
            for by in (POLICY, policy(paused=True)):
                (head,) = waiting(T0_MS - late_ms)
                short = look([head], by=by, pace=pace)
                beyond = FirstRun(T0_MS + 99_999, "waiting", T0_MS + 99_999, T0_MS + 99_999)
                assert short.starts == look([head, beyond], by=by, pace=pace).starts


def test_promise_6_a_retry_keeps_its_place_and_nothing_overtakes_it() -> None:
    front = [FirstRun(1, "retry", T0_MS - 100, T0_MS + 700), *waiting(T0_MS - 50)]
    assert look(front) == StartDecision([], T0_MS + 700, Pace())
    assert [run.handle for run in look(front, now_ms=T0_MS + 700).starts] == [1]


def test_a_lease_that_ended_gives_its_run_back_and_one_that_has_not_keeps_it() -> None:
    front = [FirstRun(1, "out", T0_MS - 100, T0_MS + 5), *waiting(T0_MS - 50)]
    assert look(front) == StartDecision([], T0_MS + 5, Pace())
    assert [run.handle for run in look(front, now_ms=T0_MS + 5).starts] == [1]


def test_a_paused_provider_starts_nothing_and_is_not_looked_at() -> None:
    assert look(waiting(T0_MS), by=policy(paused=True)) == StartDecision([], NEVER_MS, Pace())


def test_a_closed_provider_starts_nothing_before_it_opens() -> None:
    pace = Pace(closed_until_ms=T0_MS + 5_000)
    assert look(waiting(T0_MS), pace=pace) == StartDecision([], T0_MS + 5_000, pace)
    assert look(waiting(T0_MS + 4_900), pace=pace, now_ms=T0_MS + 5_000).starts


def test_open_breaker_lets_one_probe_through_at_a_time_until_one_is_good() -> None:
    by = policy(max_in_flight=3, breaker_failures=2)
    pace = Pace()
    for _ in range(2):
        pace = pace_after(pace, by, verdict="bad", closed_until_ms=0, now_ms=T0_MS)
    assert pace.closed_until_ms == T0_MS + by.breaker_open_ms
    later_ms = pace.closed_until_ms
    front = waiting(later_ms - 3, later_ms - 2, later_ms - 1)
    (probe,) = look(front, by=by, pace=pace, now_ms=later_ms).starts
    rest = [probe._replace(state="out", at_ms=later_ms + 900), *front[1:]]
    assert look(rest, by=by, pace=pace, now_ms=later_ms + 1).starts == []
    again = pace_after(pace, by, verdict="bad", closed_until_ms=0, now_ms=later_ms + 10)
    assert again.closed_until_ms == later_ms + 10 + by.breaker_open_ms
    healed = pace_after(pace, by, verdict="good", closed_until_ms=0, now_ms=later_ms + 10)
    assert healed.failures == 0
    assert len(look(front, by=by, pace=healed, now_ms=later_ms + 10).starts) == 3


@pytest.mark.parametrize("missed_share", [0.02, 0.25, 0.5, 0.75])
@pytest.mark.parametrize("runs", [40, 500])
def test_promise_7_missed_runs_are_caught_up_evenly_by_the_end_of_the_window(missed_share: float, runs: int) -> None:
    window_ms = 86_400_000
    end_ms = T0_MS + window_ms
    provider = Provider(POLICY, [T0_MS + index * window_ms // runs for index in range(runs)], end_ms=end_ms, phase=0.7)
    now_ms = T0_MS + int(window_ms * missed_share)
    while provider.runs:
        starts, ready_ms = provider.claim(now_ms, lease_ms=1_200)
        for run in starts:
            provider.end(run, now_ms + 20, good=True, retry_ms=0)
            ready_ms = now_ms + 20
        now_ms = max(now_ms + 1, ready_ms)
        if provider.front() and provider.front()[0].at_ms > now_ms:
            now_ms = provider.front()[0].at_ms
    starts_ms = [start_ms for start_ms, _ in provider.starts]
    gaps = [later - earlier for earlier, later in pairwise(starts_ms)]
    usual_ms = window_ms // runs
    assert starts_ms[-1] <= end_ms
    # The last that are late by less than two gaps may start at once; all others keep a pace no faster than stated.
    assert sum(gap < usual_ms // SPEED_MAX - 100 for gap in gaps) <= 3
    assert max(gaps) <= usual_ms * 1.1


def test_promise_7_many_providers_that_wake_together_do_not_start_together() -> None:
    runs, window_ms = 100, 86_400_000
    down_ms = 1_200_000
    starts: list[int] = []
    for number in range(500):
        dues = [T0_MS + index * window_ms // runs + number * 1_700 for index in range(runs)]
        provider = Provider(POLICY, dues, end_ms=T0_MS + window_ms, phase=stable_fraction(f"provider-{number}"))
        now_ms = T0_MS + down_ms
        for _ in range(20):
            begun, ready_ms = provider.claim(now_ms, lease_ms=1_200)
            for run in begun:
                provider.end(run, now_ms, good=True, retry_ms=0)
            now_ms = ready_ms if not begun else now_ms + 1
            if now_ms > T0_MS + down_ms + 600_000:
                break
        starts += [start_ms for start_ms, _ in provider.first_starts]
    buckets: dict[int, int] = {}
    for start_ms in starts:
        buckets[start_ms // 10_000] = buckets.get(start_ms // 10_000, 0) + 1
    missed = sum(1 for number in range(500) for index in range(2) if index * 864_000 + number * 1_700 <= down_ms)
    assert missed > 500
    assert max(buckets.values()) < missed // 10


def test_a_provider_is_staggered_once_however_late_it_is_looked_at() -> None:
    """A busy claimer must not postpone a run again and again."""
    backlog = Backlog(60_000, T0_MS + 10**8)
    front = waiting(T0_MS - 50_000, T0_MS + 10_000)
    first = look(front[:1], backlog=backlog, phase=0.9)
    assert first.starts == []
    assert T0_MS < first.ready_ms < T0_MS + 50_000 // SPEED_MAX
    late_ms = first.ready_ms + 10 * IDLE_MS
    assert look(front[:1], pace=first.pace, now_ms=late_ms, backlog=backlog, phase=0.9).starts


def test_a_slow_provider_that_is_behind_is_not_staggered_between_its_calls() -> None:
    pace = pace_after(Pace(), POLICY, verdict="good", closed_until_ms=0, now_ms=T0_MS)
    assert look(waiting(T0_MS - 50_000), pace=pace, backlog=Backlog(1_000, T0_MS + 10**6), phase=0.9).starts


def test_clock_set_back_makes_no_call_wait_longer() -> None:
    by = policy(rate_gap_us=200_000)
    ahead = Pace(rate_us=(T0_MS + 9_000_000) * 1_000, paced_ms=T0_MS + 9_000_000, closed_until_ms=T0_MS + 9_000_000)
    back = pace_pulled_back(ahead, by, now_ms=T0_MS, wait_ms_max=60_000)
    assert back == Pace(rate_us=T0_MS * 1_000 + 200_000, paced_ms=T0_MS, closed_until_ms=T0_MS + 60_000)
    assert pace_pulled_back(Pace(), by, now_ms=T0_MS, wait_ms_max=60_000) == Pace()
