"""Where dead letters go back to, and how far apart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.batches.provider import ProviderSpec, policy_of
from paceline.core.batches.redrive import asks_first, redrive_dues_ms, redrive_gap_ms, redrive_target
from paceline.core.batches.run_keys import EPOCH_MS

T0_MS = 1_790_000_000_000


def test_run_that_may_have_arrived_is_redriven_to_the_provider_it_was_sent_to() -> None:
    assert redrive_target(sent=1, named=2, unknown=True, there={1, 2}) == 1
    assert redrive_target(sent=1, named=2, unknown=False, there={1, 2}) == 2
    assert redrive_target(sent=1, named=None, unknown=False, there={1, 2}) == 1, "its record was deleted"


def test_dead_letter_of_a_removed_provider_goes_to_the_provider_that_is_left_or_stays() -> None:
    assert redrive_target(sent=1, named=2, unknown=True, there={2}) == 2
    assert redrive_target(sent=1, named=2, unknown=False, there={1}) == 1
    assert redrive_target(sent=1, named=2, unknown=False, there=set()) is None
    assert redrive_target(sent=1, named=None, unknown=True, there={2}) is None


@given(st.integers(0, 5), st.integers(-10, 10), st.integers(-10, 10), st.integers(1, 5_000))
def test_dead_letters_are_due_a_gap_apart_behind_those_redriven_before(
    count: int, redriven: int, now: int, gap_ms: int
) -> None:
    dues = redrive_dues_ms(count, gap_ms=gap_ms, redriven_ms=T0_MS + redriven, now_ms=T0_MS + now)
    assert dues == [T0_MS + max(redriven, now) + index * gap_ms for index in range(count)]
    assert redrive_dues_ms(1, gap_ms=gap_ms, redriven_ms=0, now_ms=5) == [EPOCH_MS], "a clock that is not set yet"


def test_a_rate_widens_the_gap() -> None:
    slow = policy_of(ProviderSpec("https://a.test", rate="3/10s"))
    assert redrive_gap_ms(1_000, slow) == 3_334
    assert redrive_gap_ms(5_000, slow) == 5_000
    assert redrive_gap_ms(0, policy_of(ProviderSpec("https://a.test"))) == 1


def test_redrive_of_an_unknown_run_looks_it_up_first_only_if_the_provider_allows_it() -> None:
    asked = policy_of(ProviderSpec("https://a.test", unknown="look_up", look_up="/calls/{run}"))
    assert asks_first(asked, unknown=True)
    assert not asks_first(asked, unknown=False)
    assert not asks_first(policy_of(ProviderSpec("https://a.test")), unknown=True)
