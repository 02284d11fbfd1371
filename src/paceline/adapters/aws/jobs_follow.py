"""Measurements that are out: looked up, followed, ended, settled; their slots given back."""

from __future__ import annotations

from collections.abc import Sequence

from paceline.adapters.aws.database import Database
from paceline.adapters.aws.items import Action, Item
from paceline.adapters.aws.jobs_acts import job_adds, job_ends, row_ends, sums_of
from paceline.adapters.aws.jobs_keys import (
    ENDED,
    INDEX_BITS,
    account_key,
    atlas_key,
    handle_in,
    hinted,
    job_key,
    moved,
    read,
    row_key,
    too_busy,
    tries,
)
from paceline.adapters.aws.jobs_meters import account_action, closing, cost_of, day_closing
from paceline.adapters.aws.jobs_read import read_measurements, stored
from paceline.adapters.aws.tables import LEDGER
from paceline.core.cost import daily_actual
from paceline.core.meters import Hold, Meter, close
from paceline.ports.jobs import Ended, Ending, HeldState, Progress, StoredMeasurement

UNKNOWN_MAX = 100_000


def to_look_up(database: Database, *, now_ms: int, limit: int) -> list[StoredMeasurement]:
    hints = hinted(database, "unknown", until=now_ms, limit=limit)
    pairs = read_measurements(database, [handle_in(hint) for hint in hints])
    due = [(row, job) for row, job in pairs if row["state"] == "unknown" and row["next_ms"] <= now_ms]
    return stored(database, sorted(due, key=lambda pair: (pair[0]["next_ms"], pair[0]["handle"])))


def holding(database: Database, state: HeldState, *, after: int, limit: int) -> list[StoredMeasurement]:
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
    return stored(database, pairs[:limit])


def _held(database: Database, state: str, handles: Sequence[int]) -> list[tuple[Item, Item]]:
    return [pair for pair in read_measurements(database, handles) if pair[0]["slot"] and pair[0]["state"] == state]


def note_progress(database: Database, progress: Sequence[Progress]) -> list[bool]:
    found = database.get_many(LEDGER, [row_key(one.handle) for one in progress])
    first = [(one, found.get(row_key(one.handle))) for one in progress]
    return database.threads.fan_out(lambda pair: _note(database, *pair), first)


def _note(database: Database, one: Progress, row: Item | None) -> bool:
    for _ in tries():
        if row is None or row["attempt"] != one.attempt or row["state"] != "ongoing":
            return False
        pairs = zip(row["atlas"], one.told, strict=False)
        # Results do not go away, so a count that is lower is an older answer.
        atlas = [[known[0], told[0], max(known[2], told[1])] for known, told in pairs]
        atlas += row["atlas"][len(atlas) :]
        if atlas == row["atlas"] or database.write(moved(row, atlas=atlas)).won:
            return True
        [row] = read(database, [row_key(one.handle)])
    raise too_busy()


def end(database: Database, endings: Sequence[Ending], *, now_ms: int) -> list[Ended]:
    # One after the other: those of one job or account would only run into each other.
    return [_end(database, ending, now_ms=now_ms) for ending in endings]


def _end(database: Database, ending: Ending, *, now_ms: int) -> Ended:
    for _ in tries():
        row, job = read(database, [row_key(ending.handle), job_key(ending.handle >> INDEX_BITS)])
        if row is None or job is None or (row["attempt"], row["state"]) != (ending.attempt, "ongoing"):
            return Ended(won=False)
        settled, overrun = _settled(row, ending.credits)
        sums = sums_of(row, ending.state, settled=settled)
        if ending.frees_slot:
            let_go = _let_account_go(database, row, spent=ending.credits, results=ending.results, now_ms=now_ms)
        else:
            let_go, sums = [], sums | {"slots": 1}
        actions = [
            row_ends(
                row, ending.state, ending.reason, settled=settled, now_ms=now_ms, slot=0 if ending.frees_slot else 1
            ),
            job_ends(job, ended=1, **sums),
            day_closing(row, settled=settled),
        ]
        if database.transact([*actions, *let_go]).won:
            return Ended(won=True, overrun=overrun)
    raise too_busy()


def _settled(row: Item, used: int) -> tuple[int, int]:
    """What its user pays, and what was used beyond what was held."""
    day = Meter("day", row["credits"], "day", held=row["credits"])
    closed = close(Hold("", {"day": row["credits"]}, 0), {"day": used}, {"day": day}, now_ms=0)
    return closed.meters["day"].spent, closed.overrun.get("day", 0)


def _let_account_go(database: Database, row: Item, *, spent: int, results: int, now_ms: int) -> list[Action]:
    """All that the account holds for it, together: while it runs, RIPE reckons with the most it can deliver."""
    account = database.get(LEDGER, account_key(row["account"]))
    assert account is not None
    day_credits, day_results = daily_actual(cost_of(row), credits_spent=spent, results=results)
    done = closing(account, row, results=day_results, spent=day_credits, now_ms=now_ms)
    return [account_action(account, done.write), *done.beside]


def free_slots(database: Database, fences: Sequence[tuple[int, int]], *, now_ms: int) -> list[bool]:
    return [_free(database, *fence, now_ms=now_ms) for fence in fences]


def _free(database: Database, handle: int, attempt: int, *, now_ms: int) -> bool:
    for _ in tries():
        row, job = read(database, [row_key(handle), job_key(handle >> INDEX_BITS)])
        if row is None or job is None or row["attempt"] != attempt or row["state"] not in ENDED or not row["slot"]:
            return False
        spent, results = _spent(row)
        let_go = _let_account_go(database, row, spent=spent, results=results, now_ms=now_ms)
        if database.transact([moved(row, slot=0), job_adds(job, slots=-1), *let_go]).won:
            return True
    raise too_busy()


def _spent(row: Item) -> tuple[int, int]:
    """Credits and results that one that has ended was settled on."""
    if row["settled"] >= row["credits"]:
        return row["credits"], row["results"]  # also if nobody could count them
    return row["settled"], sum(one[2] for one in row["atlas"])


def known_atlas_ids(database: Database, atlas_ids: Sequence[int]) -> set[int]:
    notes = database.get_many(LEDGER, map(atlas_key, atlas_ids))
    rows = database.get_many(LEDGER, [row_key(note["handle"]) for note in notes.values()])
    return {one[0] for row in rows.values() for one in row.get("atlas", ())} & set(atlas_ids)
