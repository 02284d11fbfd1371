"""Edits of a store's rows behind its back, monitors' part. Each says which promise must turn out to be broken."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, NamedTuple

import apsw

Act = Callable[[apsw.Connection, Random], None]


class Edit(NamedTuple):
    name: str
    promises: frozenset[str]
    act: Act


def pick(db: apsw.Connection, random: Random, query: str) -> tuple[Any, ...]:
    rows = db.execute(query).fetchall()
    assert rows, query
    return random.choice(rows)


_PAIRS = """SELECT a.handle, b.handle FROM run a JOIN run b ON b.previous = a.handle AND b.generation = a.generation
            JOIN outcome x ON x.handle = a.handle JOIN outcome y ON y.handle = b.handle
            JOIN monitor ON monitor.generation = a.generation
            WHERE x.attempt > 0 AND y.attempt > 0 AND y.started_ms > x.ended_ms + 5000"""
_NO_EXTRA = "WHERE a.handle NOT IN (SELECT handle FROM extra) AND b.handle NOT IN (SELECT handle FROM extra) AND"
_FIRINGS = _PAIRS.replace("WHERE", _NO_EXTRA)
_SETTLED = """SELECT outcome.handle FROM outcome JOIN run USING (handle) JOIN monitor USING (generation)
              WHERE attempt > 0 AND ended_ms > due_ms + 5000"""
_ON_GRID = """SELECT run.handle FROM run JOIN entry USING (generation) JOIN cadence ON cadence.id = entry.cadence
              JOIN due ON due.k & 268435455 = run.generation
              WHERE every_ms > 0 AND run.due_ms > entry.base_ms AND due.k < (1 << 62)
                AND handle NOT IN (SELECT handle FROM extra)"""
_MIDDLE = """SELECT run.handle FROM run JOIN monitor USING (generation) JOIN outcome USING (handle)
             LEFT JOIN uptime USING (generation) WHERE run.counter > coalesce(uptime.counter, -1)"""


def swap_starts(db: apsw.Connection, random: Random) -> None:
    first, second = pick(db, random, _PAIRS)
    times = dict(db.execute("SELECT handle, started_ms FROM outcome WHERE handle IN (?, ?)", (first, second)))
    db.execute("UPDATE outcome SET started_ms = ? WHERE handle = ?", (times[second], first))
    db.execute("UPDATE outcome SET started_ms = ? WHERE handle = ?", (times[first], second))


def swap_outcomes(db: apsw.Connection, random: Random) -> None:
    first, second = pick(db, random, _PAIRS)
    for old, new in ((first, -1), (second, first), (-1, second)):
        db.execute("UPDATE outcome SET handle = ? WHERE handle = ?", (new, old))


def start_early(db: apsw.Connection, random: Random) -> None:
    (handle,) = pick(db, random, _SETTLED)
    db.execute(
        """UPDATE outcome SET started_ms = (SELECT due_ms FROM run WHERE run.handle = outcome.handle) - 60000
           WHERE handle = ?""",
        (handle,),
    )


def end_before_start(db: apsw.Connection, random: Random) -> None:
    (handle,) = pick(db, random, _SETTLED)
    db.execute("UPDATE outcome SET ended_ms = started_ms - 3000 WHERE handle = ?", (handle,))


def move_due_time(db: apsw.Connection, random: Random) -> None:
    (handle,) = pick(db, random, _ON_GRID)
    db.execute("UPDATE run SET due_ms = due_ms + 50 WHERE handle = ?", (handle,))


def move_due_time_far(db: apsw.Connection, random: Random) -> None:
    first, _ = pick(db, random, _PAIRS)
    db.execute("UPDATE run SET due_ms = due_ms + 86400000 WHERE handle = ?", (first,))


def move_due_time_off_raster(db: apsw.Connection, random: Random) -> None:
    (handle,) = pick(
        db,
        random,
        "SELECT handle FROM run JOIN monitor USING (generation) LEFT JOIN extra USING (handle)"
        " WHERE extra.handle IS NULL",
    )
    db.execute("UPDATE run SET due_ms = due_ms + 7 WHERE handle = ?", (handle,))


def shift_grid(db: apsw.Connection, random: Random) -> None:
    (k,) = pick(
        db,
        random,
        """SELECT due.k FROM due JOIN cadence ON cadence.id = due.cadence
                               WHERE every_ms > 1000 AND k >> 28 < (1 << 35) - 1""",
    )
    db.execute("UPDATE due SET k = k + (3 << 28) WHERE k = ?", (k,))


def double_firing(db: apsw.Connection, random: Random) -> None:
    first, second = pick(db, random, _FIRINGS)
    db.execute("UPDATE run SET due_ms = (SELECT due_ms FROM run WHERE handle = ?) WHERE handle = ?", (first, second))


def double_run(db: apsw.Connection, random: Random) -> None:
    (handle,) = pick(db, random, "SELECT handle FROM run JOIN monitor USING (generation)")
    db.execute(
        """INSERT INTO run (handle, generation, counter, due_ms, previous)
           SELECT (SELECT max(handle) FROM run) + 1, generation, counter, due_ms, previous FROM run WHERE handle = ?""",
        (handle,),
    )


def double_entry(db: apsw.Connection, random: Random) -> None:
    (k,) = pick(db, random, "SELECT k FROM due WHERE k >> 28 < (1 << 35) - 1")
    db.execute(
        """INSERT INTO due (k, counter, revision, cadence, lane, last_run)
           SELECT k + (1200 << 28), counter, revision, cadence, lane, last_run FROM due WHERE k = ?""",
        (k,),
    )


def turn_counter_back(db: apsw.Connection, random: Random) -> None:
    (k,) = pick(db, random, "SELECT k FROM due JOIN run ON run.handle = due.last_run WHERE due.counter > 1")
    db.execute("UPDATE due SET counter = counter - 1 WHERE k = ?", (k,))


def delete_outcome(db: apsw.Connection, random: Random) -> None:
    (handle,) = pick(db, random, _SETTLED)
    db.execute("DELETE FROM outcome WHERE handle = ?", (handle,))


def delete_run(db: apsw.Connection, random: Random) -> None:
    (handle,) = pick(db, random, _MIDDLE)
    db.execute("DELETE FROM outcome WHERE handle = ?", (handle,))
    db.execute("DELETE FROM run WHERE handle = ?", (handle,))


def delete_entry(db: apsw.Connection, random: Random) -> None:
    (k,) = pick(db, random, "SELECT k FROM due")
    db.execute("DELETE FROM due WHERE k = ?", (k,))


def delete_definition(db: apsw.Connection, random: Random) -> None:
    (generation,) = pick(
        db, random, "SELECT generation FROM monitor WHERE generation NOT IN (SELECT generation FROM change)"
    )
    db.execute("DELETE FROM monitor WHERE generation = ?", (generation,))


def forge_outcome(db: apsw.Connection, random: Random) -> None:
    """An outcome of a run that was never claimed."""
    (handle,) = pick(db, random, "SELECT handle FROM run JOIN monitor USING (generation) JOIN outcome USING (handle)")
    db.execute("DELETE FROM outcome WHERE handle = ?", (handle,))
    db.execute(
        """INSERT INTO outcome (handle, state, attempt, started_ms, ended_ms, reason, detail)
           SELECT handle, 'ok', 0, due_ms, due_ms, '', '{}' FROM run WHERE handle = ?""",
        (handle,),
    )


def forge_failure(db: apsw.Connection, random: Random) -> None:
    """A failure without a reason, where there was a success."""
    (handle,) = pick(
        db,
        random,
        "SELECT handle FROM outcome JOIN run USING (handle) JOIN monitor USING (generation) WHERE state = 'ok'",
    )
    db.execute("UPDATE outcome SET state = 'failed', reason = '' WHERE handle = ?", (handle,))


def forge_expiry(db: apsw.Connection, random: Random) -> None:
    """A run that was carried out soon after it was due is recorded as expired."""
    (handle,) = pick(
        db,
        random,
        """SELECT handle FROM outcome JOIN run USING (handle) JOIN monitor USING (generation)
                                    WHERE ended_ms - due_ms < 600000 AND attempt > 0""",
    )
    reason = "expired: nobody claimed it in time"
    db.execute("UPDATE outcome SET state = 'dead', reason = ? WHERE handle = ?", (reason, handle))


def open_again(db: apsw.Connection, random: Random) -> None:
    (handle,) = pick(db, random, _SETTLED)
    db.execute("INSERT INTO open (handle, lane, state, at_ms) VALUES (?, ?, 'held', 0)", (handle, handle >> 40))


def misremember_health(db: apsw.Connection, random: Random) -> None:
    """A monitor whose newest run went well is remembered as failing, or the other way round."""
    generation, state = pick(
        db,
        random,
        """SELECT generation, state FROM (SELECT run.generation, outcome.state, max(run.counter) AS newest
               FROM run JOIN outcome USING (handle) JOIN monitor USING (generation) WHERE attempt > 0 GROUP BY 1)
           LEFT JOIN uptime USING (generation)
           WHERE (state = 'ok' OR state = 'failed') AND newest >= coalesce(counter, 0)""",
    )
    db.execute("DELETE FROM health WHERE generation = ?", (generation,))
    if state == "ok":
        db.execute(
            """INSERT INTO health (generation, owner, name, failing, record)
               SELECT generation, owner, name, 1, '{"failing": true, "failures": 2}' FROM monitor
               WHERE generation = ?""",
            (generation,),
        )


def roll_up_too_far(db: apsw.Connection, random: Random) -> None:
    (generation,) = pick(db, random, "SELECT generation FROM uptime JOIN due ON due.k & 268435455 = uptime.generation")
    db.execute("UPDATE uptime SET counter = counter + 100000 WHERE generation = ?", (generation,))


_AGAIN = """SELECT outcome.handle FROM outcome JOIN run USING (handle) JOIN monitor USING (generation)
           WHERE outcome.attempt > 1 AND claimed_ms IS NOT NULL"""


def report_by_an_earlier_attempt(db: apsw.Connection, random: Random) -> None:
    """The outcome of a second attempt began before that attempt was claimed."""
    (handle,) = pick(db, random, _AGAIN)
    db.execute("UPDATE outcome SET claimed_ms = started_ms + 5000 WHERE handle = ?", (handle,))


def repeat_what_was_lost(db: apsw.Connection, random: Random) -> None:
    """A POST whose first attempt was cut short is said to have been made again."""
    (handle,) = pick(db, random, _AGAIN)
    db.execute("UPDATE outcome SET state = 'ok', lost = 1 WHERE handle = ?", (handle,))
    check = '{"kind": "http", "url": "http://example.org/", "method": "POST"}'
    db.execute(
        """UPDATE monitor SET updated_ms = 0, spec = json_set(spec, '$.check', json(?))
           WHERE generation = (SELECT generation FROM run WHERE handle = ?)""",
        (check, handle),
    )


def _edit(promises: str, act: Act) -> Edit:
    return Edit(act.__name__, frozenset(promises.split(", ")), act)


MONITOR_EDITS = (
    _edit("in order", swap_starts),
    _edit("in order", swap_outcomes),
    _edit("in order", start_early),
    _edit("in order", end_before_start),
    _edit("on the grid", move_due_time),
    _edit("in order", move_due_time_far),
    _edit("on the grid", move_due_time_off_raster),
    _edit("on the grid", shift_grid),
    _edit("once", double_firing),
    _edit("once", double_run),
    _edit("once", double_entry),
    _edit("once", turn_counter_back),
    _edit("nothing lost", delete_outcome),
    _edit("nothing lost", delete_run),
    _edit("nothing lost", delete_entry),
    _edit("nothing lost", delete_definition),
    _edit("once", forge_outcome),
    _edit("nothing lost", forge_failure),
    _edit("nothing lost", forge_expiry),
    _edit("once", open_again),
    _edit("nothing lost", misremember_health),
    _edit("once", roll_up_too_far),
    _edit("once", report_by_an_earlier_attempt),
    _edit("once", repeat_what_was_lost),
)
