"""Independent books of health: the effect of each outcome, the alerts that had to follow, and what the store shows.

Alerts are compared by their ids, which name the event and what caused it: none may be missing, none may be there that
had no cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from paceline.core.alerts.alert import Event, alert_id
from paceline.core.ids import run_id
from paceline.core.monitors.alerting.policy import AlertPolicy
from paceline.core.monitors.alerting.record import NO_RECORD
from paceline.core.monitors.alerting.stored import HealthChange
from paceline.core.monitors.definition import Monitor
from paceline.core.monitors.lists.query import FAILING
from paceline.core.monitors.outcome import Dead, Done, Outcome
from paceline.ports import Store
from tests.world.support.broken import demand

if TYPE_CHECKING:
    from tests.world.support.ledger import Life

HOUR_MS, IN_AN_HOUR = 3_600_000, 6


@dataclass
class Pulse:
    """How one life of a monitor is doing."""

    failing: bool = False
    late: bool = False
    bad: int = 0
    good: int = 0
    hour_ms: int = 0
    told: int = 0
    held: int = 0
    ids: list[str] = field(default_factory=list)

    def tell(self, event: Event, cause: str, at_ms: int) -> None:
        if self.told and self.hour_ms <= at_ms < self.hour_ms + HOUR_MS:
            if self.told >= IN_AN_HOUR:
                self.held += 1
                return
            self.told += 1
        else:
            self.hour_ms, self.told, self.held = at_ms, 1, 0
        self.ids.append(alert_id(event, cause))


class AlertBooks:
    """``told`` counts the alerts of each kind that had to be sent, so that a story can say whether it had any."""

    def __init__(self) -> None:
        self.told: dict[str, int] = {}

    def ended(self, life: Life, counter: int, outcome: Outcome, at_ms: int) -> None:
        """An outcome counted. Of a monitor that is gone nothing follows."""
        if life.deleted or (ok := _good(outcome)) is None:
            return
        pulse, policy = life.pulse, life.monitor.spec.alert
        before, was_late = pulse.failing, pulse.late
        pulse.bad, pulse.good = (0, pulse.good + 1) if ok else (pulse.bad + 1, 0)
        if pulse.bad >= policy.after:
            pulse.failing = True
        elif pulse.failing and pulse.good >= policy.recover:
            pulse.failing = False
        pulse.late = False
        if pulse.failing != before or was_late:
            event: Event = "monitor.failing" if pulse.failing else "monitor.recovered"
            pulse.tell(event, _run(life.monitor, counter), at_ms)
            self._count(event)
        if not pulse.held and not pulse.hour_ms <= at_ms < pulse.hour_ms + HOUR_MS:
            pulse.told = 0  # a clock that is set back and forward again does not bring the hour back

    def changed(self, life: Life, change: HealthChange, *, now_ms: int) -> None:
        """A record changed without an outcome: it turned late, or its hour was closed."""
        pulse = life.pulse
        if change.after.late_ms and not change.before.late_ms:
            _check(not pulse.late, f"{life.name} was told to be late twice")
            waiting = [_run(life.monitor, run.counter) for run in life.runs.values() if not run.over]
            _check(waiting, f"{life.name} was told to be late and has no open run")
            cause = change.alerts[0].data["run"] if change.alerts else waiting[0]
            _check(cause in waiting, f"{cause} was told to be late and has ended")
            pulse.late = True
            pulse.tell("monitor.late", cause, now_ms)
            self._count("monitor.late")
            return
        _check(pulse.held > 0, f"{life.name} has nothing to be told that was held back")
        _check(not pulse.hour_ms <= now_ms < pulse.hour_ms + HOUR_MS, f"the hour of {life.name} was closed too early")
        (alert,) = change.alerts
        _check(alert.data["held_back"] == pulse.held, f"{life.name}: {alert.data} were held back, not {pulse.held}")
        pulse.ids.append(alert.id)
        pulse.hour_ms, pulse.told, pulse.held = now_ms, 1, 0
        self._count("monitor.flapping")

    def compare(self, store: Store, owners: Sequence[str], lives: Sequence[Life]) -> None:
        """What the store says is what the books say."""
        generations = [life.monitor.generation for life in lives if not life.deleted]
        records = store.health_records(generations)
        for life in lives:
            if not life.deleted:
                record, pulse = records.get(life.monitor.generation, NO_RECORD), life.pulse
                found = (record.failing, record.failures, bool(record.late_ms), record.held_back)
                wanted = (pulse.failing, pulse.bad, pulse.late, pulse.held)
                _check(found == wanted, f"the health of {life.name} is {found} and should be {wanted}")
        for owner in owners:
            mine = [life for life in lives if life.monitor.owner == owner]
            failing = sorted(life.monitor.id for life in mine if not life.deleted and life.pulse.failing)
            listed = [monitor.id for monitor in store.monitors(owner, after="", limit=1_000, having=FAILING)]
            _check(listed == failing, f"{owner}: {listed} are listed as failing instead of {failing}")
            stored = {one.alert.id: one.alert for one in store.alerts(owner, since_ms=0, before=None, limit=100_000)}
            expected = {one for life in mine for one in life.pulse.ids}
            lost = expected - stored.keys()
            _check(not lost, f"{len(lost)} alerts of {owner} are lost")
            more = [alert for name, alert in stored.items() if name not in expected]
            _check(not more, f"alerts of {owner} had no cause: {more[:2]}")

    def _count(self, event: str) -> None:
        self.told[event] = self.told.get(event, 0) + 1


def policy_at(now_ms: int) -> AlertPolicy:
    """A policy that depends on the time alone, so that stories draw no further chance."""
    return AlertPolicy(after=(1, 2, 1, 3)[now_ms // 7 % 4], recover=(1, 1, 2)[now_ms // 11 % 3])


def _good(outcome: Outcome) -> bool | None:
    if isinstance(outcome, Done):
        return outcome.ok
    return False if isinstance(outcome, Dead) and not outcome.edited else None


def _run(monitor: Monitor, counter: int) -> str:
    return run_id(monitor.owner, monitor.id, generation=monitor.generation, counter=counter)


def _check(fact: object, says: str) -> None:
    demand(10, fact, says)
