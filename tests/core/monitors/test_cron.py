"""Cron against an independent oracle, over every kind of change that clocks make."""

from __future__ import annotations

from bisect import bisect_right
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paceline.core.instants import to_datetime, to_ms
from paceline.core.monitors.cron import CRON_CHARS_MAX, cron_problem, next_cron_ms, timezone_problem
from tests.core.support.cron_oracle import changes, firings

DAYS = 3
MINUTES = DAYS * 24 * 60
YEARS = {
    "Europe/Berlin": 2026,
    "America/New_York": 2026,
    "Africa/Casablanca": 2026,  # Ramadan: back and forth within five weeks
    "Pacific/Auckland": 2026,
    "Australia/Lord_Howe": 2026,  # half an hour
    "America/Sao_Paulo": 2018,  # at midnight
    "Asia/Kathmandu": 1986,  # a quarter of an hour, once
    "Pacific/Apia": 2011,  # a whole day was skipped
    "America/Havana": 2024,  # midnight is doubled; a year that is over, as Cuba changes its mind
    "UTC": 2026,
}
WINDOWS = [
    (zone, change - timedelta(days=DAYS / 2))
    for zone, year in YEARS.items()
    for change in (changes(zone, year) or [datetime(year, 3, 1, tzinfo=UTC)])
]


def field(low: int, high: int) -> st.SearchStrategy[str]:
    number = st.integers(low, high)
    span = st.sets(number, min_size=2, max_size=2).map(lambda pair: f"{min(pair)}-{max(pair)}")
    step = st.integers(1, 31)
    term = st.one_of(
        number.map(str),
        span,
        st.builds("{}/{}".format, number, step),
        st.builds("{}/{}".format, span, step),
    )
    listed = st.lists(term, min_size=1, max_size=3).map(",".join)
    return st.one_of(st.just("*"), st.builds("*/{}".format, step), number.map(str), listed)


days = st.one_of(st.just("*"), st.just("*"), field(1, 31), st.sampled_from(["L", "LW", "1,L"]))
months = st.one_of(st.just("*"), st.just("*"), field(1, 12), st.sampled_from(["MAR", "OCT,NOV", "JAN-JUN"]))
weekdays = st.one_of(
    st.just("*"), st.just("*"), field(0, 7), st.sampled_from(["SUN", "MON-FRI", "sat", "0L", "SUN#1", "7#4,5L"])
)
hours = st.one_of(field(0, 23), field(0, 4))
expressions = st.builds("{} {} {} {} {}".format, field(0, 59), hours, days, months, weekdays)


@settings(max_examples=6 * settings().max_examples)
@given(
    expression=expressions,
    window=st.sampled_from(WINDOWS),
    afters_ms=st.lists(st.integers(0, MINUTES * 60_000 - 1), min_size=8, max_size=8),
)
def test_cron_agrees_with_the_oracle_around_every_change(
    expression: str, window: tuple[str, datetime], afters_ms: list[int]
) -> None:
    if cron_problem(expression):
        return
    zone, start = window
    expected_ms = [to_ms(moment) for moment in firings(expression, zone, start=start, minutes=MINUTES)]
    end_ms = to_ms(start) + MINUTES * 60_000
    for after_ms in (to_ms(start) + offset_ms for offset_ms in afters_ms):
        found_ms = next_cron_ms(expression, zone, after_ms)
        index = bisect_right(expected_ms, after_ms)
        if index < len(expected_ms):
            assert (to_datetime(found_ms), zone) == (to_datetime(expected_ms[index]), zone)
        else:
            assert found_ms >= end_ms


@settings(max_examples=settings().max_examples * 2 // 3)
@given(expression=expressions, window=st.sampled_from(WINDOWS))
def test_a_chain_of_firings_is_the_oracles_list(expression: str, window: tuple[str, datetime]) -> None:
    if cron_problem(expression):
        return
    zone, start = window
    around = firings(expression, zone, start=start, minutes=MINUTES)
    skipped = bisect_right(around, start + timedelta(days=DAYS / 2, hours=-5))
    expected = around[skipped : skipped + 100]
    chain: list[datetime] = []
    after_ms = to_ms(around[skipped - 1] if skipped else start) if around else 0
    for _ in expected:
        after_ms = next_cron_ms(expression, zone, after_ms)
        chain.append(to_datetime(after_ms))
    assert chain == expected


@given(
    expression=expressions,
    zone=st.sampled_from(sorted(YEARS)),
    after_ms=st.integers(0, to_ms(datetime(2060, 1, 1, tzinfo=UTC))),
)
def test_the_next_firing_lies_after_the_instant_on_a_whole_minute(expression: str, zone: str, after_ms: int) -> None:
    if cron_problem(expression):
        return
    found_ms = next_cron_ms(expression, zone, after_ms)
    assert found_ms > after_ms
    offset = to_datetime(found_ms).astimezone(ZoneInfo(zone)).utcoffset()
    assert offset is not None
    assert (found_ms + offset // timedelta(milliseconds=1)) % 60_000 == 0


def local_firings(expression: str, zone: str, day: str, *, count: int) -> list[str]:
    """The first firings from local midnight on, as the wall clock shows them, with the offset."""
    after_ms = to_ms(datetime.fromisoformat(day).replace(tzinfo=ZoneInfo(zone)).astimezone(UTC)) - 1
    shown: list[str] = []
    for _ in range(count):
        after_ms = next_cron_ms(expression, zone, after_ms)
        shown.append(to_datetime(after_ms).astimezone(ZoneInfo(zone)).strftime("%d %H:%M%z"))
    return shown


@pytest.mark.parametrize(
    ("expression", "zone", "day", "expected"),
    [
        # Forward: a fixed time in the missing hour runs once, when the hour is over.
        ("30 2 * * *", "Europe/Berlin", "2026-03-29", ["29 03:00+0200", "30 02:30+0200"]),
        ("15,45 2 * * *", "Europe/Berlin", "2026-03-29", ["29 03:00+0200", "30 02:15+0200"]),
        ("30 2,3 * * *", "Europe/Berlin", "2026-03-29", ["29 03:00+0200", "29 03:30+0200", "30 02:30+0200"]),
        ("0 2,3 * * *", "Europe/Berlin", "2026-03-29", ["29 03:00+0200", "30 02:00+0200"]),
        ("30 2 * * *", "America/New_York", "2026-03-08", ["08 03:00-0400", "09 02:30-0400"]),
        ("15 2 * * *", "Australia/Lord_Howe", "2026-10-04", ["04 02:30+1100", "05 02:15+1100"]),
        ("30 0 * * *", "America/Sao_Paulo", "2018-11-04", ["04 01:00-0200", "05 00:30-0200"]),
        ("30 2 * * *", "Pacific/Apia", "2011-12-29", ["29 02:30-1000", "31 00:00+1400", "31 02:30+1400"]),
        # Forward: what follows real minutes is not made up for.
        ("*/30 2 * * *", "Europe/Berlin", "2026-03-29", ["30 02:00+0200", "30 02:30+0200"]),
        ("30 * * * *", "Europe/Berlin", "2026-03-29", ["29 00:30+0100", "29 01:30+0100", "29 03:30+0200"]),
        ("45 * * * *", "Australia/Lord_Howe", "2026-10-04", ["04 00:45+1030", "04 01:45+1030", "04 02:45+1100"]),
        # Back: a fixed time runs once, a wildcard hour runs through both.
        ("30 1 * * *", "America/New_York", "2026-11-01", ["01 01:30-0400", "02 01:30-0500"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-25", ["25 02:30+0200", "26 02:30+0100"]),
        (
            "30 */1 * * *",
            "Europe/Berlin",
            "2026-10-25",
            ["25 00:30+0200", "25 01:30+0200", "25 02:30+0200", "25 02:30+0100"],
        ),
        ("0 0 * * *", "America/Havana", "2024-11-03", ["03 00:00-0400", "04 00:00-0500"]),
        (
            "*/30 0 * * *",
            "America/Havana",
            "2024-11-03",
            ["03 00:00-0400", "03 00:30-0400", "03 00:00-0500", "03 00:30-0500"],
        ),
    ],
)
def test_cron_firings_around_a_change_of_clocks_are_as_documented(
    expression: str, zone: str, day: str, expected: list[str]
) -> None:
    assert local_firings(expression, zone, day, count=len(expected)) == expected


def test_a_fixed_time_that_is_over_does_not_come_back_in_the_second_pass_of_a_doubled_hour() -> None:
    in_second_pass = to_ms(datetime(2026, 10, 25, 1, 30, tzinfo=UTC))  # 02:30 for the second time
    assert to_datetime(next_cron_ms("45 2 * * *", "Europe/Berlin", in_second_pass)) == datetime(
        2026, 10, 26, 1, 45, tzinfo=UTC
    )


@pytest.mark.parametrize(
    ("expression", "position"),
    [
        ("0 0 30 2 *", 5),
        ("0 0 31 4,6,9,11 *", 5),
        ("0 0 */29 2 MON#5", 5),
        ("@reboot", 1),
        ("@daily", 1),
        ("* " * 5_000, CRON_CHARS_MAX + 1),
        ("60 * * * *", 1),
        ("-1 * * * *", 1),
        ("0 24 * * *", 3),
        ("0   0 0 * *", 7),
        ("0 0 1 13 *", 7),
        ("0 0 * * 8", 9),
        ("0 0 * * MON#6", 9),
        ("*/0 * * * *", 1),
        ("5-1 * * * *", 1),
        ("0 0 * *", 8),
        ("0 0 * * * *", 11),
        ("", 1),
        ("\x00 * * * *", 1),
        ("\u0661 * * * *", 1),
        ("1,,2 * * * *", 1),
    ],
)
def test_a_cron_that_can_never_fire_is_refused_with_the_position(expression: str, position: int) -> None:
    problem = cron_problem(expression)
    assert problem is not None
    assert problem.startswith(f"position {position}:")
    assert len(problem) < 200


@given(expression=st.text(max_size=300))
def test_any_text_is_parsed_as_cron_or_refused_without_raising(expression: str) -> None:
    if cron_problem(expression) is None:
        assert next_cron_ms(expression, "Europe/Berlin", 0) > 0


@pytest.mark.parametrize(
    "name", ["", "Mars/Olympus", "europe/berlin", "../../etc/passwd", "UTC\x00", "CEST", "a" * 10_000]
)
def test_an_unknown_time_zone_is_refused(name: str) -> None:
    problem = timezone_problem(name)
    assert problem is not None
    assert len(problem) < 200


@pytest.mark.parametrize("name", sorted(YEARS))
def test_a_known_time_zone_is_accepted(name: str) -> None:
    assert timezone_problem(name) is None


@pytest.mark.parametrize("name", ["localtime", "posixrules", "Factory"])
def test_zones_of_the_machine_are_no_time_zones(name: str) -> None:
    assert timezone_problem(name) is not None
