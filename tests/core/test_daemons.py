"""A daemon whose heartbeats stop is gone, and one that is merely late is not."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.daemons import BEATS_MISSED_MAX, GRACE_MS, Daemon, is_gone

BEAT_MS = 1_800_000_000_000


@given(every_ms=st.integers(1, 3_600_000), late_ms=st.integers(1, 10_000_000))
def test_daemon_is_gone_once_it_has_missed_its_beats_and_the_grace_is_over(every_ms: int, late_ms: int) -> None:
    daemon = Daemon("d1", "worker", "host", 7, "", BEAT_MS, BEAT_MS, every_ms)
    last_ms = BEAT_MS + BEATS_MISSED_MAX * every_ms + GRACE_MS
    assert not is_gone(daemon, now_ms=last_ms)
    assert is_gone(daemon, now_ms=last_ms + late_ms)
