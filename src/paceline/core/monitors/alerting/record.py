"""Health record of a monitor, and the alerts that follow when an outcome changes it.

ok ──► failing                     ``after`` failures in a row
  ▲       │
  └───────┘                        ``recover`` successes in a row
late                               beside the two: nobody starts its runs; it ends with the next outcome

A monitor that does well has no record. The alerts of a monitor in an hour are limited; those beyond are held back,
counted, and told in one message when the hour is over.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from paceline.core.alerts.alert import REASON_CHARS_MAX, Alert, Event, alert_id
from paceline.core.durations import format_duration
from paceline.core.ids import entry_key, run_id
from paceline.core.instants import to_text
from paceline.core.monitors.alerting.policy import AlertPolicy

HOUR_MS = 3_600_000
ALERTS_PER_HOUR_MAX = 6
"""Maximum number of alerts of one monitor in an hour, apart from certificates.

The number is even, so that the last alert about a monitor that goes down and up says that it is up.
"""


class HealthRecord(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """Facts that are remembered of a monitor. A record with all defaults is not stored."""

    failing: bool = False
    failures: int = 0
    """Number of failures in a row, since its last success."""
    successes: int = 0
    """Number of successes in a row while it is failing."""
    failed: int = 0
    """Number of runs that failed since ``since_ms``."""
    since_ms: int = 0
    """End of the first of these failed runs."""
    reason: str = ""
    """Reason of the newest of these failed runs."""
    late_ms: int = 0
    """Due time of the late run that an alert was sent about; 0: the monitor is not late."""
    hour_ms: int = 0
    """Start of the hour in which its alerts are counted; 0: there were none lately."""
    told: int = 0
    held_back: int = 0
    certificate: str = ""
    """Certificate and day of the last alert about a certificate."""


NO_RECORD = HealthRecord()


class Subject(NamedTuple):
    """Monitor that a record is about, with its current alert policy."""

    owner: str
    monitor: str
    generation: int
    policy: AlertPolicy


class Observed(NamedTuple):
    """An ended run that says something about its target."""

    counter: int
    ok: bool
    reason: str
    ended_ms: int
    certificate: str = ""
    """Expiry date of a certificate that lasts for fewer days than wanted; ``days_left``: the days that are left."""
    days_left: int = 0


class RecordAndAlerts(NamedTuple):
    """Record after an event, and the alerts that follow, in order."""

    record: HealthRecord
    alerts: tuple[Alert, ...] = ()


def after_outcome(record: HealthRecord, subject: Subject, seen: Observed) -> RecordAndAlerts:
    """Return the record after an outcome, and the alerts about it."""
    counted = _count(record, seen, subject.policy)
    after = replace(counted, late_ms=0) if record.late_ms else counted
    alerts: list[Alert] = []
    event = _event(record, after)
    if event is not None:
        cause = run_id(subject.owner, subject.monitor, generation=subject.generation, counter=seen.counter)
        data = {"run": cause} | _episode(record, after, now_ms=seen.ended_ms)
        reason = seen.reason if event == "monitor.failing" else _recovered(record, now_ms=seen.ended_ms)
        after, alerts = _tell(after, _alert(subject, event, cause, seen.ended_ms, reason, data))
    if seen.certificate:
        after, more = _certificate(after, subject, seen)
        alerts += more
    return RecordAndAlerts(_forget_hour(after, seen.ended_ms), tuple(alerts))


def turn_late(record: HealthRecord, subject: Subject, *, counter: int, due_ms: int, now_ms: int) -> RecordAndAlerts:
    """Return the record and the alert after a run was found late.

    There is one alert, until a run of the monitor ends.
    """
    if record.late_ms:
        return RecordAndAlerts(record)
    cause = run_id(subject.owner, subject.monitor, generation=subject.generation, counter=counter)
    behind = _for_long(now_ms - due_ms)
    data = {"run": cause, "since": to_text(due_ms), "late_for_s": _seconds(now_ms - due_ms)}
    alert = _alert(subject, "monitor.late", cause, now_ms, f"nobody has started its run for {behind}", data)
    after, alerts = _tell(replace(record, late_ms=due_ms), alert)
    return RecordAndAlerts(after, tuple(alerts))


def close_hour(record: HealthRecord, subject: Subject, *, now_ms: int) -> RecordAndAlerts:
    """Return the record and the alert after the hour in which alerts were held back: one message says how many."""
    if not record.held_back or _in_hour(record, now_ms):
        return RecordAndAlerts(record)
    health = "failing" if record.failing else "ok"
    cause = f"{entry_key(subject.owner, subject.monitor)}#{subject.generation}/{record.hour_ms}"
    reason = f"its health changed {record.held_back} more times within an hour; it is {health} now"
    data = {"held_back": record.held_back, "health": health, "since": to_text(record.hour_ms)}
    alert = _alert(subject, "monitor.flapping", cause, now_ms, reason, data)
    return RecordAndAlerts(replace(record, hour_ms=now_ms, told=1, held_back=0), (alert,))


def hour_ends_ms(record: HealthRecord) -> int | None:
    """Return when ``close_hour`` has something to report; None: nothing was held back."""
    return record.hour_ms + HOUR_MS if record.held_back else None


def _count(record: HealthRecord, seen: Observed, policy: AlertPolicy) -> HealthRecord:
    """Return the record with failures and successes counted, and its health turned if a row is long enough."""
    if not seen.ok:
        failures = record.failures + 1
        return replace(
            record,
            failing=record.failing or failures >= policy.after,
            failures=failures,
            successes=0,
            failed=record.failed + 1,
            since_ms=record.since_ms if record.failed else seen.ended_ms,
            reason=seen.reason[:REASON_CHARS_MAX],
        )
    if record.failing and record.successes + 1 < policy.recover:
        return replace(record, failures=0, successes=record.successes + 1)
    return replace(record, failing=False, failures=0, successes=0, failed=0, since_ms=0, reason="", certificate="")


def _event(before: HealthRecord, after: HealthRecord) -> Event | None:
    """Return the event that an outcome caused.

    The end of lateness is reported as the health that the monitor has then.
    """
    if after.failing == before.failing and not before.late_ms:
        return None
    return "monitor.failing" if after.failing else "monitor.recovered"


def _episode(before: HealthRecord, after: HealthRecord, *, now_ms: int) -> dict[str, Any]:
    """Return the figures of the failures and the lateness that an alert is about."""
    data: dict[str, Any] = {}
    shown = after if after.failed else before
    if shown.failed:
        data |= {"failures": shown.failed, "since": to_text(shown.since_ms)}
    if before.failing and not after.failing:
        data["failed_for_s"] = _seconds(now_ms - before.since_ms)
    if before.late_ms:
        data["late_for_s"] = _seconds(now_ms - before.late_ms)
    return data


def _recovered(before: HealthRecord, *, now_ms: int) -> str:
    if not before.failing:
        return f"it runs again, {_for_long(now_ms - before.late_ms)} after the run was due that nobody had started"
    runs = "1 run" if before.failed == 1 else f"{before.failed} runs"
    text = f"it failed for {_for_long(now_ms - before.since_ms)}: {runs}"
    return f"{text}, the last with: {before.reason}" if before.reason else text


def _certificate(record: HealthRecord, subject: Subject, seen: Observed) -> tuple[HealthRecord, list[Alert]]:
    """Return the alert about a certificate that ends soon: once for a certificate and a day, beside the limit."""
    day = to_text(seen.ended_ms)[:10]
    name = f"{seen.certificate}/{day}"
    if record.certificate == name:
        return record, []
    days = "1 day" if seen.days_left == 1 else f"{seen.days_left} days"
    reason = f"its certificate ends in {days}, on {seen.certificate[:10]}"
    data = {"days_left": seen.days_left, "not_after": seen.certificate}
    cause = f"{entry_key(subject.owner, subject.monitor)}#{subject.generation}/{name}"
    alert = _alert(subject, "certificate.expiring", cause, seen.ended_ms, reason, data)
    return replace(record, certificate=name), [alert]


def _tell(record: HealthRecord, alert: Alert) -> tuple[HealthRecord, list[Alert]]:
    """Count an alert: it is sent, or held back if the monitor has had as many as an hour allows."""
    if not _in_hour(record, alert.at_ms):
        if record.held_back:
            alert = replace(alert, data=alert.data | {"held_back": record.held_back})
        return replace(record, hour_ms=alert.at_ms, told=1, held_back=0), [alert]
    if record.told < ALERTS_PER_HOUR_MAX:
        return replace(record, told=record.told + 1), [alert]
    return replace(record, held_back=record.held_back + 1), []


def _in_hour(record: HealthRecord, now_ms: int) -> bool:
    """Return whether the hour of the counted alerts is still on; false if the clock was set back before its start."""
    return record.told > 0 and record.hour_ms <= now_ms < record.hour_ms + HOUR_MS


def _forget_hour(record: HealthRecord, now_ms: int) -> HealthRecord:
    if record.told and not record.held_back and not _in_hour(record, now_ms):
        return replace(record, hour_ms=0, told=0)
    return record


def _alert(subject: Subject, event: Event, cause: str, at_ms: int, reason: str, data: dict[str, Any]) -> Alert:
    return Alert(
        alert_id(event, cause),
        event,
        at_ms,
        subject.owner,
        subject.monitor,
        reason[:REASON_CHARS_MAX],
        data,
        subject.policy.channels,
    )


def _for_long(span_ms: int) -> str:
    """Return a span for people: in seconds, from a minute on in minutes, from two hours on in hours."""
    seconds = max(span_ms, 0) // 1_000
    if seconds < 60:
        return format_duration(seconds * 1_000)
    if seconds < 7_200:
        return f"{seconds // 60}m"
    return f"{seconds // 3_600}h"


def _seconds(span_ms: int) -> float:
    return max(span_ms, 0) / 1_000
