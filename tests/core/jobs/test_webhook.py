"""A job's webhook: later with each try, for about a day, with a signature that binds its time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.jobs.webhook import BASE_MS, CAP_MS, TRIES_MAX, again_ms, signature_text, signed_bytes

NOW_MS = 1_800_000_000_000
DAY_MS = 86_400_000


@given(tries=st.integers(1, TRIES_MAX), timeout_ms=st.integers(0, 60_000), chance=st.floats(0, 1, exclude_max=True))
def test_next_try_of_a_webhook_comes_after_the_timeout_and_a_pause_up_to_six_hours(
    tries: int, timeout_ms: int, chance: float
) -> None:
    pause_ms = again_ms(tries, now_ms=NOW_MS, timeout_ms=timeout_ms, chance=chance) - NOW_MS - timeout_ms
    assert BASE_MS // 2 <= pause_ms <= CAP_MS


def test_all_tries_of_a_webhook_take_about_a_day() -> None:
    now_ms = NOW_MS
    for tries in range(1, TRIES_MAX):
        now_ms = again_ms(tries, now_ms=now_ms, timeout_ms=0, chance=0.5)
    assert DAY_MS / 2 < now_ms - NOW_MS < 2 * DAY_MS


@given(body=st.binary(max_size=50), at_s=st.integers(0, 2**33))
def test_signed_bytes_hold_the_time_and_the_body_apart(body: bytes, at_s: int) -> None:
    time, _, rest = signed_bytes(body, at_s=at_s).partition(b".")
    assert (int(time), rest) == (at_s, body)
    assert signature_text("abc", at_s=at_s) == f"t={at_s},v1=abc"
