"""Follows measurements that were sent: lookups, progress, ends with their settlements, and freed slots."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from paceline.adapters.aws.client.database import DynamoDatabase, Transacted
from paceline.adapters.aws.client.items import Action, Item
from paceline.adapters.aws.jobs.keys import after_move, handle_in, hinted, moved
from paceline.adapters.aws.jobs.measurement_actions import job_adds, job_ends, row_ends, sums_of
from paceline.adapters.aws.jobs.meters import Closing, closing, closing_action, cost_of, day_closing, is_first
from paceline.adapters.aws.jobs.parts import JobParts
from paceline.adapters.aws.jobs.read import atlas_of, chances, read_measurements, stored
from paceline.core.jobs.transitions import ENDED, account_actual, settle, spent_before, with_progress
from paceline.core.jobs.values import EndResult, HeldState, MeasurementEnd, MeasurementProgress, StoredMeasurement

UNKNOWN_MAX = 100_000


def to_look_up(store: JobParts, *, now_ms: int, limit: int) -> list[StoredMeasurement]:
    if store.shard_cache.caches_indexes and store.shard_cache.first_of("unknown") > now_ms:
        return []
    hints = hinted(store.db, "unknown", until=now_ms, limit=limit)
    store.shard_cache.forget("unknown")
    pairs = read_measurements(store.db, [handle_in(hint) for hint in hints])
    due = [(row, job) for row, job in pairs if row["state"] == "unknown" and row["next_ms"] <= now_ms]
    store.row_cache.note_all(due)
    return stored(store.db, sorted(due, key=lambda pair: (pair[0]["next_ms"], pair[0]["handle"])))


def holding(store: JobParts, state: HeldState, *, after: int, limit: int) -> list[StoredMeasurement]:
    if state == "unknown":
        # In the index it is sorted by its next lookup, not by handle; there are few.
        handles = sorted(handle_in(hint) for hint in hinted(store.db, state, limit=UNKNOWN_MAX))
        pairs = _held(store.db, state, [handle for handle in handles if handle > after][:limit])
        return stored(store.db, pairs)
    pairs = []
    while len(pairs) < limit:
        hints = hinted(store.db, state, after=after, limit=limit)
        pairs += _held(store.db, state, [handle_in(hint) for hint in hints])
        if len(hints) < limit:
            break
        after = hints[-1]["at"]
    if state != "sending":  # only the process that began a send may answer it from its cache
        store.row_cache.note_all(pairs[:limit])
    return stored(store.db, pairs[:limit])


def _held(database: DynamoDatabase, state: str, handles: Sequence[int]) -> list[tuple[Item, Item]]:
    return [pair for pair in read_measurements(database, handles) if pair[0]["slot"] and pair[0]["state"] == state]


def note_progress(store: JobParts, progress: Sequence[MeasurementProgress]) -> list[bool]:
    known = _known(store, [one.handle for one in progress])
    return store.db.threads.fan_out(lambda one: _note(store, one, known.get(one.handle)), progress)


def _known(store: JobParts, handles: Sequence[int]) -> dict[int, tuple[Item, Item]]:
    """Return measurements with their jobs from the cache; the others are read together."""
    found = {handle: pair for handle in handles if (pair := store.row_cache.take(handle)) is not None}
    missing = [handle for handle in dict.fromkeys(handles) if handle not in found]
    return found | {pair[0]["handle"]: pair for pair in (read_measurements(store.db, missing) if missing else [])}


def _note(store: JobParts, one: MeasurementProgress, known: tuple[Item, Item] | None) -> bool:
    for row, job in chances(store.db, known, one.handle, lambda row: _is_ongoing(row, one.attempt)):
        pairs = zip_longest(atlas_of(row)[: len(one.reported)], one.reported, one.scheduled)
        atlas = [list(with_progress(*pair)) for pair in pairs]
        atlas += row["atlas"][len(atlas) :]
        changes: Item = {"atlas": atlas} if atlas != row["atlas"] else {}
        if one.reason is not None and one.reason != row["reason"]:
            changes["reason"] = one.reason
        if not changes or store.db.write(moved(row, **changes)).won:
            store.row_cache.note(after_move(row, **changes) if changes else row, job)
            return True
    return False


def _is_ongoing(row: Item, attempt: int) -> bool:
    return (row["attempt"], row["state"]) == (attempt, "ongoing")


def end(store: JobParts, endings: Sequence[MeasurementEnd], *, now_ms: int) -> list[EndResult]:
    store.row_cache.note_all(_known(store, [ending.handle for ending in endings]).values())
    # One after the other: writes to the same job or account would conflict.
    ended = [_end(store, ending, now_ms=now_ms) for ending in endings]
    if any(one.won and ending.frees_slot for one, ending in zip(ended, endings, strict=True)):
        store.change_counter.bump()  # a dispatcher of another process may be waiting for the slot
    return ended


def _end(store: JobParts, ending: MeasurementEnd, *, now_ms: int) -> EndResult:
    slot, first = 0 if ending.frees_slot else 1, False
    known = store.row_cache.take(ending.handle)
    for row, job in chances(store.db, known, ending.handle, lambda row: _is_ongoing(row, ending.attempt)):
        settled, overrun = settle(row["credits"], ending.credits)
        closed = _closing(row, spent=ending.credits, results=ending.results, now_ms=now_ms)
        sums = sums_of(row, ending.state, settled=settled) | ({"slots": 1} if slot else {})
        actions = [
            row_ends(row, ending.state, ending.reason, settled=settled, now_ms=now_ms, slot=slot),
            job_ends(job, sums),
            day_closing(row, settled=settled),
        ]
        done = store.db.transact([*actions, *([] if slot else _let_go(closed, first=first))])
        if done.won:
            store.row_cache.note_ends(job["number"], 1)
            return EndResult(won=True, overrun=overrun)
        first = not slot and _was_first(done, closed, at=len(actions), guess=first)
    return EndResult(won=False)


def _closing(row: Item, *, spent: int, results: int, now_ms: int) -> Closing:
    """Return how all holds of the account for the measurement are closed."""
    _, day_results, day_credits = account_actual(cost_of(row), credits_spent=spent, results=results)
    return closing(row, results=day_results, spent=day_credits, now_ms=now_ms)


def _let_go(closed: Closing, *, first: bool) -> list[Action]:
    return [closing_action(closed, first=first), *closed.beside]


def _was_first(done: Transacted, closed: Closing, *, at: int, guess: bool) -> bool:
    """Return the next guess for ``first``, from the account item that made the last write lose."""
    account = done.items[at] if done.lost[at] else None
    return guess if account is None or closed.release_ms is None else is_first(account, closed.release_ms)


def free_slots(store: JobParts, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
    freed = [_free(store, *fence, now_ms=now_ms) for fence in fences]
    if any(freed):
        store.change_counter.bump()
    return freed


def _free(store: JobParts, handle: int, attempt: int, *, now_ms: int) -> bool:
    def fits(row: Item) -> bool:
        return row["attempt"] == attempt and row["state"] in ENDED and bool(row["slot"])

    first = False
    for row, job in chances(store.db, store.row_cache.take(handle), handle, fits):
        delivered = sum(one[2] for one in row["atlas"])
        spent, results = spent_before(cost_of(row), settled=row["settled"], delivered=delivered)
        closed = _closing(row, spent=spent, results=results, now_ms=now_ms)
        actions = [moved(row, slot=0), job_adds(job, slots=-1)]
        done = store.db.transact([*actions, *_let_go(closed, first=first)])
        if done.won:
            return True
        first = _was_first(done, closed, at=len(actions), guess=first)
    return False
