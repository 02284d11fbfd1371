"""Stream of lines that moves from one store to another, and the work that must have ended before it is written.

The first line names the format and the secret it was sealed with, the last how many lines there were. Between them are
users, channels, silences, monitors, providers, each batch before its records, accounts, finished jobs as history, and
alerts that are not over. Numbers, generations and revisions are a store's own and do not move; names, schedules and the
runs of open days do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import msgspec

from paceline.core.alerts.channel import Channel
from paceline.core.alerts.record import AlertRecord
from paceline.core.alerts.silence import Silence
from paceline.core.batches.batch import Batch, BatchSpec, Day
from paceline.core.batches.outgoing import why_not_moved
from paceline.core.batches.provider import ProviderSpec
from paceline.core.instants import to_text
from paceline.core.jobs.values import AccountSpec, StoredJob
from paceline.core.monitors.alerting.record import HealthRecord
from paceline.core.users import Role
from paceline.core.verify.facts import AnyFact
from paceline.errors import InvalidInput, MalformedBody, WrongSetting
from paceline.ports import Store, Vault
from paceline.steps.batches.plan import all_batches

FORMAT = 1
SEALED_TEXT = "paceline export"
"""Text sealed in the first line: an installation that can open it has the secret that sealed everything else."""
PAGE = 1_000
DAYS_MAX = 14
"""Number of a batch's days that are marked as planned in the other store: more than are ever made up for."""


class StreamLine(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    """One line of the stream."""


class Head(StreamLine, frozen=True, tag="paceline"):
    format: int
    exported_ms: int
    sealed: str


class MovedToken(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A token. ``digest`` is the keyed hash, in hexadecimal digits."""

    id: str
    label: str
    digest: str
    created_ms: int
    scope: str = ""
    expires_ms: int | None = None


class UserLine(StreamLine, frozen=True, tag="user"):
    id: str
    role: Role
    daily_credits: int
    disabled: bool
    created_ms: int
    tokens: tuple[MovedToken, ...] = ()


class ChannelLine(StreamLine, frozen=True, tag="channel"):
    """A channel of a user; its URL is sealed."""

    owner: str
    id: str
    channel: Channel


class SilenceLine(StreamLine, frozen=True, tag="silence"):
    """A silence in force."""

    owner: str
    id: str
    silence: Silence


class AlertLine(StreamLine, frozen=True, tag="alert"):
    """An alert that is not over: finished deliveries stay so, the other store makes the rest."""

    record: AlertRecord


class MonitorLine(StreamLine, frozen=True, tag="monitor"):
    """A monitor.

    ``due_ms``: its next firing; None while it is paused. ``rollup``: its uptime, encoded. ``health``: its record.
    """

    owner: str
    id: str
    created_ms: int
    due_ms: int | None
    spec: msgspec.Raw
    rollup: bytes = b""
    health: HealthRecord | None = None


class ProviderLine(StreamLine, frozen=True, tag="provider"):
    """A provider; its headers are sealed."""

    id: str
    spec: ProviderSpec


class MovedDay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A day. ``open``: it is not over, or runs of it have not ended; its records come with their runs."""

    date: str
    start_ms: int
    end_ms: int
    open: bool


class BatchLine(StreamLine, frozen=True, tag="batch"):
    """A batch. ``since_ms``: windows that began before are planned already or not at all."""

    id: str
    since_ms: int
    spec: BatchSpec
    days: tuple[MovedDay, ...] = ()


class MovedRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    date: str
    due_ms: int
    ended: bool


class RecordLine(StreamLine, frozen=True, tag="record"):
    batch: str
    record: msgspec.Raw
    """The record as it is shown, with its headers' values hidden."""
    runs: tuple[MovedRun, ...] = ()
    headers: dict[str, str] = {}
    """Values of its headers, sealed."""


class MovedKey(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    sealed: str
    last_four: str
    label: str
    enabled: bool
    quarantine: str


class AccountLine(StreamLine, frozen=True, tag="account"):
    """An account. ``credits`` and ``results``: the use of its day by all users."""

    id: str
    spec: AccountSpec
    credits: int
    results: int
    keys: tuple[MovedKey, ...] = ()


class JobLine(StreamLine, frozen=True, tag="job"):
    """A finished job, as history: no store imports it."""

    job: StoredJob


class HistoryLine(StreamLine, frozen=True, tag="history"):
    """A fact of the ledger, for ``paceline verify``: no store imports it."""

    fact: AnyFact


class Tail(StreamLine, frozen=True, tag="end"):
    """Last line. ``lines``: the number of lines before it, including the first."""

    lines: int


AnyLine = (
    Head
    | UserLine
    | ChannelLine
    | SilenceLine
    | MonitorLine
    | ProviderLine
    | BatchLine
    | RecordLine
    | AccountLine
    | JobLine
    | AlertLine
    | HistoryLine
    | Tail
)
_LINE = msgspec.json.Decoder(AnyLine)
_encode = msgspec.json.Encoder().encode


def write_line(line: AnyLine) -> bytes:
    return _encode(line) + b"\n"


def read_line(text: bytes, *, number: int) -> AnyLine:
    """Return a parsed line; MalformedBody names its number."""
    try:
        line: AnyLine = _LINE.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedBody(f"Line {number} is not one of an export: {error}.") from None
    return line


def make_head(vault: Vault, *, now_ms: int) -> Head:
    return Head(FORMAT, now_ms, vault.seal(SEALED_TEXT))


def check_head(line: AnyLine, vault: Vault) -> Head:
    """Raise unless this version can read the stream, and this installation can open its sealed parts."""
    if not isinstance(line, Head):
        raise MalformedBody("The first line is not that of an export: give what paceline export wrote, from its start.")
    if line.format != FORMAT:
        raise InvalidInput(f"The export has format {line.format}, and this version reads {FORMAT}: use its version.")
    try:
        same = vault.unseal(line.sealed) == SEALED_TEXT
    except WrongSetting:
        same = False
    if not same:
        raise WrongSetting(
            "PACELINE_SECRET_KEY: the export was sealed with another secret. Tokens, headers and keys in it are of use"
            " only with that one: set it to what the key file beside the old store holds, or to the old setting."
        )
    return line


def obstacles(store: Store, *, now_ms: int) -> list[str]:
    """Return the work in progress, in words: moved now, it would be lost, doubled or spent twice."""
    found: list[str] = []
    if (out := store.leases(now_ms=now_ms)).until_ms is not None:
        found.append(
            f"{out.runs} runs of monitors are out (let those who have them report, or wait until their leases have"
            f" ended at {to_text(out.until_ms)})"
        )
    counts = store.send_counts()
    if counts.open_jobs:
        found.append(f"{counts.open_jobs} jobs have not ended (let them end, or cancel them)")
    for batch in all_batches(store):
        for day in store.days(batch, before=None, limit=DAYS_MAX):
            if day.state == "planning":
                found.append(f"day {day.date} of batch {batch.id!r} is half planned")
            elif any(count.state == "out" for count in store.day_counts(day)):
                found += _calls_out(store, day, f"day {day.date} of batch {batch.id!r}", now_ms=now_ms)
    return found


def _calls_out(store: Store, day: Day, name: str, *, now_ms: int) -> Iterator[str]:
    """Yield in words which of the day's runs that are out stand in the way."""
    counts: Counter[tuple[str, str]] = Counter()
    specs: dict[str, ProviderSpec] = {}
    after: int | None = 0
    while after is not None:
        page, after = store.day_runs(day, state="out", provider=None, after=after, limit=PAGE)
        for run in page:
            if run.provider not in specs:
                provider = store.provider(run.provider)
                specs[run.provider] = provider.spec if provider else ProviderSpec()
            why = why_not_moved(specs[run.provider], attempt=run.attempt, until_ms=run.until_ms, now_ms=now_ms)
            if why is not None:
                counts[why, run.provider if why == "unreported" else ""] += 1
    for (kept, provider_id), runs in sorted(counts.items()):
        advice = f"let a worker claim from provider {provider_id!r} once: that makes them dead letters"
        ended = f", and their leases have ended ({advice})" if kept == "unreported" else ""
        yield f"{runs} runs of {name} are out{ended}"


def open_days(store: Store, batch: Batch, *, now_ms: int) -> Iterator[tuple[Day, bool]]:
    """Yield the newest days, each with whether a run of it may still start."""
    for day in store.days(batch, before=None, limit=DAYS_MAX):
        ended = {"done", "failed", "unknown", "skipped"}
        yield day, day.end_ms > now_ms or any(one.state not in ended for one in store.day_counts(day))
