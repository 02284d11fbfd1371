"""Edits of a store's rows behind its back, batches' part."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import apsw

from tests.steps.history.support.monitor_edits import Act, Edit, pick

_STARTED = """SELECT k FROM result WHERE started_ms IS NOT NULL AND attempt > 0"""
_PAIR = """SELECT a.k, b.k FROM result a JOIN result b ON b.k > a.k AND a.k >> 40 = b.k >> 40
           WHERE a.started_ms IS NOT NULL AND b.started_ms > a.ended_ms + 5000 AND a.attempt > 0 AND b.attempt > 0"""


def swap_calls_starts(db: apsw.Connection, random: Random) -> None:
    first, second = pick(db, random, _PAIR)
    times = dict(db.execute("SELECT k, started_ms FROM result WHERE k IN (?, ?)", (first, second)))
    db.execute("UPDATE result SET started_ms = ? WHERE k = ?", (times[second], first))
    db.execute("UPDATE result SET started_ms = ? WHERE k = ?", (times[first], second))


def start_call_early(db: apsw.Connection, random: Random) -> None:
    (k,) = pick(db, random, _STARTED)
    db.execute("UPDATE result SET started_ms = (k & ((1 << 40) - 1)) + 1767225600000 - 60000 WHERE k = ?", (k,))


def end_call_before_start(db: apsw.Connection, random: Random) -> None:
    (k,) = pick(db, random, _STARTED)
    db.execute("UPDATE result SET ended_ms = started_ms - 5000 WHERE k = ?", (k,))


def move_call(db: apsw.Connection, random: Random) -> None:
    """The run stands where the ledger does not have it."""
    (k,) = pick(db, random, "SELECT k FROM result")
    db.execute("UPDATE result SET k = k + 7 WHERE k = ?", (k,))


def move_call_to_another_provider(db: apsw.Connection, random: Random) -> None:
    (k,) = pick(db, random, "SELECT k FROM result")
    db.execute("UPDATE result SET k = k + (1 << 40) + 1 WHERE k = ?", (k,))


def double_call(db: apsw.Connection, random: Random) -> None:
    (k,) = pick(db, random, "SELECT k FROM result")
    db.execute(
        """INSERT INTO result (k, run, state, attempt, started_ms, ended_ms, reason)
           SELECT k + 11, run, state, attempt, started_ms, ended_ms, reason FROM result WHERE k = ?""",
        (k,),
    )


def let_call_wait_again(db: apsw.Connection, random: Random) -> None:
    """A run that is done is also in the queue."""
    (k,) = pick(db, random, "SELECT k FROM result WHERE state = 'done'")
    db.execute("INSERT INTO queue (k, run) SELECT k, run FROM result WHERE k = ?", (k,))


def delete_result(db: apsw.Connection, random: Random) -> None:
    (k,) = pick(db, random, "SELECT k FROM result")
    db.execute("DELETE FROM result WHERE k = ?", (k,))


def delete_call(db: apsw.Connection, random: Random) -> None:
    """The run is gone, and the ledger's line of it as well."""
    k, run = pick(db, random, "SELECT k, run FROM result JOIN planned USING (k, run)")
    db.execute("DELETE FROM result WHERE k = ?", (k,))
    db.execute("DELETE FROM planned WHERE run = ?", (run,))


def forge_done(db: apsw.Connection, random: Random) -> None:
    (k,) = pick(db, random, "SELECT k FROM result WHERE state = 'done' OR state = 'skipped'")
    db.execute("UPDATE result SET state = 'done', attempt = 0 WHERE k = ?", (k,))


def forge_failed(db: apsw.Connection, random: Random) -> None:
    (k,) = pick(db, random, "SELECT k FROM result WHERE state = 'done'")
    db.execute("UPDATE result SET state = 'failed', reason = '' WHERE k = ?", (k,))


def forge_dead_letter(db: apsw.Connection, random: Random) -> None:
    (k,) = pick(db, random, "SELECT k FROM result WHERE state = 'done'")
    db.execute("UPDATE result SET dead = 1 WHERE k = ?", (k,))


def swap_calls_in_backlog(db: apsw.Connection, random: Random) -> None:
    """Two late runs of a provider exchange their times: each still starts after it was due, and after its neighbour."""
    first, second = pick(
        db,
        random,
        """SELECT a.k, b.k FROM result a JOIN result b ON a.k < b.k AND a.k >> 40 = b.k >> 40
           WHERE a.run >> 31 = b.run >> 31 AND a.attempt = 1 AND b.attempt = 1 AND b.started_ms > a.ended_ms + 5000
             AND a.started_ms > (b.k & ((1 << 40) - 1)) + 1767225600000 + 5000""",
    )
    times = {
        k: rest
        for k, *rest in db.execute("SELECT k, started_ms, ended_ms FROM result WHERE k IN (?, ?)", (first, second))
    }
    db.execute("UPDATE result SET started_ms = ?, ended_ms = ? WHERE k = ?", (*times[second], first))
    db.execute("UPDATE result SET started_ms = ?, ended_ms = ? WHERE k = ?", (*times[first], second))


def crowd_calls(db: apsw.Connection, random: Random) -> None:
    """Four calls of a provider with one place last until the last of them began."""
    (provider,) = pick(db, random, "SELECT k >> 40 FROM result WHERE attempt > 0 GROUP BY 1 HAVING count(*) > 8")
    rows: list[Any] = db.execute(
        "SELECT k, started_ms FROM result WHERE k >> 40 = ? AND attempt > 0 ORDER BY started_ms LIMIT 4", (provider,)
    ).fetchall()
    db.executemany("UPDATE result SET ended_ms = ? WHERE k = ?", [(rows[-1][1] + 5_000, k) for k, _ in rows])


def bunch_calls(db: apsw.Connection, random: Random) -> None:
    """Five early runs of a provider exchange their slots with late ones of another: the grid stays whole."""
    (day,) = pick(db, random, "SELECT DISTINCT run >> 31 FROM planned")
    mask = (1 << 40) - 1
    rows: list[Any] = db.execute(
        "SELECT k FROM planned WHERE run >> 31 = ? ORDER BY k & ((1 << 40) - 1)", (day,)
    ).fetchall()
    counts = Counter(k >> 40 for (k,) in rows)
    (first, _), (second, _) = counts.most_common(2)
    early = [k for (k,) in rows if k >> 40 == second][:5]
    late = [k for (k,) in rows if k >> 40 == first][-5:]
    for mine, theirs in zip(early, late, strict=True):
        for old, new in ((mine, -1), (theirs, theirs & ~mask | mine & mask), (-1, mine & ~mask | theirs & mask)):
            for table in ("planned", "result"):
                db.execute(f"UPDATE {table} SET k = ? WHERE k = ?", (new, old))  # noqa: S608  two fixed names


def catch_up_at_once(db: apsw.Connection, random: Random) -> None:
    """All that a provider had to catch up starts within a second, one after the other."""
    del random
    rows: list[Any] = db.execute(
        """SELECT k, max(started_ms) OVER (PARTITION BY k >> 40, run >> 31) FROM result
           WHERE attempt = 1 AND started_ms > (k & ((1 << 40) - 1)) + 1767225600000 + 3600000
             AND k >> 40 = (SELECT k >> 40 FROM result GROUP BY 1 ORDER BY count(*) DESC LIMIT 1) ORDER BY k"""
    ).fetchall()
    assert len(rows) > 18, rows
    db.executemany(
        "UPDATE result SET started_ms = ?1, ended_ms = ?1 WHERE k = ?2",
        [(last_ms + position, k) for position, (k, last_ms) in enumerate(rows)],
    )


def lower_rate(db: apsw.Connection, random: Random) -> None:
    """The calls of a provider were much faster than the rate that it is said to have had."""
    (provider,) = pick(db, random, "SELECT k >> 40 FROM result GROUP BY 1 HAVING count(*) > 50")
    db.execute("UPDATE provider SET spec = json_set(spec, '$.rate', '1/1d') WHERE id = ?", (provider,))


def _edit(promise: str, act: Act) -> Edit:
    return Edit(act.__name__, frozenset({promise}), act)


BATCH_EDITS = (
    _edit("in order", swap_calls_starts),
    _edit("in order", start_call_early),
    _edit("in order", end_call_before_start),
    _edit("in order", swap_calls_in_backlog),
    _edit("in order", crowd_calls),
    _edit("evenly", bunch_calls),
    _edit("evenly", catch_up_at_once),
    _edit("evenly", lower_rate),
    _edit("once", move_call),
    _edit("once", move_call_to_another_provider),
    _edit("once", double_call),
    _edit("once", let_call_wait_again),
    _edit("nothing lost", delete_result),
    _edit("nothing lost", delete_call),
    _edit("once", forge_done),
    _edit("nothing lost", forge_failed),
    _edit("nothing lost", forge_dead_letter),
)
