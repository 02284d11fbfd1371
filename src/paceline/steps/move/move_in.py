"""Import of a stream of lines into a store. Importing it again changes nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import groupby, islice
from typing import NamedTuple, TypeVar

import msgspec

from paceline.core.batches.batch import RecordSpec, parse_record
from paceline.core.batches.provider import provider_problems
from paceline.core.batches.records.options import RecordOptions, keep_hidden_options
from paceline.core.batches.values import PutProvider
from paceline.core.ids import id_problem
from paceline.core.jobs.accounts import KeyChange
from paceline.core.jobs.atlas import MeterName
from paceline.core.jobs.meters import Reading
from paceline.core.jobs.values import AddKey
from paceline.core.monitors import schedule
from paceline.core.monitors.alerting.record import NO_RECORD
from paceline.core.monitors.alerting.stored import HealthChange
from paceline.core.monitors.definition import SpecLimits, encode_spec, parse_spec, parse_stored_spec, wish_of
from paceline.core.monitors.uptime.rollup import Rollup, decode_rollup
from paceline.core.monitors.values import Change, PutMonitor, PutResult, Reacted
from paceline.core.users import Token, User, UserEdit
from paceline.errors import AlreadyExists, InvalidInput, LimitReached, MalformedBody, PacelineError
from paceline.ports import Store, Vault
from paceline.steps.access import TOKENS_MAX
from paceline.steps.ahead.counts import beside_all, count_cadences
from paceline.steps.batches.headers import open_headers
from paceline.steps.jobs.accounts import put_account_spec
from paceline.steps.monitors.check_secrets import open_spec, seal_spec
from paceline.steps.monitors.phases import count_moves
from paceline.steps.monitors.react import CHANGES_MAX, react_to_all
from paceline.steps.move import stream
from paceline.steps.move.move_alerts import put_alert_line, put_channel_line, put_silence_line
from paceline.steps.move.move_batch import BatchMove

PAGE = 1_000
MONITORS_MAX = 10**9
"""No limit: monitors that the old store allowed are not refused by a setting of the new one."""
LIMITS = SpecLimits(every_ms_min=schedule.SLOT_MS)
T = TypeVar("T")


class Imported(msgspec.Struct, frozen=True):
    """Number of lines of each kind that were created, replaced, unchanged, or passed over."""

    counts: dict[str, dict[str, int]]
    lines: int
    unplaced: int = 0
    """Number of new monitors that another process armed meanwhile: they do not fire at their old due time."""


class _Numbered(NamedTuple):
    number: int
    line: stream.AnyLine


class _Tally:
    def __init__(self) -> None:
        self.counts: dict[str, Counter[str]] = {}

    def add(self, kind: str, disposition: str) -> None:
        self.counts.setdefault(kind, Counter())[disposition] += 1


def import_lines(
    store: Store,
    vault: Vault,
    lines: Iterable[bytes],
    *,
    now_ms: int,
    progress: Callable[[int], None] = lambda _lines: None,
) -> Imported:
    """Make definitions as the stream has them; others stay. Return the counts of dispositions.

    Each page is durable once it is done. A stream that breaks off, or has a wrong line, raises: the pages before are
    stored, and importing the whole stream again completes it.
    """
    numbered = (_Numbered(number, stream.read_line(text, number=number)) for number, text in enumerate(lines, start=1))
    head = stream.check_head(_first(numbered), vault)
    move = _Move(store, vault, head, now_ms=now_ms)
    last, tail = 1, None
    for kind, group in groupby(numbered, key=lambda one: type(one.line)):
        for page in _pages(group):
            last = page[-1].number
            if tail is not None or (kind is stream.Tail and len(page) > 1):
                raise MalformedBody(f"Line {last} comes after the end of the export: import each export by itself.")
            if kind is stream.Tail:
                tail = page[0].line
            else:
                move.take(kind, page)
            progress(last)
    if not isinstance(tail, stream.Tail) or tail.lines != last - 1:
        raise MalformedBody(f"The export breaks off after line {last}: import it again, whole; doing it twice is safe.")
    move.finish_batch()
    return Imported({kind: dict(counts) for kind, counts in move.tally.counts.items()}, last, move.unplaced)


def _first(numbered: Iterator[_Numbered]) -> stream.AnyLine:
    for one in numbered:
        return one.line
    raise MalformedBody("There is nothing to import: give what paceline export wrote.")


def _pages(group: Iterable[T]) -> Iterator[list[T]]:
    rows = iter(group)
    while page := list(islice(rows, PAGE)):
        yield page


class _Move:
    """State of an import: the batch that is being filled, and the dispositions so far."""

    def __init__(self, store: Store, vault: Vault, head: stream.Head, *, now_ms: int) -> None:
        self._store = store
        self._vault = vault
        self._head = head
        self._now_ms = now_ms
        self._batch: BatchMove | None = None
        self._keys: dict[str, str] = {}
        """Account of each sealed key."""
        self.tally = _Tally()
        self.unplaced = 0

    def take(self, kind: type, page: Sequence[_Numbered]) -> None:
        if kind is not stream.RecordLine:
            self.finish_batch()
        if kind is stream.MonitorLine:
            self._monitors(page)
        elif kind is stream.RecordLine:
            self._records(page)
        else:
            for number, line in page:
                _at(number, self._one, line)

    def finish_batch(self) -> None:
        if self._batch is not None:
            self._batch.finish()
        self._batch = None

    def _one(self, line: stream.AnyLine) -> None:
        match line:
            case stream.UserLine():
                self.tally.add("users", self._user(line))
            case stream.ChannelLine():
                self.tally.add("channels", put_channel_line(self._store, self._vault, line))
            case stream.SilenceLine():
                self.tally.add("silences", put_silence_line(self._store, line))
            case stream.AlertLine():
                self.tally.add("alerts", put_alert_line(self._store, line))
            case stream.ProviderLine():
                self.tally.add("providers", self._provider(line))
            case stream.BatchLine():
                self.finish_batch()
                _check_id(line.id)
                self._batch = BatchMove(self._store, line, now_ms=self._now_ms)
                self.tally.add("batches", self._batch.disposition)
            case stream.AccountLine():
                self.tally.add("accounts", self._account(line))
            case stream.JobLine() | stream.HistoryLine():
                self.tally.add("jobs", "passed over")
            case stream.Head():
                raise MalformedBody("A second export begins here: import each by itself")
            case stream.MonitorLine() | stream.RecordLine() | stream.Tail():
                raise AssertionError("these come in pages")

    # -- users

    def _user(self, line: stream.UserLine) -> str:
        _check_id(line.id)
        user = User(line.id, line.role, line.daily_credits, line.disabled, line.created_ms)
        done = "created"
        if not self._store.add_user(user):
            there = self._store.user(line.id)
            same = there is not None and msgspec.structs.replace(there, created_ms=line.created_ms, monitors=0) == user
            done = "unchanged" if same else "replaced"
            if not same:
                self._store.edit_user(line.id, UserEdit(line.role, line.daily_credits, line.disabled))
                react_to_all(self._store, now_ms=self._now_ms)
        for token in line.tokens:
            digest = _digest(token.digest)
            moved = Token(token.id, line.id, token.label, digest, token.created_ms, token.scope, token.expires_ms)
            self.tally.add("tokens", self._token(moved))
        return done

    def _token(self, token: Token) -> str:
        found = self._store.token(token.id)
        if found is None:
            if self._store.add_token(token, tokens_max=TOKENS_MAX) == "full":
                raise LimitReached(f"user {token.user!r} has {TOKENS_MAX} tokens already: revoke some there first")
            return "created"
        if (found[0].user, found[0].digest, found[0].scope) != (token.user, token.digest, token.scope):
            raise AlreadyExists(f"token {token.id} is there already and is another one: revoke it first")
        return "unchanged"

    # -- monitors

    def _monitors(self, page: Sequence[_Numbered]) -> None:
        lines = [one.line for one in page if isinstance(one.line, stream.MonitorLine)]
        puts = [_at(one.number, self._put, line) for one, line in zip(page, lines, strict=True)]
        # In the order in which they were made: older monitors get smaller generations.
        order = sorted(range(len(lines)), key=lambda at: lines[at].created_ms)
        made = self._store.put_monitors([puts[at] for at in order], monitors_max=MONITORS_MAX, now_ms=self._now_ms)
        results = dict(zip(order, made, strict=True))
        for at, one in enumerate(page):
            if (monitor := results[at].monitor) is None:
                raise InvalidInput(f"Line {one.number}: there is no user {lines[at].owner!r}; users come first.")
            self.tally.add("monitors", results[at].disposition)
            assert monitor.id == lines[at].id
        rollups = [_at(one.number, _rollup, line) for one, line in zip(page, lines, strict=True)]
        self._store.put_rollups(
            [
                (monitor.generation, rollup)
                for at, rollup in enumerate(rollups)
                if rollup is not None and (monitor := results[at].monitor) is not None
            ]
        )
        self._place(lines, [results[at] for at in range(len(lines))])
        self._remember(lines, [results[at] for at in range(len(lines))])

    def _put(self, line: stream.MonitorLine) -> PutMonitor:
        _check_id(line.id)
        # Sealed in the other store; in the clear in an export of an older version.
        phase = None
        try:
            stored = open_spec(parse_stored_spec(bytes(line.spec)), self._vault)
            phase, opened = stored.phase, encode_spec(msgspec.structs.replace(stored, phase=None))
        except msgspec.MsgspecError:
            opened = bytes(line.spec)  # its problems are reported below
        spec = msgspec.structs.replace(seal_spec(parse_spec(opened, LIMITS), self._vault), phase=phase)
        return PutMonitor(line.owner, line.id, spec, created_ms=min(line.created_ms, self._now_ms))

    def _place(self, lines: Sequence[stream.MonitorLine], results: Sequence[PutResult]) -> None:
        """Give new entries the due time of the old ones, also those of an import that broke off before."""
        wanted = {
            result.monitor.generation: line for line, result in zip(lines, results, strict=True) if result.monitor
        }
        there = self._store.entries(list(wanted), now_ms=self._now_ms)
        changes = {result.change.generation: result.change for result in results if result.change is not None}
        if missing := wanted.keys() - there.keys() - changes.keys():
            recorded = self._store.changes(limit=CHANGES_MAX, now_ms=self._now_ms)
            changes |= {change.generation: change for change in recorded if change.generation in missing}
        new = [change for generation, change in changes.items() if generation not in there]
        reacted = [Reacted(one, self._reaction(one, wanted[one.generation])) for one in new]
        if reacted:
            beside = beside_all(count_moves(reacted), count_cadences(reacted))
            won = self._store.react(reacted, now_ms=self._now_ms, beside=beside)
            self.unplaced += won.count(False)
        if any(result.disposition == "replaced" for result in results):
            react_to_all(self._store, now_ms=self._now_ms)

    def _remember(self, lines: Sequence[stream.MonitorLine], results: Sequence[PutResult]) -> None:
        """Give monitors that have not run here the health record that they had there."""
        moved = {
            result.monitor.generation: (line, line.health)
            for line, result in zip(lines, results, strict=True)
            if result.monitor and line.health is not None
        }
        if not moved:
            return
        entries = self._store.entries(list(moved), now_ms=self._now_ms)
        there = self._store.health_records(list(moved))
        changes = [
            HealthChange(line.owner, line.id, generation, NO_RECORD, health)
            for generation, (line, health) in moved.items()
            if generation not in there and generation in entries and not entries[generation].counter
        ]
        self._store.change_health(changes)

    def _reaction(self, change: Change, line: stream.MonitorLine) -> schedule.Reaction:
        assert change.monitor is not None
        wish = wish_of(change.monitor.spec, created_ms=line.created_ms, owner_disabled=change.owner_disabled)
        decided = schedule.react(wish, None, generation=change.generation, now_ms=self._now_ms)
        if isinstance(decided, schedule.Arm) and line.due_ms is not None:
            return schedule.arm(wish, schedule.on_raster(line.due_ms), generation=change.generation)
        return decided

    # -- providers, batches, accounts

    def _provider(self, line: stream.ProviderLine) -> str:
        _check_id(line.id)
        open_headers(line.spec.headers, self._vault)
        plain = msgspec.structs.replace(line.spec, headers=dict.fromkeys(line.spec.headers, "-"))
        if problems := provider_problems(plain):
            raise InvalidInput.of(*problems)
        return self._store.put_provider(PutProvider(line.id, line.spec), now_ms=self._now_ms).disposition

    def _records(self, page: Sequence[_Numbered]) -> None:
        batch, number = self._batch, page[0].number
        lines = [one.line for one in page if isinstance(one.line, stream.RecordLine)]
        if batch is None or any(line.batch != batch.id for line in lines):
            raise InvalidInput(f"Line {number}: records come after their batch.")
        records = [_at(one.number, self._record, line) for one, line in zip(page, lines, strict=True)]
        for one, disposition in zip(page, batch.put(records, lines), strict=True):
            if disposition == "no_provider":
                raise InvalidInput(f"Line {one.number}: there is no provider of this name; providers come first.")
            self.tally.add("records", disposition)

    def _record(self, line: stream.RecordLine) -> RecordSpec:
        record = parse_record(line.record)
        if not record.options.headers:
            return record
        open_headers(line.headers, self._vault)
        options = keep_hidden_options(record.options, RecordOptions(headers=line.headers))
        return msgspec.structs.replace(record, options=options)

    def _account(self, line: stream.AccountLine) -> str:
        store, now_ms = self._store, self._now_ms
        for key in line.keys:
            self._vault.unseal(key.sealed)
            if (holder := self._keys.setdefault(key.sealed, line.id)) != line.id:
                raise _shared_key(line.id, holder, where="in this export")
        done = put_account_spec(store, line.id, line.spec)
        for key in line.keys:
            added = store.add_key(AddKey(line.id, key.sealed, key.last_four, key.label), now_ms=now_ms)
            assert added.key is not None
            if added.key.account != line.id:
                raise _shared_key(line.id, added.key.account, where="in this store")
            if not key.enabled or key.quarantine:
                change = KeyChange(enabled=None if key.enabled else False, quarantine=key.quarantine or None)
                store.change_key(line.id, added.key.id, change)
            self.tally.add("keys", "unchanged" if added.disposition == "already" else "created")
        if done == "created":
            # Use of its day counts as use by others, until RIPE's own counters are asked.
            asked_ms = self._head.exported_ms
            used: list[tuple[MeterName, Reading]] = [
                ("credits", Reading(asked_ms, line.credits, 0)),
                ("results", Reading(asked_ms, line.results, 0)),
            ]
            store.sync_account(line.id, used, now_ms=now_ms)
        return done


def _shared_key(account: str, holder: str, *, where: str) -> AlreadyExists:
    return AlreadyExists(
        f"account {account!r} has a key that account {holder!r} has {where}, too. RIPE counts by account, so a key"
        " belongs to one: remove it from the other there (paceline key rm), then export and import again"
    )


def _rollup(line: stream.MonitorLine) -> Rollup | None:
    """Return the uptime in the line; None if it has none."""
    try:
        return decode_rollup(line.rollup) if line.rollup else None
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"monitor {line.id!r}: rollup is not what an export writes: {error}") from None


def _check_id(text: str) -> None:
    if problem := id_problem(text, "/id"):
        raise InvalidInput.of(problem)


def _digest(text: str) -> bytes:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise MalformedBody("a token's digest is not hexadecimal") from None


def _at(number: int, act: Callable[..., T], line: stream.AnyLine) -> T:
    """Call ``act`` with the line; its errors are raised with the line's number."""
    try:
        return act(line)
    except PacelineError as error:
        raise type(error)(f"Line {number}: {error.detail.rstrip('.')}.", errors=error.errors) from None
