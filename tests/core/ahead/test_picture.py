"""The picture of the next hours: sums in windows, and which minutes are named as the worst."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from paceline.core.ahead.minutes import Span
from paceline.core.ahead.picture import Ask, Kind, Limit, LoadPart, windows, worst_minutes

SPAN = Span(1_000, 60)
STARTS = st.lists(st.integers(0, 50), min_size=60, max_size=60)


def part(kind: Kind, name: str, limit: str, at: dict[int, int]) -> LoadPart:
    return LoadPart(kind, name, limit, [at.get(minute, 0) for minute in range(60)])


@given(st.lists(STARTS, max_size=4), st.sampled_from([1, 7, 15, 60]))
def test_windows_add_up_to_all_starts_and_name_their_busiest_minute(rows: list[list[int]], width: int) -> None:
    kinds: list[Kind] = ["monitors", "batches", "jobs", "monitors"]
    parts = [LoadPart(kind, str(index), "", row) for index, (kind, row) in enumerate(zip(kinds, rows, strict=False))]
    found = windows(parts, [Limit("monitors", "", [9] * 60)], SPAN, width=width)
    assert sum(one.whole.starts for one in found) == sum(map(sum, rows))
    assert [one.whole.first for one in found] == list(range(1_000, 1_060, width))
    assert sum(one.whole.capacity for one in found) == 540
    for one in found:
        mine = range(one.whole.first - 1_000, min(one.whole.first - 1_000 + width, 60))
        assert one.busiest.starts == max(sum(row[at] for row in rows) for at in mine)


def test_worst_minute_is_the_one_with_the_largest_share_of_a_limit() -> None:
    parts = [
        part("monitors", "every 60s", "", dict.fromkeys(range(60), 10)),
        part("monitors", "0 0 * * * UTC", "", {20: 70, 40: 30}),
        part("batches", "shop", "shop", dict.fromkeys(range(60), 1) | {50: 9}),
    ]
    limits = [Limit("monitors", "", [100] * 60), Limit("batches", "shop", [10] * 60)]
    worst = worst_minutes(parts, limits, SPAN, from_minute=0, width=15)
    assert [(one.minute, one.limit.name, one.starts, one.capacity) for one in worst] == [
        (1_050, "shop", 9, 10),
        (1_020, "", 80, 100),
        (1_040, "", 40, 100),
    ]
    assert worst[1].asks == [Ask("0 0 * * * UTC", 70), Ask("every 60s", 10)]


def test_limit_that_allows_nothing_is_the_worst_and_past_minutes_are_not_named() -> None:
    parts = [part("monitors", "every 1h", "", {2: 99, 30: 5}), part("batches", "shut", "shut", {45: 1})]
    limits = [Limit("monitors", "", [10] * 60), Limit("batches", "shut", [0] * 60)]
    worst = worst_minutes(parts, limits, SPAN, from_minute=10, width=15)
    assert [(one.minute, one.limit.name) for one in worst] == [(1_045, "shut"), (1_030, "")]


def test_empty_forecast_has_no_worst_minute() -> None:
    assert worst_minutes([], [Limit("monitors", "", [10] * 60)], SPAN, from_minute=0, width=15) == []
    assert sum(one.whole.starts for one in windows([], [], SPAN, width=15)) == 0


def test_worst_minutes_are_a_24th_of_the_span_apart() -> None:
    parts = [part("monitors", "every 1h", "", {14: 9, 15: 8, 30: 7})]
    worst = worst_minutes(parts, [Limit("monitors", "", [10] * 60)], SPAN, from_minute=0, width=15)
    assert [one.minute for one in worst] == [1_014, 1_030]
