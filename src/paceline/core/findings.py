"""Findings of ``paceline check`` in a store of either engine: their texts, and the rules that both engines share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

SHOWN_MAX = 5
"""Maximum number of examples that are shown of each finding."""

NO_ENTRY = "promise 10: a monitor has no entry and no recorded change (generation {})"
NO_MONITOR = "promise 3: an entry has no monitor and no recorded change (generation {})"
COUNTER_BEHIND = "promise 4: an entry's counter is not past its newest run"
HEALTH_MISPLACED = "the record of a monitor's health is not where it would be found"
ROLLUP_LEFT = "promise 3: a roll-up has no monitor (generation {})"
ROLLUP_AHEAD = "a roll-up goes further than its monitor's runs (generation {})"
PHASES_MISCOUNTED = (
    "monitors that fire every {} are miscounted: new ones may crowd into one second until the daemon has counted again,"
    " which it does once a day"
)
MONITORS_MISCOUNTED = "a user's number of monitors is wrong (user {})"


class Finding(NamedTuple):
    """A problem in a store: a sentence with a placeholder for its subject."""

    text: str
    subject: str

    def __str__(self) -> str:
        return self.text.format(self.subject)


def examples(findings: Iterable[Finding]) -> list[str]:
    """Return the first SHOWN_MAX findings of each text as sentences."""
    counts: Counter[str] = Counter()
    shown = []
    for finding in findings:
        counts[finding.text] += 1
        if counts[finding.text] <= SHOWN_MAX:
            shown.append(str(finding))
    return shown


def entry_finding(*, monitor: bool, entry: bool, change: bool) -> str | None:
    """Return what is wrong with a generation that has these in the store; None if nothing is.

    A recorded change makes up for a missing or a leftover entry: reacting to it makes or removes the entry.
    """
    if change or monitor == entry:
        return None
    return NO_ENTRY if monitor else NO_MONITOR
