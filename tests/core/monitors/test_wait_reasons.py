from __future__ import annotations

import pytest

from paceline.core.monitors.outcome import RunState
from paceline.core.monitors.wait_reasons import OpenTimes, could_start_ms, waiting_since_ms

DUE_MS, AT_MS = 1_000, 9_000


@pytest.mark.parametrize(
    ("state", "since_ms", "start_ms"),
    [
        ("waiting", DUE_MS, DUE_MS),
        ("parked", DUE_MS, DUE_MS),
        ("held", DUE_MS, DUE_MS),
        ("retry", DUE_MS, AT_MS),
        ("later", AT_MS, AT_MS),
        ("out", None, AT_MS),
    ],
)
def test_lateness_of_an_open_run_counts_from_its_due_time_or_from_a_time_of_its_own(
    state: RunState, since_ms: int | None, start_ms: int
) -> None:
    run = OpenTimes(state, DUE_MS, AT_MS)
    assert (waiting_since_ms(run), could_start_ms(run, disabled=False)) == (since_ms, start_ms)
    assert could_start_ms(run, disabled=True) is None
