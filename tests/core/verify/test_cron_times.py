"""Cron times are read twice, by code that shares nothing: here both must agree."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paceline.core.instants import parse_instant_ms
from paceline.core.monitors.cron import next_cron_ms
from paceline.core.verify.cron_times import is_cron_time

ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu")
EXPRESSIONS = (
    *("* * * * *", "*/5 * * * *", "30 2 * * *", "0 3 * * 1-5", "15,45 0-6/2 * * *", "0 0 1,15 * *", "0 12 13 * fri"),
    *("59 23 31 12 *", "10 2 * jan-mar sun", "0 0 * * 7", "5/20 9-17 * * *"),
)


@given(
    st.sampled_from(EXPRESSIONS),
    st.sampled_from(ZONES),
    st.integers(min_value=1_767_225_600_000, max_value=1_830_000_000_000),
)
def test_every_firing_of_a_cron_expression_is_one_of_its_times(expression: str, zone: str, after_ms: int) -> None:
    due_ms = next_cron_ms(expression, zone, after_ms)
    assert is_cron_time(expression, zone, due_ms)
    assert not is_cron_time(expression, zone, due_ms + 50)


@pytest.mark.parametrize(
    ("expression", "zone", "at", "fits"),
    [
        ("30 2 * * *", "Europe/Berlin", "2026-11-18T01:30:00Z", True),
        ("30 2 * * *", "Europe/Berlin", "2026-11-18T02:30:00Z", False),
        ("30 2 * * *", "Europe/Berlin", "2027-03-28T01:00:00Z", True),  # there is no 02:30 that day
        ("31 3 * * *", "Europe/Berlin", "2027-03-28T01:00:00Z", False),
        ("0 12 13 * fri", "UTC", "2026-11-20T12:00:00Z", True),  # a Friday
        ("0 12 13 * fri", "UTC", "2026-11-18T12:00:00Z", False),
        ("0 12 L * *", "UTC", "2026-11-18T12:00:00Z", True),  # not read here: nothing is said of it
    ],
)
def test_time_fits_a_cron_expression(expression: str, zone: str, at: str, *, fits: bool) -> None:
    at_ms = parse_instant_ms(at)
    assert at_ms is not None
    assert is_cron_time(expression, zone, at_ms) is fits
