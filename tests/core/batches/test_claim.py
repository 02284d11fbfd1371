"""How a claim's budget is divided, in which order runs come back, and how far behind a provider is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.claim import (
    GAPS_MAX,
    backlog,
    backlog_until_ms,
    divide_budget,
    first_late,
    in_turn,
    startable,
)
from paceline.core.batches.pace import LATE_MS, Backlog, FirstRun
from paceline.core.batches.provider import ProviderSpec, policy_of
from paceline.core.batches.run_keys import NEVER_MS
from paceline.core.batches.values import ClaimedCall

T0_MS = 1_790_000_000_000


@given(st.integers(1, 50), st.integers(0, 60), st.data())
def test_provider_can_start_its_due_held_runs_and_one_run_per_free_place(
    places: int, held: int, data: st.DataObject
) -> None:
    policy = policy_of(ProviderSpec("https://a.test", max_in_flight=places))
    held_due = data.draw(st.integers(0, held))
    most = startable(policy, held=held, held_due=held_due)
    assert most == max(1, held_due + max(0, places - held))


@given(st.integers(1, 40), st.lists(st.integers(1, 20), min_size=1, max_size=30))
def test_claim_budget_is_divided_evenly_and_every_provider_in_turn_gets_a_share(
    runs_max: int, startables: list[int]
) -> None:
    shares = divide_budget(runs_max, startables)
    assert len(shares) == min(runs_max, len(startables))
    assert sum(shares) == min(runs_max, sum(startables[:runs_max]))
    assert min(shares) >= 1
    for share, most in zip(shares, startables, strict=False):
        assert share <= most
        assert share == most or share >= max(shares) - 1


def call(provider: int, record: str) -> ClaimedCall:
    return ClaimedCall(1, 1, provider, 1, "daily", record, "2026-11-15", T0_MS, T0_MS, False, "/", None)


def test_runs_come_back_in_the_order_in_which_their_providers_were_ready() -> None:
    claimed = [call(2, "x"), call(7, "y"), call(5, "z"), call(2, "u")]
    assert [one.record for one in in_turn(claimed, [5, 2, 7, 5])] == ["z", "x", "u", "y"]


def test_the_first_late_run_is_found() -> None:
    now_ms = T0_MS + LATE_MS + 1
    on_time, late = (FirstRun(1, "waiting", at_ms, at_ms) for at_ms in (T0_MS + 1, T0_MS))
    assert first_late([on_time, late, late], now_ms=now_ms) == 1
    assert first_late([on_time], now_ms=now_ms) is None
    assert first_late([], now_ms=now_ms) is None


def test_usual_gap_counts_runs_up_to_the_end_of_an_open_window() -> None:
    assert backlog_until_ms(T0_MS - 1, end_ms=T0_MS) == T0_MS
    assert backlog_until_ms(T0_MS, end_ms=T0_MS) == NEVER_MS


@given(st.lists(st.integers(0, 10_000), min_size=1, max_size=GAPS_MAX + 1, unique=True).map(sorted))
def test_usual_gap_is_the_mean_of_the_gaps_between_the_next_runs(dues: list[int]) -> None:
    end_ms = 20_000
    found = backlog(dues, end_ms=end_ms)
    if len(dues) == 1:
        assert found == Backlog(end_ms - dues[0], end_ms)
    else:
        assert found == Backlog(max(1, (dues[-1] - dues[0]) // (len(dues) - 1)), end_ms)
