"""Advances of a tick: each moves its entry if it is as the tick saw it, makes runs, and ends superseded ones."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from paceline.adapters.sqlite.database import Connection
from paceline.adapters.sqlite.keys import EPOCH_MS, GENERATION_BITS, LANE_BITS, NEVER_MS, due_key, queue_of
from paceline.adapters.sqlite.monitors.entries import integers
from paceline.adapters.sqlite.monitors.runs import record_outcomes
from paceline.core.monitors.catch_up import Calendar, MissedRuns, book, owners_of
from paceline.core.monitors.due import Advance
from paceline.core.monitors.leases import given_up
from paceline.core.monitors.overlap import QUEUED, SUPERSEDED_MAX, state_made, superseded, superseded_reason
from paceline.core.monitors.schedule import SLOT_MS

OPEN_MAX = 20_100
"""Upper bound of one monitor's open runs: queued ones and those of a catch-up (see the settings)."""

# The open runs of a monitor, from the newest back. A parked run names the run it is parked behind: those between the
# two ended without being sent.
_OPEN_BACK = """
WITH RECURSIVE back (handle, behind) AS (
    SELECT run.handle, coalesce(open.behind, run.previous) FROM run LEFT JOIN open USING (handle)
    WHERE run.handle = ?1 AND NOT EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.handle)
    UNION ALL
    SELECT run.handle, coalesce(open.behind, run.previous)
    FROM back JOIN run ON run.handle = back.behind LEFT JOIN open ON open.handle = run.handle
    WHERE NOT EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.handle) LIMIT ?2)
SELECT handle FROM back"""
_QUEUED = "SELECT handle, counter FROM open WHERE generation = ? ORDER BY counter LIMIT ?"


def commit(db: Connection, advances: Sequence[Advance], *, now_ms: int) -> tuple[list[bool], int]:
    """Write the advances. Return which of them won, and how many waiting runs were superseded.

    First tries all at once: the write itself compares. Only if one of them lost are the winners found one by one.
    """
    if all(advance.due.place for advance in advances):
        db.execute("SAVEPOINT believed")
        ended = _write_advances(db, advances, now_ms=now_ms)
        if ended is None:
            db.execute("ROLLBACK TO believed")
        db.execute("RELEASE believed")
        if ended is not None:
            return [True] * len(advances), ended
    won, winners = _sort_out(db, advances)
    ended = _write_advances(db, winners, now_ms=now_ms)
    assert ended is not None, "read and written under one lock"
    return won, ended


def book_catch_up(db: Connection, wanted: Sequence[MissedRuns], *, per_second: int, now_ms: int) -> list[list[int]]:
    row = db.execute("SELECT start_s, counts FROM catch_up WHERE id = 1").fetchone()
    calendar = Calendar(*row) if row else Calendar()
    generations = integers(one.generation for one in wanted)
    known = db.execute("SELECT generation, owner FROM monitor WHERE generation IN carray(?)", (generations,)).fetchall()
    owners = owners_of(wanted, dict(known))
    times, calendar = book(calendar, wanted, owners, per_second=per_second, now_ms=now_ms)
    db.execute(
        "INSERT OR REPLACE INTO catch_up (id, start_s, counts) VALUES (1, ?, ?)", (calendar.start_s, calendar.counts)
    )
    return times


def _sort_out(db: Connection, advances: Sequence[Advance]) -> tuple[list[bool], list[Advance]]:
    """Return which advances still fit their entries, and the winners with their entries' places as they are now."""
    keys = [due_key(advance.due.due_ms, advance.due.generation) for advance in advances]
    current = {
        row[0]: row
        for row in db.execute(
            "SELECT k, counter, revision, lane, last_run FROM due WHERE k IN carray(?)", (integers(keys),)
        )
    }
    won: list[bool] = []
    winners: list[Advance] = []
    for k, advance in zip(keys, advances, strict=True):
        row = current.pop(k, None)  # popped: of two advances of one entry, the second loses
        won.append(row is not None and row[1:3] == (advance.due.counter, advance.due.revision))
        if row is not None and won[-1]:
            winners.append(replace(advance, due=replace(advance.due, place=row)))
    return won, winners


def _write_advances(db: Connection, advances: Sequence[Advance], *, now_ms: int) -> int | None:
    """Write advances and return how many waiting runs were superseded; None if an entry was not as believed.

    After None the caller must roll back. This is the most frequent write, so ``due_key`` is inlined.
    """
    lanes = {advance.due.place[-2] for advance in advances}
    tails = _tails(db, lanes)
    if len(tails) < len(lanes):  # a user was removed, and the entries with it
        return None
    busy = _busy(db, [advance.due.place[-1] for advance in advances if advance.due.busy and advance.firings])
    moves: list[tuple[int, ...]] = []
    runs: list[tuple[int, ...]] = []
    opened: list[tuple[int, int, str, int, int | None, str, int, int]] = []
    for advance in advances:
        due = advance.due
        generation, counter, due_ms = due.generation, due.counter, due.due_ms
        lane, last_run = due.place[-2:]
        follows = last_run in busy
        for firing in advance.firings:
            tails[lane] = tail = tails[lane] + 1
            handle = lane << LANE_BITS | tail
            runs.append((handle, generation, firing.counter, firing.due_ms, last_run))
            state = state_made(firing.after_ms, busy=follows, now_ms=now_ms)
            if state == "later":
                opened.append((handle, lane, "later", firing.after_ms, None, "", generation, firing.counter))
            elif state == "queued":
                opened.append((handle, lane, "parked", NEVER_MS, last_run, QUEUED, generation, firing.counter))
            last_run = handle
        k = (due_ms - EPOCH_MS) // SLOT_MS << GENERATION_BITS | generation
        slots_ahead = (advance.next_due_ms - due_ms) // SLOT_MS
        made = len(advance.firings)
        next_k = k + (slots_ahead << GENERATION_BITS)
        moves.append((next_k, counter + made, last_run, advance.overlapped, k, counter, due.revision))
    before = db.total_changes()
    db.executemany(
        """UPDATE due SET k = ?, counter = ?, last_run = ?, overlapped = ?, lead_ms = 0
           WHERE k = ? AND counter = ? AND revision = ?""",
        moves,
    )
    if db.total_changes() - before != len(moves):
        return None
    db.executemany("INSERT INTO run (handle, generation, counter, due_ms, previous) VALUES (?, ?, ?, ?, ?)", runs)
    db.executemany(
        "UPDATE lane SET tail = ?1, ready_ms = iif(tail < ?1, 0, ready_ms) WHERE id = ?2",
        [(tail, lane) for lane, tail in tails.items()],
    )
    if opened:
        db.executemany(
            """INSERT INTO open (handle, lane, state, at_ms, behind, reason, generation, counter)
               VALUES (?, ?, ?, ?, ?, ?, ?, ?)""",
            opened,
        )
    return sum(
        _supersede(db, move[2], advance, now_ms=now_ms)
        for move, advance in zip(moves, advances, strict=True)
        if advance.waiting_max and advance.firings
    )


def _supersede(db: Connection, newest: int, advance: Advance, *, now_ms: int) -> int:
    """End the oldest runs that wait behind the first open one, if there are more than are kept. Return how many.

    The next run after them is then parked behind the first one; it keeps its own moment if it has one.
    """
    generation, made, waiting_max = advance.due.generation, len(advance.firings), advance.waiting_max
    queued = db.execute(_QUEUED, (generation, SUPERSEDED_MAX + 2)).fetchall()
    # Few runs are before the oldest queued one. From the second one on none is missing, so counters give their number.
    back = [row[0] for row in db.execute(_OPEN_BACK, (queued[0][0] if queued else newest, OPEN_MAX))]
    handles = [*reversed(back), *(row[0] for row in queued[1:])]
    waiting = len(back) - 1 + (advance.firings[-1].counter - queued[1][1] + 1 if len(queued) > 1 else 0)
    ended = superseded(waiting=waiting - made, made=made, waiting_max=waiting_max)
    if not ended:
        return 0
    front, following = handles[0], handles[1 + ended]
    db.execute(
        """INSERT INTO open (handle, lane, state, at_ms, behind, generation, counter)
           SELECT handle, ?1, 'parked', ?2, ?3, generation, counter FROM run WHERE handle = ?4
           ON CONFLICT (handle) DO UPDATE SET state = 'parked', behind = excluded.behind""",
        (queue_of(following), NEVER_MS, front, following),
    )
    reason = superseded_reason(waiting_max)
    gone = handles[1 : 1 + ended]
    record_outcomes(db, [given_up(handle, reason, now_ms=now_ms) for handle in gone])
    return ended


def _busy(db: Connection, newest: Sequence[int]) -> set[int]:
    """Return those of the runs that are still not settled; they were not when their entries were read."""
    if not newest:
        return set()
    rows = db.execute(
        """SELECT handle FROM run WHERE handle IN carray(?)
           AND NOT EXISTS (SELECT 1 FROM outcome WHERE outcome.handle = run.handle)""",
        (integers(newest),),
    )
    return {row[0] for row in rows}


def _tails(db: Connection, lanes: set[int]) -> dict[int, int]:
    return dict(db.execute("SELECT id, tail FROM lane WHERE id IN carray(?)", (integers(lanes),)).fetchall())
