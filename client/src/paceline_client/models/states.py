"""Closed sets of words, closed for type checkers only: a word of a newer service must not break a read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    AccountState = Literal["closed", "disabled", "full", "no_key", "quarantined", "ready"]
    AlertState = Literal["given_up", "new", "no_channel", "passed_on", "sending", "silenced", "told"]
    BatchRunState = Literal["aside", "done", "failed", "out", "retry", "skipped", "unknown", "waiting"]
    BulkDisposition = Literal["created", "refused", "replaced", "unchanged"]
    ChannelKind = Literal["apprise", "webhook"]
    CheckKind = Literal["dns", "http", "outgoing", "tcp", "tls"]
    DaemonKind = Literal["up", "worker"]
    DaemonState = Literal["gone", "running"]
    DayState = Literal["planned", "planning"]
    DeliveryState = Literal["given_up", "told", "waiting"]
    EndState = Literal["done", "failed", "skipped", "unknown"]
    Event = Literal[
        "account.quarantined",
        "batch.day_ended",
        "batch.dead_letters",
        "certificate.expiring",
        "channel.test",
        "job.finished",
        "monitor.failing",
        "monitor.flapping",
        "monitor.late",
        "monitor.recovered",
    ]
    Health = Literal["failing", "late", "new", "ok", "paused"]
    HttpMethod = Literal["DELETE", "GET", "PATCH", "POST", "PUT"]
    JobState = Literal["cancelling", "finished", "queued", "running"]
    KeyState = Literal["disabled", "quarantined", "ready"]
    MeasurementState = Literal["cancelled", "done", "failed", "ongoing", "parked", "queued", "sending", "unknown"]
    Missed = Literal["all", "once", "skip"]
    MonitorSort = Literal["health", "id", "next_due"]
    OutcomeDisposition = Literal["refused", "retried", "settled", "stale"]
    Overlap = Literal["queue", "skip"]
    ProviderKind = Literal["http", "outgoing"]
    PlanWarningKind = Literal["latency", "paused", "rate", "time_out"]
    RecordOrder = Literal["imported", "priority", "spread"]
    Role = Literal["admin", "user"]
    RunOutcome = Literal["dead", "failed", "ok", "unknown"]
    RunState = Literal["dead", "failed", "held", "later", "ok", "out", "parked", "retry", "unknown", "waiting"]
    SettledState = Literal["dead", "done", "failed", "ok", "unknown"]
    StandingState = Literal["closed", "open", "paused"]
    UnknownRule = Literal["hold", "look_up", "retry"]
    UpcomingReason = Literal["owner_disabled", "paused"]
else:
    CheckKind = MonitorSort = str
    AccountState = BatchRunState = BulkDisposition = DaemonKind = DaemonState = DayState = Health = HttpMethod = str
    JobState = KeyState = MeasurementState = Missed = OutcomeDisposition = Overlap = PlanWarningKind = ProviderKind = (
        str
    )
    EndState = RecordOrder = Role = RunOutcome = RunState = SettledState = StandingState = UnknownRule = (
        UpcomingReason
    ) = str
    AlertState = ChannelKind = DeliveryState = Event = str

OutcomeStatus = Literal["failed", "ok", "retry"]
"""Outcomes that a checker can report."""
