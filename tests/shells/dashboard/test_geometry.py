"""The picture of the next hours: stacked bars, capacity, what lies over it, and marks at the worst minutes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from paceline.shells.dashboard.pictures import ahead_chart, nice_top, small_days, value_ticks

START = datetime(2026, 11, 18, 12, tzinfo=UTC)


def ahead(loads: list[tuple[int, int, int]], *, capacity: int, worst: tuple[int, ...] = ()) -> dict[str, Any]:
    def at(hour: int) -> str:
        return f"{START + timedelta(hours=hour):%Y-%m-%dT%H:%M:%S.000Z}"

    windows = [
        {"start": at(hour), "busiest": {"monitors": a, "batches": b, "jobs": c, "capacity": capacity}}
        for hour, (a, b, c) in enumerate(loads)
    ]
    return {"hours": len(loads), "windows": windows, "worst": [{"start": at(hour)} for hour in worst]}


def test_bars_of_the_kinds_stand_on_each_other() -> None:
    chart = ahead_chart(ahead([(10, 5, 5), (10, 0, 0)], capacity=40), height=100)
    paths = dict(chart.series)
    assert paths["fa"].startswith("M0.07 100.0V75.0h0.86V100.0z")
    assert paths["fb"] == "M0.07 75.0V62.5h0.86V75.0z"
    assert paths["fc"] == "M0.07 62.5V50.0h0.86V62.5z"
    assert (chart.capacity, chart.over) == ("M0 0.0H2", "")
    assert [tick.text for tick in chart.values] == ["0", "10", "20", "30", "40"]
    assert (chart.times[0].text, chart.times[-1].text) == ("12:00", "14:00")


def test_load_over_capacity_is_drawn_above_its_line_and_marked() -> None:
    chart = ahead_chart(ahead([(10, 0, 0), (30, 0, 0)], capacity=20, worst=(1, 0)), height=90)
    assert chart.capacity == "M0 30.0H2"
    assert chart.over == "M1.07 30.0V0.0h0.86V30.0z"
    assert [(flag.number, flag.x) for flag in chart.flags] == [(1, 75.0), (2, 25.0)]
    assert chart.flags[0].y < chart.flags[1].y


def test_capacity_far_above_the_load_is_not_drawn() -> None:
    chart = ahead_chart(ahead([(10, 0, 0)], capacity=30_000), height=100)
    assert chart.capacity == ""
    assert chart.values[-1].text == "10"


def test_limits_that_allow_nothing_leave_all_of_the_load_over_them() -> None:
    chart = ahead_chart(ahead([(0, 4, 0)], capacity=0), height=100)
    assert chart.capacity == ""
    assert chart.over == dict(chart.series)["fb"]


@given(st.floats(0.001, 1e9))
def test_axis_of_any_value_begins_at_zero_and_ends_at_a_round_figure_above_it(most: float) -> None:
    top = nice_top(most)
    ticks = value_ticks(top, 100)
    assert most <= top * 1.000001
    assert (ticks[0].text, ticks[0].at, ticks[-1].at) == ("0", 100, 0)
    assert 2 <= len(ticks) <= 6
    assert len({tick.text for tick in ticks}) == len(ticks)


def test_days_of_a_row_are_taller_where_something_failed_and_flat_where_nothing_is_known() -> None:
    small = small_days([None, 1.0, 0.5], [None, 10.0, 20.0])
    assert small.none == "M0.2 19h.6v1h-.6z"
    assert small.good == "M1.2 8h.6v12h-.6zM2.2 8h.6v12h-.6z"
    assert small.bad == "M2.1 0h.8v7h-.8z"
    assert (small.line, small.width) == ("", 3)


def test_medians_of_a_row_are_a_line_from_three_days_on() -> None:
    assert small_days([1.0] * 3, [6.0, 0.0, 12.0]).line == "M0.00 11.7L1.00 20.0L2.00 3.3"
    assert small_days([1.0] * 3, [0.0] * 3).line == "M0.00 20.0L1.00 20.0L2.00 20.0"
