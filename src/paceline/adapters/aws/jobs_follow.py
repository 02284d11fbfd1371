"""Measurements that are out: looked up, followed, ended, settled; their slots given back."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

from paceline.adapters.aws.database import Database, Transacted
from paceline.adapters.aws.items import Action, Item
from paceline.adapters.aws.jobs_acts import job_adds, job_ends, row_ends, sums_of
from paceline.adapters.aws.jobs_keys import (
    ENDED,
    after_move,
    atlas_key,
    handle_in,
    hinted,
    moved,
    row_key,
)
from paceline.adapters.aws.jobs_meters import Closing, closing, closing_action, cost_of, day_closing, is_first
from paceline.adapters.aws.jobs_quiet import Quiet
from paceline.adapters.aws.jobs_read import chances, read_measurements, stored
from paceline.adapters.aws.jobs_seen import Seen
from paceline.adapters.aws.tables import LEDGER
from paceline.core.cost import daily_actual
from paceline.core.meters import Hold, Meter, close
from paceline.ports.job_values import Ended, Ending, HeldState, Progress, StoredMeasurement

UNKNOWN_MAX = 100_000


def to_look_up(database: Database, seen: Seen, quiet: Quiet, *, now_ms: int, limit: int) -> list[StoredMeasurement]:
    if quiet.patient and quiet.first(database, "unknown") > now_ms:
        return []
    hints = hinted(database, "unknown", until=now_ms, limit=limit)
    quiet.forget("unknown")
    pairs = read_measurements(database, [handle_in(hint) for hint in hints])
    due = [(row, job) for row, job in pairs if row["state"] == "unknown" and row["next_ms"] <= now_ms]
    seen.note_all(due)
    return stored(database, sorted(due, key=lambda pair: (pair[0]["next_ms"], pair[0]["handle"])))


def holding(database: Database, seen: Seen, state: HeldState, *, after: int, limit: int) -> list[StoredMeasurement]:
    if state == "unknown":
        # In the index by the time of its next lookup; there are few.
        handles = sorted(handle_in(hint) for hint in hinted(database, state, limit=UNKNOWN_MAX))
        pairs = _held(database, state, [handle for handle in handles if handle > after][:limit])
        return stored(database, pairs)
    pairs = []
    while len(pairs) < limit:
        hints = hinted(database, state, after=after, limit=limit)
        pairs += _held(database, state, [handle_in(hint) for hint in hints])
        if len(hints) < limit:
            break
        after = hints[-1]["at"]
    if state != "sending":  # of those only who began them knows enough to answer them as they were seen
        seen.note_all(pairs[:limit])
    return stored(database, pairs[:limit])


def _held(database: Database, state: str, handles: Sequence[int]) -> list[tuple[Item, Item]]:
    return [pair for pair in read_measurements(database, handles) if pair[0]["slot"] and pair[0]["state"] == state]


def note_progress(database: Database, seen: Seen, progress: Sequence[Progress]) -> list[bool]:
    known = _known(database, seen, [one.handle for one in progress])
    return database.threads.fan_out(lambda one: _note(database, seen, one, known.get(one.handle)), progress)


def _known(database: Database, seen: Seen, handles: Sequence[int]) -> dict[int, tuple[Item, Item]]:
    """As they were seen; all others are read together."""
    found = {handle: pair for handle in handles if (pair := seen.take(handle)) is not None}
    missing = [handle for handle in dict.fromkeys(handles) if handle not in found]
    return found | {pair[0]["handle"]: pair for pair in (read_measurements(database, missing) if missing else [])}


def _note(database: Database, seen: Seen, one: Progress, known: tuple[Item, Item] | None) -> bool:
    for row, job in chances(database, known, one.handle, lambda row: _is_out(row, one.attempt)):
        pairs = zip_longest(row["atlas"][: len(one.told)], one.told, one.scheduled)
        # Results do not go away, so a count that is lower is an older answer.
        atlas = [[was[0], told[0], max(was[2], told[1]), _scheduled(was, told_of)] for was, told, told_of in pairs]
        atlas += row["atlas"][len(atlas) :]
        changes: Item = {"atlas": atlas} if atlas != row["atlas"] else {}
        if one.reason is not None and one.reason != row["reason"]:
            changes["reason"] = one.reason
        if not changes or database.write(moved(row, **changes)).won:
            seen.note(after_move(row, **changes) if changes else row, job)
            return True
    return False


def _scheduled(was: Sequence[int | None], told: int | None) -> int | None:
    """What RIPE told last; rows of before have no such figure."""
    return told if told is not None or len(was) < 4 else was[3]


def _is_out(row: Item, attempt: int) -> bool:
    return (row["attempt"], row["state"]) == (attempt, "ongoing")


def end(database: Database, seen: Seen, endings: Sequence[Ending], *, now_ms: int) -> list[Ended]:
    seen.note_all(_known(database, seen, [ending.handle for ending in endings]).values())
    # One after the other: those of one job or account would only run into each other.
    return [_end(database, seen, ending, now_ms=now_ms) for ending in endings]


def _end(database: Database, seen: Seen, ending: Ending, *, now_ms: int) -> Ended:
    slot, first = 0 if ending.frees_slot else 1, False
    known = seen.take(ending.handle)
    for row, job in chances(database, known, ending.handle, lambda row: _is_out(row, ending.attempt)):
        settled, overrun = _settled(row, ending.credits)
        closed = _closing(row, spent=ending.credits, results=ending.results, now_ms=now_ms)
        sums = sums_of(row, ending.state, settled=settled) | ({"slots": 1} if slot else {})
        actions = [
            row_ends(row, ending.state, ending.reason, settled=settled, now_ms=now_ms, slot=slot),
            job_ends(job, ended=1, **sums),
            day_closing(row, settled=settled),
        ]
        done = database.transact([*actions, *([] if slot else _let_go(closed, first=first))])
        if done.won:
            seen.note_ends(job["number"], 1)
            return Ended(won=True, overrun=overrun)
        first = not slot and _was_first(done, closed, at=len(actions), guess=first)
    return Ended(won=False)


def _settled(row: Item, used: int) -> tuple[int, int]:
    """What its user pays, and what was used beyond what was held."""
    day = Meter("day", row["credits"], "day", held=row["credits"])
    closed = close(Hold("", {"day": row["credits"]}, 0), {"day": used}, {"day": day}, now_ms=0)
    return closed.meters["day"].spent, closed.overrun.get("day", 0)


def _closing(row: Item, *, spent: int, results: int, now_ms: int) -> Closing:
    """All that the account holds for it, together: while it runs, RIPE reckons with the most it can deliver."""
    day_credits, day_results = daily_actual(cost_of(row), credits_spent=spent, results=results)
    return closing(row, results=day_results, spent=day_credits, now_ms=now_ms)


def _let_go(closed: Closing, *, first: bool) -> list[Action]:
    return [closing_action(closed, first=first), *closed.beside]


def _was_first(done: Transacted, closed: Closing, *, at: int, guess: bool) -> bool:
    """What the account, whose action is there, says of the guess that was lost."""
    account = done.items[at] if done.lost[at] else None
    return guess if account is None or closed.release_ms is None else is_first(account, closed.release_ms)


def free_slots(database: Database, seen: Seen, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
    return [_free(database, seen, *fence, now_ms=now_ms) for fence in fences]


def _free(database: Database, seen: Seen, handle: int, attempt: int, *, now_ms: int) -> bool:
    def fits(row: Item) -> bool:
        return row["attempt"] == attempt and row["state"] in ENDED and bool(row["slot"])

    first = False
    for row, job in chances(database, seen.take(handle), handle, fits):
        spent, results = _spent(row)
        closed = _closing(row, spent=spent, results=results, now_ms=now_ms)
        actions = [moved(row, slot=0), job_adds(job, slots=-1)]
        done = database.transact([*actions, *_let_go(closed, first=first)])
        if done.won:
            return True
        first = _was_first(done, closed, at=len(actions), guess=first)
    return False


def _spent(row: Item) -> tuple[int, int]:
    """Credits and results that one that has ended was settled on."""
    if row["settled"] >= row["credits"]:
        return row["credits"], row["results"]  # also if nobody could count them
    return row["settled"], sum(one[2] for one in row["atlas"])


def known_atlas_ids(database: Database, atlas_ids: Sequence[int]) -> set[int]:
    notes = database.get_many(LEDGER, map(atlas_key, atlas_ids))
    rows = database.get_many(LEDGER, [row_key(note["handle"]) for note in notes.values()])
    return {one[0] for row in rows.values() for one in row.get("atlas", ())} & set(atlas_ids)
