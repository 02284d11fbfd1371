"""A clock set back is recognized only by a later time that was read before."""

from __future__ import annotations

import pytest

from paceline.core.clock import STEP_BACK_MS, set_back_ms

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("latest_ms", "apart_ms", "by_ms"),
    [
        (None, 0, 0),
        (NOW_MS - 60_000, 0, 0),
        (NOW_MS, 0, 0),
        (NOW_MS + STEP_BACK_MS, 0, 0),
        (NOW_MS + STEP_BACK_MS + 1, 0, STEP_BACK_MS + 1),
        (NOW_MS + 3_600_000, 0, 3_600_000),
        (NOW_MS + 5_000, 5_000, 0),
        (NOW_MS + 7_000, 5_000, 7_000),
    ],
)
def test_the_clock_was_set_back_if_a_later_time_was_read_before(
    latest_ms: int | None, apart_ms: int, by_ms: int
) -> None:
    assert set_back_ms(NOW_MS, latest_ms=latest_ms, apart_ms=apart_ms) == by_ms
