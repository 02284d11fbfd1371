"""A monitor and its entry belong together, unless a change is recorded that will bring them together."""

from __future__ import annotations

import pytest

from paceline.core.findings import NO_ENTRY, NO_MONITOR, entry_finding


@pytest.mark.parametrize(
    ("monitor", "entry", "change", "finding"),
    [
        (True, True, False, None),
        (False, False, False, None),
        (True, False, False, NO_ENTRY),
        (False, True, False, NO_MONITOR),
        (True, False, True, None),
        (False, True, True, None),
    ],
)
def test_finding_of_an_entry_depends_on_its_monitor_and_its_change(
    *, monitor: bool, entry: bool, change: bool, finding: str | None
) -> None:
    assert entry_finding(monitor=monitor, entry=entry, change=change) == finding
