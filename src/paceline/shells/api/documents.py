"""JSON bodies that only the API uses. Views of definitions, days and runs come from the steps.

Bodies that core parses itself, such as ``MonitorBody``, are declared here for their schemas.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from paceline.core import schema as core
from paceline.core.batches.batch import DATE_RULE, ENDPOINT_CHARS_MAX
from paceline.core.batches.provider import HEADERS_MAX, Method
from paceline.core.batches.records.expect import ExpectSpec
from paceline.core.batches.records.options import PRIORITY_MAX
from paceline.core.monitors.alerting.policy import DEFAULT as DEFAULT_ALERT
from paceline.core.monitors.alerting.policy import AlertPolicy
from paceline.core.monitors.definition import ATTEMPTS_MAX, TAG_CHARS_MAX, TAGS_MAX
from paceline.core.monitors.schedule import Missed, Overlap
from paceline.core.schema import Id, Instant, sentence, shown
from paceline.core.scopes import SCOPE_PATTERN, SCOPE_RULE
from paceline.core.users import Role
from paceline.shells.api.http.problems import Problem
from paceline.steps.access import DAILY_CREDITS_DEFAULT, DAILY_CREDITS_MAX, LABEL_CHARS_MAX
from paceline.steps.batches.redrive import RUNS_MAX
from paceline.steps.batches.rerun import RECORDS_MAX as RERUN_RECORDS_MAX
from paceline.steps.jobs.accounts import KEY_CHARS_MAX
from paceline.steps.jobs.accounts import LABEL_CHARS_MAX as KEY_LABEL_CHARS_MAX

MISSED_RULE = "What becomes of firings that were missed."
OVERLAP_RULE = (
    "What a firing does while an earlier run of the monitor is waiting or out: it makes no run, or its run queues."
)

Duration = Annotated[core.Duration, Meta(description="A duration such as 500ms, 30s, 5m, 6h, 1d.")]
Every = Annotated[core.Duration, shown("The interval, from 1s up.")]
Cron = Annotated[str, shown("Five fields: minute, hour, day of month, month, day of week.")]
Timezone = Annotated[str, shown("Of the cron expression; an IANA name.")]
Delay = Annotated[
    core.Duration,
    shown(
        "Before the first firing, where the grid of an interval then begins. Left out, the phase of an interval is"
        " allotted: monitors of one interval share it evenly."
    ),
]
Jitter = Annotated[core.Duration, shown("Shifts all firings of this monitor by a fixed part of it.")]
Tags = Annotated[list[Annotated[str, shown(maxLength=TAG_CHARS_MAX)]], shown(maxItems=TAGS_MAX)]
Attempts = Annotated[
    int, shown("Tries of a check before it counts as failed, 1 s apart.", minimum=1, maximum=ATTEMPTS_MAX)
]
Credits = Annotated[int, shown(minimum=0, maximum=DAILY_CREDITS_MAX)]
Label = Annotated[str, shown(maxLength=LABEL_CHARS_MAX, pattern="^[^\\u0000]*$")]
Date = Annotated[str, shown(sentence(DATE_RULE), format="date")]
RunId = Annotated[str, Meta(max_length=800, description="`user/monitor#generation@counter`.")]
CallRunId = Annotated[
    str, Meta(max_length=800, description="`batch/record@2026-11-15`; followed by `~1` for its first rerun.")
]


def schema_ref(name: str) -> Meta:
    """Returns a reference to the schema of that name, for JSON that the handler decodes itself."""
    return shown(**{"$ref": f"#/components/schemas/{name}"})


class NewUserBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: Id
    role: Role = "user"
    daily_credits: Credits = DAILY_CREDITS_DEFAULT


class NewUser(msgspec.Struct, frozen=True):
    """A new user. ``token`` is shown only this once and is not stored."""

    user: str
    token: str


class UserPatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes of a user. Fields that are left out stay as they are."""

    role: Role | msgspec.UnsetType = msgspec.UNSET
    daily_credits: Credits | msgspec.UnsetType = msgspec.UNSET
    disabled: bool | msgspec.UnsetType = msgspec.UNSET


class NewTokenBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token to make.

    ``scope`` says what it may do; without it, all that its user may. Only admins make ``worker:`` tokens.
    """

    label: Label = ""
    scope: Annotated[str, shown(sentence(SCOPE_RULE), pattern=f"^{SCOPE_PATTERN}$")] | msgspec.UnsetType = msgspec.UNSET
    expires: Annotated[Instant, shown("When it ends.", format="date-time")] | msgspec.UnsetType = msgspec.UNSET


class TokenMade(msgspec.Struct, frozen=True):
    """A new token. ``token`` is shown only this once and is not stored."""

    id: str
    label: str
    scope: str | None
    expires: Instant | None
    created_at: Instant
    token: str


class OutgoingCheckSchema(msgspec.Struct, frozen=True, tag_field="kind", tag="outgoing"):
    """Work for your own checker. All fields besides `kind` are passed on as they are."""


class _Monitor(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    check: Annotated[msgspec.Raw, schema_ref("Check")]
    initial_delay: Delay | msgspec.UnsetType = msgspec.UNSET
    jitter: Jitter = "0s"
    missed: Annotated[Missed, shown(MISSED_RULE)] = "skip"
    overlap: Annotated[Overlap, shown(OVERLAP_RULE)] = "skip"
    paused: bool = False
    tags: Tags = []
    alert: AlertPolicy = DEFAULT_ALERT
    attempts: Attempts = 1


class IntervalMonitor(_Monitor, frozen=True, kw_only=True):
    """A monitor that fires at an interval."""

    every: Every


class CronMonitor(_Monitor, frozen=True, kw_only=True):
    """A monitor that fires at the times of a cron expression."""

    cron: Cron
    timezone: Timezone = "UTC"


class IntervalItem(IntervalMonitor, frozen=True, kw_only=True):
    """One of many monitors, with an interval."""

    id: Id


class CronItem(CronMonitor, frozen=True, kw_only=True):
    """One of many monitors, with a cron expression."""

    id: Id


class MonitorPatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Changes of a monitor: null removes a field, `check` and `alert` are merged, all other fields are replaced."""

    check: dict[str, Any] | msgspec.UnsetType = msgspec.UNSET
    every: Every | msgspec.UnsetType | None = msgspec.UNSET
    cron: Cron | msgspec.UnsetType | None = msgspec.UNSET
    timezone: Timezone | msgspec.UnsetType | None = msgspec.UNSET
    initial_delay: Delay | msgspec.UnsetType | None = msgspec.UNSET
    jitter: Jitter | msgspec.UnsetType | None = msgspec.UNSET
    missed: Annotated[Missed, shown(MISSED_RULE)] | msgspec.UnsetType | None = msgspec.UNSET
    overlap: Annotated[Overlap, shown(OVERLAP_RULE)] | msgspec.UnsetType | None = msgspec.UNSET
    paused: bool | msgspec.UnsetType | None = msgspec.UNSET
    tags: Tags | msgspec.UnsetType | None = msgspec.UNSET
    alert: AlertPolicy | msgspec.UnsetType | None = msgspec.UNSET
    attempts: Attempts | msgspec.UnsetType | None = msgspec.UNSET


class BulkBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Monitors to put. Each item is judged by itself. If an id is repeated, only its first item counts."""

    items: list[Annotated[msgspec.Raw, schema_ref("BulkItem")]]


class BulkResult(msgspec.Struct, frozen=True, omit_defaults=True):
    """Result of one item. ``error`` says why it was refused."""

    id: str | None
    disposition: Literal["created", "replaced", "unchanged", "refused"]
    error: Problem | None = None


class BulkAnswer(msgspec.Struct, frozen=True):
    """Results in the order of the request."""

    items: list[BulkResult]


class Record(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A record: a request to a provider, made once a day."""

    id: Id
    provider: Id
    endpoint: Annotated[
        str,
        shown("What follows `base_url`; percent-encoded, with placeholders.", maxLength=ENDPOINT_CHARS_MAX),
    ] = ""
    body: Annotated[Any, shown("Any JSON, its string values with placeholders; a text is sent as that text.")] = None
    active: Annotated[bool, shown("`false`: it does not run.")] = True
    method: Annotated[Method | None, shown("In place of the provider's.")] = None
    headers: Annotated[
        dict[str, str], shown("Beside the provider's; sealed, and shown as `***`.", maxProperties=HEADERS_MAX)
    ] = {}
    timeout: Annotated[core.Duration | None, shown("In place of the provider's.")] = None
    expect: Annotated[ExpectSpec | None, shown("Before the provider's.")] = None
    priority: Annotated[
        int,
        shown("Where the provider's order is `priority`: higher first.", minimum=-PRIORITY_MAX, maximum=PRIORITY_MAX),
    ] = 0
    after: Annotated[Id | None, shown("A record of the same batch that must be done first, each day.")] = None


class RecordsBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Records to put. Each is judged by itself."""

    items: list[Annotated[msgspec.Raw, schema_ref("Record")]]


class RefusedLine(msgspec.Struct, frozen=True):
    """A refused line, and why it was refused."""

    line: int
    id: str | None
    code: str
    detail: str


class RecordsAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Counts by disposition.

    After JSON, ``items`` has a disposition for each record; after lines, ``refusals`` names the refused ones.
    """

    created: int
    replaced: int
    unchanged: int
    refused: int
    items: list[BulkResult] | msgspec.UnsetType = msgspec.UNSET
    refusals: list[RefusedLine] | msgspec.UnsetType = msgspec.UNSET


class RecordView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A record. ``body`` is JSON; null: no body. Fields that the record leaves to its provider are left out."""

    id: str
    provider: str
    endpoint: str
    body: Any
    active: bool
    method: Method | None = None
    headers: dict[str, str] = {}
    timeout: core.Duration | None = None
    expect: ExpectSpec | None = None
    priority: int = 0
    after: str | None = None


class PlanBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The day to plan. Without ``date``, the running day."""

    date: Date | msgspec.UnsetType = msgspec.UNSET


class RerunBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Runs to run again: those that ended in ``state``, or those of ``records``. Give one of the two."""

    state: Literal["done", "failed", "unknown", "skipped"] | msgspec.UnsetType = msgspec.UNSET
    records: Annotated[list[Id], Meta(max_length=RERUN_RECORDS_MAX)] | msgspec.UnsetType = msgspec.UNSET


class RerunAnswer(msgspec.Struct, frozen=True):
    """Result of a rerun.

    ``rerun`` is its number: its runs are `batch/record@date~rerun`. 0: nothing was to run again.
    """

    enqueued: int
    rerun: int


class PlanAnswer(msgspec.Struct, frozen=True):
    """Result of a plan. ``already``: planned before. ``skipped``: ended at once, because their time has passed."""

    enqueued: int
    already: int
    skipped: int


class DeadBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Chooses dead letters: these runs, those of a provider, those of a batch (on a date). All conditions must hold."""

    runs: Annotated[list[CallRunId], Meta(max_length=RUNS_MAX)] | msgspec.UnsetType = msgspec.UNSET
    provider: Id | msgspec.UnsetType = msgspec.UNSET
    batch: Id | msgspec.UnsetType = msgspec.UNSET
    date: Date | msgspec.UnsetType = msgspec.UNSET


class RedriveBody(DeadBody, frozen=True):
    """Chooses dead letters to redrive; or ``queues`` alone: the messages in dead queues, on AWS."""

    queues: bool = False


class Redriven(msgspec.Struct, frozen=True):
    redriven: int


class ReplayAnswer(msgspec.Struct, frozen=True):
    """Counts of messages in dead queues: sent again, deleted because they are stale, and left because unreadable.

    ``queues``: how many messages of each queue were sent again.
    """

    redriven: int
    dropped: int
    left: int
    queues: dict[str, int]


class Discarded(msgspec.Struct, frozen=True):
    discarded: int


class JobQuote(msgspec.Struct, frozen=True):
    """Result of a dry run: the highest cost of the job, and whether it ``fits`` into what is left.

    Nothing was changed.
    """

    cost: int
    credits_left: int
    measurements: int
    fits: bool
    resets_at: Instant


class JobAccepted(msgspec.Struct, frozen=True):
    """A job that was accepted.

    ``cost`` is its highest possible cost, which is reserved. ``again``: it was submitted before, with the same key.
    """

    job: str
    cost: int
    credits_left: int
    measurements: int
    again: bool


class WebhookSecret(msgspec.Struct, frozen=True):
    """The secret that signs the webhooks of all jobs of the user."""

    secret: str


class NewKeyBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A key to add. ``key`` is sealed at once, and never shown."""

    key: Annotated[str, shown(minLength=1, maxLength=KEY_CHARS_MAX, writeOnly=True)]
    label: Annotated[str, shown(maxLength=KEY_LABEL_CHARS_MAX)] = ""


class KeyPatchBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    enabled: bool


class Alive(msgspec.Struct, frozen=True):
    status: Literal["ok"] = "ok"


class LoopView(msgspec.Struct, frozen=True):
    name: str
    turning: bool
    seconds_since_turn: float


class Ready(msgspec.Struct, frozen=True):
    status: Literal["ready"]
    loops: list[LoopView]
