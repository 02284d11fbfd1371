"""How often monitors fire, added up."""

from __future__ import annotations

import pytest

from paceline.core.monitors.checks import HttpCheck
from paceline.core.monitors.definition import MonitorSpec
from paceline.core.monitors.load import UNIT, exceeds, firings_text, load_of

GET = HttpCheck(url="http://example.org/")


@pytest.mark.parametrize(
    ("spec", "per_second"),
    [
        (MonitorSpec(GET, every="1s"), 1),
        (MonitorSpec(GET, every="500ms"), 2),
        (MonitorSpec(GET, every="60s"), 1 / 60),
        (MonitorSpec(GET, every="1s", paused=True), 0),
        (MonitorSpec(GET, cron="* * * * *"), 1 / 60),
        (MonitorSpec(GET, cron="*/5 * * * *", timezone="Europe/Berlin"), 1 / 300),
        (MonitorSpec(GET, cron="0,10 3 * * *"), 1 / 600),
        (MonitorSpec(GET, cron="0 3 29 2 *"), 1 / (4 * 365 * 86_400)),
    ],
)
def test_a_monitor_counts_by_its_interval_or_the_shortest_usual_gap_of_its_cron(
    spec: MonitorSpec, per_second: float
) -> None:
    assert load_of(spec) == pytest.approx(per_second * UNIT, abs=1)


def test_a_load_is_refused_only_if_it_grows_beyond_the_limit() -> None:
    assert exceeds(2 * UNIT + 1, before=2 * UNIT, firings_per_second_max=2)
    assert not exceeds(2 * UNIT, before=0, firings_per_second_max=2)
    assert not exceeds(9 * UNIT, before=10 * UNIT, firings_per_second_max=2)  # the limit was lowered, and it shrinks
    assert not exceeds(10**15, before=0, firings_per_second_max=0)


def test_figures_are_shown_as_firings_a_second() -> None:
    assert firings_text(2_500_000) == "2.5"
    assert firings_text(20_001 * UNIT) == "20001"
