"""Alerts about batches, jobs and accounts: their texts, and the ids by which each is sent once.

Batches and accounts belong to the admins; a job belongs to its user.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, get_args

from paceline.core.alerts.alert import ADMINS, REASON_CHARS_MAX, Alert, alert_id
from paceline.core.batches.batch import Batch, Day
from paceline.core.batches.calls import EndState
from paceline.core.batches.values import DayCount
from paceline.core.ids import entry_key
from paceline.core.jobs.values import StoredJob

ENDED: tuple[str, ...] = get_args(EndState)


def open_runs(counts: Sequence[DayCount]) -> int:
    """Return how many of a day's runs have not ended."""
    return sum(one.runs for one in counts if one.state not in ENDED)


def day_ended(batch: Batch, day: Day, counts: Sequence[DayCount], *, now_ms: int) -> Alert:
    """Return the alert that all runs of a day have ended."""
    totals: Counter[str] = Counter()
    for one in counts:
        totals[one.state] += one.runs
    data: dict[str, Any] = {"batch": batch.id, "date": day.date, "runs": totals.total()}
    data |= {state: totals[state] for state in ENDED}
    bad = totals["failed"] + totals["unknown"]
    return Alert(
        id=alert_id("batch.day_ended", f"{batch.number}/{day.date}"),
        event="batch.day_ended",
        at_ms=now_ms,
        user=ADMINS,
        subject=f"{batch.id}/{day.date}",
        reason=f"{bad} of {totals.total()} runs did not end well" if bad else "",
        data=data,
        channels=batch.spec.channels,
    )


def dead_letters(
    batch: str, count: int, *, example: str, channels: tuple[str, ...], since_ms: int, now_ms: int
) -> Alert:
    """Return the alert that a batch has ``count`` new dead letters since the last look. ``example``: why one failed."""
    return Alert(
        id=alert_id("batch.dead_letters", f"{entry_key(batch, str(since_ms))}"),
        event="batch.dead_letters",
        at_ms=now_ms,
        user=ADMINS,
        subject=batch,
        reason=f"{count} new dead letters; one of them: {example}"[:REASON_CHARS_MAX],
        data={"batch": batch, "count": count},
        channels=channels,
    )


def account_quarantined(account: str, key: str, *, reason: str, number: int, now_ms: int) -> Alert:
    """Return the alert that RIPE has refused a key of an account. ``number``: how often the key has been refused."""
    return Alert(
        id=alert_id("account.quarantined", f"{entry_key(account, key)}@{number}"),
        event="account.quarantined",
        at_ms=now_ms,
        user=ADMINS,
        subject=account,
        reason=reason[:REASON_CHARS_MAX],
        data={"account": account, "key": key},
    )


def job_finished(job: StoredJob, *, now_ms: int) -> Alert | None:
    """Return the alert that every measurement of a job has ended; None if its user was removed."""
    if not job.owner:
        return None
    success = job.done == job.measurements
    data: dict[str, Any] = {"job": job.id, "title": job.title, "success": success, "measurements": job.measurements}
    data |= {"done": job.done, "failed": job.failed, "cancelled": job.cancelled}
    return Alert(
        id=alert_id("job.finished", job.id),
        event="job.finished",
        at_ms=now_ms,
        user=job.owner,
        subject=job.id,
        reason="" if success else f"{job.measurements - job.done} of {job.measurements} measurements did not succeed",
        data=data,
    )
