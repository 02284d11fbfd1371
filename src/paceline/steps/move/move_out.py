"""Export a store's definitions as a stream of lines, a page at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import cast

import msgspec

from paceline.core.batches.batch import Batch, Day, day_at, record_document, window_of
from paceline.core.jobs.values import AccountSpec
from paceline.core.monitors.definition import encode_spec
from paceline.core.monitors.uptime.rollup import encode_rollup, moved
from paceline.core.verify.facts import AnyFact, Fact
from paceline.ports import Store, Vault
from paceline.steps.alerts.channels import channels_of
from paceline.steps.alerts.owner import since_ms
from paceline.steps.alerts.silences import silences_of
from paceline.steps.batches.plan import all_batches, due_dates
from paceline.steps.move import stream
from paceline.steps.walk import walk, walk_pages

PAGE = 1_000
ALERTS_PAGE = 10_000
PAGES_MAX = 1_000_000
ENDED = frozenset({"done", "failed", "unknown", "skipped"})


class Exported(msgspec.Struct, frozen=True):
    """How many of each kind were written, and what stays behind in the old store because no line has it."""

    users: int
    tokens: int
    channels: int
    silences: int
    monitors: int
    providers: int
    batches: int
    records: int
    runs: int
    accounts: int
    keys: int
    jobs: int
    """Finished jobs, as history: the other store does not import them."""
    alerts: int
    """Those that are not over."""
    history: int
    """Facts of the ledger, for ``paceline verify``: the other store does not import them."""
    runs_left: int
    """Runs of monitors that are not claimed yet."""
    dead_letters_left: int


def export(
    store: Store, vault: Vault, write: Callable[[bytes], object], *, now_ms: int, history: Iterable[Fact] = ()
) -> Exported:
    """Write the stream, holding one page at a time, and some hundred bytes for each run of an open day.

    ``history``: facts to be written as well, behind everything else.

    It is consistent only if nothing else writes meanwhile; ``obstacles`` tells what should have ended before.
    """
    counts: Counter[str] = Counter()
    write(stream.write_line(stream.make_head(vault, now_ms=now_ms)))
    lines = 1
    for part in (_users, _channels, _silences, _monitors, _providers, _batches, _accounts, _jobs, _alerts):
        for line in part(store, now_ms):
            write(stream.write_line(line))
            _count(counts, line)
            lines += 1
    for fact in history:
        write(stream.write_line(stream.HistoryLine(cast("AnyFact", fact))))
        counts["history"] += 1
        lines += 1
    write(stream.write_line(stream.Tail(lines)))
    status = store.status()
    counts["runs_left"], counts["dead_letters_left"] = status.runs_waiting, status.dead_letters
    return Exported(**{name: counts[name] for name in Exported.__struct_fields__})


def _count(counts: Counter[str], line: stream.AnyLine) -> None:
    counts[_PLURALS[type(line)]] += 1
    match line:
        case stream.UserLine():
            counts["tokens"] += len(line.tokens)
        case stream.RecordLine():
            counts["runs"] += len(line.runs)
        case stream.AccountLine():
            counts["keys"] += len(line.keys)


_PLURALS: dict[type, str] = {
    stream.UserLine: "users",
    stream.ChannelLine: "channels",
    stream.SilenceLine: "silences",
    stream.AlertLine: "alerts",
    stream.MonitorLine: "monitors",
    stream.ProviderLine: "providers",
    stream.BatchLine: "batches",
    stream.RecordLine: "records",
    stream.AccountLine: "accounts",
    stream.JobLine: "jobs",
}


def _users(store: Store, now_ms: int) -> Iterator[stream.UserLine]:
    del now_ms
    for user in walk(store.users):
        tokens = tuple(
            stream.MovedToken(t.id, t.label, t.digest.hex(), t.created_ms, t.scope, t.expires_ms)
            for t in store.tokens(user.id)
        )
        yield stream.UserLine(user.id, user.role, user.daily_credits, user.disabled, user.created_ms, tokens)


def _owners(store: Store) -> Iterator[str]:
    return (user.id for user in walk(store.users))


def _channels(store: Store, now_ms: int) -> Iterator[stream.ChannelLine]:
    del now_ms
    for owner in _owners(store):
        for channel_id, channel in channels_of(store, owner, since_ms=since_ms(store, owner)).items():
            yield stream.ChannelLine(owner, channel_id, channel)


def _silences(store: Store, now_ms: int) -> Iterator[stream.SilenceLine]:
    for owner in _owners(store):
        for silence_id, silence in silences_of(store, owner, now_ms=now_ms, since_ms=since_ms(store, owner)):
            yield stream.SilenceLine(owner, silence_id, silence)


def _alerts(store: Store, now_ms: int) -> Iterator[stream.AlertLine]:
    del now_ms
    after = -1
    for _ in range(PAGES_MAX):
        page = store.open_alerts_after(after, limit=ALERTS_PAGE)
        yield from map(stream.AlertLine, page)
        if len(page) < ALERTS_PAGE:
            return
        assert page[-1].next_ms is not None
        after = max(after + 1, page[-1].next_ms - 1)  # others may be due at the same moment; a line twice does no harm


def _monitors(store: Store, now_ms: int) -> Iterator[stream.MonitorLine]:
    for owner in _owners(store):
        for page in walk_pages(partial(store.monitors, owner)):
            generations = [monitor.generation for monitor in page]
            entries = store.entries(generations, now_ms=now_ms)
            records = store.health_records(generations)
            rollups = store.uptimes(page, now_ms=now_ms)
            for monitor, rollup in zip(page, rollups, strict=True):
                entry = entries.get(monitor.generation)
                due_ms = entry.due_ms if entry else None
                spec = msgspec.Raw(encode_spec(monitor.spec))
                uptime = encode_rollup(moved(rollup)) if rollup.days else b""
                health = records.get(monitor.generation)
                yield stream.MonitorLine(owner, monitor.id, monitor.created_ms, due_ms, spec, uptime, health)


def _providers(store: Store, now_ms: int) -> Iterator[stream.ProviderLine]:
    del now_ms
    return (stream.ProviderLine(provider.id, provider.spec) for provider in walk(store.providers))


def _batches(store: Store, now_ms: int) -> Iterator[stream.BatchLine | stream.RecordLine]:
    for batch in all_batches(store):
        if batch.deleting is not None:
            continue
        days = list(stream.open_days(store, batch, now_ms=now_ms))
        moved = tuple(stream.MovedDay(day.date, day.start_ms, day.end_ms, is_open) for day, is_open in days)
        yield stream.BatchLine(batch.id, _since_ms(store, batch, now_ms=now_ms), batch.spec, moved)
        yield from _records(store, batch, [day for day, is_open in days if is_open])


def _since_ms(store: Store, batch: Batch, *, now_ms: int) -> int:
    """Return now, or the beginning of a window that this store has not planned yet, so that the other one plans it."""
    if batch.spec.paused:
        return now_ms
    known = {day.date for day in store.days(batch, before=None, limit=PAGE)}
    owed = [day for day in due_dates(store, batch, day_at(batch.spec, now_ms)) if day.isoformat() not in known]
    return min([now_ms, *(window_of(batch.spec, day).start_ms for day in owed)])


def _records(store: Store, batch: Batch, days: list[Day]) -> Iterator[stream.RecordLine]:
    # Runs come in the order of numbers and records in that of names, so the runs of a day are held to be matched.
    runs = {day.date: _runs(store, day) for day in days}
    numbers = store.record_numbers(batch)  # in the order in which they were put, which a provider may keep
    for first in range(0, len(numbers), PAGE):
        for record in store.records_of(numbers[first : first + PAGE]):
            mine = ((date, due_ms) for date, dues in runs.items() if (due_ms := dues.get(record.id)))
            moved = tuple(stream.MovedRun(date, abs(due_ms), ended=due_ms < 0) for date, due_ms in mine)
            shown = msgspec.Raw(msgspec.json.encode(record_document(record)))
            yield stream.RecordLine(batch.id, shown, moved, record.options.headers)


def _runs(store: Store, day: Day) -> dict[str, int]:
    """Return due times by record; a negative one means that the run has ended."""
    found: dict[str, int] = {}
    after: int | None = 0
    while after is not None:
        page, after = store.day_runs(day, state=None, provider=None, after=after, limit=PAGE)
        found |= {run.record: -run.due_ms if run.state in ENDED else run.due_ms for run in page}
    return found


def _accounts(store: Store, now_ms: int) -> Iterator[stream.AccountLine]:
    for account in store.accounts(now_ms=now_ms, releases_until_ms=now_ms):
        spec = AccountSpec(account.concurrent.limit, account.results.limit, account.credits.limit, account.enabled)
        keys = tuple(
            stream.MovedKey(sealed, key.last_four, key.label, key.enabled, key.quarantine)
            for key in store.keys(account.id)
            if (sealed := store.sealed_key(account.id, key.id)) is not None
        )
        spent = [meter.spent + meter.held + meter.foreign for meter in (account.credits, account.results)]
        yield stream.AccountLine(account.id, spec, credits=spent[0], results=spent[1], keys=keys)


def _jobs(store: Store, now_ms: int) -> Iterator[stream.JobLine]:
    """Yield the jobs, newest first."""
    del now_ms
    before: int | None = None
    for _ in range(PAGES_MAX):
        page = store.jobs(None, before=before, limit=PAGE)
        yield from map(stream.JobLine, page)
        if len(page) < PAGE:
            return
        before = page[-1].number
