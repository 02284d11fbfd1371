"""One back-off for all callers: the pause doubles up to its cap, and jitter spreads it below that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.backoff import Jitter, pause_ms


def test_pause_without_jitter_doubles_up_to_the_cap() -> None:
    pauses = [pause_ms(failures, base_ms=1_000, cap_ms=5_000, jitter="none") for failures in (1, 2, 3, 4, 5_000)]
    assert pauses == [1_000, 2_000, 4_000, 5_000, 5_000]


@pytest.mark.parametrize(("jitter", "chance", "wanted"), [("full", 0.25, 1_000), ("half", 0.25, 2_500)])
def test_jitter_takes_its_share_of_the_ceiling(jitter: Jitter, chance: float, wanted: int) -> None:
    assert pause_ms(3, base_ms=1_000, cap_ms=60_000, jitter=jitter, chance=chance) == wanted


@given(
    failures=st.integers(1, 10_000),
    base_ms=st.integers(0, 1_000_000),
    cap_ms=st.integers(0, 1_000_000_000),
    jitter=st.sampled_from(("full", "half", "none")),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_pause_lies_between_its_least_and_the_cap(
    failures: int, base_ms: int, cap_ms: int, jitter: Jitter, chance: float
) -> None:
    ceiling_ms = pause_ms(failures, base_ms=base_ms, cap_ms=cap_ms, jitter="none")
    got_ms = pause_ms(failures, base_ms=base_ms, cap_ms=cap_ms, jitter=jitter, chance=chance)
    least = {"full": 0, "half": ceiling_ms // 2, "none": ceiling_ms}[jitter]
    assert least <= got_ms <= ceiling_ms <= cap_ms
