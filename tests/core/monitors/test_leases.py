"""Leases, fences and what moves or ends a run without its claimer: one rule for every store."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.monitors.claim import TakeFacts, is_lost, may_start, may_take
from paceline.core.monitors.leases import Lease, LeaseTimes, ended, given_up, has_expired, holds, pulled_back, waits
from paceline.core.monitors.outcome import Dead, Done, OpenState, RunState, Unknown
from paceline.core.monitors.values import Settlement

OPEN: tuple[RunState, ...] = ("waiting", "later", "parked", "held", "retry", "out")
ENDED: tuple[RunState, ...] = ("ok", "failed", "dead", "unknown")
TIMES = st.integers(0, 100)


def test_open_run_before_it_parks_a_run_also_of_a_disabled_owner() -> None:
    assert [may_start(clear=clear, disabled=disabled) for clear in (True, False) for disabled in (False, True)] == [
        "lease",
        "hold",
        "park",
        "park",
    ]


def test_lost_attempt_stays_lost() -> None:
    assert is_lost("out", lost=False)
    assert is_lost("retry", lost=True)
    assert not is_lost("waiting", lost=False)


@given(attempt=st.integers(1, 3), asked=st.integers(1, 3), until_ms=TIMES, at_ms=TIMES)
def test_fence_holds_for_its_attempt_up_to_the_end_of_the_lease(
    attempt: int, asked: int, until_ms: int, at_ms: int
) -> None:
    held = holds(Lease(attempt, until_ms), attempt=asked, at_ms=at_ms)
    assert held == (attempt == asked and at_ms <= until_ms)
    assert not holds(None, attempt=asked, at_ms=at_ms)


@given(
    state=st.sampled_from(OPEN + ENDED),
    at_ms=TIMES,
    now_ms=TIMES,
    made=st.integers(0, 2),
    asked=st.none() | st.integers(1, 3),
    clear=st.booleans(),
    disabled=st.booleans(),
    defined=st.booleans(),
)
def test_take_gives_a_run_to_one_checker_at_a_time(
    state: RunState,
    at_ms: int,
    now_ms: int,
    made: int,
    asked: int | None,
    clear: bool,  # noqa: FBT001
    disabled: bool,  # noqa: FBT001
    defined: bool,  # noqa: FBT001
) -> None:
    run = TakeFacts(state, at_ms, made, clear=clear, disabled=disabled, defined=defined)
    taken = may_take(run, attempt=asked, now_ms=now_ms)
    if not clear or disabled or not defined or state in ENDED or asked not in (None, made + 1):
        assert taken == "refuse"
    elif state in ("waiting", "held") or at_ms <= now_ms:
        assert taken == "take"
    else:
        assert taken == ("refuse" if state == "out" else "early")


def test_ended_run_has_the_facts_of_its_outcome() -> None:
    done = Settlement(7, 2, Done(ok=False, reason="500", latency_ms=1.5, code=500, detail={"a": 1}), 10, 20)
    assert ended(done) == (7, "failed", 2, 10, 20, 1.5, 500, "500", '{"a":1}')
    assert ended(Settlement(7, 2, Dead("gone"), 10, 20)) == (7, "dead", 2, 10, 20, None, None, "gone", "{}")
    assert ended(Settlement(7, 2, Unknown("?"), 10, 20)).state == "unknown"
    assert given_up(7, "late", now_ms=9) == (7, "dead", 0, 9, 9, None, None, "late", "{}")


@given(due_ms=TIMES, at_ms=TIMES, before_ms=TIMES, state=st.sampled_from(OPEN), outgoing=st.booleans())
def test_run_that_is_out_expires_only_if_its_checker_left_it(
    due_ms: int,
    at_ms: int,
    before_ms: int,
    state: OpenState,
    outgoing: bool,  # noqa: FBT001
) -> None:
    expired = has_expired(due_ms=due_ms, state=state, at_ms=at_ms, outgoing=outgoing, due_before_ms=before_ms)
    if due_ms >= before_ms:
        assert not expired
    elif state == "out":
        assert expired == (outgoing and at_ms < before_ms)
    else:
        assert expired


@given(state=st.sampled_from(OPEN), at_ms=TIMES, started_ms=TIMES, now_ms=TIMES, wait=TIMES, later=TIMES)
def test_clock_set_back_leaves_no_run_waiting_longer_than_ever(
    state: RunState, at_ms: int, started_ms: int, now_ms: int, wait: int, later: int
) -> None:
    bounds = waits(wait_ms_max=wait, later_ms_max=later)
    before = LeaseTimes(max(at_ms, started_ms) if state == "out" else at_ms, started_ms)
    after = pulled_back(state, before, now_ms=now_ms, waits=bounds) or before
    assert after.at_ms <= before.at_ms
    assert after.started_ms is not None
    assert pulled_back(state, after, now_ms=now_ms, waits=bounds) is None
    if state == "out":
        assert after.started_ms <= max(now_ms, 0)
        assert after.at_ms - after.started_ms == before.at_ms - started_ms
    else:
        assert after.at_ms <= now_ms + {"waiting": 0, "later": max(wait, later), "parked": max(wait, later)}.get(
            state, wait
        )
