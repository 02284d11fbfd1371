"""All facts of one generation of a monitor, as the judges of monitors see them."""

from __future__ import annotations

from typing import NamedTuple

from paceline.core.verify.facts import EntryFact, MonitorFact, RunFact

ENDED = frozenset({"ok", "failed", "dead", "unknown"})


class Life(NamedTuple):
    """Facts of a generation.

    ``runs`` are in order of counter. ``entries``: normally one; none once the monitor is gone.
    """

    monitor: MonitorFact
    entries: tuple[EntryFact, ...]
    runs: list[RunFact]

    @property
    def name(self) -> str:
        monitor = self.monitor
        return f"{monitor.owner}/{monitor.id}#{monitor.generation}" if monitor.id else f"#{monitor.generation}"


def run_name(life: Life, run: RunFact) -> str:
    return f"{life.name}@{run.counter}"
